"""What must be seen before one can say what a rule comes to: rows that are looked at, and rows that are counted.

One idea: a rule is put together from single tests by `and`, `or`, `not`, and a few of them may settle it: one broken half of an `and`, one
fulfilled half of an `or`. Every set of tests that is enough is one way to see it, and nobody is asked for more than one of them: the plan
goes one of the shortest, the evidence is what every way leaves. Only rules have to be looked at: what an action needs besides, its tool
says itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, product
from typing import Any

from storage.records import Fact
from synth.worlds.base import Unsolvable
from synth.worlds.declarative.domain import Act, Domain, Entity, Field, is_searched, listing_for
from synth.worlds.declarative.intents.base import Work, count_fact, misfit, outside, piece, row_fact
from synth.worlds.declarative.language.expression_types import Part
from synth.worlds.declarative.state import Row, State, shown_value
from synth.worlds.declarative.tools import LIST_LIMIT, found_key, list_name, listed_key, search_name, value_of

Way = tuple[Part, ...]
"""Single tests that together settle a rule."""
_WAYS, _PLANS = 4, 64
"""Ways to see one rule that plans are made of, those of the fewest tests first; and plans to see all rules of an act."""
Clause = tuple[str, ...]
"""Pieces that tools write, one of which was shown to whoever knows."""
_CLAUSES = 16
"""Clauses that an `or` leaves at most, the shortest first: without the others nobody fails who knows."""


@dataclass(frozen=True, slots=True)
class Look:
    """A row that must be seen. path: from a parameter along references. fields: what is read there."""

    path: tuple[str, ...]
    entity: Entity
    fields: tuple[Field, ...]

    @property
    def needs_all(self) -> bool:
        """Whether lists do not show enough of it."""
        return any(each.spec.detail for each in self.fields)


@dataclass(frozen=True, slots=True)
class Tally:
    """Rows that must be seen, for they are counted.

    filters: what they are counted by, and how its value is worked out. owner: whose list shows them, if one does. is_searched: whether a
    search tells how many there are. after: paths of rows that show what is filtered by.
    """

    entity: Entity
    filters: tuple[tuple[Field, Any], ...]
    owner: Field | None
    is_searched: bool
    after: tuple[tuple[str, ...], ...]

    @property
    def tool(self) -> str:
        if self.is_searched or self.owner is None:
            return search_name(self.entity)
        return list_name(self.entity, self.owner)


@dataclass(frozen=True, slots=True)
class Sight:
    """What some tests look at, nearer rows first."""

    looks: tuple[Look, ...]
    tallies: tuple[Tally, ...]


def ways(part: Part, state: State, values: Mapping[str, Any]) -> list[Way]:
    """A few ways to see what a condition comes to with these values; the empty one where the request says it all."""
    if not part.joint:
        return [(part,) if part.reads or part.counts else ()]
    if part.joint == "not":
        return ways(part.parts[0], state, values)
    settling = part.joint == "or"
    if bool(part.run(state, values)) == settling:
        deciding = (each for each in part.parts if bool(each.run(state, values)) == settling)
        return _shortest(way for each in deciding for way in ways(each, state, values))
    combined: list[Way] = [()]
    for each in part.parts:
        combined = _shortest(way + more for way in combined for more in ways(each, state, values))
    return combined


def _shortest(candidates: Iterable[Way]) -> list[Way]:
    return sorted(candidates, key=len)[:_WAYS]


def sight_of(domain: Domain, act: Act, tests: Iterable[Part]) -> Sight:
    """What these tests of the act look at; a reference along the way must be seen as well."""
    parts = tuple(tests)
    sight: Sight | None = act.sights.get(parts)
    if sight is None:
        sight = act.sights[parts] = _sight(domain, act, parts)
    return sight


def _sight(domain: Domain, act: Act, tests: Sequence[Part]) -> Sight:
    needed: dict[tuple[str, ...], dict[str, Field]] = {}
    tallies = []
    for test in tests:
        for read in test.reads:
            for depth, step in enumerate((*read.path[1:], read.field), start=1):
                path = read.path[:depth]
                needed.setdefault(path, {})[step] = entity_at(domain, act, path).fields[step]
        for count in test.counts:
            entity = domain.entities[count.entity]
            filters = tuple((entity.fields[name], run) for name, run in count.filters)
            after = tuple(dict.fromkeys(read.path for read in count.reads))
            fields = [each for each, _ in filters]
            tallies.append(Tally(entity, filters, listing_for(entity, fields), is_searched(entity, fields), after))
    looks = (Look(path, entity_at(domain, act, path), tuple(needed[path].values())) for path in sorted(needed, key=len))
    return Sight(tuple(looks), tuple(tallies))


def entity_at(domain: Domain, act: Act, path: tuple[str, ...]) -> Entity:
    entity = domain.entities[act.params[path[0]].type.entity]
    for name in path[1:]:
        entity = domain.entities[entity.fields[name].type.entity]
    return entity


def row_at(domain: Domain, act: Act, state: State, values: Mapping[str, Any], path: tuple[str, ...]) -> tuple[str, Row]:
    """Id and row at the end of a path."""
    key = values[path[0]]
    entity = domain.entities[act.params[path[0]].type.entity]
    row = state.row(entity.number, key)
    for name in path[1:]:
        reference = entity.fields[name]
        key, entity = value_of(state, row, reference), domain.entities[reference.type.entity]
        row = state.row(entity.number, key)
    return key, row


# ---- in a plan --------------------------------------------------------------------------------------------------------------------


def look(work: Work, act: Act, conditions: Sequence[Part], values: Mapping[str, Any]) -> Work:
    """The plan with the fewest more calls that show what the conditions come to, and the evidence that any sufficient ones leave.

    Raises:
        Unsolvable: no list shows all that is counted, and no search tells.
    """
    options = [ways(each, work.state, values) for each in conditions]
    tests = (dict.fromkeys(test for way in combination for test in way) for combination in islice(product(*options), _PLANS))
    plans: list[Work] = []
    for each in tests:
        with suppress(Unsolvable):
            plans.append(_observe(work, sight_of(work.domain, act, each), act, values))
    if not plans:
        raise misfit(f"a list shows only {LIST_LIMIT} of the rows that a rule counts, and no search tells")
    best = min(plans, key=lambda plan: len(plan.calls))
    clauses = _least(clause for each in conditions for clause in _clauses(work, act, each, values))
    best.evidence += [Fact(kind="word", value=first, alternatives=tuple(others)) for first, *others in clauses]
    return best


def _clauses(work: Work, act: Act, part: Part, values: Mapping[str, Any]) -> list[Clause]:
    """Evidence that any way to see what a condition comes to leaves; none where the request says it all."""
    if not part.joint:
        return [(each.value, *each.alternatives) for each in _facts(work, sight_of(work.domain, act, (part,)), act, values)]
    settling = part.joint == "or"
    deciding = [each for each in part.parts if part.joint != "not" and bool(each.run(work.state, values)) == settling]
    if not deciding:
        return _least(clause for each in part.parts for clause in _clauses(work, act, each, values))
    clauses: list[Clause] = [()]
    for each in deciding:
        more = _clauses(work, act, each, values)
        clauses = _least(tuple(dict.fromkeys(one + other)) for one in clauses for other in more)[:_CLAUSES]
    return clauses


def _least(clauses: Iterable[Clause]) -> list[Clause]:
    """Those that do not follow from another one, the shortest first."""
    minimal: list[Clause] = []
    for clause in sorted(clauses, key=len):
        if not any(set(each) <= set(clause) for each in minimal):
            minimal.append(clause)
    return minimal


def _observe(work: Work, sight: Sight, act: Act, values: Mapping[str, Any]) -> Work:
    """A copy of the plan with calls that show the rows."""
    after = Work(work.domain, work.state, [*work.calls], [*work.evidence], {**work.shown}, {*work.listed})
    for each in sight.looks:
        key, _ = row_at(work.domain, act, work.state, values, each.path)
        after.show(each.entity, key, needs_all=each.needs_all)
    for tally in sight.tallies:
        _count(after, tally, _tally_filters(tally, work.state, values))
    return after


def _tally_filters(tally: Tally, state: State, values: Mapping[str, Any]) -> list[tuple[Field, Any]]:
    return [(each, run(state, values)) for each, run in tally.filters]


def _listed_count(work: Work, tally: Tally, equal: list[tuple[Field, Any]]) -> int | None:
    """How many rows the owner has whose list shows all that is counted; None where there is none."""
    if tally.owner is None:
        return None
    count = len(work.state.select(tally.entity.number, [(tally.owner.place, dict(equal)[tally.owner])]))
    return count if count <= LIST_LIMIT or len(equal) == 1 else None


def _count(work: Work, tally: Tally, equal: list[tuple[Field, Any]]) -> None:
    """The counted rows are seen: by their number, or among all of an owner's, whichever has been asked for."""
    entity, owner = tally.entity, tally.owner
    if owner is not None and _listed_count(work, tally, equal) is not None:
        whose = dict(equal)[owner]
        if (list_name(entity, owner), whose) in work.listed or not tally.is_searched:
            work.call(list_name(entity, owner), **{owner.name: whose})
            return
    if not tally.is_searched:
        raise misfit("a list does not show all that is counted")
    work.call(search_name(entity), **{each.name: outside(work.domain, each.type.kind, value) for each, value in equal})


def _facts(work: Work, sight: Sight, act: Act, values: Mapping[str, Any]) -> list[Fact]:
    """The evidence of having seen this."""
    domain, state, facts = work.domain, work.state, list[Fact]()
    for each in sight.looks:
        key, row = row_at(domain, act, state, values, each.path)
        facts += [row_fact(key), *(piece(field.name, shown_value(domain, field, value_of(state, row, field))) for field in each.fields)]
    for tally in sight.tallies:
        entity, equal = tally.entity, _tally_filters(tally, state, values)
        listed = _listed_count(work, tally, equal)
        number = len(state.select(entity.number, [(each.place, value) for each, value in equal]))
        facts.append(count_fact(piece(found_key(entity), number), None if listed is None else piece(listed_key(entity), listed)))
    return facts

"""The rows that must be observed before a rule can be judged: rows that it reads, and rows that it counts.

One idea: a rule is built from single tests by `and`, `or` and `not`, and a few of them may decide it: one false part of an `and`, one true
part of an `or`. A plan observes one of the smallest sets of tests that decide; the evidence is what every such set leaves behind, so any of
them passes. Only rules need observations: what else an action needs, its tool reports.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, product
from typing import Any

from storage.records import Fact
from synth.worlds.base import Unsolvable, misfit
from synth.worlds.declarative.domain import Act, Domain, Entity, Field, Row, is_searched, json_value, listing_owner
from synth.worlds.declarative.intents.base import PlanDraft, field_fact, row_fact
from synth.worlds.declarative.language.expression_types import Part
from synth.worlds.declarative.rows.state import State, shown_value
from synth.worlds.declarative.tools import LIST_LIMIT, list_count_key, list_name, search_count_key, search_name, value_of

TestSet = tuple[Part, ...]
"""Single tests that together decide a rule."""
_TEST_SETS, _PLANS = 4, 64
"""Test sets of one rule that plans are made of, the smallest first; plans that are compared for all rules of an action."""
Clause = tuple[str, ...]
"""Texts of observations. A policy that knows enough has seen at least one of them."""
_CLAUSES = 16
"""Clauses that are kept of an `or`, the shortest first; a policy that knows enough fulfils the others too."""


@dataclass(frozen=True, slots=True)
class RowRead:
    """A row that tests read. path: from a parameter along references. fields: what they read there."""

    path: tuple[str, ...]
    entity: Entity
    fields: tuple[Field, ...]

    @property
    def needs_all(self) -> bool:
        """Whether lists show too little of the row."""
        return any(each.spec.detail for each in self.fields)


@dataclass(frozen=True, slots=True)
class RowCount:
    """Rows that a test counts.

    filters: (field, function that computes its value).
    owner: the owner whose list shows the rows; None if there is none.
    is_searched: whether a search returns their number.
    source_paths: paths of the rows that contain the values of the filters.
    """

    entity: Entity
    filters: tuple[tuple[Field, Any], ...]
    owner: Field | None
    is_searched: bool
    source_paths: tuple[tuple[str, ...], ...]

    @property
    def tool(self) -> str:
        if self.is_searched or self.owner is None:
            return search_name(self.entity)
        return list_name(self.entity, self.owner)

    def filter_values(self, state: State, values: Mapping[str, Any]) -> list[tuple[Field, Any]]:
        return [(field, run(state, values)) for field, run in self.filters]


@dataclass(frozen=True, slots=True)
class RequiredRows:
    """The rows that some tests use. reads: those with short paths first."""

    reads: tuple[RowRead, ...]
    counts: tuple[RowCount, ...]


def deciding_tests(part: Part, state: State, values: Mapping[str, Any]) -> list[TestSet]:
    """A few test sets that decide a condition with these values; the empty set if the request alone decides it."""
    if not part.joint:
        return [(part,) if part.reads or part.counts else ()]
    if part.joint == "not":
        return deciding_tests(part.parts[0], state, values)
    deciding_value = part.joint == "or"
    if bool(part.run(state, values)) == deciding_value:
        deciding = (each for each in part.parts if bool(each.run(state, values)) == deciding_value)
        return _smallest(tests for each in deciding for tests in deciding_tests(each, state, values))
    combined: list[TestSet] = [()]
    for each in part.parts:
        combined = _smallest(tests + more for tests in combined for more in deciding_tests(each, state, values))
    return combined


def _smallest(test_sets: Iterable[TestSet]) -> list[TestSet]:
    return sorted(test_sets, key=len)[:_TEST_SETS]


def required_rows(domain: Domain, act: Act, tests: Iterable[Part]) -> RequiredRows:
    """The rows that tests of an action use, with the rows on the paths to them."""
    parts = tuple(tests)
    rows: RequiredRows | None = act.required_rows.get(parts)
    if rows is None:
        rows = act.required_rows[parts] = _required_rows(domain, act, parts)
    return rows


def _required_rows(domain: Domain, act: Act, tests: Sequence[Part]) -> RequiredRows:
    fields_by_path: dict[tuple[str, ...], dict[str, Field]] = {}
    counts = []
    for test in tests:
        for read in test.reads:
            for depth, step in enumerate((*read.path[1:], read.field), start=1):
                path = read.path[:depth]
                fields_by_path.setdefault(path, {})[step] = _entity_at(domain, act, path).fields[step]
        for count in test.counts:
            entity = domain.entities[count.entity]
            filters = tuple((entity.fields[name], run) for name, run in count.filters)
            source_paths = tuple(dict.fromkeys(read.path for read in count.reads))
            fields = [field for field, _ in filters]
            counts.append(RowCount(entity, filters, listing_owner(entity, fields), is_searched(entity, fields), source_paths))
    paths = sorted(fields_by_path, key=len)
    return RequiredRows(
        tuple(RowRead(path, _entity_at(domain, act, path), tuple(fields_by_path[path].values())) for path in paths), tuple(counts)
    )


def _entity_at(domain: Domain, act: Act, path: tuple[str, ...]) -> Entity:
    entity = domain.entities[act.params[path[0]].type.entity]
    for name in path[1:]:
        entity = domain.entities[entity.fields[name].type.entity]
    return entity


def _row_at(draft: PlanDraft, act: Act, values: Mapping[str, Any], path: tuple[str, ...]) -> tuple[str, Row]:
    """Id and row at the end of a path."""
    entity, key = _entity_at(draft.domain, act, path[:1]), values[path[0]]
    row = draft.state.row(entity.number, key)
    for name in path[1:]:
        reference = entity.fields[name]
        key, entity = value_of(draft.state, row, reference), draft.domain.entities[reference.type.entity]
        row = draft.state.row(entity.number, key)
    return key, row


# ---- in a plan ----------------------------------------------------------------------------------------------------------------------


def observe_conditions(draft: PlanDraft, act: Act, conditions: Sequence[Part], values: Mapping[str, Any]) -> PlanDraft:
    """The draft with the fewest more calls that decide the conditions, and the evidence that every deciding test set leaves.

    Raises:
        Unsolvable: a test counts rows that no list shows completely and no search counts.
    """
    options = [deciding_tests(each, draft.state, values) for each in conditions]
    test_sets = (dict.fromkeys(test for tests in combination for test in tests) for combination in islice(product(*options), _PLANS))
    plans: list[PlanDraft] = []
    for tests in test_sets:
        with suppress(Unsolvable):
            plans.append(_observe(draft, required_rows(draft.domain, act, tests), act, values))
    if not plans:
        raise misfit(f"a list shows only {LIST_LIMIT} of the rows that a rule counts, and no search tells")
    best = min(plans, key=lambda plan: len(plan.calls))
    clauses = _minimal(clause for each in conditions for clause in _clauses(draft, act, each, values))
    best.evidence += [Fact(kind="word", value=first, alternatives=tuple(others)) for first, *others in clauses]
    return best


def _clauses(draft: PlanDraft, act: Act, part: Part, values: Mapping[str, Any]) -> list[Clause]:
    """The evidence that every test set which decides a condition leaves; none if the request alone decides it."""
    if not part.joint:
        return [(each.value, *each.alternatives) for each in _facts(draft, required_rows(draft.domain, act, (part,)), act, values)]
    deciding_value = part.joint == "or"
    deciding = [each for each in part.parts if part.joint != "not" and bool(each.run(draft.state, values)) == deciding_value]
    if not deciding:
        return _minimal(clause for each in part.parts for clause in _clauses(draft, act, each, values))
    clauses: list[Clause] = [()]
    for each in deciding:
        more = _clauses(draft, act, each, values)
        clauses = _minimal(tuple(dict.fromkeys(one + other)) for one in clauses for other in more)[:_CLAUSES]
    return clauses


def _minimal(clauses: Iterable[Clause]) -> list[Clause]:
    """The clauses that do not follow from another one, the shortest first."""
    minimal: list[Clause] = []
    for clause in sorted(clauses, key=len):
        if not any(set(each) <= set(clause) for each in minimal):
            minimal.append(clause)
    return minimal


def _observe(draft: PlanDraft, rows: RequiredRows, act: Act, values: Mapping[str, Any]) -> PlanDraft:
    """A copy of the draft with calls that show the rows."""
    copy = draft.copy()
    for read in rows.reads:
        copy.get_row(read.entity, _row_at(draft, act, values, read.path)[0], needs_all=read.needs_all)
    for count in rows.counts:
        _add_count(copy, count, count.filter_values(draft.state, values))
    return copy


def _listed_count(draft: PlanDraft, count: RowCount, filters: list[tuple[Field, Any]]) -> int | None:
    """The number of rows of the owner whose list shows all counted rows; None if there is no such list."""
    if count.owner is None:
        return None
    listed = len(draft.state.select(count.entity.number, [(count.owner.place, dict(filters)[count.owner])]))
    return listed if listed <= LIST_LIMIT or len(filters) == 1 else None


def _add_count(draft: PlanDraft, count: RowCount, filters: list[tuple[Field, Any]]) -> None:
    """Adds a call that shows the counted rows or their number: the owner's list if the plan has it or there is no search."""
    entity, owner = count.entity, count.owner
    if owner is not None and _listed_count(draft, count, filters) is not None:
        tool, owner_id = list_name(entity, owner), dict(filters)[owner]
        if (tool, owner_id) in draft.listed or not count.is_searched:
            draft.add_call(tool, **{owner.name: owner_id})
            return
    if not count.is_searched:
        raise misfit("a list does not show all that is counted")
    draft.add_call(search_name(entity), **{field.name: json_value(draft.domain, field.type.kind, value) for field, value in filters})


def _facts(draft: PlanDraft, rows: RequiredRows, act: Act, values: Mapping[str, Any]) -> list[Fact]:
    """The evidence that the rows were observed."""
    domain, state, facts = draft.domain, draft.state, list[Fact]()
    for read in rows.reads:
        key, row = _row_at(draft, act, values, read.path)
        fields = (field_fact(field.name, shown_value(domain, field, value_of(state, row, field))) for field in read.fields)
        facts += [row_fact(key), *fields]
    for count in rows.counts:
        filters = count.filter_values(state, values)
        number = len(state.select(count.entity.number, [(field.place, value) for field, value in filters]))
        listed = _listed_count(draft, count, filters)
        counted = field_fact(search_count_key(count.entity), number)
        if listed is not None:
            in_list = field_fact(list_count_key(count.entity), listed)
            counted = counted.model_copy(update={"alternatives": (*counted.alternatives, in_list.value, *in_list.alternatives)})
        facts.append(counted)
    return facts

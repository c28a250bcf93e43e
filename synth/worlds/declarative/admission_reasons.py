"""Why an action can never be done, or why a rule of it forbids nothing: with the counts of a fresh world, and which number to change.

One idea: every condition of the action is tried alone, on the rows and values that it depends on. The first one that is never as it must be
is the reason; if there is none, the first two that are never so together. Only a sample is tried where there are many combinations.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from synth.worlds.declarative.acting import defaults_of
from synth.worlds.declarative.domain import Act, Domain, Entity, Field, Param
from synth.worlds.declarative.intents.base import usual_values
from synth.worlds.declarative.language import schema
from synth.worlds.declarative.language.expression_types import Compiled, Count, Read
from synth.worlds.declarative.language.values import clock_steps
from synth.worlds.declarative.rows.state import State, shown_value
from synth.worlds.declarative.tools import value_of

_COMBINATIONS = 4000
"""Combinations of rows and values that are tried for one condition, or for two together."""
_BOUND = re.compile(r"count\([^()]*\) *(<=?) *(\d+)")
_LIMIT = re.compile(r"[\w.]+ *([<>]=?) *(\d+)")
_RANGED = (schema.IntegerField, schema.NumberField, schema.MoneyField)
Values = Mapping[str, Any]


@dataclass(frozen=True)
class _Demand:
    """A condition and what it must be. place: below the action in the file. text: as it stands in the file."""

    place: str
    text: str
    tests: tuple[Compiled, ...]
    holds: Callable[[State, Values], bool]
    is_broken: bool = False

    @property
    def names(self) -> frozenset[str]:
        return frozenset().union(*(test.names for test in self.tests))


def explain(domain: Domain, act: Act, state: State, against: str = "") -> str:
    """Why no rows and values suit an action, in a few words with counts and a remedy.

    against: the rule that must forbid the action while all else fits; empty if nothing must be in the way.
    """
    demands = _demands(act, against)
    for demand in demands:
        tried = list(_combinations(domain, act, demand.names))
        if not any(_is_met(demand, state, values) for values in tried):
            return _explain_one(domain, act, state, demand, tried)
    for first, second in itertools.combinations(demands, 2):
        tried = list(_combinations(domain, act, first.names | second.names))
        met = [values for values in tried if _is_met(first, state, values)]
        if not any(_is_met(second, state, values) for values in met):
            whose = f"{len(met):,} of {_subject(domain, act, first.names | second.names, len(tried))}"
            return (
                f"{_claim(first)} for {whose}, and {_claim(second)} for none of these; "
                "let some rows differ, e.g. by other `weights`, a wider range or more `rows`"
            )
    return "hardly any row fits all of its conditions together; let more rows fit, e.g. by other `weights` or more `rows`"


def _demands(act: Act, against: str) -> list[_Demand]:
    """The conditions of an action, the rule that must fail first."""
    demands, needs = [], 0
    for condition in act.conditions:
        place = f"rules.{condition.name}" if condition.rule is not None else f"needs[{needs}]"
        needs += condition.rule is None
        test, is_broken = condition.test, bool(against) and condition.name == against
        holds: Callable[[State, Values], bool] = _fails(test) if is_broken else test.run
        demands.append(_Demand(place, test.text, (test,), holds, is_broken))
    for at, transfer in enumerate(act.transfers):
        row, entity, column, name = transfer.source
        amount = transfer.amount

        def covers(state: State, values: Values, row: Any = row, entity: int = entity, column: int = column, amount: Any = amount) -> bool:
            return bool(0 <= amount.run(state, values) <= state.row(entity, row.run(state, values))[column])

        demands.append(_Demand(f"moves[{at}]", f"{row.text}.{name} >= {amount.text}", (row, amount), covers))
    return sorted(demands, key=lambda demand: not demand.is_broken)


def _fails(test: Compiled) -> Callable[[State, Values], bool]:
    return lambda state, values: not test.run(state, values)


def _is_met(demand: _Demand, state: State, values: Values) -> bool:
    try:
        return bool(demand.holds(state, values))
    except (OverflowError, ValueError):
        return False


def _combinations(domain: Domain, act: Act, names: frozenset[str]) -> Iterator[Values]:
    """Values of these parameters: all combinations, or a sample of them."""
    params = [param for param in act.params.values() if param.name in names]
    choices = [_choices(domain, param) for param in params]
    size = 1
    for each in choices:
        size *= len(each)
    rng = random.Random(f"combinations/{act.name}")
    every = itertools.product(*choices) if size <= _COMBINATIONS else (tuple(map(rng.choice, choices)) for _ in range(_COMBINATIONS))
    defaults = defaults_of(act)
    for values in every:
        yield defaults | {param.name: value for param, value in zip(params, values, strict=True)}


def _choices(domain: Domain, param: Param) -> Sequence[Any]:
    spec = param.spec
    if isinstance(spec, schema.RefParam):
        return domain.entities[spec.to].ids
    if isinstance(spec, (schema.ChoiceParam, schema.NameParam)):
        return tuple(param.words)
    if isinstance(spec, schema.FlagParam):
        return (True, False)
    if isinstance(spec, schema.DateParam):
        return range(spec.first, spec.last + 1)
    if isinstance(spec, schema.TimeParam):
        return clock_steps(spec.first, spec.last, spec.step)
    return usual_values(spec)


# ---- words ------------------------------------------------------------------------------------------------------------------------


def _claim(demand: _Demand) -> str:
    return f"{_quoted(demand)} is {'false' if demand.is_broken else 'true'}"


def _quoted(demand: _Demand) -> str:
    """The condition as the file has it; the rule that the message is about needs no place."""
    return f"`{demand.text}`" if demand.is_broken else f"`{demand.text}` ({demand.place})"


def _subject(domain: Domain, act: Act, names: frozenset[str], count: int) -> str:
    """What was tried: `90 pets`, or `4,000 combinations of pet and vet`."""
    rows = [act.params[name] for name in act.params if name in names and act.params[name].type.kind == "ref"]
    if len(rows) == 1 and count == len(domain.entities[rows[0].type.entity].ids):
        return f"{count:,} {domain.entities[rows[0].type.entity].plural}"
    tried = "combinations tried" if count == _COMBINATIONS else "combinations"
    return f"{count:,} {tried} of {' and '.join(name for name in act.params if name in names)}"


def _explain_one(domain: Domain, act: Act, state: State, demand: _Demand, tried: Sequence[Values]) -> str:
    """Why a condition alone is never as it must be."""
    is_usual = "true" if demand.is_broken else "false"
    start = f"{_quoted(demand)} is {is_usual} for all {_subject(domain, act, demand.names, len(tried))}"
    counts = [count for test in demand.tests for count in test.counts]
    if counts:
        return f"{start}: {_explain_count(domain, state, demand, counts[0], tried)}"
    facts, ranges, fields = [], [], []
    for read in dict.fromkeys(read for test in demand.tests for read in test.reads):
        entity, field = _field_of(domain, act, read)
        if field is None or field.type.kind == "ref":
            continue
        values = {value_of(state, state.row(entity.number, key), field) for key in _rows_of(domain, act, state, read, tried)}
        facts.append(f"{'.'.join((*read.path, read.field))} is {_spread(domain, field, values)}")
        path = f"entities.{entity.name}.fields.{field.name}"
        fields.append(f"`{path}`")
        ranges += _range_remedy(path, field, demand)
    known = f" ({', '.join(facts)})" if facts else ""
    remedies = ranges or ([f"give {' or '.join(fields)} other values"] if fields else [])
    return f"{start}{known}; {', or '.join([*remedies, 'change the condition'])}"


def _range_remedy(path: str, field: Field, demand: _Demand) -> list[str]:
    """The number that the range of a field must reach, where a condition compares it with a number; else empty."""
    limit = _LIMIT.fullmatch(demand.text)
    if limit is None or not isinstance(field.spec, _RANGED) or field.spec.starts or field.spec.derived:
        return []
    sign, number = limit[1], int(limit[2])
    is_above = (sign[0] == "<") == demand.is_broken  # a value above the number is needed, or the number itself
    is_number_enough = (sign in ("<", ">")) == demand.is_broken
    reached = number if is_number_enough else number + (1 if is_above else -1)
    return [f"raise `{path}.max` to {reached} or more" if is_above else f"lower `{path}.min` to {reached} or less"]


def _explain_count(domain: Domain, state: State, demand: _Demand, count: Count, tried: Sequence[Values]) -> str:
    """Why a number of rows is never as it must be: how many rows there are, and of how many owners."""
    counted = domain.entities[count.entity]
    places = tuple(counted.fields[name].place for name, _ in count.filters)
    numbers = [state.count(counted.number, places, tuple(value(state, values) for _, value in count.filters)) for values in tried]
    by = next((counted.fields[name] for name, _ in count.filters if counted.fields[name].type.kind == "ref"), None)
    if by is None:
        return f"there are {min(numbers)} to {max(numbers)} such {counted.plural}; change `entities.{counted.name}.rows`, or the number"
    owner = domain.entities[by.type.entity]
    rows, owners = len(counted.ids), len(owner.ids)
    bound = _BOUND.search(demand.text)
    wanted = int(bound[2]) + (bound[1] == "<=") if bound is not None and demand.is_broken else max(numbers) + 1
    enough = (wanted - 1) * owners + 1
    others = " and ".join(name for name, _ in count.filters if name != by.name)
    such = f" with this {others}" if others else ""
    why = f"{rows} {counted.plural} for {owners} {owner.plural}, so no {owner.noun.en} has {wanted}{such} (the most is {max(numbers)})"
    if rows < enough:
        return (
            f"{why}; set `entities.{counted.name}.rows` to {enough} or more, or `entities.{owner.name}.rows` "
            f"to {max(2, (rows - 1) // max(1, wanted - 1))} or fewer, or lower the number in the condition"
        )
    return f"{why}; let more of the {counted.plural} count (`weights`), raise `entities.{counted.name}.rows`, or lower the number"


def _field_of(domain: Domain, act: Act, read: Read) -> tuple[Entity, Field | None]:
    """The entity and the field that an expression reads."""
    entity = domain.entities[act.params[read.path[0]].type.entity]
    for name in read.path[1:]:
        entity = domain.entities[entity.fields[name].type.entity]
    return entity, entity.fields.get(read.field)


def _rows_of(domain: Domain, act: Act, state: State, read: Read, tried: Sequence[Values]) -> set[str]:
    """The ids of the rows that an expression reads, over all that was tried."""
    keys = {values[read.path[0]] for values in tried}
    entity = domain.entities[act.params[read.path[0]].type.entity]
    for name in read.path[1:]:
        field = entity.fields[name]
        keys = {value_of(state, state.row(entity.number, key), field) for key in keys}
        entity = domain.entities[field.type.entity]
    return keys


def _spread(domain: Domain, field: Field, values: set[Any]) -> str:
    """The values that occur: `0 to 3`, or `out, returned`."""
    if not values:
        return "nothing"
    if field.type.kind in ("choice", "name", "flag"):
        names = sorted(str(value).lower() if isinstance(value, bool) else str(value) for value in values)
        return f"always {names[0]}" if len(names) == 1 else ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
    low, high = (shown_value(domain, field, value) for value in (min(values), max(values)))
    return f"always {low}" if low == high else f"{low} to {high}"

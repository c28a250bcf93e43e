"""Questions that take arithmetic over many rows: what an owner's rows add up to, come to on average, or have in the middle.

One idea: the plan lists the rows and ends with a snippet for `run_python`; what it gives is in no other observation, so nobody can tell
the answer without having computed it. Only worlds that offer the code tool have these jobs (`code.py`).
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping, Sequence

from storage.records import JSON, Call, Fact, Language
from synth.reading import is_near, numbers_in
from synth.worlds.base import Shape, Slot, SlotKind, Solution
from synth.worlds.spec import schema
from synth.worlds.spec.domain import Domain, Entity, Field
from synth.worlds.spec.intents.base import Slots, SpecIntent, Work, misfit, piece, say, told, words_kind
from synth.worlds.spec.intents.finders import Finder
from synth.worlds.spec.schema import Words
from synth.worlds.spec.state import Row, State
from synth.worlds.spec.tools import LIST_LIMIT, list_name, listed_key, value_of
from synth.worlds.spec.wording import questions

RUN_PYTHON = "run_python"
MIN_ROWS, MIN_RANGE = 3, 100
"""Rows that make it worth computing; how far a field's numbers reach at least (small ones turn up in dates and counts)."""

Operation = Callable[[Sequence[float]], float]
OPERATIONS: Mapping[str, tuple[Words, Operation, str]] = {
    "total": (Words(en="total", zh="总和"), lambda values: round(sum(values), 1), "round(sum(values), 1)"),
    "average": (
        Words(en="average", zh="平均值"),
        lambda values: round(sum(values) / len(values), 1),
        "round(sum(values) / len(values), 1)",
    ),
    "median": (
        Words(en="median", zh="中位数"),
        lambda values: float(statistics.median(values)),
        "import statistics\nstatistics.median(values)",
    ),
}


def computable(entity: Entity) -> list[Field]:
    """Fields whose numbers are worth computing with."""
    kinds = (schema.MoneyField, schema.IntegerField, schema.NumberField)
    return [each for each in entity.fields.values() if isinstance(each.spec, kinds) and not each.spec.detail and each.spec.max >= MIN_RANGE]


class Computing(SpecIntent):
    """What is the total amount of my loans? finder: of the owner."""

    def __init__(self, domain: Domain, name: str, entity: Entity, owner: Field, finder: Finder) -> None:
        self.entity, self.owner, self.finder = entity, owner, finder
        self.aspects = {each.name: each for each in computable(entity)}
        aspect, aspects = words_kind(f"{name}.aspect", {each.name: each.label for each in self.aspects.values()})
        operation, operations = words_kind("operation", {key: words for key, (words, _, _) in OPERATIONS.items()})
        slots: list[tuple[Slot, SlotKind]] = [
            *finder.slots,
            (Slot("aspect", aspect), aspects),
            (Slot("operation", operation), operations),
        ]
        super().__init__(domain, name, entity.spec.group or entity.name, slots)
        rules = [rule.words.en for action in domain.spec.actions.values() for rule in action.rules.values()]
        self.said = tuple(number.value for text in (domain.iso(0), *rules) for number in numbers_in(text))
        """Numbers that everybody knows: they stand in the system prompt."""

    def _is_told(self, rows: Sequence[tuple[str, Row]], result: float) -> bool:
        """Whether a number that the rows show (of a date, its year) or everybody knows could pass for the result."""
        shown: list[float] = [len(rows), *self.said]
        for each in self.entity.stored:
            if each.type.kind == "date":
                shown += [int(self.of.iso(row[each.place])[:4]) for _, row in rows]
            elif each.type.is_number:
                shown += [row[each.place] for _, row in rows]
        return any(is_near(result, number) for number in shown)

    def shape(self, slot_names: frozenset[str]) -> Shape:
        steps = [(step.tool, step.parents) for step in self.finder.steps]
        steps.append((list_name(self.entity, self.owner), (len(steps) - 1,) if steps else ()))
        return Shape((*self.shaped(steps).calls, (RUN_PYTHON, (len(steps) - 1,))))

    def plan(self, state: State, slots: Slots, language: Language) -> Solution:
        work = Work(self.of, state)
        owner = self.finder.find(work, slots)
        rows = state.select(self.entity.number, ((self.owner.place, owner),))
        aspect, (words, operate, code) = self.aspects[slots["aspect"]], OPERATIONS[slots["operation"]]
        values = [value_of(state, row, aspect) for _, row in rows]
        if not MIN_ROWS <= len(values) <= LIST_LIMIT:
            raise misfit("too few rows, or more than a list shows")
        result = operate(values)
        if self._is_told(rows, result):
            raise misfit("the answer is among the numbers that are shown")
        work.call(list_name(self.entity, self.owner), **{self.owner.name: owner})
        work.evidence.append(piece(listed_key(self.entity), len(rows)))
        work.calls.append(Call(tool=RUN_PYTHON, arguments={"code": f"values = {values!r}\n{code}"}))
        said = f"{result:g}" if result < 1e6 else str(result)
        answer = say(
            language,
            f"The {words.en} {aspect.label.en} is {told(self.of, aspect, result, language)}.",
            f"{aspect.label.zh}的{words.zh}是{told(self.of, aspect, result, language)}。",
        )
        return work.solution(answer, facts=(Fact(kind="number", value=said, rivals=tuple(sorted({f"{value:g}" for value in values}))),))

    def draw(self, state: State, slot_names: frozenset[str], given: Slots, rng: random.Random) -> dict[str, JSON] | None:
        for key, named in self.finder.propose(state, slot_names, given, self.finder.entity.ids, rng):
            rows = state.select(self.entity.number, ((self.owner.place, key),))
            if not MIN_ROWS <= len(rows) <= LIST_LIMIT:
                continue
            slots = {
                **named,
                "aspect": given["aspect"] if "aspect" in given else rng.choice(list(self.aspects)),
                "operation": given["operation"] if "operation" in given else rng.choice(list(OPERATIONS)),
            }
            values = [value_of(state, row, self.aspects[slots["aspect"]]) for _, row in rows]
            result = OPERATIONS[slots["operation"]][1](values)
            if not self._is_told(rows, result):
                return slots
        return None

    def wordings(self) -> Mapping[Language, Sequence[str]]:
        out: dict[Language, Sequence[str]] = {}
        languages: tuple[Language, ...] = ("en", "zh")
        for language in languages:
            who = "".join(f"{{{slot.name}}}" for slot, _ in self.finder.slots)
            _, named = self.finder.ways(language)[-1]
            if language == "en":
                ways = [("", f"the {{operation}} {{aspect}} of the {self.entity.plural} of {named}")]
                mine = (f"I am {who}", f"the {{operation}} {{aspect}} of all my {self.entity.plural}")
            else:
                ways = [("", f"{named}的{self.entity.noun.zh}的{{aspect}}的{{operation}}")]
                mine = (f"我是{who}", f"我所有{self.entity.noun.zh}的{{aspect}}的{{operation}}")
            out[language] = questions([*ways, mine] if self.finder.entity.spec.person else ways, language)
        return out

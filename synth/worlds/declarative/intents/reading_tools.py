"""Questions that a reading tool of the spec's own answers: what it shows of the rows that a request names, or how many rows it finds.

One idea: such a tool is an action without effects (`shows` and `finds` of `spec_schema.py`), so values for its parameters are drawn as for
an action; the answer is a value of its result.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import islice
from typing import Any

from storage.records import JSON, Fact, Language
from synth.worlds.base import Solution, misfit
from synth.worlds.declarative.acting import find_error
from synth.worlds.declarative.domain import Act, Domain, Field, ResultField, json_value
from synth.worlds.declarative.intents.acts import Accepts, ActIntent
from synth.worlds.declarative.intents.base import (
    PlanDraft,
    Slots,
    answer_fact,
    answer_text,
    any_value,
    expression_value,
    field_fact,
    given_or_drawn,
    make_slot,
    random_order,
    text_in,
    words_kind,
)
from synth.worlds.declarative.intents.questions import has_digit
from synth.worlds.declarative.intents.request_templates import act_templates
from synth.worlds.declarative.intents.row_references import RowReference
from synth.worlds.declarative.language.resolve_actions import read_field
from synth.worlds.declarative.language.spec_schema import DEFAULT_LIMIT
from synth.worlds.declarative.language.values import Words
from synth.worlds.declarative.rows.state import State, shown_value
from synth.worlds.declarative.tools import find_rows, search_count_key, value_of, view_fields

_ROWS = 60
"""Rows tried in one draw of a tool that finds rows."""
_NO_VALUE = object()


class ReadingIntent(ActIntent):
    """Look up issue i012 of repository r003 and tell me its title."""

    def __init__(self, domain: Domain, act: Act, references: Mapping[str, RowReference]) -> None:
        super().__init__(domain, act, act.name, references)
        self.shown: dict[str, tuple[ResultField, Field | None]] = {}
        """By aspect, the field of the result and what it shows."""
        labels: dict[str, Words] = {}
        for each in act.result_fields:
            assert each.value is not None
            field = read_field(domain.entities, act, each.value)
            if field is None or _can_be_asked(field):
                self.shown[each.name] = each, field
                labels[each.name] = _label(domain, each.name, field)
        self.count = "" if act.finding is None else search_count_key(act.finding.entity)
        self.found: dict[str, Field] = {}
        """By aspect, a field of the only row found."""
        if act.finding is not None:
            entity = act.finding.entity
            labels[self.count] = Words(en=f"number of {entity.plural}", zh=f"{entity.noun.zh}的数量")
            filters = {field.name for field, _, _ in act.finding.filters}
            for field in view_fields(entity, "list"):
                if field.name not in filters | labels.keys() and _can_be_asked(field):
                    self.found[field.name], labels[field.name] = field, field.label
        aspect = make_slot("aspect", words_kind(f"{act.name}.aspect", labels))
        self.aspects, self.labels = tuple(labels), labels
        self.slots = (*self.slots, aspect[0])
        self.kinds = {**self.kinds, aspect[0].kind: aspect[1]}

    def plan(self, state: State, slots: Slots, language: Language) -> Solution:
        draft = PlanDraft(self.spec_domain, state)
        values = {**self.defaults, **self._values(slots)}
        for reference in self.references.values():
            if reference.slots[0][0].name in slots:
                reference.find(draft, slots)
        if find_error(self.spec_domain, self.act, state, values) is not None:
            raise misfit("a condition is in the way")
        arguments = {name: json_value(self.spec_domain, self.act.params[name].type.kind, values[name]) for name in self._values(slots)}
        draft.add_call(self.act.name, **arguments)
        aspect = slots["aspect"]
        text, fact, shown = self._answer_of(aspect, state, values, language)
        draft.evidence.append(field_fact(aspect, shown))
        label = self.labels[aspect][language]
        answer = text_in(language, f"The {label} is {text}.", f"{label}是{text}。")
        return draft.solution(answer, facts=(fact,))

    def _answer_of(self, aspect: str, state: State, values: Mapping[str, Any], language: Language) -> tuple[str, Fact, JSON]:
        """The value of an aspect in an answer, as a fact, and as the tool shows it."""
        if aspect not in self.shown:
            assert self.act.finding is not None
            pairs = find_rows(self.act.finding, state, values)
            if not self._is_told(aspect, len(pairs)):
                raise misfit("not exactly one is found" if aspect in self.found else "so few are guessed")
            if aspect == self.count:
                return str(len(pairs)), Fact(kind="number", value=str(len(pairs))), len(pairs)
            row = pairs[0][1]
            rivals = [
                value_of(state, row, other)
                for other in self.found.values()
                if other.name != aspect and other.type == self.found[aspect].type
            ]
            return self._told(self.found[aspect], value_of(state, row, self.found[aspect]), rivals, language)
        result, field = self.shown[aspect]
        assert result.value is not None
        value = result.value.run(state, values)
        if field is not None:
            return self._told(field, value, self._rivals(aspect, field, state, values), language)
        number = json_value(self.spec_domain, result.value.type.kind, value)
        return str(number), Fact(kind="number", value=str(number)), number

    def _told(self, field: Field, value: Any, rivals: list[Any], language: Language) -> tuple[str, Fact, JSON]:
        fact = answer_fact(self.spec_domain, field, value, rivals)
        return answer_text(self.spec_domain, field, value, language), fact, shown_value(self.spec_domain, field, value)

    def _rivals(self, aspect: str, field: Field, state: State, values: Mapping[str, Any]) -> list[Any]:
        """Other values of the result with the same type: what an answer must not give in its place."""
        return [
            other.value.run(state, values)
            for name, (other, of) in self.shown.items()
            if name != aspect and of is not None and of.type == field.type and other.value is not None
        ]

    # ---- drawing --------------------------------------------------------------------------------------------------------------

    def draw(
        self, state: State, slot_names: frozenset[str], given: Slots, rng: random.Random, accepts: Accepts = lambda slots: True
    ) -> dict[str, JSON] | None:
        names = slot_names - {"aspect"}
        if self.act.finding is None:
            aspect = given_or_drawn(given, "aspect", self.aspects, rng)
            slots = super().draw(state, names, given, rng, lambda slots: accepts({**slots, "aspect": aspect}))
            return None if slots is None else {**slots, "aspect": aspect}
        for key in islice(random_order(self.act.finding.entity.ids, rng), _ROWS):
            slots = self._slots_of_row(state, key, names, given, rng)
            fitting = [] if slots is None else self._fitting_aspects(state, slots)
            if "aspect" in given:
                fitting = [each for each in fitting if each == given["aspect"]]
            if slots is not None and fitting and accepts(drawn := {**slots, "aspect": rng.choice(fitting)}):
                return drawn
        return None

    def _slots_of_row(self, state: State, key: str, names: frozenset[str], given: Slots, rng: random.Random) -> dict[str, JSON] | None:
        """Values with which the tool finds this row; None if a given value, or a flag that is not set, is in the way."""
        assert self.act.finding is not None
        row = state.row(self.act.finding.entity.number, key)
        of_row = {value.text: value_of(state, row, field) for field, value, _ in self.act.finding.filters}
        slots: dict[str, JSON] = {}
        for slot in self.slots:
            if slot.name not in names:
                continue
            value = of_row.get(slot.name, _NO_VALUE)
            if value is False:
                return None
            if value is _NO_VALUE:
                slots[slot.name] = given.get(slot.name) or any_value(self.kinds[slot.kind], rng)
            else:
                slots[slot.name] = "yes" if value is True else value
            if slot.name in given and given[slot.name] != slots[slot.name]:
                return None
        return slots

    def _fitting_aspects(self, state: State, slots: Slots) -> list[str]:
        """The aspects that the result has with these slots."""
        values = {**self.defaults, **self._values(slots)}
        if find_error(self.spec_domain, self.act, state, values) is not None:
            return []
        assert self.act.finding is not None
        total = len(find_rows(self.act.finding, state, values))
        return [each for each in self.aspects if self._is_told(each, total)]

    def _is_told(self, aspect: str, total: int) -> bool:
        """Whether the answer to an aspect is single, and hard to guess. total: number of rows found."""
        return aspect in self.shown or (total > DEFAULT_LIMIT if aspect == self.count else total == 1)

    def _values(self, slots: Slots) -> dict[str, Any]:
        """The slots as expressions use them."""
        return {name: expression_value(param.type.kind, slots[name]) for name, param in self.act.params.items() if name in slots}

    def templates(self, language: Language) -> list[str]:
        ending = text_in(language, " and tell me the {aspect}", "，告诉我{aspect}")
        plain = act_templates(self.spec_domain, self.act, self.references, language)
        return [f"{text}{ending}" for text in plain if "{aspect}" not in text]


def _can_be_asked(field: Field) -> bool:
    """Whether a question can ask for a field: no flag, which anybody guesses, and no choice with digits in a name."""
    return field.type.kind != "flag" and not (field.type.kind == "choice" and any(map(has_digit, field.words.values())))


def _label(domain: Domain, name: str, field: Field | None) -> Words:
    """What a request calls a value of the result: its field's label where the result calls it so, else the name as words."""
    words = name.replace("_", " ")
    return field.label if field is not None and field.name == name else Words(en=words, zh=words)

"""Questions that a reading tool of the spec's own answers: what it shows of the rows that a request names, or how many rows it finds.

One idea: such a tool is an action without effects (`shows` and `finds` of `spec_schema.py`), so values for its parameters are drawn as for
an action; the answer is a value of its result.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
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
    expression_value,
    field_fact,
    given_or_drawn,
    make_slot,
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
from synth.worlds.declarative.tools import find_rows, search_count_key


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
        if act.finding is not None:
            self.count = search_count_key(act.finding.entity)
            plural = act.finding.entity.plural
            labels[self.count] = Words(en=f"number of {plural}", zh=f"{act.finding.entity.noun.zh}的数量")
        aspect = make_slot("aspect", words_kind(f"{act.name}.aspect", labels))
        self.aspects = tuple(labels)
        self.slots = (*self.slots, aspect[0])
        self.kinds = {**self.kinds, aspect[0].kind: aspect[1]}

    def plan(self, state: State, slots: Slots, language: Language) -> Solution:
        draft = PlanDraft(self.spec_domain, state)
        values: dict[str, Any] = dict(self.defaults)
        arguments: dict[str, JSON] = {}
        for param in self.act.params.values():
            if param.name in self.references and param.name in slots:
                values[param.name] = arguments[param.name] = self.references[param.name].find(draft, slots)
            elif param.name in slots:
                values[param.name] = expression_value(param.type.kind, slots[param.name])
                arguments[param.name] = json_value(self.spec_domain, param.type.kind, values[param.name])
        if find_error(self.spec_domain, self.act, state, values) is not None:
            raise misfit("a condition is in the way")
        draft.add_call(self.act.name, **arguments)
        aspect = slots["aspect"]
        text, fact, shown = self._answer_of(aspect, state, values, language)
        draft.evidence.append(field_fact(aspect, shown))
        label = self.kinds[f"{self.act.name}.aspect"].names[aspect][language]  # type: ignore[attr-defined]
        answer = text_in(language, f"The {label} is {text}.", f"{label}是{text}。")
        return draft.solution(answer, facts=(fact,))

    def _answer_of(self, aspect: str, state: State, values: Mapping[str, Any], language: Language) -> tuple[str, Fact, JSON]:
        """The value of an aspect in an answer, as a fact, and as the tool shows it."""
        if aspect not in self.shown:
            assert self.act.finding is not None
            total = len(find_rows(self.act.finding, state, values))
            if total <= DEFAULT_LIMIT:
                raise misfit("so few are guessed")
            return str(total), Fact(kind="number", value=str(total)), total
        result, field = self.shown[aspect]
        assert result.value is not None
        value = result.value.run(state, values)
        if field is not None:
            return (
                answer_text(self.spec_domain, field, value, language),
                answer_fact(self.spec_domain, field, value, self._rivals(aspect, field, state, values)),
                shown_value(self.spec_domain, field, value),
            )
        number = json_value(self.spec_domain, result.value.type.kind, value)
        return str(number), Fact(kind="number", value=str(number)), number

    def _rivals(self, aspect: str, field: Field, state: State, values: Mapping[str, Any]) -> list[Any]:
        """Other values of the result with the same type: what an answer must not give in its place."""
        return [
            other.value.run(state, values)
            for name, (other, of) in self.shown.items()
            if name != aspect and of is not None and of.type == field.type and other.value is not None
        ]

    def draw(
        self, state: State, slot_names: frozenset[str], given: Slots, rng: random.Random, accepts: Accepts = lambda slots: True
    ) -> dict[str, JSON] | None:
        aspect = given_or_drawn(given, "aspect", self.aspects, rng)

        def is_answered(slots: Mapping[str, JSON]) -> bool:
            if not accepts({**slots, "aspect": aspect}):
                return False
            return aspect in self.shown or self._finds_enough(state, slots)

        slots = super().draw(state, slot_names - {"aspect"}, given, rng, is_answered)
        return None if slots is None else {**slots, "aspect": aspect}

    def _finds_enough(self, state: State, slots: Slots) -> bool:
        assert self.act.finding is not None
        values = {name: expression_value(self.act.params[name].type.kind, value) for name, value in slots.items()}
        return len(find_rows(self.act.finding, state, {**self.defaults, **values})) > DEFAULT_LIMIT

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

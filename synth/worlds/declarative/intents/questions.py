"""Questions: the value of a field, of a row or of one that it refers to; the best row of a search; the number of rows."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import islice

from storage.records import JSON, Fact, Given, Language
from synth.worlds.base import Solution, misfit
from synth.worlds.declarative.domain import Domain, Entity, Field, filter_name
from synth.worlds.declarative.intents.base import (
    PlanDraft,
    Slots,
    SpecIntent,
    Step,
    answer_fact,
    answer_text,
    expression_value,
    field_fact,
    given_or_drawn,
    make_slot,
    random_order,
    row_fact,
    text_in,
    value_kind,
    words_kind,
)
from synth.worlds.declarative.intents.request_templates import questions
from synth.worlds.declarative.intents.row_references import BestReference, RowReference, filter_value, filter_words, pick_filters
from synth.worlds.declarative.language.spec_schema import DEFAULT_LIMIT
from synth.worlds.declarative.language.values import Words
from synth.worlds.declarative.rows.state import State, shown_value
from synth.worlds.declarative.tools import Search, get_name, search_count_key, search_name, value_of

_TRIES = 12
"""Rows tried in one draw of a count."""
_RIVALS = 12
"""Ids of other rows that the answer to a best question must not name."""


def question_fields(entity: Entity, *, with_details: bool, without: Sequence[str] = ()) -> list[Field]:
    """Fields that a question can name by their label: no flags, and no choice with digits in a name ("4G"), which its key does not show."""
    suited = [each for each in entity.fields.values() if each.type.kind != "flag" and each.name not in without]
    digits = {each.name for each in suited if each.type.kind == "choice" and any(map(has_digit, each.words.values()))}
    return [each for each in suited if each.name not in digits and (with_details or not each.spec.detail)]


def has_digit(words: Words) -> bool:
    return any(character.isdigit() for character in words.en + words.zh)


class QuestionIntent(SpecIntent):
    """What is the due date of loan l012? along: the field that refers from the named row to the row of the question, if they differ."""

    def __init__(self, domain: Domain, name: str, reference: RowReference, fields: Sequence[Field], along: Field | None = None) -> None:
        self.reference, self.along = reference, along
        self.fields = {each.name: each for each in fields}
        self.entity = domain.entities[along.type.entity] if along is not None else reference.entity
        aspect = make_slot("aspect", words_kind(f"{name}.aspect", {each.name: each.label for each in fields}))
        super().__init__(domain, name, self.entity.spec.group or self.entity.name, [*reference.slots, aspect])
        has_details = along is None and any(each.spec.detail for each in fields)
        self.needs_get = not reference.shown_paths or has_details
        """Whether the calls that find the named row show too little of it."""
        steps = [*reference.steps]
        if self.needs_get:
            steps.append(Step(get_name(reference.entity), (len(steps) - 1,) if steps else ()))
        if along is not None:
            steps.append(Step(get_name(self.entity), (len(steps) - 1,)))
        self.steps = steps

    def plan(self, state: State, slots: Slots, language: Language) -> Solution:
        draft = PlanDraft(self.spec_domain, state)
        key = self.reference.find(draft, slots)
        field = self.fields[slots["aspect"]]
        if self.along is None:
            draft.require_row(self.entity, key, needs_all=self.needs_get)
        else:
            draft.require_row(self.reference.entity, key, needs_all=self.along.spec.detail)
            key = state.row(self.reference.entity.number, key)[self.along.place]
            draft.evidence.append(field_fact(self.along.name, key))
            draft.require_row(self.entity, key)
        row = state.row(self.entity.number, key)
        value = value_of(state, row, field)
        text = answer_text(self.spec_domain, field, value, language)
        answer = text_in(language, f"The {field.label.en} of {key} is {text}.", f"{key}的{field.label.zh}是{text}。")
        draft.evidence.append(field_fact(field.name, shown_value(self.spec_domain, field, value)))
        rivals = [value_of(state, row, each) for each in self.entity.fields.values() if each is not field and each.type == field.type]
        return draft.solution(answer, facts=(answer_fact(self.spec_domain, field, value, rivals),))

    def given(self, slots: Slots) -> Given:
        return self.reference.given(slots)

    def draw(self, state: State, slot_names: frozenset[str], given: Slots, rng: random.Random) -> dict[str, JSON] | None:
        for _, slots in self.reference.propose(state, slot_names, given, self.reference.entity.ids, rng):
            return {**slots, "aspect": given_or_drawn(given, "aspect", self.fields, rng)}
        return None

    def templates(self, language: Language) -> list[str]:
        along = "" if self.along is None else self.along.label[language]
        english, chinese = (f"the {along} of ", f"{along}的") if along else ("", "")
        return questions(
            [
                (lead, text_in(language, f"the {{aspect}} of {english}{phrase}", f"{phrase}的{chinese}{{aspect}}"))
                for lead, phrase in self.reference.phrases(language)
            ],
            language,
        )


class BestQuestion(SpecIntent):
    """Which is the cheapest red one?"""

    def __init__(self, domain: Domain, name: str, reference: BestReference) -> None:
        self.reference = reference
        super().__init__(domain, name, reference.entity.spec.group or reference.entity.name, reference.slots)
        self.steps = reference.steps

    def plan(self, state: State, slots: Slots, language: Language) -> Solution:
        draft = PlanDraft(self.spec_domain, state)
        key = self.reference.find(draft, slots)
        best = self.reference.best(state, slots)
        assert best is not None
        draft.evidence.append(row_fact(key))
        entity, (field, _) = self.reference.entity, self.reference.search.orders[slots["pick"]]
        value = answer_text(self.spec_domain, field, value_of(state, state.row(entity.number, key), field), language)
        rivals = tuple(other for other, _ in best[1] if other != key)[:_RIVALS]
        answer = text_in(
            language, f"It is {entity.noun.en} {key}: {field.label.en} {value}.", f"是{entity.noun.zh}{key}，{field.label.zh}{value}。"
        )
        return draft.solution(answer, facts=(Fact(kind="id", value=key, rivals=rivals),))

    def draw(self, state: State, slot_names: frozenset[str], given: Slots, rng: random.Random) -> dict[str, JSON] | None:
        proposals = self.reference.propose(state, slot_names, given, self.reference.entity.ids, rng)
        return next((slots for _, slots in proposals), None)

    def templates(self, language: Language) -> list[str]:
        ((_, best),) = self.reference.phrases(language)
        if language == "en":
            forms = ("which is {}", "find me {}", "please tell me which is {}", "can you look up {}", "I am looking for {}")
            return [form.replace("{}", best) for form in forms]
        measure = self.reference.entity.spec.measure
        return [f"{best}是哪{measure}", f"帮我找{best}", f"请问{best}是哪{measure}", f"查一下{best}", f"我在找{best}"]


class CountQuestion(SpecIntent):
    """How many of them are there? Every request contains the first filter."""

    def __init__(self, domain: Domain, name: str, entity: Entity) -> None:
        self.entity, self.search = entity, Search(domain, entity)
        self.filters = {filter_name(each): each for each in pick_filters(entity) if each.type.kind in ("choice", "flag")}
        self.always = next(iter(self.filters))
        slots = [
            make_slot(slot, value_kind(domain, entity.name, each), is_required=slot == self.always) for slot, each in self.filters.items()
        ]
        super().__init__(domain, name, entity.spec.group or entity.name, slots)
        self.steps = (Step(search_name(entity)),)

    def _conditions(self, slots: Slots) -> dict[str, JSON]:
        """The filters of the search, by argument."""
        return {slot: expression_value(each.type.kind, slots[slot]) for slot, each in self.filters.items() if slot in slots}

    def _count(self, state: State, slots: Slots) -> int:
        return len(self.search.find(state, self._conditions(slots)))

    def plan(self, state: State, slots: Slots, language: Language) -> Solution:
        total = self._count(state, slots)
        if total <= DEFAULT_LIMIT:
            raise misfit("as few as a search shows")
        draft = PlanDraft(self.spec_domain, state)
        draft.add_call(search_name(self.entity), **self._conditions(slots))
        draft.evidence.append(field_fact(search_count_key(self.entity), total))
        answer = text_in(language, f"There are {total} such {self.entity.plural}.", f"一共有{total}{self.entity.spec.measure}。")
        return draft.solution(answer, facts=(Fact(kind="number", value=str(total), rivals=(str(DEFAULT_LIMIT),)),))

    def draw(self, state: State, slot_names: frozenset[str], given: Slots, rng: random.Random) -> dict[str, JSON] | None:
        for key in islice(random_order(self.entity.ids, rng), _TRIES):
            row = state.row(self.entity.number, key)
            slots = {
                slot: given[slot] if slot in given else filter_value(state, row, each, rng)
                for slot, each in self.filters.items()
                if slot in slot_names
            }
            if None not in slots.values() and self._count(state, slots) > DEFAULT_LIMIT:
                return slots
        return None

    def templates(self, language: Language) -> list[str]:
        before, after = filter_words(self.filters, language, self.always)
        if language == "en":
            rows = f"{before} {self.entity.plural}{after}"
            return [
                f"how many{rows} are there",
                f"please count the{rows}",
                f"can you tell me how many{rows} you have",
                f"I would like to know how many{rows} there are",
            ]
        rows = f"{after}{before}{self.entity.noun.zh}"
        return [f"一共有多少{rows}", f"请问有多少{rows}", f"数一下{rows}有多少", f"我想知道{rows}一共有多少"]

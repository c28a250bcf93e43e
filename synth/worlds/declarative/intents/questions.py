"""Questions: a field of a row, of a row that another refers to, the best of what fits, and how many there are."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import islice

from storage.records import JSON, Fact, Language
from synth.text.slot_kinds import SlotKind
from synth.worlds.base import Shape, Slot, Solution
from synth.worlds.declarative.domain import Domain, Entity, Field, filter_name
from synth.worlds.declarative.intents.base import (
    Slots,
    SpecIntent,
    Work,
    answer_text,
    fact,
    inside,
    misfit,
    outside,
    piece,
    row_fact,
    say,
    value_kind,
    wander,
    words_kind,
)
from synth.worlds.declarative.intents.row_references import Finder, Picked, filter_value, filter_words, pick_filters
from synth.worlds.declarative.language.spec_schema import DEFAULT_LIMIT
from synth.worlds.declarative.language.values import Words
from synth.worlds.declarative.request_templates import questions
from synth.worlds.declarative.state import State, shown_value
from synth.worlds.declarative.tools import found_key, search_name, value_of

_TRIES = 12
_RIVALS = 12


def askable(entity: Entity, *, with_details: bool, without: Sequence[str] = ()) -> list[Field]:
    """Fields that one can ask for by their label: no flags, nor a choice that has digits in a name ("4G"): its key does not show them."""
    suited = [each for each in entity.fields.values() if each.type.kind != "flag" and each.name not in without]
    digits = {each.name for each in suited if each.type.kind == "choice" and any(map(_has_digit, each.words.values()))}
    return [each for each in suited if each.name not in digits and (with_details or not each.spec.detail)]


def _has_digit(words: Words) -> bool:
    return any(character.isdigit() for character in words.en + words.zh)


class QuestionIntent(SpecIntent):
    """What is the due date of loan l012? along: a reference from the row that is named to the row that is asked about."""

    def __init__(self, domain: Domain, name: str, finder: Finder, aspects: Sequence[Field], along: Field | None = None) -> None:
        self.finder, self.along = finder, along
        self.aspects = {each.name: each for each in aspects}
        self.asked = domain.entities[along.type.entity] if along is not None else finder.entity
        kind, of = words_kind(f"{name}.aspect", {each.name: each.label for each in aspects})
        slots: list[tuple[Slot, SlotKind]] = [*finder.slots, (Slot("aspect", kind), of)]
        super().__init__(domain, name, self.asked.spec.group or self.asked.name, slots)

    @property
    def _gets(self) -> bool:
        """Whether the row that is named needs a look of its own."""
        return not self.finder.covers or (self.along is None and any(each.spec.detail for each in self.aspects.values()))

    def shape(self, slot_names: frozenset[str]) -> Shape:
        steps = [(step.tool, step.parents) for step in self.finder.steps]
        if self._gets:
            steps.append((f"get_{self.finder.entity.name}", (len(steps) - 1,) if steps else ()))
        if self.along is not None:
            steps.append((f"get_{self.asked.name}", (len(steps) - 1,)))
        return self.shape_of(steps)

    def plan(self, state: State, slots: Slots, language: Language) -> Solution:
        work = Work(self.of, state)
        key = self.finder.find(work, slots)
        aspect = self.aspects[slots["aspect"]]
        if self.along is None:
            work.look(self.finder.entity, key, needs_all=self._gets)
        else:
            work.look(self.finder.entity, key, needs_all=self.along.spec.detail)
            row = state.row(self.finder.entity.number, key)
            work.evidence.append(piece(self.along.name, row[self.along.place]))
            key = row[self.along.place]
            work.look(self.asked, key)
        row = state.row(self.asked.number, key)
        value = value_of(state, row, aspect)
        answer = say(
            language,
            f"The {aspect.label.en} of {key} is {answer_text(self.of, aspect, value, language)}.",
            f"{key}的{aspect.label.zh}是{answer_text(self.of, aspect, value, language)}。",
        )
        work.evidence.append(piece(aspect.name, shown_value(self.of, aspect, value)))
        return work.solution(answer, facts=(fact(self.of, aspect, value, self._rivals(state, row, aspect)),))

    def _rivals(self, state: State, row: tuple[object, ...], aspect: Field) -> list[object]:
        """Values of the same type that stand beside the one that is asked for."""
        return [
            value_of(state, row, each)
            for each in self.asked.fields.values()
            if each is not aspect and each.type.kind == aspect.type.kind and each.type.entity == aspect.type.entity
        ]

    def draw(self, state: State, slot_names: frozenset[str], given: Slots, rng: random.Random) -> dict[str, JSON] | None:
        for _, slots in self.finder.propose(state, slot_names, given, self.finder.entity.ids, rng):
            return {**slots, "aspect": given["aspect"] if "aspect" in given else rng.choice(list(self.aspects))}
        return None

    def wordings(self) -> Mapping[Language, Sequence[str]]:
        out: dict[Language, Sequence[str]] = {}
        languages: tuple[Language, ...] = ("en", "zh")
        for language in languages:
            along = "" if self.along is None else self.along.label[language]
            ways = []
            for lead, form in self.finder.ways(language):
                if language == "en":
                    ways.append((lead, f"the {{aspect}} of {f'the {along} of ' if along else ''}{form}"))
                else:
                    ways.append((lead, f"{form}的{f'{along}的' if along else ''}{{aspect}}"))
            out[language] = questions(ways, language)
        return out


class Finding(SpecIntent):
    """Which is the cheapest red one?"""

    def __init__(self, domain: Domain, name: str, finder: Picked) -> None:
        self.finder = finder
        super().__init__(domain, name, finder.entity.spec.group or finder.entity.name, finder.slots)

    def shape(self, slot_names: frozenset[str]) -> Shape:
        return self.shape_of((step.tool, step.parents) for step in self.finder.steps)

    def plan(self, state: State, slots: Slots, language: Language) -> Solution:
        work = Work(self.of, state)
        best = self.finder.best(state, slots)
        key = self.finder.find(work, slots)
        assert best is not None
        entity, of = self.finder.entity, self.finder.orders[slots["pick"]][0]
        work.evidence.append(row_fact(key))
        others = tuple(other for other, _ in best[1] if other != key)[:_RIVALS]
        value = value_of(state, state.row(entity.number, key), of)
        facts = (Fact(kind="id", value=key, rivals=others),)
        answer = answer_text(self.of, of, value, language)
        return work.solution(
            say(language, f"It is {entity.noun.en} {key}: {of.label.en} {answer}.", f"是{entity.noun.zh}{key}，{of.label.zh}{answer}。"),
            facts=facts,
        )

    def draw(self, state: State, slot_names: frozenset[str], given: Slots, rng: random.Random) -> dict[str, JSON] | None:
        for _, slots in self.finder.propose(state, slot_names, given, self.finder.entity.ids, rng):
            return slots
        return None

    def wordings(self) -> Mapping[Language, Sequence[str]]:
        _, english = self.finder.ways("en")[0]
        _, chinese = self.finder.ways("zh")[0]
        measure = self.finder.entity.spec.measure
        return {
            "en": [
                f"which is {english}",
                f"find me {english}",
                f"please tell me which is {english}",
                f"can you look up {english}",
                f"I am looking for {english}",
            ],
            "zh": [f"{chinese}是哪{measure}", f"帮我找{chinese}", f"请问{chinese}是哪{measure}", f"查一下{chinese}", f"我在找{chinese}"],
        }


class Counting(SpecIntent):
    """How many of them are there? The first filter is always said."""

    def __init__(self, domain: Domain, name: str, entity: Entity) -> None:
        self.entity = entity
        fields = [each for each in pick_filters(entity) if each.type.kind in ("choice", "flag")]
        self.filters = {filter_name(each): each for each in fields}
        slots = []
        for at, (slot, each) in enumerate(self.filters.items()):
            kind, of = value_kind(domain, entity.name, each)
            slots.append((Slot(slot, kind, is_required=at == 0), of))
        super().__init__(domain, name, entity.spec.group or entity.name, slots)

    def shape(self, slot_names: frozenset[str]) -> Shape:
        return self.shape_of([(search_name(self.entity), ())])

    def _matches(self, state: State, slots: Slots) -> int:
        bounds = [(each, inside(each.type.kind, slots[slot])) for slot, each in self.filters.items() if slot in slots]
        rows = state.select(self.entity.number, [(each.place, value) for each, value in bounds if each.place >= 0])
        later = [(each, value) for each, value in bounds if each.place < 0]
        return sum(all(value_of(state, row, each) == value for each, value in later) for _, row in rows)

    def plan(self, state: State, slots: Slots, language: Language) -> Solution:
        total = self._matches(state, slots)
        if total <= DEFAULT_LIMIT:
            raise misfit("as few as a search shows")
        work = Work(self.of, state)
        arguments = {
            slot: outside(self.of, each.type.kind, inside(each.type.kind, slots[slot]))
            for slot, each in self.filters.items()
            if slot in slots
        }
        work.call(search_name(self.entity), **arguments)
        work.evidence.append(piece(found_key(self.entity), total))
        told_total = Fact(kind="number", value=str(total), rivals=(str(DEFAULT_LIMIT),))
        plural = self.entity.plural
        return work.solution(
            say(language, f"There are {total} such {plural}.", f"一共有{total}{self.entity.spec.measure}。"), facts=(told_total,)
        )

    def draw(self, state: State, slot_names: frozenset[str], given: Slots, rng: random.Random) -> dict[str, JSON] | None:
        for key in islice(wander(self.entity.ids, rng), _TRIES):
            row = state.row(self.entity.number, key)
            slots = {
                slot: given[slot] if slot in given else filter_value(state, row, each, rng)
                for slot, each in self.filters.items()
                if slot in slot_names
            }
            if None not in slots.values() and self._matches(state, slots) > DEFAULT_LIMIT:
                return slots
        return None

    def wordings(self) -> Mapping[Language, Sequence[str]]:
        out: dict[Language, Sequence[str]] = {}
        first = next(iter(self.filters))
        languages: tuple[Language, ...] = ("en", "zh")
        for language in languages:
            before, after = filter_words(self.entity, self.filters, language, first)
            if language == "en":
                target = f"{before} {self.entity.plural}{after}"
                out[language] = [
                    f"how many{target} are there",
                    f"please count the{target}",
                    f"can you tell me how many{target} you have",
                    f"I would like to know how many{target} there are",
                ]
            else:
                target = f"{after}{before}{self.entity.noun.zh}"
                out[language] = [f"一共有多少{target}", f"请问有多少{target}", f"数一下{target}有多少", f"我想知道{target}一共有多少"]
        return out

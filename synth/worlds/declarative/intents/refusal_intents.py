"""Refusals from the request alone (no such tool, impossible, no row named), and questions about the domain's rules."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any, Literal

from storage.records import JSON, Fact, Language, Plan, RefusalReason, Success
from synth.worlds.base import Solution
from synth.worlds.declarative.domain import Act, Domain, Entity
from synth.worlds.declarative.intents.base import (
    Slots,
    SpecIntent,
    given_or_drawn,
    id_kind,
    make_slot,
    text_in,
    value_kind,
    words_kind,
)
from synth.worlds.declarative.intents.request_templates import ORDERS, with_object
from synth.worlds.declarative.language.values import Words
from synth.worlds.declarative.rows.state import State

NO_TOOL = (
    Words(en="translate everything about it into Latin", zh="把它的资料都翻译成拉丁文"),
    Words(en="paint a picture of it", zh="给它画一幅画"),
    Words(en="read it out to me on the phone", zh="在电话里读给我听"),
)
IMPOSSIBLE = (
    Words(en="make it never have happened", zh="让它从来没有发生过"),
    Words(en="tell me what I will dream about it", zh="告诉我会梦到它什么"),
    Words(en="bring it back from the last century", zh="把它从上个世纪带回来"),
)


class WishIntent(SpecIntent):
    """A wish about a row that no tool serves, or that is impossible; refused without a call."""

    def __init__(self, domain: Domain, name: str, entity: Entity, wishes: Sequence[Words], reason: RefusalReason) -> None:
        self.entity, self.refusal = entity, reason
        self.wish = "service" if reason is RefusalReason.MISSING_TOOL else "wish"
        self.wishes = {f"{self.wish}_{at}": each for at, each in enumerate(wishes)}
        slots = [
            make_slot(entity.name, id_kind(domain, entity), is_entity=True),
            make_slot(self.wish, words_kind(f"{name}.{self.wish}", self.wishes)),
        ]
        super().__init__(domain, name, entity.spec.group or entity.name, slots)

    def plan(self, state: State, slots: Slots, language: Language) -> Solution:
        if self.refusal is RefusalReason.MISSING_TOOL:
            answer = text_in(language, "I have no tool for that.", "我没有这样的工具。")
        else:
            answer = text_in(language, "That is impossible for anyone.", "这谁也办不到。")
        return Solution(Plan(answer=answer), Success(refusal=self.refusal))

    def draw(self, state: State, slot_names: frozenset[str], given: Slots, rng: random.Random) -> dict[str, JSON] | None:
        wish = given_or_drawn(given, self.wish, self.wishes, rng)
        return {self.entity.name: rng.choice(self.entity.ids), self.wish: wish}

    def templates(self, language: Language) -> list[str]:
        wish, row, noun = f"{{{self.wish}}}", f"{{{self.entity.name}}}", self.entity.noun
        if language == "en":
            return [
                f"about {noun.en} {row}: {wish}",
                f"it is about {noun.en} {row}, could you {wish}",
                f"for {noun.en} {row} I want you to {wish}",
                f"{noun.en} {row}: please {wish}",
            ]
        return [
            f"{noun.zh}{row}，请{wish}",
            f"关于{noun.zh}{row}，能不能{wish}",
            f"{noun.zh}{row}的事，帮我{wish}",
            f"我想请你{wish}，是{noun.zh}{row}",
        ]


class UnnamedRowIntent(SpecIntent):
    """An action whose request does not say on which row: the right answer asks for the row."""

    def __init__(self, domain: Domain, act: Act) -> None:
        assert act.on is not None
        self.act, self.entity = act, act.on
        attribute = attribute_of(domain, act.on)
        self.attribute = attribute if attribute is not None and attribute.name not in _set_fields(domain, act.on) else None
        self.refusal = RefusalReason.MISSING_INFORMATION
        slots = []
        if self.attribute is not None:
            slots.append(make_slot(self.attribute.name, value_kind(domain, act.on.name, self.attribute), is_required=False))
        super().__init__(domain, f"{act.name}_unnamed", act.on.spec.group or act.on.name, slots)

    def plan(self, state: State, slots: Slots, language: Language) -> Solution:
        noun = self.entity.noun
        answer = text_in(language, f"Please tell me which {noun.en} you mean.", f"请告诉我是哪{self.entity.spec.measure}{noun.zh}。")
        return Solution(Plan(answer=answer), Success(refusal=self.refusal))

    def draw(self, state: State, slot_names: frozenset[str], given: Slots, rng: random.Random) -> dict[str, JSON] | None:
        if self.attribute is None or self.attribute.name not in slot_names:
            return {}
        return {self.attribute.name: given_or_drawn(given, self.attribute.name, self.attribute.words, rng)}

    def templates(self, language: Language) -> list[str]:
        verb, noun, spec = self.act.spec.verb[language], self.entity.noun[language], self.entity.spec
        slot = "" if self.attribute is None else f"{{{self.attribute.name}}}"
        if language == "en":
            row = f"{'a' if spec.person else 'my'}{f'[ {slot}]' if slot else ''} {noun}"
        else:
            row = f"一{spec.measure}{f'[{slot}]' if slot else ''}{noun}"
        command = with_object(verb, row, language)
        return [form.replace("{}", command) for form in ORDERS[language]]


def _set_fields(domain: Domain, entity: Entity) -> set[str]:
    """Fields that actions set: they give the state of a row, not its kind."""
    return {setting.field for act in domain.acts.values() for setting in act.settings if setting.entity == entity.number}


def attribute_of(domain: Domain, entity: Entity) -> Any:
    """The field that tells an owner's rows apart: the one that the spec names, else a choice that no action sets, else any choice."""
    if entity.spec.called is not None:
        return entity.fields[entity.spec.called]
    set_fields = _set_fields(domain, entity)
    choices = [each for each in entity.fields.values() if each.type.kind == "choice" and not each.spec.detail]
    constant = [each for each in choices if each.name not in set_fields and each.derived is None]
    return next(iter([*constant, *choices]), None)


_NUMBER = re.compile(r"-?\d+(\.\d+)?")


def answer_kind(answer: str) -> Literal["time", "number", "word"]:
    """The kind of fact that a fixed answer is."""
    if re.fullmatch(r"\d\d:\d\d", answer):
        return "time"
    return "number" if _NUMBER.fullmatch(answer) else "word"


class InformationIntent(SpecIntent):
    """A question that the system prompt answers, without a call."""

    def __init__(self, domain: Domain) -> None:
        spec = domain.spec
        self.topics: dict[str, tuple[Words, str, Words]] = {}
        """By topic: the question, the answer, and the sentence that contains it."""
        for act, action in spec.actions.items():
            for name, rule in action.rules.items():
                if rule.ask is not None and rule.answer is not None:
                    self.topics[f"{act}_{name}"] = (rule.ask, rule.answer, rule.words)
        for at, info in enumerate(spec.info):
            self.topics[f"info_{at}"] = (info.ask, info.answer, info.words)
        self.needs_no_tool = True
        topic = make_slot("topic", words_kind("topic", {key: ask for key, (ask, _, _) in self.topics.items()}))
        super().__init__(domain, "ask_rules", "desk", [topic])

    def constraints(self, slot_names: frozenset[str]) -> int:
        return 0

    def plan(self, state: State, slots: Slots, language: Language) -> Solution:
        _, answer, words = self.topics[slots["topic"]]
        text = words.en if language == "en" or answer not in words.zh else words.zh
        others = (other for _, other, _ in self.topics.values() if other != answer)
        rivals = tuple(dict.fromkeys(other for other in others if other.casefold() not in text.casefold()))
        return Solution(Plan(answer=text), Success(facts=(Fact(kind=answer_kind(answer), value=answer, rivals=rivals),)))

    def draw(self, state: State, slot_names: frozenset[str], given: Slots, rng: random.Random) -> dict[str, JSON] | None:
        return {"topic": given_or_drawn(given, "topic", self.topics, rng)}

    def templates(self, language: Language) -> list[str]:
        if language == "zh":
            return ["请问{topic}", "我想知道{topic}", "介绍一下{topic}", "咨询一下，{topic}", "你知道{topic}吗"]
        return [
            "can you tell me {topic}",
            "I would like to know {topic}",
            "please explain {topic}",
            "a quick question: {topic}",
            "do you know {topic}",
        ]

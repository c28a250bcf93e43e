"""What is refused from the request alone (no such tool, nothing to act on, a row left unnamed), and questions about the domain's rules."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from storage.records import JSON, Fact, Language, Plan, RefusalReason, Success
from synth.text.slot_kinds import SlotKind
from synth.worlds.base import Shape, Slot, Solution
from synth.worlds.declarative.domain import Act, Domain, Entity
from synth.worlds.declarative.intents.base import Slots, SpecIntent, id_kind, say, value_kind, words_kind
from synth.worlds.declarative.language.values import Words
from synth.worlds.declarative.request_templates import ORDERS
from synth.worlds.declarative.state import State

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


class Plain(SpecIntent):
    """Refused without looking: a wish about a row."""

    def __init__(self, domain: Domain, name: str, entity: Entity, wishes: Sequence[Words], reason: RefusalReason) -> None:
        self.entity, self.refusal = entity, reason
        self.wish = "service" if reason is RefusalReason.MISSING_TOOL else "wish"
        kind, of = id_kind(domain, entity)
        wished = {f"{self.wish}_{at}": each for at, each in enumerate(wishes)}
        wish_slot, words = words_kind(f"{name}.{self.wish}", wished)
        slots: list[tuple[Slot, SlotKind]] = [(Slot(entity.name, kind, is_entity=True), of), (Slot(self.wish, wish_slot), words)]
        super().__init__(domain, name, entity.spec.group or entity.name, slots)
        self.wishes = list(wished)

    def shape(self, slot_names: frozenset[str]) -> Shape:
        return Shape(())

    def plan(self, state: State, slots: Slots, language: Language) -> Solution:
        if self.refusal is RefusalReason.MISSING_TOOL:
            answer = say(language, "I have no tool for that.", "我没有这样的工具。")
        else:
            answer = say(language, "That is impossible for anyone.", "这谁也办不到。")
        return Solution(Plan(answer=answer), Success(refusal=self.refusal))

    def draw(self, state: State, slot_names: frozenset[str], given: Slots, rng: random.Random) -> dict[str, JSON] | None:
        wish = given[self.wish] if self.wish in given else rng.choice(self.wishes)
        return {self.entity.name: rng.choice(self.entity.ids), self.wish: wish}

    def wordings(self) -> Mapping[Language, Sequence[str]]:
        wish, row, noun = f"{{{self.wish}}}", f"{{{self.entity.name}}}", self.entity.noun
        return {
            "en": [
                f"about {noun.en} {row}: {wish}",
                f"it is about {noun.en} {row}, could you {wish}",
                f"for {noun.en} {row} I want you to {wish}",
                f"{noun.en} {row}: please {wish}",
            ],
            "zh": [
                f"{noun.zh}{row}，请{wish}",
                f"关于{noun.zh}{row}，能不能{wish}",
                f"{noun.zh}{row}的事，帮我{wish}",
                f"我想请你{wish}，是{noun.zh}{row}",
            ],
        }


class Unnamed(SpecIntent):
    """An act whose row nobody names: one has to ask which."""

    def __init__(self, domain: Domain, act: Act) -> None:
        assert act.on is not None
        self.act, self.entity = act, act.on
        attribute = attribute_of(domain, act.on)
        self.attribute = attribute if attribute is not None and attribute.name not in changing_fields(domain, act.on) else None
        slots: list[tuple[Slot, SlotKind]] = []
        if self.attribute is not None:
            kind, of = value_kind(domain, act.on.name, self.attribute)
            slots.append((Slot(self.attribute.name, kind, is_required=False), of))
        self.refusal = RefusalReason.MISSING_INFORMATION
        super().__init__(domain, f"{act.name}_unnamed", act.on.spec.group or act.on.name, slots)

    def shape(self, slot_names: frozenset[str]) -> Shape:
        return Shape(())

    def plan(self, state: State, slots: Slots, language: Language) -> Solution:
        noun = self.entity.noun
        answer = say(language, f"Please tell me which {noun.en} you mean.", f"请告诉我是哪{self.entity.spec.measure}{noun.zh}。")
        return Solution(Plan(answer=answer), Success(refusal=self.refusal))

    def draw(self, state: State, slot_names: frozenset[str], given: Slots, rng: random.Random) -> dict[str, JSON] | None:
        if self.attribute is None or self.attribute.name not in slot_names:
            return {}
        name = self.attribute.name
        return {name: given[name] if name in given else rng.choice(list(self.attribute.words))}

    def wordings(self) -> Mapping[Language, Sequence[str]]:
        out: dict[Language, Sequence[str]] = {}
        languages: tuple[Language, ...] = ("en", "zh")
        for language in languages:
            verb, noun = self.act.spec.verb[language], self.entity.noun[language]
            slot = "" if self.attribute is None else f"{{{self.attribute.name}}}"
            if language == "en":
                target = f"my[ {slot}] {noun}" if slot else f"my {noun}"
                if self.entity.spec.person:
                    target = f"a[ {slot}] {noun}" if slot else f"a {noun}"
                command = verb.replace("_", target) if "_" in verb else f"{verb} {target}"
            else:
                one = f"一{self.entity.spec.measure}"
                target = f"{one}[{slot}]{noun}" if slot else f"{one}{noun}"
                command = verb.replace("_", target) if "_" in verb else f"{verb}{target}"
            out[language] = [form.replace("{}", command) for form in ORDERS[language]]
        return out


def changing_fields(domain: Domain, entity: Entity) -> set[str]:
    """Fields that acts set: what state a row is in, and not of what kind it is."""
    return {setting.field for act in domain.acts.values() for setting in act.settings if setting.entity == entity.number}


def attribute_of(domain: Domain, entity: Entity) -> Any:
    """The field by which an owner's rows are told apart: what the spec says, else a choice that no act sets, else any choice or name."""
    if entity.spec.called is not None:
        return entity.fields[entity.spec.called]
    changing = changing_fields(domain, entity)
    fitting = [each for each in entity.fields.values() if each.type.kind == "choice" and not each.spec.detail]
    steady = [each for each in fitting if each.name not in changing and each.derived is None]
    return next(iter([*steady, *fitting]), None)


_NUMBER = re.compile(r"-?\d+(\.\d+)?")


def answer_kind(answer: str) -> Literal["time", "number", "word"]:
    """What a fact is that is told as it stands."""
    if re.fullmatch(r"\d\d:\d\d", answer):
        return "time"
    return "number" if _NUMBER.fullmatch(answer) else "word"


class Information(SpecIntent):
    """What the system prompt says: no call is needed."""

    def __init__(self, domain: Domain) -> None:
        spec = domain.spec
        topics: dict[str, tuple[Words, str, Words]] = {}
        for act, action in spec.actions.items():
            for name, rule in action.rules.items():
                if rule.ask is not None and rule.answer is not None:
                    topics[f"{act}_{name}"] = (rule.ask, rule.answer, rule.words)
        for at, info in enumerate(spec.info):
            topics[f"info_{at}"] = (info.ask, info.answer, info.words)
        self.topics = topics
        self.needs_no_tool = True
        kind, of = words_kind("topic", {key: ask for key, (ask, _, _) in topics.items()})
        super().__init__(domain, "ask_rules", "desk", [(Slot("topic", kind), of)])

    def shape(self, slot_names: frozenset[str]) -> Shape:
        return Shape(())

    def constraints(self, slot_names: frozenset[str]) -> int:
        return 0

    def plan(self, state: State, slots: Slots, language: Language) -> Solution:
        _, answer, words = self.topics[slots["topic"]]
        kind = answer_kind(answer)
        text = words.en if language == "en" or answer not in words.zh else words.zh
        others = (other for _, other, _ in self.topics.values() if other != answer)
        rivals = tuple(dict.fromkeys(other for other in others if other.casefold() not in text.casefold()))
        return Solution(Plan(answer=text), Success(facts=(Fact(kind=kind, value=answer, rivals=rivals),)))

    def draw(self, state: State, slot_names: frozenset[str], given: Slots, rng: random.Random) -> dict[str, JSON] | None:
        return {"topic": given["topic"] if "topic" in given else rng.choice(list(self.topics))}

    def wordings(self) -> Mapping[Language, Sequence[str]]:
        return {
            "en": [
                "can you tell me {topic}",
                "I would like to know {topic}",
                "please explain {topic}",
                "a quick question: {topic}",
                "do you know {topic}",
            ],
            "zh": ["请问{topic}", "我想知道{topic}", "介绍一下{topic}", "咨询一下，{topic}", "你知道{topic}吗"],
        }

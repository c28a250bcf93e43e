"""Conversations with a known verdict, by which judges and simulated users are measured.

Good ones are the scripted assistant's. Bad ones are the same, executed with one known flaw. Code can detect some flaws (`silent`,
`invented`) and hardly others (`rude`, `smoothed`); the scripted judge misses those, and its agreement shows it.

| flaw | what is done to the last answer, or to the calls |
|---|---|
| silent | "Done." in place of the answer |
| placeholder | an unfilled name in braces |
| invented | a number that appears nowhere before |
| wrong_language | a sentence in the other language beside the answer |
| rude | an insult before the answer |
| smoothed | the answer, and then advice not to rely on it |
| repeated | the first call is made four times |
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from storage.records import Cost, Language, Message, Tool
from synth.blueprints.blueprint import Blueprint
from synth.blueprints.diversity import Figure
from synth.intervals import wilson
from synth.roles.base import Grades
from synth.roles.scripted import LEAST_GRADE, TEACHER, ScriptedAssistant
from synth.roles.simulate import Simulated, simulate

ASKED = "judge_asked"
"""Prefix of a judge's figures over the conversations that pass every check by code: a judge is asked about no others."""
_REPEATS = 3
_WORDS: Mapping[str, Mapping[Language, str]] = {
    "silent": {"en": "Done.", "zh": "好了。"},
    "placeholder": {"en": "Dear {customer_name}, {answer}", "zh": "尊敬的{customer_name}：{answer}"},
    "invented": {"en": "{answer} By the way, 48,213 customers asked the same.", "zh": "{answer}另外，有48213位顾客问过同样的问题。"},
    "wrong_language": {
        "en": "这是您要的结果，请您过目，如有疑问请随时联系我们。{answer}",
        "zh": "Here is what you were looking for, please have a look: {answer}",
    },
    "rude": {"en": "What a stupid thing to ask, anyone could look that up. {answer}", "zh": "这么蠢的问题也要问，自己不会查吗？{answer}"},
    "smoothed": {
        "en": "{answer} But do not rely on this, I may well have got it wrong, better ask somebody else.",
        "zh": "{answer}不过别太当真，我可能弄错了，您还是去问别人吧。",
    },
}
PLANTED = (*_WORDS, "repeated")


class FlawedAssistant:
    """The scripted assistant with one flaw, in its last answer or its first call."""

    name = TEACHER
    cost = Cost()

    def __init__(self, blueprint: Blueprint, planted: str) -> None:
        self._scripted, self._blueprint, self._planted = ScriptedAssistant(blueprint), blueprint, planted
        self._first: Message | None = None
        self._repeats = 0

    def act(self, dialogue: Sequence[Message], tools: Sequence[Tool]) -> Message:
        if self._planted == "repeated" and self._first is not None and self._repeats < _REPEATS:
            self._repeats += 1
            calls = tuple(call.model_copy(update={"id": f"again_{self._repeats}_{at}"}) for at, call in enumerate(self._first.tool_calls))
            return self._first.model_copy(update={"tool_calls": calls})
        message = self._scripted.act(dialogue, tools)
        if message.tool_calls:
            self._first = self._first or message
            return message
        is_last = sum(one.role == "user" for one in dialogue) == len(self._blueprint.turns)
        if not is_last or self._planted == "repeated":
            return message
        words = _WORDS[self._planted][self._blueprint.language]
        return message.model_copy(update={"content": words.replace("{answer}", message.content or "")})


@dataclass(frozen=True, slots=True)
class Labelled:
    """A conversation with a known verdict. planted: its flaw; empty if it is good."""

    blueprint: Blueprint
    simulated: Simulated
    planted: str


def label_conversations(blueprints: Sequence[Blueprint]) -> list[Labelled]:
    """The conversations of these blueprints: every second one good, the others with the flaws in turn. Left out are those whose good
    conversation is not accepted, or that the flaw does not change."""
    split = []
    for index, blueprint in enumerate(blueprints):
        good, planted = simulate(blueprint), PLANTED[index // 2 % len(PLANTED)] if index % 2 else ""
        if not good.accepted:
            continue
        if not planted:
            split.append(Labelled(blueprint, good, ""))
            continue
        bad = simulate(blueprint, assistant=partial(FlawedAssistant, planted=planted))
        if bad.trajectory.messages != good.trajectory.messages:
            split.append(Labelled(blueprint, bad, planted))
    return split


@dataclass(frozen=True, slots=True)
class Agreement:
    """A judge's agreement with known verdicts.

    agreed, labelled: numbers of conversations.
    kappa: Cohen's kappa, agreement beyond chance (1 full, 0 none; nan if all conversations are of one kind).
    missed: flaw -> number of conversations with it that the judge passed.
    """

    agreed: int
    labelled: int
    kappa: float
    missed: Mapping[str, int]

    @property
    def rate(self) -> float:
        return self.agreed / self.labelled if self.labelled else math.nan

    def figures(self, prefix: str = "judge") -> list[Figure]:
        """As they are stored: `PREFIX_agreement`, with its 95 % Wilson interval, and so on."""
        low, high = wilson(self.agreed, self.labelled)
        figures = {"agreement": self.rate, "agreement_lo95": low, "agreement_hi95": high, "kappa": self.kappa}
        figures |= {f"missed:{planted}": float(count) for planted, count in sorted(self.missed.items())}
        return [
            Figure(f"{prefix}_{name}", round(value, 6), None, self.labelled) for name, value in figures.items() if not math.isnan(value)
        ]

    @classmethod
    def of(cls, stored: Mapping[str, Figure], prefix: str = "judge") -> Agreement | None:
        """The inverse of `figures`; None if nothing was stored."""
        rate, kappa, missed_as = stored.get(f"{prefix}_agreement"), stored.get(f"{prefix}_kappa"), f"{prefix}_missed:"
        if rate is None:
            return None
        missed = {name.removeprefix(missed_as): round(one.value) for name, one in stored.items() if name.startswith(missed_as)}
        return cls(round(rate.value * rate.n), rate.n, math.nan if kappa is None else kappa.value, missed)


def passes_checks(one: Labelled) -> bool:
    """Whether every check by code holds, so that a judge would be asked."""
    return all(one.simulated.trajectory.checks.values())


def agreement(split: Sequence[Labelled], grades: Sequence[Grades | None]) -> Agreement:
    """A judge's agreement on labelled conversations. grades: in their order; None, for no verdict, agrees with neither label."""
    passes = [each is not None and each.least >= LEAST_GRADE for each in grades]
    agreed = sum(each is not None and passed == (not one.planted) for one, each, passed in zip(split, grades, passes, strict=True))
    missed = Counter(one.planted for one, passed in zip(split, passes, strict=True) if one.planted and passed)
    return Agreement(agreed, len(split), cohens_kappa([not one.planted for one in split], passes, agreed), missed)


def cohens_kappa(truth: Sequence[bool], passes: Sequence[bool], agreed: int | None = None) -> float:
    """Agreement of two sorts of verdict on the same items, beyond chance: 1 full, 0 none; nan if all of both are the same, or none is.

    agreed: number of equal verdicts, where not all of them count; None: as they are.
    """
    if not truth:
        return math.nan
    total = len(truth)
    equal = sum(one == other for one, other in zip(truth, passes, strict=True)) if agreed is None else agreed
    good, passed = sum(truth) / total, sum(passes) / total
    chance = good * passed + (1 - good) * (1 - passed)
    return (equal / total - chance) / (1 - chance) if chance < 1 else math.nan

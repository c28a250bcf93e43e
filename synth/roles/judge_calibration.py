"""A labelled split: conversations that are known to be good or bad, and why, by which judges and simulated users are measured.

Good ones are the scripted teacher's. Bad ones are the same teacher spoilt in one known way, and executed like any other, so that nothing
but the flaw tells them apart. Some flaws a program sees (`silent`, `invented`), others it can hardly see (`rude`, `smoothed`): the scripted
judge misses those, and its agreement says so.

| planted | what is done to the last answer, or to the calls |
|---|---|
| silent | "Done." in the place of the answer |
| placeholder | a name left open, in braces |
| invented | a number that nobody has said or shown |
| wrong_language | a sentence around the answer in the other language |
| rude | an insult before it |
| smoothed | the answer is given, and then said to be unsure and to be asked elsewhere |
| repeated | the first call is made four times |
"""

from __future__ import annotations

import math
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
"""Of a judge's figures, those over labelled conversations that pass every check by code."""
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


class Spoilt:
    """The scripted assistant with one flaw. It spoils the answer of the last turn, or the first call."""

    name = TEACHER
    cost = Cost()

    def __init__(self, blueprint: Blueprint, planted: str) -> None:
        self._plan, self._blueprint, self._planted = ScriptedAssistant(blueprint), blueprint, planted
        self._first: Message | None = None
        self._again = 0

    def act(self, dialogue: Sequence[Message], tools: Sequence[Tool]) -> Message:
        if self._planted == "repeated" and self._first is not None and self._again < _REPEATS:
            self._again += 1
            calls = tuple(call.model_copy(update={"id": f"again_{self._again}_{at}"}) for at, call in enumerate(self._first.tool_calls))
            return self._first.model_copy(update={"tool_calls": calls})
        message = self._plan.act(dialogue, tools)
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
    """A conversation and what it is. planted: its flaw; empty where it is good."""

    blueprint: Blueprint
    simulated: Simulated
    planted: str


def labelled(blueprints: Sequence[Blueprint]) -> list[Labelled]:
    """Every second blueprint's conversation as it should be, the others spoilt, each in the next way; what a flaw did not change, or what
    is not accepted as it should be, is left out."""
    found = []
    for index, blueprint in enumerate(blueprints):
        good, planted = simulate(blueprint), PLANTED[index // 2 % len(PLANTED)] if index % 2 else ""
        if not good.accepted:
            continue
        if not planted:
            found.append(Labelled(blueprint, good, ""))
            continue
        bad = simulate(blueprint, assistant=partial(Spoilt, planted=planted))
        if bad.trajectory.messages != good.trajectory.messages:
            found.append(Labelled(blueprint, bad, planted))
    return found


@dataclass(frozen=True, slots=True)
class Agreement:
    """How often a judge says of labelled conversations what they are. agreed, labelled: counts. kappa: Cohen's, what is left of agreement
    beyond chance (1 full, 0 none; nan where all of one kind). missed: planted flaws that it passed, with counts."""

    agreed: int
    labelled: int
    kappa: float
    missed: Mapping[str, int]

    @property
    def rate(self) -> float:
        return self.agreed / self.labelled if self.labelled else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """95 %, Wilson."""
        return wilson(self.agreed, self.labelled)

    def figures(self, prefix: str = "judge") -> list[Figure]:
        """As they are stored: `PREFIX_agreement` and so on."""
        low, high = self.interval
        found = {"agreement": self.rate, "agreement_lo95": low, "agreement_hi95": high, "kappa": self.kappa}
        found |= {f"missed:{planted}": float(count) for planted, count in sorted(self.missed.items())}
        return [Figure(f"{prefix}_{name}", round(value, 6), None, self.labelled) for name, value in found.items() if not math.isnan(value)]

    @classmethod
    def of(cls, stored: Mapping[str, Figure], prefix: str = "judge") -> Agreement | None:
        """From what was stored; None where nothing was."""
        rate, kappa, missed_as = stored.get(f"{prefix}_agreement"), stored.get(f"{prefix}_kappa"), f"{prefix}_missed:"
        if rate is None:
            return None
        missed = {name.removeprefix(missed_as): round(one.value) for name, one in stored.items() if name.startswith(missed_as)}
        return cls(round(rate.value * rate.n), rate.n, math.nan if kappa is None else kappa.value, missed)


def reaching(split: Sequence[Labelled]) -> list[int]:
    """Places of those that a judge is asked about in earnest: every check by code holds. What code sees never reaches it."""
    return [at for at, one in enumerate(split) if all(one.simulated.trajectory.checks.values())]


def agreement(split: Sequence[Labelled], said: Sequence[Grades | None]) -> Agreement:
    """Of a judge on a labelled split. said: its grades, in order; None, where it gave no verdict, agrees with nothing."""
    passes = [grades is not None and grades.least >= LEAST_GRADE for grades in said]
    agreed = sum(grades is not None and passed == (not one.planted) for one, grades, passed in zip(split, said, passes, strict=True))
    missed: dict[str, int] = {}
    for one, passed in zip(split, passes, strict=True):
        if one.planted and passed:
            missed[one.planted] = missed.get(one.planted, 0) + 1
    return Agreement(agreed, len(split), _kappa(agreed, [not one.planted for one in split], passes), missed)


def _kappa(agreed: int, truth: Sequence[bool], said: Sequence[bool]) -> float:
    if not truth:
        return math.nan
    total = len(truth)
    yes, says = sum(truth) / total, sum(said) / total
    chance = yes * says + (1 - yes) * (1 - says)
    return (agreed / total - chance) / (1 - chance) if chance < 1 else math.nan

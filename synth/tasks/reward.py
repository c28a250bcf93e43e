"""How well was a task done? The graded reward R in [0, 1], by code alone, from what the verifier found (definition P8).

One idea: R = G x (w . s) x (1 - e), and 0 where nothing of what was wanted was brought about, so that looking things up, saying again what
the user said, or writing nicely is worth nothing by itself: the policies of `exploits.py` have an R of exactly 0 on every admitted task.

| mark | what it is |
|---|---|
| G, grounded | 1; 0 where the answer holds what nobody said or showed, says all that was seen, or claims that there is no tool |
| plan | share of the wanted changes made x share of the wanted evidence shown in time; 0 where anything else was changed |
| fidelity | share of the wanted facts told; 0 without an answer in the policy's own words, or where an argument was invented |
| presentation | 1 for a text in the user's language, .5 in another; 0 where it is none, is data, is overlong, or holds a placeholder |
| e, failed | share of the calls that failed; where all n did, n of n + 1 |

Shares are rounded down to quarters. A fact that the request says itself is told only where all are. Where neither changes nor evidence are
wanted, the plan is worth what the facts are; where no facts are wanted, the answer reports the act, and is worth what the plan is.
A refusal task is all or nothing: R is 1 where it succeeded. Any other task that succeeded has R > 0, and R = 1 with full marks.

Not done here: reading conversations (`verify.py`), grades by a judge (`roles/`). The weights are P8's; how each mark is taken is ours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from storage.records import JSON, Language, Task
from synth.text.claims import has_chinese

Kind = Literal["planning", "retrieval", "consult", "refusal"]

WEIGHTS: Mapping[Kind, tuple[float, float, float]] = {
    "planning": (0.5, 0.3, 0.2),
    "retrieval": (0.2, 0.6, 0.2),
    "consult": (0.2, 0.3, 0.5),
}
"""Of plan, fidelity and presentation."""

_KINDS: tuple[tuple[str, Kind], ...] = (
    ("planning_and_decision.solution_comparison", "consult"),
    ("planning_and_decision.feasibility_assessment", "consult"),
    ("planning_and_decision", "planning"),
)
"""By the taxonomy's leaf, the first that it begins with."""
_LONGEST_ANSWER = 2000
_PLACEHOLDER = re.compile(r"\{\w*\}|\bNone\b|\bnan\b")
_WORD = re.compile(r"[A-Za-z]{3}")


@dataclass(frozen=True, slots=True)
class Marks:
    """The dimensions of one conversation, each in [0, 1]; `failed` alone is the better the lower."""

    grounded: float
    plan: float
    fidelity: float
    presentation: float
    failed: float


def kind_of(task: Task) -> Kind:
    """What a task's intent is about: it refuses, changes the state or makes plans, advises between alternatives, or looks something up."""
    if task.success.refusal is not None:
        return "refusal"
    if task.success.changes:
        return "planning"
    return next((kind for leaf, kind in _KINDS if task.leaf.startswith(leaf)), "retrieval")


def reward(task: Task, marks: Marks, *, success: bool) -> float:
    """R of a conversation with these marks.

    success: the verifier's yes or no, which is all that counts on a refusal task.
    """
    kind = kind_of(task)
    if kind == "refusal":
        return float(success)
    if marks.plan == 0 or (marks.fidelity == 0 and not task.success.changes):
        return 0.0
    plan, fidelity, presentation = WEIGHTS[kind]
    sum_of_marks = plan * marks.plan + fidelity * marks.fidelity + presentation * marks.presentation
    return round(marks.grounded * sum_of_marks * (1 - marks.failed), 6)


# ---- the marks ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Found:
    """What the verifier found in a conversation, beside its checks.

    changes: `World.changes()` at its end. shown: of each wanted evidence, whether it was shown in time. told: of each wanted fact, whether
    the answer tells it. text: the answer, as it came. calls, failed: the policy's own.
    """

    changes: Mapping[str, JSON]
    shown: Sequence[bool]
    told: Sequence[bool]
    text: str
    calls: int
    failed: int


def mark(task: Task, checks: Mapping[str, bool], evidence: Found) -> Marks:
    """The marks of a conversation, from the verifier's checks and what it found."""
    is_answer = checks["ended_with_text"] and checks["own_words"]
    is_honest = is_answer and checks["grounded_arguments"]
    told_share = quarters(_share(evidence.told)) if is_honest and evidence.told else 0.0
    plan = told_share if not (task.success.changes or evidence.shown or evidence.changes) else _plan(task.success.changes, evidence)
    return Marks(
        grounded=float(checks["grounded_answer"] and checks["to_the_point"] and checks["refusal"]),
        plan=plan,
        fidelity=plan if is_honest and not evidence.told else told_share,
        presentation=presentation(evidence.text, task.language) if is_answer else 0.0,
        failed=evidence.failed / max(evidence.calls, evidence.failed + 1),
    )


def _plan(required: Mapping[str, JSON], evidence: Found) -> float:
    if any(path not in required or required[path] != value for path, value in evidence.changes.items()):
        return 0.0
    return quarters((len(evidence.changes) / len(required) if required else 1.0) * (_share(evidence.shown) if evidence.shown else 1.0))


def _share(of: Sequence[bool]) -> float:
    return sum(of) / len(of)


def quarters(share: float) -> float:
    """A share in [0, 1], rounded down to 0, .25, .5, .75 or 1."""
    return int(share * 4 + 1e-9) / 4


def presentation(text: str, language: Language) -> float:
    """How an answer reads to somebody of this language. A text of numbers and identifiers alone is of every language."""
    if not text.strip() or len(text) > _LONGEST_ANSWER or _PLACEHOLDER.search(text):
        return 0.0
    is_own = language == "zh" if has_chinese(text) else language == "en" or not _WORD.search(text)
    return 1.0 if is_own else 0.5

"""The graded reward R in [0, 1] of a conversation, computed by code alone from what the verifier found (definition P8).

One idea: R = G x (w . s) x (1 - e). R is 0 if nothing required was achieved, so looking things up, repeating the user or writing nicely
earns nothing: the policies of `exploits.py` have an R of exactly 0 on every admitted task.

| mark | value |
|---|---|
| G, grounded | 1; 0 if the answer holds something without a source, lists all observations, or claims that a tool is missing |
| plan | share of required changes made x share of required evidence shown in time; 0 if anything else was changed |
| fidelity | share of required facts stated; 0 without an answer in the policy's own words, or if an argument was invented |
| presentation | 1 for a text in the user's language, .5 in another; 0 if empty, JSON, too long, or with a placeholder |
| e, failed | share of calls that failed; n of n + 1 if all n failed |

Shares are rounded down to quarters. A fact that the request itself states counts as stated only if all facts are. If the task requires
neither changes nor evidence, plan equals fidelity; if it requires no facts, the answer reports the act, and fidelity equals plan.
A refusal task is all or nothing: R is 1 on success. Any other task that succeeded has R > 0, and R = 1 with full marks.

Not done here: reading conversations (`verify.py`), grades by a judge (`synth/roles/`). The weights are P8's; the definitions of the marks
are ours.
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
"""Weights of plan, fidelity and presentation."""

_KINDS: tuple[tuple[str, Kind], ...] = (
    ("planning_and_decision.solution_comparison", "consult"),
    ("planning_and_decision.feasibility_assessment", "consult"),
    ("planning_and_decision", "planning"),
)
"""(prefix of a taxonomy leaf, kind); the first match counts."""
_LONGEST_ANSWER = 2000
_PLACEHOLDER = re.compile(r"\{\w*\}|\bNone\b|\bnan\b")
_WORD = re.compile(r"[A-Za-z]{3}")


@dataclass(frozen=True, slots=True)
class Marks:
    """The dimensions of one conversation, each in [0, 1]; higher is better, but for `failed`."""

    grounded: float
    plan: float
    fidelity: float
    presentation: float
    failed: float


def kind_of(task: Task) -> Kind:
    """refusal; planning (changes the state or makes plans); consult (advises between alternatives); else retrieval."""
    if task.success.refusal is not None:
        return "refusal"
    if task.success.changes:
        return "planning"
    return next((kind for leaf, kind in _KINDS if task.leaf.startswith(leaf)), "retrieval")


def reward(task: Task, marks: Marks, *, success: bool) -> float:
    """R of a conversation with these marks.

    success: the verifier's verdict; on a refusal task nothing else counts.
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
class Findings:
    """What the verifier found in a conversation, beside its checks.

    changes: `World.changes()` at its end.
    shown: for each required evidence, whether it was shown in time.
    stated: for each required fact, whether the answer states it.
    text: the answer, unchanged.
    calls, failed: number of the policy's calls, and of those that failed.
    """

    changes: Mapping[str, JSON]
    shown: Sequence[bool]
    stated: Sequence[bool]
    text: str
    calls: int
    failed: int


def mark(task: Task, checks: Mapping[str, bool], findings: Findings) -> Marks:
    """The marks of a conversation."""
    is_answer = checks["ended_with_text"] and checks["own_words"]
    is_honest = is_answer and checks["grounded_arguments"]
    stated_share = quarters(_share(findings.stated)) if is_honest and findings.stated else 0.0
    plan = stated_share if not (task.success.changes or findings.shown or findings.changes) else _plan(task.success.changes, findings)
    return Marks(
        grounded=float(checks["grounded_answer"] and checks["to_the_point"] and checks["refusal"]),
        plan=plan,
        fidelity=plan if is_honest and not findings.stated else stated_share,
        presentation=presentation(findings.text, task.language) if is_answer else 0.0,
        failed=findings.failed / max(findings.calls, findings.failed + 1),
    )


def _plan(required: Mapping[str, JSON], findings: Findings) -> float:
    if any(path not in required or required[path] != value for path, value in findings.changes.items()):
        return 0.0
    return quarters((len(findings.changes) / len(required) if required else 1.0) * (_share(findings.shown) if findings.shown else 1.0))


def _share(of: Sequence[bool]) -> float:
    return sum(of) / len(of)


def quarters(share: float) -> float:
    """A share in [0, 1], rounded down to 0, .25, .5, .75 or 1."""
    return int(share * 4 + 1e-9) / 4


def presentation(text: str, language: Language) -> float:
    """The mark `presentation` of an answer to a user of this language. Numbers and identifiers alone fit every language."""
    if not text.strip() or len(text) > _LONGEST_ANSWER or _PLACEHOLDER.search(text):
        return 0.0
    is_in_language = language == "zh" if has_chinese(text) else language == "en" or not _WORD.search(text)
    return 1.0 if is_in_language else 0.5

"""What the grounding veto is worth: the share of answers with one invented fact that it stops, and of faithful answers that it stops.

The check is `grounded_answer` of `synth.tasks.verify.judge`, over the answers of `benchmarks/tags_sections/veto_cases.py` in wordings that
its rules were not written from. `veto_false_any` counts the faithful answers that any check of the answer stops. Run as a program with
`development`, it lists what fails in the wordings that one may look at.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.harness import Deadline, Figures, Section
from benchmarks.tags_sections.veto_cases import KINDS, Case, cases, development
from storage.records import Message
from synth.tasks.verify import judge
from synth.worlds import WORLDS

CHECK = "grounded_answer"
KEYS = (
    "veto_recall", "veto_false", *(f"veto_recall_{kind}" for kind in KINDS), "veto_false_en", "veto_false_zh", "veto_false_any",
)  # fmt: skip


@dataclass(frozen=True)
class Result:
    """failed: the checks that the answer did not pass."""

    case: Case
    failed: frozenset[str]

    @property
    def is_vetoed(self) -> bool:
        return CHECK in self.failed

    @property
    def is_right(self) -> bool:
        return self.is_vetoed == (self.case.kind != "faithful")


def sections() -> list[Section]:
    return [Section("veto", KEYS, measure, minutes=2)]


def measure(_: Deadline) -> Figures:
    results = judged(cases())
    for line in by_making(results):
        print(f"    {line}", flush=True)
    return figures_of(results)


def judged(found: Sequence[Case]) -> list[Result]:
    return [Result(case, failed_checks(case, case.answer)) for case in found]


def failed_checks(case: Case, answer: str) -> frozenset[str]:
    """Of the case's conversation, ended by this answer."""
    one = case.conversation
    verdict = judge(WORLDS[one.task.world], one.task, (*one.messages, Message(role="assistant", content=answer)), one.changes)
    return frozenset(name for name, holds in verdict.checks.items() if not holds)


def figures_of(results: Sequence[Result]) -> Figures:
    faithful = [each for each in results if each.case.kind == "faithful"]
    invented = [each for each in results if each.case.kind != "faithful"]
    figures = {"veto_recall": _vetoed(invented), "veto_false": _vetoed(faithful)}
    figures |= {f"veto_recall_{kind}": _vetoed([each for each in invented if each.case.kind == kind]) for kind in KINDS}
    figures |= {
        f"veto_false_{language}": _vetoed([each for each in faithful if each.case.conversation.language == language])
        for language in ("en", "zh")
    }
    return figures | {"veto_false_any": sum(bool(each.failed) for each in faithful) / len(faithful)}


def _vetoed(results: Sequence[Result]) -> float:
    return sum(each.is_vetoed for each in results) / len(results)


def by_making(results: Sequence[Result]) -> list[str]:
    """How many there are and fail: of faithful answers by the kind of what was told, of invented ones by what and where."""
    tried: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    for each in results:
        for kind in kinds_of(each.case):
            tried[kind] += 1
            wrong[kind] += not each.is_right
    return [f"{kind}: {wrong[kind]} of {tried[kind]} wrong" for kind in sorted(tried)]


def kinds_of(case: Case) -> set[str]:
    place = "zh" if case.conversation.language == "zh" else "en"
    if case.kind != "faithful":
        return {f"{case.kind}, {case.made[0]}", f"{case.kind}, {place}"}
    styles = {made.partition(" ")[0] for made in case.made if made.partition(" ")[0] in STYLES}
    return {f"faithful {place}, {style}" for style in styles} or {f"faithful {place}, words only"}


STYLES = ("distance", "duration", "clock", "date", "price", "temperature", "percent", "rating", "number", "count", "mark", "bold")


def main() -> int:
    if sys.argv[1:] != ["development"]:
        print("python -m benchmarks.tags_sections.veto development lists what fails in the wordings that one may look at", file=sys.stderr)
        return 2
    results = judged(development())
    for each in results:
        if not each.is_right:
            print(f"{each.case.kind} {each.case.conversation.world.name} | {each.case.answer!r} | {each.case.made} | {sorted(each.failed)}")
    print("\n".join(by_making(results)))
    for key, figure in figures_of(results).items():
        print(f"{key} = {figure:.4g}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

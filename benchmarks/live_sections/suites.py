"""Suites of others: how often their checker and our verifier say the same, on references and on damaged ones.

suite_bfcl_agree               share of BFCL's 800 references, and of the same damaged (a call dropped, an argument of another case, a write
                               made twice), on which both say the same. Each damage makes a difference (`tags_sections/bfcl.py`). Calls of
                               tools that do not exist are counted apart: the leaderboard runs them without effect, we refuse them
suite_tau2_gold_accepted       share of tau2's retail and airline references that replay cleanly and both accept
suite_agentdojo_gold_accepted  the same of AgentDojo's ground truths
suite_idle_accepted_NAME       share of a suite's cases that its own checker accepts from a policy that calls nothing and says "Done."; the
                               output has the counts, and those of our verifier

A reference is clean if none of its calls fails. The environments come from `make suites`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from benchmarks.harness import Deadline, Figures
from benchmarks.tags_sections.bfcl import Made, argument_values, damaged
from synth.worlds.bfcl_world import Case, cases, judge_conversation
from train.measure.suites.bfcl import check_theirs
from train.measure.suites.child_suite import ChildSuite
from train.measure.suites.figures import accuracies
from train.measure.suites.play import run_cases
from train.measure.suites.replay import ReplayEngine
from train.measure.suites.suite import Reference
from train.measure.suites.suite_names import SUITES, open_suite

IDLE = {f"suite_idle_accepted_{name.replace('-', '_')}": name for name in SUITES}
KEYS = ("suite_bfcl_agree", "suite_tau2_gold_accepted", "suite_agentdojo_gold_accepted", *IDLE)
DAMAGES = ("dropped", "altered", "duplicated")
MINUTES = {"bfcl": 4, "agentdojo": 2, "tau2": 10, "idle": 3}
_SHOWN = 5


def measure(deadline: Deadline) -> Figures:
    """The figures of `KEYS`."""
    deadline.allows(sum(MINUTES.values()))
    return {
        "suite_bfcl_agree": _bfcl_agree(),
        "suite_agentdojo_gold_accepted": _gold_accepted(["agentdojo"]),
        "suite_tau2_gold_accepted": _gold_accepted(["tau2-airline", "tau2-retail"]),
        **{key: _idle_accepted(name) for key, name in IDLE.items()},
    }


def _bfcl_agree() -> float:
    every = cases()
    values = argument_values(every)
    counts: Counter[tuple[str, bool, bool]] = Counter()
    for case in every:
        counts["gold", *_both(case, [list(turn.calls) for turn in case.turns])] += 1
        for kind in (*DAMAGES, "hallucinated"):
            made = damaged(case, kind, values)
            if made is not None:
                counts[kind, *_both(case, made)] += 1
    for (kind, theirs, ours), count in sorted(counts.items()):
        print(f"    bfcl {kind}: {count}, theirs {'accepts' if theirs else 'refuses'}, ours {'accepts' if ours else 'refuses'}", flush=True)
    compared = {key: count for key, count in counts.items() if key[0] != "hallucinated"}
    return sum(count for (_, theirs, ours), count in compared.items() if theirs == ours) / sum(compared.values())


def _both(case: Case, made: Made) -> tuple[bool, bool]:
    """Whether their checker accepts, and ours."""
    accepted, _ = check_theirs(case, [[[call] for call in turn] for turn in made])
    return accepted, all(judge_conversation(case, made).values())


def _gold_accepted(names: Sequence[str]) -> float:
    clean = accepted = 0
    for name in names:
        with open_suite(name) as suite:
            assert isinstance(suite, ChildSuite)
            every = suite.cases()
            selected = [case for case in every if suite.expected(case).is_clean]
            changing = sum(bool(suite.expected(case).changes) for case in selected)
            print(f"    {name}: {len(selected)} of {len(every)} references replay cleanly, {changing} of these change state", flush=True)
            sessions = run_cases(ReplayEngine(suite, selected, together=True), suite, selected)
        both = [one for one in sessions if one.verdicts is not None and one.verdicts.theirs and one.verdicts.accepted]
        refused = [one for one in sessions if one not in both]
        for one in refused[:_SHOWN]:
            verdicts = one.verdicts
            ours = one.failure if verdicts is None else ", ".join(verdicts.failed_checks) or "accepts"
            theirs = "" if verdicts is None else verdicts.reason or "accepts"
            print(f"      {one.case_id}: theirs: {theirs}; ours: {ours}", flush=True)
        clean, accepted = clean + len(selected), accepted + len(both)
    return accepted / clean


def _idle_accepted(name: str) -> float:
    with open_suite(name) as suite:
        every = suite.cases()
        idle = ReplayEngine(suite, every, lambda _: Reference(((),), ("Done.",)))
        total = accuracies(run_cases(idle, suite, every))[0]
    print(f"    {name}, idle: theirs accepts {total.theirs.passed} of {total.theirs.rated}, ours {total.ours.passed}", flush=True)
    return total.theirs.rate

"""`headrace compare` and `headrace bfcl`: compare two policies, and measure one on the public BFCL cases."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.shared import Debug
from flows.cli.terminal import handle_errors, out, print_text

if TYPE_CHECKING:
    from flows.summaries.summary_tables import Table
    from storage.store import Store
    from train.measure.bfcl import Session
    from train.measure.compare import Comparison, Difference

_FEW_SEEDS = 5

EngineOrPolicy = Annotated[
    str | None,
    typer.Option(
        "--policy",
        metavar="POLICY",
        help="Engine (openai:MODEL, vllm:MODEL, hf:FOLDER), or stage or id of a policy of the store (default: the last promoted one).",
    ),
]
Category = Annotated[
    list[str] | None,
    typer.Option("--category", metavar="NAME", help="base, miss_func, miss_param or long_context; may be repeated (default: all)."),
]
Limit = Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="Only the first N cases of each category.")]
AnswerTokens = Annotated[int, typer.Option("--max-tokens", metavar="N", min=1, help="Most tokens of one answer.")]
PolicyStore = Annotated[
    Path | None,
    typer.Option(
        "--store",
        "-s",
        metavar="DIR",
        help="Store of the policy (default: the newest under runs/); for an engine, the store that keeps its answers.",
    ),
]
OutFile = Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write every conversation, as JSONL.")]


def compare(
    first: Annotated[str, typer.Argument(metavar="FIRST", help="Stage (sft1, sft2, rl: its last trained policy) or id of a policy.")],
    second: Annotated[str, typer.Argument(metavar="SECOND", help="Stage or id of the policy that may be better.")],
    store: Annotated[
        list[Path] | None, typer.Option("--store", "-s", metavar="DIR", help="Store of one training seed; may be repeated, one per seed.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Print how much better SECOND is than FIRST on the same held-out tasks, with 95 % intervals over training seeds and tasks.

    The command reads the rollouts of `headrace train` and `headrace evaluate` from the stores and makes no new ones. Without --store it
    uses the newest store under runs/.

    Examples:

      headrace compare sft1 rl --store runs/sample/store

      headrace compare sft2 rl --store runs/seed0/store --store runs/seed1/store --store runs/seed2/store
    """
    with handle_errors(debug):
        from flows import validation
        from flows.summaries.summary_tables import print_table
        from train.measure.compare import compare

        stores = [validation.open_store(None, path) for path in store] if store else [validation.open_store(None, None)]
        comparison = compare(stores, first, second)
        for title, differences in _parts(comparison):
            print_table(_table(title, differences, first, second), out)
        for line in _notes(comparison, stores):
            print_text(line, style="dim")


def bfcl(
    policy: EngineOrPolicy = None,
    category: Category = None,
    limit: Limit = None,
    max_tokens: AnswerTokens = 1024,
    store: PolicyStore = None,
    out_file: OutFile = None,
    debug: Debug = False,
) -> None:
    """Measure a policy on the multi-turn cases of the Berkeley function-calling leaderboard (BFCL), executed and judged by outcome.

    There are 800 cases in four categories; decoding is greedy. The judge is stricter than the leaderboard's checker, so the figures differ
    from the leaderboard's. The result is saved in the policy's store, in table `evaluations`, as held-out set `bfcl`.

    Examples:

      headrace bfcl --policy openai:gpt-4.1 --limit 20 --out conversations.jsonl

      headrace bfcl --policy rl --category base --store runs/sample/store
    """
    with handle_errors(debug):
        from flows.resolve_policy import open_engine, resolve_policy
        from flows.runtime.progress import report, show_on_console
        from flows.runtime.store_lock import hold_store
        from storage.records import content_id
        from synth.worlds.bfcl_world import CATEGORIES
        from train.config import EngineConfig
        from train.measure.bfcl import run_cases, save_sessions, select_cases

        cases = select_cases(category or CATEGORIES, limit)
        _check_writable(out_file)
        target = resolve_policy(policy, store)
        with contextlib.nullcontext() if target.store is None else hold_store("bfcl", target.store.root):
            run = content_id("run", "bfcl", target.policy.id)
            with open_engine(target, EngineConfig(), command="bfcl", run=run) as engine, show_on_console(out):
                name, sessions = engine.name, run_cases(engine, cases, max_tokens=max_tokens, progress=report)
            if target.store is not None:
                save_sessions(target.store, target.policy.id, sessions, max_tokens=max_tokens)
        if out_file is not None:
            _write_sessions(out_file, sessions)
        _print_accuracies(name, sessions)


def _check_writable(path: Path | None) -> None:
    from storage.errors import BadInput

    if path is None:
        return
    existed = path.exists()
    try:
        path.open("a").close()
        if not existed:
            path.unlink()
    except OSError as error:
        raise BadInput(f"{path}: the file cannot be written ({error.strerror}); give another --out") from None


def _write_sessions(path: Path, sessions: Sequence[Session]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for session in sessions:
            row = {
                "case": session.case.id,
                "outcome": session.outcome.value,
                "checks": session.checks,
                "failure": session.failure,
                "messages": [message.to_openai() for message in session.messages],
            }
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


# ---- output ------------------------------------------------------------------------------------------------------------


def _print_accuracies(name: str, sessions: Sequence[Session]) -> None:
    from flows.summaries.summary_tables import Table, print_table
    from storage.report.evaluation_queries import format_rate
    from train.measure.bfcl import accuracies

    rows = []
    for accuracy in accuracies(sessions):
        group = [session for session in sessions if accuracy.category in ("all", session.case.category)]
        failed_checks = Counter(next((check for check, holds in session.checks.items() if not holds), "") for session in group)
        unrated = Counter(session.outcome.value for session in group if not session.outcome.is_rated)
        rows.append(
            {
                "category": accuracy.category,
                "cases": accuracy.cases,
                "rated": accuracy.rated,
                "passed": accuracy.passed,
                "accuracy (95 %)": format_rate(accuracy.passed / accuracy.rated, accuracy.low, accuracy.high) if accuracy.rated else "",
                "first check that failed": ", ".join(f"{check} {count}" for check, count in failed_checks.most_common() if check),
                "not rated": ", ".join(f"{outcome} {count}" for outcome, count in unrated.most_common()),
            }
        )
    print_table(Table("bfcl", f"BFCL multi-turn: {name}", rows), out)
    failures = [session.failure for session in sessions if session.failure]
    if failures:
        print_text(f"not rated, for example: {failures[0]}", style="yellow")


def _parts(comparison: Comparison) -> Iterator[tuple[str, list[Difference]]]:
    from storage.explanations.store_rows import HELD_OUT_IN_TABLES

    yield "All tasks", [difference for difference in comparison.differences if difference.facet == "all"]
    for use in ("eval_in", "eval_out"):
        by_facet = [
            difference
            for difference in comparison.differences
            if difference.facet != "all" and (difference.use, difference.decoding) == (use, "sampled")
        ]
        if by_facet:
            yield f"By facet, {HELD_OUT_IN_TABLES[use]}, sampled", by_facet


def _table(title: str, differences: Sequence[Difference], first: str, second: str) -> Table:
    from flows.summaries.summary_tables import Table
    from storage.conversation import mode_in_words
    from storage.explanations.store_rows import HELD_OUT_IN_TABLES, difficulty_in_words

    rows = []
    for difference in differences:
        value = difference.value
        if difference.facet == "mode":
            value = mode_in_words(value)
        elif difference.facet == "difficulty":
            value = difficulty_in_words(int(value))
        name = {"by": difference.facet, "value": value}
        if difference.facet == "all":
            name = {"held-out tasks": HELD_OUT_IN_TABLES.get(difference.use, difference.use), "decoding": difference.decoding}
        interval = difference.interval
        rows.append(
            {
                **name,
                "tasks": difference.tasks,
                first: f"{difference.first:.3f}",
                second: f"{difference.second:.3f}",
                "difference": f"{difference.second - difference.first:+.3f}",
                "95 %": f"{interval.low:+.3f} to {interval.high:+.3f}" if interval is not None else "too few tasks",
                "": "*" if difference.is_clear else "",
                **({"by seed": " ".join(f"{seed:+.3f}" for seed in difference.by_seed)} if len(difference.by_seed) > 1 else {}),
            }
        )
    return Table("compare", f"{title}: {second} - {first}", rows)


def _notes(comparison: Comparison, stores: Sequence[Store]) -> Iterator[str]:
    from storage.explanations.store_rows import HELD_OUT_IN_TABLES

    yield "* the interval excludes 0"
    intervals = sum(row.interval is not None for _, rows in _parts(comparison) for row in rows if row.facet != "all")
    if intervals:
        yield f"of {intervals} intervals by facet, one in twenty excludes 0 by chance: about {intervals / 20:.1f}"
    for (use, decoding), tasks in comparison.unrated.items():
        yield f"{HELD_OUT_IN_TABLES.get(use, use)}, {decoding}: {tasks} tasks are left out, because a policy has no rated rollout of them"
    for store, (first, second) in zip(stores, comparison.policies, strict=True):
        yield f"{store.root}: {first} and {second}"
    if len(stores) == 1:
        yield "one training seed: the intervals cover the chance of tasks and samples, but not that of another training"
    elif len(stores) < _FEW_SEEDS:
        yield f"{len(stores)} training seeds: with so few, intervals are too narrow if trainings differ; see the differences by seed"

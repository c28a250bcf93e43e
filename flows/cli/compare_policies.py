"""`headrace compare` and `headrace bfcl`: two policies against each other, and one on a public set of cases."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.shared import Debug
from flows.cli.terminal import out, told

if TYPE_CHECKING:
    from flows.summary_tables import Table
    from storage.store import Store
    from train.measure.bfcl import Session
    from train.measure.compare import Comparison, Difference

_FEW_SEEDS = 5

EngineOrPolicy = Annotated[
    str | None,
    typer.Option(
        "--policy",
        metavar="POLICY",
        help="Engine (openai:MODEL, vllm:MODEL, hf:FOLDER), or stage or id of a policy of the store (default: promoted last).",
    ),
]
Category = Annotated[
    list[str] | None,
    typer.Option("--category", metavar="NAME", help="base, miss_func, miss_param or long_context; may be repeated (default: all)."),
]
Limit = Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="The first N cases of each category.")]
AnswerTokens = Annotated[int, typer.Option("--max-tokens", metavar="N", min=1, help="Tokens of one answer at most.")]
PolicyStore = Annotated[
    Path | None,
    typer.Option("--store", "-s", metavar="DIR", help="Store of the policy (default: the newest under runs/), or to keep answers in."),
]
OutFile = Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write every conversation, as JSONL.")]


def compare(
    first: Annotated[str, typer.Argument(metavar="FIRST", help="Stage (sft1, sft2, rl: the one trained last) or id of a policy.")],
    second: Annotated[str, typer.Argument(metavar="SECOND", help="The same of the policy that may be better.")],
    store: Annotated[
        list[Path] | None, typer.Option("--store", "-s", metavar="DIR", help="Store of one training seed; may be repeated, a seed each.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Say how much better SECOND is than FIRST on the same held-out tasks, with 95 % intervals over training seeds and tasks.

    Reads the rollouts that `headrace train` and `headrace evaluate` left in the stores, and makes none. Without --store: the newest store
    under runs/.

    Examples:

      headrace compare sft1 rl --store runs/sample/store

      headrace compare sft2 rl --store runs/seed0/store --store runs/seed1/store --store runs/seed2/store
    """
    with told(debug):
        from flows import validation
        from flows.summary_tables import draw
        from train.measure.compare import compare

        stores = [validation.readable(None, path) for path in store] if store else [validation.readable(None, None)]
        found = compare(stores, first, second)
        for title, differences in _parts(found):
            draw(_table(title, differences, first, second), out)
        for line in _notes(found, stores):
            out.print(line, style="dim", markup=False, soft_wrap=True)


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

    800 cases in four categories, greedy. Judged more strictly than by the leaderboard's own checker, so the figures are not its own. What
    a policy is measured at stays in its store, in table `evaluations`, as held-out set `bfcl`.

    Examples:

      headrace bfcl --policy openai:gpt-4.1 --limit 20 --out conversations.jsonl

      headrace bfcl --policy rl --category base --store runs/sample/store
    """
    with told(debug):
        from flows.resolve_policy import answers, asked
        from flows.runtime.progress import report, show_on_console
        from flows.runtime.store_lock import hold_store
        from storage.records import content_id
        from synth.worlds.bfcl_world import CATEGORIES
        from train.config import EngineConfig
        from train.measure.bfcl import chosen, hold_all, keep

        wanted = chosen(category or CATEGORIES, limit)
        _check_writable(out_file)
        who = asked(policy, store)
        with contextlib.nullcontext() if who.store is None else hold_store("bfcl", who.store.root):
            run = content_id("run", "bfcl", who.policy.id)
            with answers(who, EngineConfig(), command="bfcl", run=run) as engine, show_on_console(out):
                name, sessions = engine.name, hold_all(engine, wanted, max_tokens=max_tokens, progress=report)
            if who.store is not None:
                keep(who.store, who.policy.id, sessions, max_tokens=max_tokens)
        if out_file is not None:
            _write(out_file, sessions)
        _tell(name, sessions)


def _check_writable(path: Path | None) -> None:
    from storage.errors import BadInput

    if path is None:
        return
    was_there = path.exists()
    try:
        path.open("a").close()
        if not was_there:
            path.unlink()
    except OSError as error:
        raise BadInput(f"{path}: nothing can be written there ({error.strerror}); give another --out") from None


def _write(path: Path, sessions: Sequence[Session]) -> None:
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


# ---- what is said ------------------------------------------------------------------------------------------------------


def _tell(name: str, sessions: Sequence[Session]) -> None:
    from flows.summary_tables import Table, draw
    from storage.report.evaluation_queries import told as told_rate
    from train.measure.bfcl import accuracies

    rows = []
    for one in accuracies(sessions):
        group = [session for session in sessions if one.category in ("all", session.case.category)]
        why = Counter(next((check for check, holds in session.checks.items() if not holds), "") for session in group)
        spoilt = Counter(session.outcome.value for session in group if not session.outcome.is_rated)
        rows.append(
            {
                "category": one.category,
                "cases": one.cases,
                "rated": one.rated,
                "passed": one.passed,
                "accuracy (95 %)": told_rate(one.passed / one.rated, one.low, one.high) if one.rated else "",
                "first check that failed": ", ".join(f"{check} {count}" for check, count in why.most_common() if check),
                "not rated": ", ".join(f"{outcome} {count}" for outcome, count in spoilt.most_common()),
            }
        )
    draw(Table("bfcl", f"BFCL multi-turn: {name}", rows), out)
    failures = [session.failure for session in sessions if session.failure]
    if failures:
        out.print(f"not rated, for example: {failures[0]}", style="yellow", markup=False, soft_wrap=True)


def _parts(found: Comparison) -> Iterator[tuple[str, list[Difference]]]:
    yield "All tasks", [one for one in found.differences if one.facet == "all"]
    for use in ("eval_in", "eval_out"):
        of_facets = [one for one in found.differences if one.facet != "all" and (one.use, one.decoding) == (use, "sampled")]
        if of_facets:
            yield f"By facet, {use}, sampled", of_facets


def _table(title: str, differences: Sequence[Difference], first: str, second: str) -> Table:
    from flows.summary_tables import Table

    rows = []
    for one in differences:
        name = {"held out": one.use, "decoding": one.decoding} if one.facet == "all" else {"by": one.facet, "value": one.value}
        interval = one.interval
        rows.append(
            {
                **name,
                "tasks": one.tasks,
                first: f"{one.first:.3f}",
                second: f"{one.second:.3f}",
                "difference": f"{one.second - one.first:+.3f}",
                "95 %": f"{interval.low:+.3f} to {interval.high:+.3f}" if interval is not None else "too few tasks",
                "": "*" if one.is_clear else "",
                **({"by seed": " ".join(f"{each:+.3f}" for each in one.by_seed)} if len(one.by_seed) > 1 else {}),
            }
        )
    return Table("compare", f"{title}: {second} - {first}", rows)


def _notes(found: Comparison, stores: Sequence[Store]) -> Iterator[str]:
    yield "* the interval excludes 0"
    judged = sum(one.interval is not None for _, shown in _parts(found) for one in shown if one.facet != "all")
    if judged:
        yield f"of {judged} intervals by facet, one in twenty excludes 0 by luck alone: about {judged / 20:.1f}"
    for (use, decoding), tasks in found.unrated.items():
        yield f"{use}, {decoding}: {tasks} tasks are left out, some policy has no rated rollout of them"
    for store, (one, other) in zip(stores, found.policies, strict=True):
        yield f"{store.root}: {one} and {other}"
    if len(stores) == 1:
        yield "one training seed: the intervals cover the luck of tasks and samples, and say nothing of another training's"
    elif len(stores) < _FEW_SEEDS:
        yield f"{len(stores)} training seeds: so few make intervals too narrow where trainings differ: see the differences by seed"

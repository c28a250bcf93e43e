"""`headrace compare`: compare two policies on the same held-out tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.shared import Debug
from flows.cli.terminal import handle_errors, out, print_text

if TYPE_CHECKING:
    from flows.summaries.summary_tables import Table
    from storage.store import Store
    from train.measure.compare import Comparison, Difference

_FEW_SEEDS = 5


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

"""`headrace value`: what each source of a store's conversations bought, by proxies; writes weights for the next data."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from flows import validation
from flows.cli.shared import Debug, DryRun, NewestStore
from flows.cli.terminal import handle_errors, out, print_text

if TYPE_CHECKING:
    from flows.summaries.summary_tables import Table
    from train.proxy.source_value import Value, ValuePlan

By = Annotated[
    Literal["world", "cluster", "mode", "origin", "teacher", "day"],
    typer.Option("--by", help="What a source is: its conversations share a world, cluster, mode family, origin, teacher, or day."),
]
Runs = Annotated[int, typer.Option("--runs", metavar="N", min=8, help="Proxies on random mixtures; more narrow the intervals.")]
DataTokens = Annotated[int, typer.Option("--data-tokens", metavar="N", min=10_000, help="Tokens of data of a proxy.")]
TrainTokens = Annotated[int, typer.Option("--train-tokens", metavar="N", min=10_000, help="Tokens a proxy reads, repetitions counted.")]
Language = Annotated[Literal["en", "zh"], typer.Option("--language", help="Language of the conversations and held-out tasks.")]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Seed of mixtures, weights and order.")]
Processes = Annotated[int, typer.Option("--processes", metavar="N", min=1, help="Proxies at the same time, one thread each.")]


def value(
    store: NewestStore = None,
    by: By = "world",
    runs: Runs = 24,
    data_tokens: DataTokens = 100_000,
    train_tokens: TrainTokens = 300_000,
    language: Language = "en",
    seed: Seed = 0,
    processes: Processes = 2,
    dry_run: DryRun = False,
    debug: Debug = False,
) -> None:
    """Estimate what each source of a store's conversations adds: train tiny proxies on random mixtures, and compare their held-out loss.

    Prints the gain of each source with its interval, and what is lost without it. Fresh mixtures check the predictions. Writes a table, a
    picture, and weights. Run a killed command again, and it continues. A proxy is far smaller than your model: see docs/experiment.md.

    Examples:

      headrace value --store runs/sample/store --dry-run

      headrace value --store runs/sample/store --by mode --runs 16
    """
    with handle_errors(debug):
        from flows.runtime.progress import report, show_on_console
        from flows.summaries.summary_tables import print_table
        from synth.worlds.stored_worlds import register_stored
        from train.proxy.source_value import ValueConfig, plan_value, value_sources

        sizes = {"runs": runs, "data_tokens": data_tokens, "train_tokens": train_tokens, "processes": processes}
        config = ValueConfig(by=by, language=language, seed=seed, **sizes)
        data = validation.open_store(None, store)
        register_stored(data)
        if dry_run:
            print_table(_plan_table(plan_value(data, config)), out)
            print_text("nothing was done", style="dim")
            return
        with show_on_console(out):
            result, folder = value_sources(data, config, progress=report)
        print_table(_value_table(result), out)
        for line in _verdict(result):
            print_text(line)
        picture = _draw(result, folder)
        weights = "no weights (train.synthesised_share sets the share of origins)" if by == "origin" else "weights.json"
        print_text(f"table, picture, weights: {folder}/value.json, {picture.name}, {weights}")


def _plan_table(plan: ValuePlan) -> Table:
    from flows.summaries.summary_tables import Table

    rows = [{"source": source, "tokens (about)": f"{tokens:,}"} for source, tokens in plan.sources.items()]
    strata = ", ".join(f"{count} {stratum}" for stratum, count in plan.held_out.items())
    title = f"{plan.left} of {plan.runs} proxies to train, about {math.ceil(plan.minutes)} minutes; measured on {strata}"
    return Table("value_plan", title, rows)


def _value_table(result: Value) -> Table:
    from flows.summaries.summary_tables import Table

    rises = {one.source: one.rise for one in result.left_out}
    rows = [
        {
            "source": gain.source,
            "tokens": f"{result.tokens[gain.source]:,}",
            "gain": f"{1000 * gain.gain:+.2f}",
            "95 %": f"{1000 * gain.low:+.2f} to {1000 * gain.high:+.2f}",
            "loss without it (one run)": f"{1000 * rises[gain.source]:+.1f}",
            "weight": f"{result.weights[gain.source]:.2f}",
        }
        for gain in sorted(result.gains, key=lambda one: -one.gain)
    ]
    title = "Gain: fall of held-out loss (thousandths of a nat a token) per 10,000 tokens of a source instead of the mixture"
    return Table("value", title, rows)


def _verdict(result: Value) -> list[str]:
    from train.proxy.source_value import TRUSTED_RANK

    is_trusted = result.rank >= TRUSTED_RANK
    trust = "its ranking of sources can be used" if is_trusted else "too little, so all weights are 1: use more --runs or --data-tokens"
    clear = sum(one.low > 0 or one.high < 0 for one in result.gains)
    lines = [
        f"On {len(result.predicted)} fresh mixtures, predicted and realised losses correlate by {result.rank:.2f} (Spearman): {trust}.",
    ]
    if is_trusted:
        lines.append(
            f"Of {len(result.gains)} sources, {clear} have an interval without 0 (by chance alone {0.05 * len(result.gains):.1f} would); "
            "the others keep the same weight."
        )
    return lines


def _draw(result: Value, folder: Path) -> Path:
    from storage.report.charts import gain_chart

    path = folder / "value.html"
    rows = [(one.source, 1000 * one.gain, 1000 * one.low, 1000 * one.high) for one in result.gains]
    gain_chart(rows, "fall of held-out loss per 10,000 tokens, thousandths of a nat").write_html(path, include_plotlyjs=True)
    return path

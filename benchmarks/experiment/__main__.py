"""`python -m benchmarks.experiment`: whether diversity beats quantity, measured with its own control (docs/experiment.md)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from flows.cli.shared import Debug
from flows.cli.terminal import handle_errors, out, print_text

if TYPE_CHECKING:
    from benchmarks.experiment.config import DiversityExperimentConfig
    from benchmarks.experiment.result import ExperimentResult


def main(
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", metavar="FILE", help="YAML with the keys of DiversityExperimentConfig; see docs/experiment.md."),
    ] = None,
    store: Annotated[Path, typer.Option("--store", "-s", metavar="DIR", help="The command writes to DIR/experiments/diversity-ID.")] = Path(
        "runs/experiment"
    ),
    minutes: Annotated[
        float | None,
        typer.Option("--minutes", metavar="N", min=0, help="Start no training after N minutes; the same command continues later."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print arms, sizes, seeds and the estimated minutes.")] = False,
    debug: Debug = False,
) -> None:
    """Train one tiny policy per source of conversations, at equal tokens, and measure it on domains that no policy has seen.

    Run a killed command again, and it continues. If the experiment has too little statistical power, the result says so.

    Examples:

      python -m benchmarks.experiment --dry-run

      python -m benchmarks.experiment --store runs/experiment
    """
    with handle_errors(debug):
        from benchmarks.experiment.config import DiversityExperimentConfig
        from benchmarks.experiment.diversity import run_experiment
        from flows.runtime.progress import report, show_on_console
        from flows.yaml_config import load

        settings = load(config, DiversityExperimentConfig) if config is not None else DiversityExperimentConfig()
        if dry_run:
            out.print(_plan_table(settings))
            return
        with show_on_console(out):
            result, folder = run_experiment(store / "experiments", settings, minutes=minutes, progress=report)
        out.print(_result_table(result))
        for line in (result.says, f"figures, table, curves: {folder}/results.json, table.md, curves.html"):
            print_text(line)
        if result.missing:
            print_text(f"{result.missing} trainings are missing; run the same command again", style="yellow")


def _plan_table(settings: DiversityExperimentConfig) -> Table:
    from benchmarks.experiment.config import ABOUT
    from benchmarks.experiment.diversity import plan

    planned = plan(settings)
    table = Table(
        title=f"{len(planned.cells)} trainings, {planned.talks:,} conversations, about {planned.minutes:.0f} minutes", title_justify="left"
    )
    for name in ("arm", "what", "sizes", "seeds"):
        table.add_column(name)
    for arm, what in ABOUT.items():
        sizes = sorted({size for name, size, _ in planned.cells if name == arm})
        if sizes:
            table.add_row(arm, what, ", ".join(f"{size:,}" for size in sizes), ", ".join(map(str, settings.seeds)))
    return table


def _result_table(result: ExperimentResult) -> Table:
    from benchmarks.experiment.show import HEAD, lines

    table = Table()
    for name in HEAD:
        table.add_column(name)
    for line in lines(result):
        table.add_row(*line)
    return table


if __name__ == "__main__":
    typer.run(main)

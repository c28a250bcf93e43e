"""`headrace experiment`: what is tried out on the way to better training data, measured with its own control."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from flows.cli.shared import Debug
from flows.cli.terminal import out, told

if TYPE_CHECKING:
    from train.experiment.config import DiversityExperimentConfig
    from train.experiment.result import ExperimentResult

app = typer.Typer(no_args_is_help=True, help="Experiments about training data, each with its own control.")


@app.callback()
def _experiment() -> None:
    """Experiments about training data, each with its own control."""


@app.command()
def diversity(
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", metavar="FILE", help="YAML with the keys of DiversityExperimentConfig; see docs/experiment.md."),
    ] = None,
    store: Annotated[
        Path, typer.Option("--store", "-s", metavar="DIR", help="Everything is written to DIR/experiments/diversity-ID.")
    ] = Path("runs/experiment"),
    minutes: Annotated[
        float | None,
        typer.Option("--minutes", metavar="N", min=0, help="Begin no training after so many minutes; the same command goes on later."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print arms, sizes and seeds with an estimate of minutes, and do nothing.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Train one tiny policy for every way of coming by conversations, at equal tokens, and measure it on domains that none has seen.

    Killed, the same command goes on where it was. Without power it says so and claims nothing.

    Examples:

      headrace experiment diversity --dry-run

      headrace experiment diversity --store runs/experiment
    """
    with told(debug):
        from flows.runtime.progress import report, show_on_console
        from flows.yaml_config import load
        from train.diversity_experiment import run_experiment
        from train.experiment.config import DiversityExperimentConfig

        settings = load(config, DiversityExperimentConfig) if config is not None else DiversityExperimentConfig()
        if dry_run:
            out.print(_plan(settings))
            return
        with show_on_console(out):
            result, home = run_experiment(store / "experiments", settings, minutes=minutes, progress=report)
        out.print(_table(result))
        for line in (result.says, f"figures, table, curves: {home}/results.json, table.md, curves.html"):
            out.print(line, markup=False, soft_wrap=True)
        if result.missing:
            out.print(f"{result.missing} trainings are missing; the same command makes them", style="yellow", markup=False)


def _plan(settings: DiversityExperimentConfig) -> Table:
    from train.diversity_experiment import plan
    from train.experiment.config import ABOUT

    found = plan(settings)
    table = Table(
        title=f"{len(found.cells)} trainings, {found.talks:,} conversations, about {found.minutes:.0f} minutes", title_justify="left"
    )
    for name in ("arm", "what", "sizes", "seeds"):
        table.add_column(name)
    for arm, what in ABOUT.items():
        sizes = sorted({size for name, size, _ in found.cells if name == arm})
        if sizes:
            table.add_row(arm, what, ", ".join(f"{size:,}" for size in sizes), ", ".join(map(str, settings.seeds)))
    return table


def _table(result: ExperimentResult) -> Table:
    from train.experiment.show import HEAD, lines

    table = Table()
    for name in HEAD:
        table.add_column(name)
    for line in lines(result):
        table.add_row(*line)
    return table

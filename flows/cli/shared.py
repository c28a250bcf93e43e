"""What the commands of the pipeline share: their options, and how one calls a flow and shows what came of it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from flows.cli.terminal import out

if TYPE_CHECKING:
    from flows.config import Config

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", "-c", metavar="FILE", help="YAML configuration; `headrace config` explains every key."),
]
StoreFolder = Annotated[Path | None, typer.Option("--store", "-s", metavar="DIR", help="Store to work on (default: the configuration's).")]
ReadStore = Annotated[
    Path | None,
    typer.Option("--store", "-s", metavar="DIR", help="Store to read (default: the configuration's, else the newest under runs/)."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the plan (steps, counts, estimated time and cost) and do nothing.")]
DryRunOfTraining = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Print the plan (steps, counts, estimated time and cost) and do nothing, but write to a folder what a cluster would be given.",
    ),
]
Families = Annotated[
    Path | None,
    typer.Option("--families", metavar="FILE", help="Other wordings for the generated queries (YAML, as synth/worlds/city/families.yaml)."),
]
FocusOn = Annotated[
    Literal["failures"] | None,
    typer.Option("--focus", help="Ask for more of what the policy promoted last fails or wavers at in its probe; shown first."),
]
LANGUAGE_MODELS = "Language models"
MaxTokens = Annotated[
    int | None,
    typer.Option(
        "--max-tokens",
        metavar="N",
        min=1,
        help="Budget of prompts and answers together; hf: is not counted.",
        rich_help_panel=LANGUAGE_MODELS,
    ),
]
MaxUsd = Annotated[
    float | None,
    typer.Option(
        "--max-usd",
        metavar="X",
        min=0.0,
        help="Budget in dollars, by --usd-per-million; hf: is not counted.",
        rich_help_panel=LANGUAGE_MODELS,
    ),
]
UsdPerMillion = Annotated[
    tuple[float, float] | None,
    typer.Option(
        "--usd-per-million", metavar="IN OUT", help="Price of a million prompt and answer tokens.", rich_help_panel=LANGUAGE_MODELS
    ),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks and Prefect's own log.")]


def do(
    flow: str,
    settings: Config,
    dry_run: bool,
    steps: tuple[str, ...],
    keys: tuple[str, ...] = (),
    *,
    rows: int | None = None,
    keep_ui: bool = False,
    **parameters: Any,
) -> Any:
    """Run a flow and show the tables of these keys (all where none is named), and return what it returned; or only show the plan of these
    steps, and return None.

    rows: of the queries, for the plan; None: as many as are generated. parameters: of the flow.
    """
    if dry_run:
        from flows.dry_run import needed, plan, write_rendered
        from flows.summary_tables import draw

        draw(plan(settings, steps, rows, parameters.get("policy"), parameters.get("again", 0)), out)
        if "train" in steps:
            for line in needed(settings):
                out.print(line, markup=False, soft_wrap=True)
            if (folder := write_rendered(settings)) is not None:
                out.print(f"what the backends would hand over: {folder}", markup=False, soft_wrap=True)
        return None
    from flows.runtime.run_flow import run_flow

    return run_flow(flow, settings, out, show=lambda link: show(settings, link, keys), keep_ui=keep_ui, **parameters)


def tell_notes(notes: Iterable[str]) -> None:
    """What a flow had to do without, and why it stopped short, where a person sees it."""
    for note in notes:
        out.print(note, style="yellow", markup=False, soft_wrap=True)


def show_focus(step: str, settings: Config) -> None:
    """What `synthesize` or `curate` will ask for, and why, where the configuration focuses on failures. Raises BadInput: there are none."""
    if (settings.synthesize.evolution.focus_weight if step == "synthesize" else settings.curate.coverage.focus) == 0:
        return
    from flows.summary_tables import draw
    from flows.targeting_tables import asked_for, kept_for

    for table in asked_for(settings) if step == "synthesize" else kept_for(settings):
        draw(table, out)


def show(settings: Config, link: str, keys: tuple[str, ...]) -> None:
    """The tables of the store, where everything lies, and how to ask it."""
    from flows.summary_tables import draw, tables, tags_command
    from storage.store import Store

    def say(line: str, style: str = "") -> None:
        out.print(line, style=style, markup=False, soft_wrap=True)

    store = Store(settings.store)
    for table in tables(store):
        if not keys or table.key in keys:
            draw(table, out)
    out.print()
    say(f"store        {settings.store}  (content hash {store.content_hash()[:16]})")
    if settings.report.exists():
        say(f"report       {settings.report}")
    if not keys or "certainty" in keys:
        say(f"the tags     {tags_command(settings.store)}")
    if link:
        say(f"Prefect run  {link}", style="dim")

"""Shared by the pipeline commands: options, and functions that run a flow and print its results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from flows.cli.terminal import out, print_text

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
NewestStore = Annotated[Path | None, typer.Option("--store", "-s", metavar="DIR", help="Store to read (default: the newest under runs/).")]
WorkedStore = Annotated[
    Path | None, typer.Option("--store", "-s", metavar="DIR", help="Store to work on (default: the newest under runs/).")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only print the plan: steps, counts, estimated time and cost.")]
DryRunOfTraining = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Only print the plan: steps, counts, estimated time and cost. For a cluster, also write its job files to a folder.",
    ),
]
Families = Annotated[
    Path | None,
    typer.Option("--families", metavar="FILE", help="Other wordings for the generated queries (YAML, as synth/worlds/city/families.yaml)."),
]
FocusOn = Annotated[
    Literal["failures"] | None,
    typer.Option(
        "--focus",
        help="Ask for more of the needs at which the last promoted policy always or sometimes fails in its probe; print the shares first.",
    ),
]
LANGUAGE_MODELS = "Language models"
MaxTokens = Annotated[
    int | None,
    typer.Option(
        "--max-tokens",
        metavar="N",
        min=1,
        help="Budget of prompt and answer tokens together; hf: does not count.",
        rich_help_panel=LANGUAGE_MODELS,
    ),
]
MaxUsd = Annotated[
    float | None,
    typer.Option(
        "--max-usd",
        metavar="X",
        min=0.0,
        help="Budget in dollars, by --usd-per-million; hf: does not count.",
        rich_help_panel=LANGUAGE_MODELS,
    ),
]
UsdPerMillion = Annotated[
    tuple[float, float] | None,
    typer.Option(
        "--usd-per-million", metavar="IN OUT", help="Price of a million prompt and answer tokens.", rich_help_panel=LANGUAGE_MODELS
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print all tables at the end; the report has them too.")]
Weights = Annotated[
    Path | None,
    typer.Option("--weights", metavar="FILE", help="Sources to prefer: the weights.json that `headrace value` wrote."),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks and Prefect's own log.")]


def run_or_plan(
    flow: str,
    settings: Config,
    dry_run: bool,
    steps: tuple[str, ...],
    keys: tuple[str, ...] = (),
    *,
    verbose: bool = False,
    rows: int | None = None,
    keep_ui: bool = False,
    **parameters: Any,
) -> Any:
    """Run a flow, print what came out of it, and return its result. With `dry_run`, print the plan of `steps` and return None.

    flow: `module:function`, as in `run_flow`.
    keys: keys of the tables to print if `verbose`; empty: all.
    rows: number of query rows for the plan; None: the number of generated queries.
    parameters: further arguments of the flow.
    """
    from flows.dry_run import plan, schedule
    from flows.summaries.summary_tables import print_table

    planned = plan(settings, steps, rows, parameters.get("policy"), parameters.get("again", 0))
    if dry_run:
        print_table(planned, out)
        _print_needs(settings, steps)
        return None
    from flows.runtime.run_flow import run_flow

    def show(result: Any, link: str) -> None:
        is_new = result.get("run", "") is not None
        notes = list_notes(result)
        print_results(settings, link, steps if is_new else (), keys if verbose else None, notes=notes, policy=result.get("policy"))

    if len(planned.rows) > 1:
        print_table(planned, out)
    opening = list_worlds(settings, steps)
    return run_flow(flow, settings, out, opening=opening, show=show, plan=schedule(settings, steps, rows), keep_ui=keep_ui, **parameters)


def _print_needs(settings: Config, steps: tuple[str, ...]) -> None:
    """Print that nothing was done, the worlds of a run, and what its training needs and would hand over."""
    from flows.dry_run import list_needs, write_rendered

    print_text("nothing was done", style="dim")
    for line in list_worlds(settings, steps):
        print_text(line)
    if "train" in steps:
        for line in list_needs(settings):
            print_text(line)
        if (folder := write_rendered(settings)) is not None:
            print_text(f"what the backends would hand over: {folder}")


def list_worlds(settings: Config, steps: Iterable[str]) -> list[str]:
    """Lines that say in which worlds conversations are made, and policies trained and measured: the configuration's, else the store's."""
    conversations = f"conversations in {', '.join(settings.synthesize.worlds) or f'the worlds of {settings.synthesize.tools}'}"
    tasks = f"tasks in {', '.join(settings.train.worlds)}"
    return [conversations] * ("synthesize" in steps) + [tasks] * bool({"train", "tag", "evaluate"} & set(steps))


def list_notes(result: Mapping[str, Any]) -> list[str]:
    """The notes and alarms of a flow's result, and of the results of its steps: what it could not do, and why it stopped early."""
    results = [result, *(part for part in result.values() if isinstance(part, Mapping))]
    return [note for one in results for key in ("notes", "alarms") for note in one.get(key, ())]


def print_focus(step: str, settings: Config) -> None:
    """Print the shares that `synthesize` or `curate` aims at if the configuration focuses on failures. Raises BadInput without a probe."""
    if (settings.synthesize.evolution.focus_weight if step == "synthesize" else settings.curate.coverage.focus) == 0:
        return
    from flows.summaries.summary_tables import print_table
    from flows.summaries.targeting_tables import curation_focus_tables, synthesis_focus_tables

    for table in synthesis_focus_tables(settings) if step == "synthesize" else curation_focus_tables(settings):
        print_table(table, out)


def print_results(
    settings: Config,
    link: str,
    steps: Sequence[str],
    keys: Sequence[str] | None,
    *,
    notes: Sequence[str] = (),
    policy: str | None = None,
) -> None:
    """Print what came out of these steps in sentences, the commands that come next, and where everything is.

    keys: keys of the tables to print before; empty: all; None: no table.
    notes: printed after the sentences.
    policy: id of the policy that was measured.
    """
    from flows.summaries.endings import ending
    from flows.summaries.summary_tables import print_table, tables, tags_command
    from storage.releases.text_layout import layout_sections
    from storage.store import Store

    store = Store(settings.store)
    for table in tables(store) if keys is not None else []:
        if not keys or table.key in keys:
            print_table(table, out)
    last = ending(store, settings, steps, policy)
    for line in layout_sections(last.sections):
        print_text(line)
    out.print()
    for sentence in last.sentences:
        out.print(sentence, markup=False, highlight=False)
    for note in notes:
        print_text(note, style="yellow")
    out.print()
    places = list(last.commands)
    if settings.report.exists():
        places.append(("the report", f"{settings.report}"))
    places.append(("the store", f"{settings.store}  (content hash {store.content_hash()[:16]})"))
    if keys is not None and (not keys or "certainty" in keys):
        places.append(("the tags", tags_command(settings.store)))
    if link:
        places.append(("Prefect run", link))
    width = max(len(what) for what, _ in places)
    for what, place in places:
        print_text(f"{what:<{width}}  {place}", style="dim" if place == link else "")

"""The `headrace` command.

One idea: a command checks its input, then calls one flow or one library function, then says what came of it; nothing is computed here.
`validation.py` has what is checked, `terminal.py` the exit codes and how failures are told.
Heavy libraries are imported inside the commands, so that `headrace --help` answers at once.
"""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from flows import validation
from flows.cli import chat, clusters, compare_policies, curate, measure_policy, render, synthesize, taxonomy, worlds
from flows.cli import config as cli_config
from flows.cli.shared import ConfigFile, Debug, DryRunOfTraining, Families, ReadStore, StoreFolder, do, tell_notes
from flows.cli.terminal import out, told

app = typer.Typer(
    name="headrace",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    help="""From a team's tools and raw user queries to a trained tool-use agent.

Headrace synthesises executed trajectories, sifts a haystack of queries, tags what is left by measured difficulty and certainty, and
trains a policy on it: seed SFT, second SFT, RL. A killed command continues where it was when it is called again.

Begin with `headrace run --config configs/sample.yaml` (all steps on sample data), or `headrace curate FILES --column NAME` (your own
queries). `headrace doctor` checks the installation.""",
)

app.add_typer(clusters.app, name="clusters", rich_help_panel="Store")
app.add_typer(taxonomy.app, name="taxonomy", rich_help_panel="Store")
app.add_typer(cli_config.app, name="config", rich_help_panel="Operations")
app.add_typer(worlds.app, name="worlds", rich_help_panel="Operations")


def main() -> None:
    """Entry point of the `headrace` script."""
    try:
        app()
    except SystemExit as ended:
        if ended.code:  # a traceback still holds objects of libraries that complain about it at exit, at length
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(ended.code if isinstance(ended.code, int) else 1)
        raise


# ---- the whole, and its steps ------------------------------------------------------------------------------------------


@app.command(rich_help_panel="Pipeline")
def run(
    config: ConfigFile = None,
    store: StoreFolder = None,
    families: Families = None,
    ui: Annotated[bool, typer.Option("--ui", help="Keep our Prefect server open at the end, to look at the run; Ctrl-C stops it.")] = False,
    dry_run: DryRunOfTraining = False,
    debug: Debug = False,
) -> None:
    """Run all steps: synthesise, curate, train and tag, evaluate, report.

    Without a configuration the sample is run. Killed or stopped, the same command continues where it was; finished, it only shows the
    results again.

    Examples:

      headrace run --config configs/sample.yaml

      headrace run --config configs/sample.yaml --store runs/second/store --ui
    """
    with told(debug):
        settings = validation.settings(config, store, families)
        if not dry_run:
            validation.engines(settings.synthesize.roles)
            validation.funnel_engines(settings)
            validation.backends(settings)
        done = do("pipeline:pipeline", settings, dry_run, ("synthesize", "haystack", "curate", "train", "tag", "report"), keep_ui=ui)
        tell_notes((*done["synthesize"]["notes"], *done["synthesize"]["alarms"], *done["curate"]["notes"]) if done else ())


app.command(rich_help_panel="Pipeline")(synthesize.synthesize)
app.command(rich_help_panel="Pipeline")(curate.curate)


app.command(rich_help_panel="Pipeline")(measure_policy.tag)


@app.command(rich_help_panel="Pipeline")
def train(config: ConfigFile = None, store: StoreFolder = None, dry_run: DryRunOfTraining = False, debug: Debug = False) -> None:
    """Train the stages of the cascade on a curated store, by default seed SFT, second SFT and RL; each policy is evaluated and gated.

    Examples:

      headrace train --config configs/sample.yaml

      headrace train --config configs/cluster.yaml --dry-run
    """
    with told(debug):
        settings = validation.settings(config, store)
        if not dry_run:
            validation.has_tasks(settings)
            validation.backends(settings)
        do("cascade:train", settings, dry_run, ("train",), ("certainty", "ladder", "facets"))


app.command(rich_help_panel="Pipeline")(measure_policy.evaluate)
app.command(rich_help_panel="Pipeline")(compare_policies.bfcl)
app.command(rich_help_panel="Store")(compare_policies.compare)
app.command(rich_help_panel="Pipeline")(chat.chat)
app.command(rich_help_panel="Pipeline")(render.render)


# ---- looking at a store, taking things out -----------------------------------------------------------------------------


class Trainer(StrEnum):
    trl = "trl"
    verl = "verl"
    roll = "roll"


@app.command(rich_help_panel="Store")
def export(
    release: Annotated[
        str | None,
        typer.Argument(
            metavar="[RELEASE]",
            help="Release id, or a name (seed, second, rl): the latest of that name. Without one, all that was synthesised.",
        ),
    ] = None,
    trainer: Annotated[Trainer, typer.Option("--format", help="The trainer that will read it.")] = Trainer.trl,
    folder: Annotated[Path | None, typer.Option("--out", "-o", metavar="DIR", help="Default: exports/RELEASE-FORMAT.")] = None,
    licence: Annotated[
        list[str] | None,
        typer.Option("--licence", metavar="FILE=LICENCE", help="Licence of a file of raw queries, for the card; may be repeated."),
    ] = None,
    config: ConfigFile = None,
    store: ReadStore = None,
    debug: Debug = False,
) -> None:
    """Write a release for a trainer: OpenAI messages as JSONL and Parquet, a file a split, with a dataset card and checksums.

    Without RELEASE, one is made of every conversation that was synthesised (near duplicates once) and of their tasks.

    Examples:

      headrace export --store runs/mine/store --out training_set/

      headrace export second --format verl --out second/ --store runs/sample/store

      headrace export rl --licence questions.parquet=CC-BY-4.0 --licence log.jsonl=proprietary
    """
    with told(debug):
        from storage.releases import export as storage_export

        opened = validation.readable(config, store)
        release_id = validation.release(opened, release)
        licences = validation.licences(licence or [], opened, release_id)
        target = folder or Path("exports") / f"{release or release_id}-{trainer.value}"
        written = storage_export.export(opened, release_id, target, trainer.value, licences=licences)
        out.print(f"wrote {written}", markup=False, soft_wrap=True)


@app.command(rich_help_panel="Store")
def lineage(
    id: Annotated[str, typer.Argument(metavar="ID", help="Any id of the store: policy-..., release-..., task-..., q-... and so on.")],
    config: ConfigFile = None,
    store: ReadStore = None,
    debug: Debug = False,
) -> None:
    """Show where a thing came from and what was made of it, from tools and raw queries to policies.

    Example: headrace lineage policy-0123456789abcdef --store runs/sample/store
    """
    with told(debug):
        from storage import lineage as storage_lineage

        out.print(str(storage_lineage.lineage(validation.readable(config, store), id)), markup=False, soft_wrap=True)


@app.command(rich_help_panel="Store")
def explain(
    id: Annotated[
        str, typer.Argument(metavar="ID|FILE:ROW", help="Id of a query, task, trajectory, rollout, release or policy; or a row read.")
    ],
    config: ConfigFile = None,
    store: ReadStore = None,
    debug: Debug = False,
) -> None:
    """Say why: kept or dropped (and which row it duplicates), which difficulty, region and split, and who trained on it.

    Examples:

      headrace explain q-1a2b3c4d-00000042 --store runs/sample/store

      headrace explain queries.jsonl:42 --store runs/mine/store
    """
    with told(debug):
        from storage import lineage as storage_lineage

        opened = validation.readable(config, store)
        out.print(str(storage_lineage.explain(opened, validation.row_read(opened, id))), markup=False, soft_wrap=True)


# ---- running things ----------------------------------------------------------------------------------------------------


@app.command(rich_help_panel="Operations")
def doctor(
    config: ConfigFile = None,
    engine: Annotated[
        str | None,
        typer.Option("--engine", metavar="NAME", help="Language model to start and ask for a token: openai:MODEL, vllm:MODEL, hf:FOLDER."),
    ] = None,
    debug: Debug = False,
) -> None:
    """Check the installation: packages, extras, disk, sandbox, server; with --config, that file, its store, engines and cluster too.

    The server of `openai:` is named by OPENAI_BASE_URL, its key by OPENAI_API_KEY; that of `vllm:` is started from `.venv-vllm`.

    Exit code 1 where something is broken, 2 where the configuration or its store cannot be used.
    """
    with told(debug):
        from flows.runtime.doctor import configured_findings, engine_findings, findings

        found = (
            findings() + (configured_findings(validation.settings(config)) if config else []) + (engine_findings(engine) if engine else [])
        )
        marks = {"ok": "[green]ok    [/green]", "note": "[yellow]note  [/yellow]", "broken": "[bold red]broken[/bold red]"}
        for finding in found:
            out.print(f"{marks[finding.state]} {finding.what}: {escape(finding.detail)}", soft_wrap=True)
        if any(finding.state == "broken" for finding in found):
            raise typer.Exit(1)


@app.command(rich_help_panel="Operations")
def up(debug: Debug = False) -> None:
    """Start a Prefect server, a work pool and a worker in the background, and deploy the flows of prefect.yaml. Safe to repeat."""
    with told(debug):
        from flows.runtime import daemon

        url = daemon.up(out.print)
        out.print(
            f"Prefect's UI: {url.removesuffix('/api')}\nuse it: export PREFECT_API_URL={url}\nstop it: headrace down (or make down)",
            soft_wrap=True,
        )


@app.command(rich_help_panel="Operations")
def down(debug: Debug = False) -> None:
    """Stop what `headrace up` started. Safe to repeat."""
    with told(debug):
        from flows.runtime import daemon

        daemon.down(out.print)


if __name__ == "__main__":
    main()

"""The `headrace` command.

One idea: a command checks its input, calls one flow or one library function, and prints the result. It computes nothing itself.
`validation.py` holds the checks, `terminal.py` the exit codes and the error messages.
Commands import heavy libraries inside their functions, so `headrace --help` is fast.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.markup import escape

from flows import validation
from flows.cli import clusters, compare_policies, curate, measure_policy, package, render, synthesize, taxonomy
from flows.cli import config as cli_config
from flows.cli.evidence import price, value
from flows.cli.interactive import chat, view_store
from flows.cli.shared import ConfigFile, Debug, DryRunOfTraining, Families, ReadStore, StoreFolder, Verbose, Weights, run_or_plan
from flows.cli.store import look_after, show_ledger, show_metrics, withdraw
from flows.cli.terminal import OneLineErrors, handle_errors, out, print_text
from flows.cli.world import ground_requests, serve, worlds
from synth.gc_paused import collect_seldom

if TYPE_CHECKING:
    from storage.explanations.explain_conversation import FailedCheck
    from storage.store import Store

app = typer.Typer(
    name="headrace",
    cls=OneLineErrors,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    help="""From a team's tools and raw user queries to a trained tool-use agent.

Headrace synthesises executed trajectories, filters raw queries, tags the remaining tasks by difficulty and measured certainty, and trains
a policy on them: seed SFT, second SFT, RL. Run a killed command again, and it continues.

Start with `headrace run --config configs/sample.yaml` (all steps on sample data), or `headrace curate FILES --column NAME` (your own
queries). `headrace doctor` checks the installation.""",
)

app.add_typer(clusters.app, name="clusters", rich_help_panel="Store")
app.add_typer(taxonomy.app, name="taxonomy", rich_help_panel="Store")
app.add_typer(look_after.app, name="store", rich_help_panel="Store")
app.add_typer(cli_config.app, name="config", rich_help_panel="Operations")
app.add_typer(worlds.app, name="worlds", rich_help_panel="Operations")
app.add_typer(ground_requests.app, name="ground", rich_help_panel="Operations")
app.command(rich_help_panel="Operations")(serve.serve)
app.command("verify-log", rich_help_panel="Operations")(serve.verify_log)


def main() -> None:
    """Entry point of the `headrace` script."""
    collect_seldom()
    try:
        app()
    except SystemExit as ended:
        if ended.code:  # skip the cleanup of Python: libraries print long warnings there
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(ended.code if isinstance(ended.code, int) else 1)
        raise


# ---- the pipeline and its steps ----------------------------------------------------------------------------------------


@app.command(rich_help_panel="Pipeline")
def run(
    config: ConfigFile = None,
    store: StoreFolder = None,
    families: Families = None,
    ui: Annotated[bool, typer.Option("--ui", help="Open the run's page in Prefect's UI; the server stays until Ctrl-C.")] = False,
    dry_run: DryRunOfTraining = False,
    verbose: Verbose = False,
    debug: Debug = False,
) -> None:
    """Run all steps: synthesise, curate, train and tag, evaluate, report.

    Without a configuration the command runs the sample. Run the same command again after a kill or stop, and it continues. After a
    finished run it only shows the results again, with --verbose as tables.

    Examples:

      headrace run --config configs/sample.yaml

      headrace run --config configs/sample.yaml --store runs/second/store --ui
    """
    with handle_errors(debug):
        settings = validation.read_config(config, store, families)
        validation.check_language(settings)
        if not dry_run:
            validation.check_role_engines(settings.synthesize.roles)
            validation.check_funnel_engines(settings)
            validation.check_backends(settings)
        run_or_plan(
            "pipeline:pipeline",
            settings,
            dry_run,
            ("synthesize", "haystack", "curate", "train", "tag", "report"),
            verbose=verbose,
            keep_ui=ui,
        )


app.command(rich_help_panel="Pipeline")(synthesize.synthesize)
app.command(rich_help_panel="Pipeline")(curate.curate)
app.command(rich_help_panel="Pipeline")(measure_policy.tag)
app.command(rich_help_panel="Store")(value.value)
app.command(rich_help_panel="Operations")(price.price)


@app.command(rich_help_panel="Pipeline")
def train(
    config: ConfigFile = None,
    store: StoreFolder = None,
    weights: Weights = None,
    dry_run: DryRunOfTraining = False,
    verbose: Verbose = False,
    debug: Debug = False,
) -> None:
    """Train the stages on a curated store, by default seed SFT, second SFT and RL. Each policy is evaluated and must pass a gate.

    Examples:

      headrace train --config configs/sample.yaml

      headrace train --config configs/cluster.yaml --dry-run
    """
    with handle_errors(debug):
        settings = validation.set_weights(validation.read_config(config, store), "train", weights)
        validation.check_language(settings)
        if not dry_run:
            validation.check_has_tasks(settings)
            validation.check_backends(settings)
        run_or_plan("train:train", settings, dry_run, ("train",), ("certainty", "ladder", "facets"), verbose=verbose)


app.command(rich_help_panel="Pipeline")(measure_policy.evaluate)
app.command(rich_help_panel="Store")(compare_policies.compare)
app.command(rich_help_panel="Store")(view_store.view)
app.command(rich_help_panel="Store")(withdraw.withdraw)
app.command(rich_help_panel="Store")(show_ledger.ledger)
app.command(rich_help_panel="Operations")(show_metrics.metrics)
app.command(rich_help_panel="Pipeline")(chat.chat)
app.command(rich_help_panel="Pipeline")(render.render)


# ---- inspect and export a store -----------------------------------------------------------------------------------------


class Trainer(StrEnum):
    trl = "trl"
    verl = "verl"
    roll = "roll"
    atif = "atif"
    sharegpt = "sharegpt"


@app.command(rich_help_panel="Store")
def export(
    release: Annotated[
        str | None,
        typer.Argument(
            metavar="[RELEASE]",
            help="Release id, or a name (seed, second, rl) for the latest of that name. Default: all synthesised conversations. With "
            "--queries: id of a curation (default: the last of every file).",
        ),
    ] = None,
    queries: Annotated[
        bool, typer.Option("--queries", help="The queries that `curate` kept, with all columns of your files, instead of a release.")
    ] = False,
    by_hand: Annotated[
        bool, typer.Option("--by-hand", help="All annotations that people made in `headrace view --write`, instead of a release.")
    ] = False,
    trainer: Annotated[
        Trainer, typer.Option("--format", help="Trainer that will read the files; or atif, sharegpt: conversations alone.")
    ] = Trainer.trl,
    calls: Annotated[
        Literal["parallel", "single"],
        typer.Option(
            "--calls", help="single: one call per message, for templates that take no more (Llama 3.1, Llama 3.2, gpt-oss; verl)."
        ),
    ] = "parallel",
    arguments: Annotated[
        Literal["object", "text"],
        typer.Option("--arguments", help="text: JSON text, for templates that take no objects (the original one of DeepSeek-V3)."),
    ] = "object",
    folder: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="DIR", help="Default: exports/ and RELEASE-FORMAT, queries or by_hand."),
    ] = None,
    licence: Annotated[
        list[str] | None,
        typer.Option("--licence", metavar="FILE=LICENCE", help="Licence of a file of raw queries, for the dataset card; may be repeated."),
    ] = None,
    config: ConfigFile = None,
    store: ReadStore = None,
    debug: Debug = False,
) -> None:
    """Write a release for a trainer: OpenAI messages as JSONL and Parquet, one file per split, with a dataset card and checksums.

    Without RELEASE, the command makes a release of all synthesised conversations (near duplicates once) and their tasks; of a store
    without conversations, one of all its tasks.

    Examples:

      headrace export --store runs/mine/store --out training_set/

      headrace export second --format verl --out second/ --store runs/sample/store

      headrace export --calls single --out for_llama/ --store runs/sample/store

      headrace export --format atif --out trajectories/ --store runs/sample/store

      headrace export rl --licence queries.parquet=CC-BY-4.0 --store runs/sample/store

      headrace export --queries --store runs/mine/store --out my_queries/

      headrace export --by-hand --store runs/mine/store --out annotations/
    """
    with handle_errors(debug):
        from flows.cli.write_exports import export_annotations, export_curated
        from storage.releases import export as storage_export
        from storage.releases.export_folder import describe_export
        from storage.releases.export_rows import MessageForm

        opened = validation.open_store(config, store)
        if by_hand:
            validation.refuse_options_of_messages(trainer.value, calls, arguments)
            given = [name for name, value in (("RELEASE", release), ("--queries", queries), ("--licence", licence)) if value]
            print_text(describe_export(export_annotations(opened, folder or Path("exports") / "by_hand", given)))
            return
        if queries:
            validation.refuse_options_of_messages(trainer.value, calls, arguments)
            print_text(describe_export(export_curated(opened, release, folder or Path("exports") / "queries", licence or [])))
            return
        release_id = validation.resolve_release(opened, release)
        licences = validation.parse_licences(licence or [], opened, release_id)
        target = folder or Path("exports") / f"{release or release_id}-{trainer.value}"
        form = MessageForm(arguments, calls)
        written = storage_export.export(opened, release_id, target, trainer.value, form=form, licences=licences)
        print_text(describe_export(written))


app.command(rich_help_panel="Store")(package.package)


@app.command(rich_help_panel="Store")
def lineage(
    id: Annotated[
        str,
        typer.Argument(
            metavar="ID|FILE:ROW",
            help="Any id that Headrace prints, or its beginning; the name of a policy or release; or file and row of a query.",
        ),
    ],
    config: ConfigFile = None,
    store: ReadStore = None,
    debug: Debug = False,
) -> None:
    """Show what an item was made from and what was made from it, from tools and raw queries to policies.

    Example: headrace lineage rl --store runs/sample/store
    """
    with handle_errors(debug):
        from storage.releases import lineage as storage_lineage

        opened = validation.open_store(config, store)
        print_text(str(storage_lineage.lineage(opened, validation.resolve_query_id(opened, id))))


@app.command(rich_help_panel="Store")
def explain(
    id: Annotated[
        str,
        typer.Argument(
            metavar="ID|FILE:ROW",
            help="Any id that Headrace prints, or its beginning; the name of a policy or release; or file and row of a query.",
        ),
    ],
    full: Annotated[bool, typer.Option("--full", help="Show long texts and results whole.")] = False,
    config: ConfigFile = None,
    store: ReadStore = None,
    debug: Debug = False,
) -> None:
    """Show an item: a conversation beside its plan, with the checks that it failed; a task; a query and its verdict; a policy; a tool.

    Examples:

      headrace explain rl --store runs/sample/store

      headrace explain queries.parquet:42 --store runs/sample/store

      headrace explain retail --store runs/sample/store
    """
    with handle_errors(debug):
        from storage.explanations import explain as explanations

        opened = validation.open_store(config, store)
        found = explanations.explain(opened, validation.resolve_query_id(opened, id), full=full, diagnose=_diagnose)
        print_text(str(found))


def _diagnose(store: Store, row: Mapping[str, Any]) -> Sequence[FailedCheck]:
    """Why a conversation failed, by a replay in its world, which may be one of the store's own."""
    from synth.conversations.failed_checks import failed_checks
    from synth.worlds.stored_worlds import register_stored

    register_stored(store)
    return failed_checks(store, row)


# ---- operations --------------------------------------------------------------------------------------------------------


@app.command(rich_help_panel="Operations")
def doctor(
    config: ConfigFile = None,
    engine: Annotated[
        str | None,
        typer.Option(
            "--engine", metavar="NAME", help="Also start this language model and request one token: openai:MODEL, vllm:MODEL, hf:FOLDER."
        ),
    ] = None,
    debug: Debug = False,
) -> None:
    """Check the installation: packages, extras, disk, sandbox, server. With --config: also the file, its store, engines and cluster.

    `openai:` uses the server in OPENAI_BASE_URL with the key in OPENAI_API_KEY. `vllm:` starts a server from `.venv-vllm`.

    Exit code 1 if a check fails, 2 if the configuration or its store is unusable.

    Examples:

      headrace doctor

      headrace doctor --config configs/sample.yaml

      headrace doctor --engine openai:gpt-5-mini
    """
    with handle_errors(debug):
        from flows.runtime.doctor import configured_findings, engine_findings, findings

        all_findings = (
            findings()
            + (configured_findings(validation.read_config(config)) if config else [])
            + (engine_findings(engine) if engine else [])
        )
        marks = {"ok": "[green]ok    [/green]", "note": "[yellow]note  [/yellow]", "broken": "[bold red]broken[/bold red]"}
        for finding in all_findings:
            out.print(f"{marks[finding.state]} {finding.what}: {escape(finding.detail)}", soft_wrap=True)
        if any(finding.state == "broken" for finding in all_findings):
            raise typer.Exit(1)


@app.command(rich_help_panel="Operations")
def up(
    foreground: Annotated[
        bool,
        typer.Option(
            "--foreground",
            help="Stay until Ctrl-C or SIGTERM, and stop them then. The worker's health is at http://127.0.0.1:8080/health"
            " (PREFECT_WORKER_WEBSERVER_PORT for another port).",
        ),
    ] = False,
    debug: Debug = False,
) -> None:
    """Start a Prefect server, a work pool and a worker in the background, and deploy the flows of prefect.yaml. Safe to repeat.

    Example: headrace up
    """
    with handle_errors(debug):
        from flows.runtime import daemon
        from flows.runtime.notes.run_records import describe_others
        from flows.runtime.server import home, named_server

        url = daemon.up(out.print, foreground=foreground)
        for sentence in describe_others(Path("runs").glob("*/store"), str(home()) if named_server() is None else url):
            print_text(sentence)
        out.print(
            f"Prefect's UI: {url.removesuffix('/api')} (runs that `headrace` started in this folder, and those of the deployments)\n"
            f"use it: export PREFECT_API_URL={url}\nstop it: headrace down (or make down)",
            soft_wrap=True,
        )
        if foreground:
            daemon.stay(out.print)


@app.command(rich_help_panel="Operations")
def down(debug: Debug = False) -> None:
    """Stop the server, worker and runs that `headrace up` started. Safe to repeat.

    Example: headrace down
    """
    with handle_errors(debug):
        from flows.runtime import daemon

        daemon.down(out.print)


if __name__ == "__main__":
    main()

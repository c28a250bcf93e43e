"""`headrace curate`: filter raw queries down to the few that are worth training on."""

from __future__ import annotations

from collections.abc import Mapping
from multiprocessing import get_context
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows import validation
from flows.cli.shared import ConfigFile, Debug, DryRun, Families, FocusOn, StoreFolder, Verbose, print_focus, run_or_plan
from flows.cli.terminal import handle_errors, print_text

if TYPE_CHECKING:
    from flows.config import Config


Files = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FILES]...",
        help="Query files: Parquet, JSONL, CSV, TSV or text (one query per line), also compressed; paths, patterns ('logs/**/*.jsonl.gz') "
        "or URLs (s3://, gs://, https://).",
    ),
]
Column = Annotated[
    str | None,
    typer.Option(
        "--column", metavar="NAME", help="Column or key of the query; dots select nested values (messages.0.content). Default: text."
    ),
]
Context = Annotated[
    list[str] | None,
    typer.Option(
        "--context",
        metavar="NAME",
        help="Column or key with what is known beside the query, such as the user's city or what is on the screen: it stands behind the "
        "query, is told to the policy, and fills slots that are called like the column, but in city and retail; may be repeated.",
    ),
]
Keep = Annotated[str | None, typer.Option("--keep", metavar="N|1/N", help="Number of queries to keep, or a share (1/10000).")]
HeldOut = Annotated[
    list[str] | None,
    typer.Option(
        "--held-out",
        metavar="FILE|SUITE",
        help="Held-out questions; queries close to them are dropped: a file (same --column), or a suite (bfcl, tau2-retail, "
        "tau2-airline, agentdojo); may be repeated.",
    ),
]
Ungrounded = Annotated[
    bool | None,
    typer.Option(
        "--ungrounded/--grounded",
        help="Also keep queries that no world can execute, evenly over topics; or only those that become tasks. "
        "Default: also, in a store without conversations.",
    ),
]
Strict = Annotated[bool, typer.Option("--strict", help="Refuse a file with an undecodable row, instead of dropping the row.")]
New = Annotated[bool, typer.Option("--new", help="Skip files that an earlier call read into the store.")]
ReadWorlds = Annotated[
    list[str] | None,
    typer.Option(
        "--world",
        "-w",
        metavar="NAME|FILE",
        help="World in which requests are read, a spec file of your own too; may be repeated. Default: those of the store's conversations, "
        "else city and retail.",
    ),
]
IdPatterns = Annotated[
    list[str] | None,
    typer.Option(
        "--id-pattern",
        metavar="REGEX",
        help="Identifiers as your users write them, beside those of the worlds, such as '#\\d+'; may be repeated.",
    ),
]
Confirm = Annotated[
    bool,
    typer.Option("--confirm", help="Show three requests of each intent that was read, and wait for a yes before anything is committed."),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="Ray cluster of which this machine is a node: host:port of its head, `auto`, or `local`. All nodes must see store and files.",
    ),
]


def curate(
    files: Files = None,
    column: Column = None,
    context: Context = None,
    keep: Keep = None,
    held_out: HeldOut = None,
    ungrounded: Ungrounded = None,
    strict: Strict = False,
    new: New = False,
    ray: RayAddress = None,
    families: Families = None,
    focus: FocusOn = None,
    world: ReadWorlds = None,
    id_pattern: IdPatterns = None,
    confirm: Confirm = False,
    config: ConfigFile = None,
    store: StoreFolder = None,
    dry_run: DryRun = False,
    verbose: Verbose = False,
    debug: Debug = False,
) -> None:
    """Filter raw queries down to the few that are worth training on.

    A query that a world can execute becomes a task. Of the others, junk is dropped, and queries are kept evenly over topics, the long and
    conditional ones first; `headrace export --queries` writes them with all columns of your files.
    Without FILES the command filters generated sample queries. Every row gets one verdict: `headrace explain ID` (or FILE:ROW) shows it.
    Queries from earlier calls count: a query that the store has already is a duplicate.

    Examples:

      headrace curate questions.parquet --column prompt --keep 200 --store runs/mine/store

      headrace curate 'logs/2026-11-*.jsonl.gz' --column messages.0.content --keep 1/10000 --held-out bfcl --store runs/mine/store

      headrace curate 'logs/*.jsonl' --new --store runs/mine/store

      headrace curate log.jsonl --grounded --keep 500 --store runs/mine/store

      headrace curate log.jsonl --world my.yaml --id-pattern '#[0-9]+' --store runs/mine/store

      headrace curate log.jsonl --world my.yaml --context city --store runs/mine/store

      yes | headrace curate log.jsonl --world my.yaml --confirm --store runs/mine/store
    """
    with handle_errors(debug):
        from flows.config import for_curation, settle_curation

        settings = for_curation(
            validation.read_config(config, store, families),
            column=column,
            context=context or [],
            keep=keep,
            held_out=held_out or [],
            ungrounded=ungrounded,
            strict=strict,
            new=new,
            focus=focus is not None,
            worlds=validation.resolve_worlds(world) if world else (),
            id_patterns=id_pattern or (),
        )
        _run(settle_curation(settings, files or []), files or [], ray, dry_run, verbose, confirm=confirm)


def _run(settings: Config, files: list[str], ray: str | None, dry_run: bool, verbose: bool, *, confirm: bool) -> None:
    """Check the input of a curation, then run it or print its plan."""
    if not dry_run:
        validation.check_funnel_engines(settings)
    print_focus("curate", settings)
    sources = validation.query_files(files)
    if not sources:
        print_text(f"no FILES are named, so {settings.haystack.rows:,} generated sample queries are filtered")
    validation.check_held_out(settings)
    if ray is None or dry_run:
        rows = validation.count_query_rows(sources, settings) if sources else None
    else:
        validation.check_query_heads(sources, settings)
        rows = None
    steps = ("curate",) if sources else ("haystack", "curate")
    keys = ("funnel", "difficulty")
    options: dict[str, Any] = {"verbose": verbose, "rows": rows, "files": sources, "ray": ray}
    if confirm and not dry_run:
        _preview(settings, steps, keys, options)
        if not typer.confirm("Commit this?"):
            print_text("nothing was committed; ground.min_precision decides how sure the reader must be")
            return
    run_or_plan("curate:curate", settings, dry_run, steps, keys, **options)


def _preview(settings: Config, steps: tuple[str, ...], keys: tuple[str, ...], options: Mapping[str, Any]) -> None:
    """Run all steps and commit nothing, in a process of its own: a process runs one flow."""
    process = get_context("spawn").Process(target=_run_preview, args=(settings, steps, keys, options))
    process.start()
    process.join()
    if process.exitcode:
        raise typer.Exit(process.exitcode)


def _run_preview(settings: Config, steps: tuple[str, ...], keys: tuple[str, ...], options: Mapping[str, Any]) -> None:
    with handle_errors(debug=False):
        run_or_plan("curate:curate", settings, False, steps, keys, **options, preview=True)

"""`headrace curate`: sift raw queries, wherever they lie and whatever they are called, down to the few that are worth training on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from flows import validation
from flows.cli.shared import ConfigFile, Debug, DryRun, Families, FocusOn, StoreFolder, do, show_focus, tell_notes
from flows.cli.terminal import told

if TYPE_CHECKING:
    from flows.config import Config


Files = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FILES]...",
        help="Query files: Parquet, JSONL, CSV, TSV or text (a query a line), also compressed; paths, patterns ('logs/**/*.jsonl.gz') "
        "or URLs (s3://, gs://, https://).",
    ),
]
Column = Annotated[
    str | None,
    typer.Option(
        "--column", metavar="NAME", help="Column or key that holds the query; dots lead inside (messages.0.content). Default: text."
    ),
]
Keep = Annotated[str | None, typer.Option("--keep", metavar="N|1/N", help="How many to keep: a number, or one in so many (1/10000).")]
HeldOut = Annotated[
    list[str] | None,
    typer.Option(
        "--held-out",
        metavar="FILE|bfcl",
        help="Questions that nothing kept may come from: a file (with the same --column), or those of bfcl-eval; may be repeated.",
    ),
]
Ungrounded = Annotated[bool, typer.Option("--ungrounded", help="Keep queries that no world can execute too, spread over the taxonomy.")]
Strict = Annotated[bool, typer.Option("--strict", help="Refuse a file with a row that cannot be decoded, instead of dropping the row.")]
New = Annotated[bool, typer.Option("--new", help="Leave out files that an earlier call has read into the store.")]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="Ray cluster that does the work: its head's host:port, `auto`, or `local`. All nodes must see store and files.",
    ),
]


def curate(
    files: Files = None,
    column: Column = None,
    keep: Keep = None,
    held_out: HeldOut = None,
    ungrounded: Ungrounded = False,
    strict: Strict = False,
    new: New = False,
    ray: RayAddress = None,
    families: Families = None,
    focus: FocusOn = None,
    config: ConfigFile = None,
    store: StoreFolder = None,
    dry_run: DryRun = False,
    debug: Debug = False,
) -> None:
    """Sift raw queries down to the few that are worth training on, each with an admitted task.

    Without FILES the generated sample haystack is sifted. Every row read leaves one verdict: `headrace explain ID` (or FILE:ROW) tells it.
    What earlier calls have read into the store counts: a query that was seen there is a duplicate today.

    Examples:

      headrace curate questions.parquet --column prompt --store runs/mine/store

      headrace curate 'logs/2026-11-*.jsonl.gz' --column messages.0.content --keep 1/10000 --held-out bfcl --store runs/mine/store

      headrace curate 'logs/*.jsonl' --new --store runs/mine/store

      headrace curate log.jsonl --ungrounded --keep 500 --store runs/mine/store
    """
    with told(debug):
        from flows.config import for_curation

        settings = for_curation(
            validation.settings(config, store, families),
            column=column,
            keep=keep,
            held_out=held_out or [],
            ungrounded=ungrounded,
            strict=strict,
            new=new,
            focus=focus is not None,
        )
        _run(settings, files or [], ray, dry_run)


def _run(settings: Config, files: list[str], ray: str | None, dry_run: bool) -> None:
    """Checks what a curation needs, then runs it, or shows its plan."""
    if not dry_run:
        validation.funnel_engines(settings)
    show_focus("curate", settings)
    sources = validation.query_files(files)
    validation.held_out(settings)
    if ray is None or dry_run:
        rows = validation.query_rows(sources, settings) if sources else None
    else:
        validation.query_heads(sources, settings)
        rows = None
    steps = ("curate",) if sources else ("haystack", "curate")
    done = do("curate:curate", settings, dry_run, steps, ("funnel", "difficulty"), rows=rows, files=sources, ray=ray)
    tell_notes(done["notes"] if done else ())

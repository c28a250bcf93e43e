"""`headrace curate`: sift raw queries, wherever they lie and whatever they are called, down to the few that are worth training on."""

from __future__ import annotations

from typing import Annotated

import typer

from flows import validation
from flows.cli.shared import ConfigFile, Debug, DryRun, Families, FocusOn, StoreFolder, do, show_focus, tell_notes
from flows.cli.terminal import told


def curate(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILES]...",
            help="Query files: Parquet, JSONL, CSV, TSV or text (a query a line), also compressed; paths, patterns ('logs/**/*.jsonl.gz') "
            "or URLs (s3://, gs://, https://).",
        ),
    ] = None,
    column: Annotated[
        str | None,
        typer.Option(
            "--column", metavar="NAME", help="Column or key that holds the query; dots lead inside (messages.0.content). Default: text."
        ),
    ] = None,
    keep: Annotated[
        str | None, typer.Option("--keep", metavar="N|1/N", help="How many to keep: a number, or one in so many (1/10000).")
    ] = None,
    held_out: Annotated[
        list[str] | None,
        typer.Option(
            "--held-out",
            metavar="FILE|bfcl",
            help="Questions that nothing kept may come from: a file (with the same --column), or those of bfcl-eval; may be repeated.",
        ),
    ] = None,
    ungrounded: Annotated[
        bool, typer.Option("--ungrounded", help="Keep queries that no world can execute too, spread over the taxonomy.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse a file with a row that cannot be decoded, instead of dropping the row.")
    ] = False,
    new: Annotated[bool, typer.Option("--new", help="Leave out files that an earlier call has read into the store.")] = False,
    ray: Annotated[
        str | None,
        typer.Option(
            "--ray",
            metavar="ADDRESS",
            help="Ray cluster that does the work: its head's host:port, `auto`, or `local`. All nodes must see store and files.",
        ),
    ] = None,
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

        base = validation.settings(config, store, families)
        sets = held_out or []
        settings = for_curation(
            base, column=column, keep=keep, held_out=sets, ungrounded=ungrounded, strict=strict, new=new, focus=focus is not None
        )
        if not dry_run:
            validation.funnel_engines(settings)
        show_focus("curate", settings)
        sources = validation.query_files(files or [])
        validation.held_out(settings)
        if ray is None or dry_run:
            rows = validation.query_rows(sources, settings) if sources else None
        else:
            validation.query_heads(sources, settings)
            rows = None
        steps = ("curate",) if sources else ("haystack", "curate")
        done = do("curate:curate", settings, dry_run, steps, ("funnel", "difficulty"), rows=rows, files=sources, ray=ray)
        tell_notes(done["notes"] if done else ())

"""`headrace store`: check, repair, back up, restore, prune and measure a store."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from flows import validation
from flows.cli.shared import Debug, NewestStore, WorkedStore
from flows.cli.terminal import handle_errors, out, print_text
from storage.errors import BadInput

app = typer.Typer(
    no_args_is_help=True,
    help="""Look after a store: is it whole, how large is it, where is its copy.

A store can be checked, backed up and measured while a flow works on it. Repair, prune and upgrade are then refused.""",
)

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it; without it the command only prints what would be done.")]
As = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Backup = Annotated[str, typer.Argument(metavar="DIR|URL", help="Folder or URL (s3://...) of the backup.")]
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


@app.command()
def check(store: NewestStore = None, debug: Debug = False) -> None:
    """Read the whole store, and list what is damaged. Exit code 1 if anything is.

    Compares the rows of each part with the hash in its name, the catalogue with the parts and the log of commits, and the weights of
    each policy with their hash; counts unreadable lines of journals. Every flow compares sizes and times when it begins.

    Examples:

      headrace store check --store runs/sample/store
    """
    with handle_errors(debug):
        from storage.health.damage import check as check_all

        root = _root(store)
        with _progress() as progress:
            found = check_all(root, progress)
        for one in found:
            print_text(str(one), style="red")
        if found:
            print_text(f"{len(found):,} damaged; to set them aside: headrace store repair --store {root}")
            raise typer.Exit(1)
        print_text(f"{root} is whole")


@app.command()
def stat(store: NewestStore = None, as_json: As = False, debug: Debug = False) -> None:
    """Print the size of each table and of everything else in the store, with rows, parts and age.

    Examples:

      headrace store stat --store runs/sample/store
    """
    with handle_errors(debug):
        from flows.summaries.summary_tables import Table, print_table
        from storage.health.sizes import sizes

        frame = sizes(validation.open_store(None, store))
        if as_json:
            print(json.dumps(frame.to_dicts()))
            return
        rows = [
            {
                "what": row["what"],
                "parts": "" if row["parts"] is None else f"{row['parts']:,}",
                "rows": "" if row["rows"] is None else f"{row['rows']:,}",
                "size": _size(row["size_bytes"]),
                "first commit": (row["oldest"] or "")[:16],
                "last commit": (row["newest"] or "")[:16],
            }
            for row in frame.to_dicts()
        ]
        print_table(Table("sizes", "What the store holds", rows), out)
        print_text(f"{_size(int(frame['size_bytes'].sum()))} in all")


@app.command()
def backup(where: Backup, store: NewestStore = None, debug: Debug = False) -> None:
    """Copy what is committed to a folder or a URL, also while flows work on the store. Files that are there already are not copied again.

    Examples:

      headrace store backup backups/sample --store runs/sample/store
    """
    with handle_errors(debug):
        from storage.health.backups import back_up

        with _progress() as progress:
            made = back_up(validation.open_store(None, store), where, progress=progress)
        print_text(f"backup {made.name} in {where}: {made.files:,} files, {made.copied:,} of them new ({_size(made.copied_bytes)})")
        print_text(f"content hash {made.content_hash[:16]}; to restore: headrace store restore {where} --store NEW_FOLDER")


@app.command()
def restore(
    where: Backup,
    store: Annotated[Path, typer.Option("--store", "-s", metavar="DIR", help="New folder for the store.")],
    at: Annotated[str | None, typer.Option("--at", metavar="TIME", help="Name of the backup (default: the newest).")] = None,
    debug: Debug = False,
) -> None:
    """Make a store from a backup, and compare its content hash with the one that was backed up.

    Examples:

      headrace store restore backups/sample --store runs/restored/store
    """
    with handle_errors(debug):
        from storage.health.backups import restore as restore_store

        with _progress() as progress:
            made = restore_store(where, store.absolute(), name=at, progress=progress)
        print_text(f"{store} is the store of {made.name}: {made.files:,} files, {_size(made.copied_bytes)}")
        print_text(f"content hash {made.content_hash[:16]}, as it was backed up")
        if made.is_other_version:
            print_text(f"it has another schema version: now `headrace store upgrade --store {store}`")


@app.command()
def repair(
    store: WorkedStore = None,
    backup: Annotated[
        str | None,
        typer.Option("--backup", metavar="DIR|URL", help="A backup: what is whole there is taken from it."),
    ] = None,
    debug: Debug = False,
) -> None:
    """Set damaged files aside, and forget the commits that they belong to, so that the next run makes them again.

    Nothing is deleted: damaged files lie in STORE/damaged/TIME. A damaged catalogue is built again from the parts. The ids of parts are
    made from their inputs, so the commands that it names give the same content again. Of a store that machines share, whole parts and
    models are taken from the object store. A store of an older version is left to `headrace store upgrade`, unless parts of it are damaged.
    Killed, run it again.

    Examples:

      headrace store repair --store runs/sample/store

      headrace store repair --backup backups/sample --store runs/sample/store
    """
    with handle_errors(debug):
        from flows.runtime.store_lock import hold_store
        from storage.health.repair import repair as repair_all

        root = _root(store)
        with hold_store("store repair", root, pulls=False), _progress() as progress:
            done = repair_all(root, backup=backup, progress=progress)
        for one in done.damages:
            print_text(f"{one}{' (restored)' if one.path in done.restored else ''}")
        if not done.damages:
            print_text(f"{root} is whole; nothing was done")
            return
        if done.aside is not None:
            print_text(f"set aside: {done.aside}")
        if done.forgotten:
            counts = ", ".join(f"{table} {count:,}" for table, count in done.forgotten.items())
            print_text(f"forgotten, by table and parts: {counts}")
        for note in done.notes:
            print_text(note, style="yellow")
        if done.commands:
            print_text(f"to make it again, with the configuration of before: headrace run, or {', '.join(done.commands)}")


@app.command()
def upgrade(store: WorkedStore = None, yes: Yes = False, debug: Debug = False) -> None:
    """Print what this version of Headrace changes in a store of an older one; with --yes, bring it to this version.

    A store of a newer version, or with damaged parts, is refused. No part is written: only the catalogue is built again. The old
    catalogue stays beside it, as catalog.VERSION.duckdb.

    Examples:

      headrace store upgrade --store runs/sample/store
    """
    with handle_errors(debug):
        from flows.runtime.store_lock import hold_store
        from storage.health.upgrade import plan_upgrade
        from storage.health.upgrade import upgrade as bring_up

        root = _root(store)
        with hold_store("store upgrade", root, pulls=False):
            planned = bring_up(root) if yes else plan_upgrade(root)
        for change in planned.changes:
            print_text(change)
        if planned.old == planned.new:
            print_text(f"{root} is of this version")
        elif yes:
            print_text(f"{root} is brought from schema version {planned.old} to {planned.new}")
        else:
            print_text(f"from schema version {planned.old} to {planned.new}; nothing was done, --yes does it", style="dim")


@app.command()
def prune(
    store: WorkedStore = None,
    older_than: Annotated[
        float, typer.Option("--older-than", metavar="DAYS", min=0.0, help="Least age of models and of what a repair set aside.")
    ] = 7.0,
    keep: Annotated[
        str | None, typer.Option("--keep", metavar="SIZE", help="Most bytes that models may have, as 20G; the oldest beyond it go.")
    ] = None,
    yes: Yes = False,
    debug: Debug = False,
) -> None:
    """List what the store can do without; with --yes, remove it.

    That is: checkpoints of finished stages, stages that were not finished, models without promotion, parts that were never committed,
    intermediate rows and temporary files of killed runs, and what repairs set aside. Committed rows stay. A policy whose model was
    removed keeps its row, its draws and its figures. Models that a later stage went on from stay.

    Examples:

      headrace store prune --store runs/sample/store

      headrace store prune --older-than 30 --keep 20G --yes --store runs/sample/store
    """
    with handle_errors(debug):
        from flows.runtime.store_lock import hold_store
        from flows.summaries.summary_tables import Table, print_table
        from storage.health.prune import find_prunable
        from storage.health.prune import prune as remove

        opened, keep_bytes = validation.open_store(None, store), None if keep is None else _parse_size(keep)
        with hold_store("store prune", opened.root):
            found = find_prunable(opened, older_than_s=older_than * 86_400, keep_bytes=keep_bytes)
            rows = [
                {
                    "path": str(one.path.relative_to(opened.root)),
                    "what": one.what,
                    "size": _size(one.size_bytes),
                    "days": f"{one.age_s / 86_400:.0f}",
                }
                for one in found
            ]
            print_text(str(opened.root))
            if rows:
                print_table(Table("prunable", "Can go", rows), out)
            if not found:
                print_text("nothing can go")
            elif yes:
                print_text(f"removed; {_size(remove(opened, found))} are free")
            else:
                print_text(f"nothing was done; --yes would free {_size(sum(one.size_bytes for one in found))}", style="dim")


def _root(store: Path | None) -> Path:
    """The store's folder; it may be damaged, so it is not opened. Raises BadInput if it is none."""
    from storage.health.damage import check_is_store

    root = store.absolute() if store is not None else validation.open_store(None, None).root
    check_is_store(root)
    return root


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    """Progress of long work, on the console."""
    from flows.runtime.progress import report, show_on_console

    with show_on_console(out):
        yield report


def _size(count: int) -> str:
    """Bytes in the largest unit that gives one digit or more."""
    for unit, factor in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} B"


def _parse_size(text: str) -> int:
    """Bytes of a size such as 20G. Raises BadInput."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)B?", text.strip(), re.IGNORECASE)
    if not found:
        raise BadInput(f"--keep is {text!r}, which is no size; write it as 20G or 500M")
    return int(float(found[1]) * _UNITS[found[2].upper()])

"""`headrace withdraw`: take back all that came from a source."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from flows import validation
from flows.cli.shared import Debug, WorkedStore
from flows.cli.terminal import handle_errors, out, print_text
from storage.errors import BadInput

if TYPE_CHECKING:
    from storage.store import Store
    from storage.withdrawals.withdraw_source import Withdrawn
    from storage.withdrawals.withdrawal_plan import Impact

Source = Annotated[
    str, typer.Argument(metavar="SOURCE", help="Name of a query file (as in column source), of a world, or of a teacher (openai:MODEL).")
]
Kind = Annotated[
    Literal["file", "world", "teacher"] | None, typer.Option("--kind", help="What SOURCE is, where several kinds have that name.")
]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; shown wherever a row was. Needed, except with --dry-run.")]
Author = Annotated[
    str | None, typer.Option("--author", metavar="NAME", help="Who withdraws it (default: the user of this machine).", show_default=False)
]
OnlyShow = Annotated[bool, typer.Option("--dry-run", help="Only print what would go, and change nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; needed where there is no terminal.")]


def withdraw(
    source: Source,
    reason: Reason = "",
    author: Author = None,
    kind: Kind = None,
    store: WorkedStore = None,
    dry_run: OnlyShow = False,
    yes: Yes = False,
    debug: Debug = False,
) -> None:
    """Take back a query file, a world or a teacher: hide all that was made from it, and release the rest anew.

    Its rows, the tasks and conversations made from them, and every draw on these tasks are shown, exported and trained on no more. Each
    release that had some is replaced by one without them. Policies that learned from them are marked, and stay until you train again.
    The source is never read into the store again. This cannot be undone. Killed, run it again: it continues.

    Examples:

      headrace withdraw queries.parquet --dry-run --store runs/sample/store

      headrace withdraw queries.parquet --reason "the customer asked for it" --yes --store runs/mine/store
    """
    with handle_errors(debug):
        from flows.runtime.store_lock import hold_store
        from storage.withdrawals.withdraw_source import check_words, withdraw_source
        from storage.withdrawals.withdrawal_plan import find_source, plan_withdrawal

        opened = validation.open_store(None, store)
        found = find_source(opened, source, kind)
        if dry_run:
            _print_impact(plan_withdrawal(opened, found))
            print_text("nothing was done", style="dim")
            return
        author = author or validation.system_user()
        check_words(reason, author)
        with hold_store("withdraw", opened.root):
            if not yes:
                _print_impact(plan_withdrawal(opened, found))
                _ask()
            now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
            done = withdraw_source(opened, found, reason=reason, author=author, at=now)
            _write_report_anew(opened)
        _print_done(done, opened)


def _ask() -> None:
    if not sys.stdin.isatty():
        raise BadInput("there is no terminal to ask in, and this cannot be undone: add --yes, or look with --dry-run")
    typer.confirm("Withdraw all of this for good?", abort=True)


def _print_impact(impact: Impact) -> None:
    from flows.summaries.summary_tables import Table, print_table

    print_text(f"{impact.source} would be withdrawn")
    if not impact.rows:
        print_text("no row of it is left in the store", style="dim")
    rows = [{"table": table, "rows that are hidden": f"{n:,}"} for table, n in impact.rows.items()]
    print_table(Table("withdrawn", "Rows", rows), out)
    releases = [
        {"release": row["release_id"], "name": row["name"], "items taken out": f"{row['items']:,}", "items left": f"{row['left']:,}"}
        for row in impact.releases.to_dicts()
    ]
    if releases:
        print_table(Table("releases", "Releases that are replaced", releases), out)
    if impact.policies:
        print_text(f"policies that learned from it, and are marked: {', '.join(impact.policies)}")
    if impact.orphans:
        print_text(
            f"{impact.orphans:,} rows of other files were dropped as repeats of rows that go; they stay dropped. Read their files into "
            "another store to have them judged anew"
        )


def _write_report_anew(store: Store) -> None:
    """The report beside the store shows rows."""
    from storage.report.page import write_report

    if (store.root.parent / "report.html").exists():
        write_report(store)


def _print_done(done: Withdrawn, store: Store) -> None:
    print_text(str(done.withdrawal))
    for old, new in done.releases.items():
        print_text(f"release {old} is replaced by {new}" if new else f"release {old} has nothing left, and no successor")
    if done.policies:
        print_text(f"policies that learned from it: {', '.join(done.policies)}; to replace them: headrace train --store {store.root}")
    _print_notes(done.notes)
    print_text("what was exported before still has it: export again, and remove the older files", style="yellow")


def _print_notes(notes: Sequence[str]) -> None:
    for note in notes:
        print_text(note, style="yellow")

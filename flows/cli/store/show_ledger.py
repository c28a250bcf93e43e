"""`headrace ledger`: what the engines of a store were asked and paid for in each month, and what is left of their budgets."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows import validation
from flows.cli.shared import Debug, NewestStore
from flows.cli.terminal import handle_errors, out, print_text
from storage.errors import HeadraceError
from storage.outside.known_secrets import mask

if TYPE_CHECKING:
    from synth.engines.spending.ledger import MonthSpent

Month = Annotated[str | None, typer.Option("--month", metavar="YYYY-MM", help="Show this month alone (UTC).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the rows as JSON.")]


def ledger(month: Month = None, as_json: AsJson = False, store: NewestStore = None, debug: Debug = False) -> None:
    """Show calls, tokens and dollars of each engine and month (UTC), and what is left of the budgets in section `budgets`.

    Calls without an answer (a time-out, a killed process) may have been billed: they count with the most that they can have cost. What
    other machines that share the store have spent counts too.

    Examples:

      headrace ledger --store runs/sample/store

      headrace ledger --store runs/sample/store --month 2026-11 --json
    """
    with handle_errors(debug):
        from synth.engines.spending.ledger import Ledger

        book = Ledger(validation.open_store(None, store).root)
        try:
            book.exchange()
        except HeadraceError as error:
            typer.echo(mask(f"other machines count as when last exchanged: {error}"), err=True)
        spent = [one for one in book.months() if month in (None, one.month)]
        book.close()
        if as_json:
            typer.echo(mask(json.dumps([_row(one) for one in spent], indent=1)))
        else:
            _print(spent)


def _row(spent: MonthSpent) -> dict[str, Any]:
    budget = None if spent.budget is None else spent.budget.model_dump(mode="json")
    return {**dataclasses.asdict(spent), "budget": budget, "tokens_left": spent.tokens_left, "usd_left": spent.usd_left}


def _print(spent: list[MonthSpent]) -> None:
    from flows.summaries.summary_tables import Table, print_table

    if not spent:
        print_text("no engine was asked that is paid for", style="dim")
        return
    rows = [
        {
            "month": one.month,
            "engine": one.engine,
            "calls": f"{one.calls:,}",
            "tokens in": f"{one.prompt_tokens:,}",
            "tokens out": f"{one.completion_tokens:,}",
            "dollars": f"{one.usd:,.2f}",
            "without an answer": f"{one.open_calls:,} calls, {one.open_tokens:,} tokens" if one.open_calls else "",
            "other machines": f"{one.other_tokens:,} tokens, {one.other_usd:,.2f} dollars" if one.other_tokens else "",
            "left": ", ".join(_left(one)),
        }
        for one in spent
    ]
    print_table(Table("ledger", "What engines cost", rows), out)


def _left(spent: MonthSpent) -> list[str]:
    tokens = [] if spent.tokens_left is None else [f"{spent.tokens_left:,} tokens"]
    return tokens if spent.usd_left is None else [*tokens, f"{spent.usd_left:,.2f} dollars"]

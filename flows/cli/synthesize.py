"""`headrace synthesize`: make trajectories with scripted roles, which cost nothing, or with language models on a budget."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows import validation
from flows.cli.shared import (
    LANGUAGE_MODELS,
    ConfigFile,
    Debug,
    DryRun,
    FocusOn,
    MaxTokens,
    MaxUsd,
    StoreFolder,
    UsdPerMillion,
    Verbose,
    Weights,
    print_focus,
    run_or_plan,
)
from flows.cli.terminal import handle_errors, out, print_text
from storage.errors import BadInput

if TYPE_CHECKING:
    from flows.config import Config
    from synth.run.result import Preview

_ENGINES = "scripted, openai:MODEL, vllm:MODEL or hf:FOLDER"


Worlds = Annotated[
    list[str] | None,
    typer.Option("--world", "-w", metavar="NAME|FILE", help="World to use instead of the configuration's; may be repeated."),
]
Tools = Annotated[
    Path | None,
    typer.Option(
        "--tools", metavar="FILE", help="Catalogue of tools (JSONL) to use instead of worlds; tools without a world are only stored."
    ),
]
Accepted = Annotated[
    int | None, typer.Option("--n", metavar="N", min=1, help="Stop at N accepted trajectories, instead of the configuration's number.")
]
Assistant = Annotated[
    str | None, typer.Option("--assistant", metavar="ENGINE", help=f"Engine of the teacher: {_ENGINES}.", rich_help_panel=LANGUAGE_MODELS)
]
User = Annotated[
    str | None,
    typer.Option("--user", metavar="ENGINE", help="Engine that plays the user; code checks every turn.", rich_help_panel=LANGUAGE_MODELS),
]
Planner = Annotated[
    str | None,
    typer.Option(
        "--planner", metavar="ENGINE", help="Engine that plans conversations; code solves the plans.", rich_help_panel=LANGUAGE_MODELS
    ),
]
Judge = Annotated[
    str | None,
    typer.Option(
        "--judge", metavar="ENGINE", help="Engine that grades what code cannot decide; calibrated first.", rich_help_panel=LANGUAGE_MODELS
    ),
]
PreviewOf = Annotated[
    int | None,
    typer.Option(
        "--preview",
        metavar="N",
        min=1,
        help="Hold the first N conversations (20 are enough) and estimate the cost of a run. The run reuses their answers.",
        rich_help_panel=LANGUAGE_MODELS,
    ),
]


def synthesize(
    config: ConfigFile = None,
    store: StoreFolder = None,
    worlds: Worlds = None,
    tools: Tools = None,
    accepted: Accepted = None,
    focus: FocusOn = None,
    weights: Weights = None,
    assistant: Assistant = None,
    user: User = None,
    planner: Planner = None,
    judge: Judge = None,
    max_tokens: MaxTokens = None,
    max_usd: MaxUsd = None,
    usd_per_million: UsdPerMillion = None,
    preview: PreviewOf = None,
    dry_run: DryRun = False,
    verbose: Verbose = False,
    debug: Debug = False,
) -> None:
    """Build blueprints from the worlds' tools and simulate them as verified trajectories.

    Scripted roles cost nothing. With language models, a run that was killed or stopped reuses its answers. `headrace doctor --engine`
    checks a language model. `headrace export` writes the trajectories for a trainer.

    Examples:

      headrace synthesize --config configs/sample.yaml --dry-run

      headrace synthesize --world my_shop.yaml --n 200 --store runs/mine/store

      headrace synthesize --focus failures --dry-run --store runs/mine/store

      headrace synthesize --assistant openai:gpt-5-mini --usd-per-million 0.25 2 --preview 20

      headrace synthesize --assistant vllm:models/teacher --user vllm:models/teacher --n 200 --max-tokens 5000000
    """
    with handle_errors(debug):
        if preview is not None and dry_run:
            raise BadInput("--preview holds conversations, --dry-run does nothing: give only one of them")
        roles = {"assistant": assistant, "user": user, "planner": planner, "judge": judge}
        limits = {"max_tokens": max_tokens, "max_usd": max_usd, "usd_per_million": usd_per_million}
        options = {name: value for name, value in (roles | limits).items() if value is not None}
        settings = validation.set_synthesis_options(validation.read_config(config, store), worlds or [], tools, accepted, options)
        settings = validation.set_weights(validation.set_focus(settings, focus is not None), "synthesize", weights)
        _run(settings, preview, dry_run, verbose)


def _run(settings: Config, preview: int | None, dry_run: bool, verbose: bool) -> None:
    """Run the synthesis, hold the first conversations to estimate its cost, or print its plan."""
    print_focus("synthesize", settings)
    if not dry_run:
        validation.check_role_engines(settings.synthesize.roles)
    if preview is not None:
        _print_preview(_run_preview(settings, preview), has_price=any(settings.synthesize.roles.usd_per_million))
        return
    keys = ("rounds", "outcomes", "diversity")
    run_or_plan("synthesize:synthesize", settings, dry_run, ("synthesize",), keys, verbose=verbose)


def _run_preview(settings: Config, proposals: int) -> Preview:
    from flows.runtime.progress import report, show_on_console, warn
    from flows.runtime.store_lock import hold_store
    from storage.store import Store
    from synth.run.synthesize import preview

    with hold_store("synthesize", settings.store), show_on_console(out):
        divisions = settings.curate.divisions
        store = Store(settings.store)
        return preview(store, settings.synthesize, divisions=divisions, proposals=proposals, progress=report, warn=warn)


def _print_preview(result: Preview, *, has_price: bool) -> None:
    from flows.summaries.summary_tables import Table, print_table

    def row(name: str, conversations: int, tokens: int, usd: float) -> dict[str, str]:
        return {
            "": name,
            "conversations": f"{conversations:,}",
            "tokens": f"{tokens:,}",
            "USD": f"{usd:,.4f}" if has_price else "no price given",
        }

    spent, expected = result.cost, result.expected_cost
    rows = [
        row("preview", result.proposals, spent.prompt_tokens + spent.completion_tokens, spent.usd),
        row("the whole run, about", result.expected_proposals, expected.prompt_tokens + expected.completion_tokens, expected.usd),
    ]
    print_table(Table("preview", f"Preview: {result.accepted} of {result.proposals} accepted", rows), out)
    outcomes = ", ".join(f"{outcome} {count}" for outcome, count in sorted(result.outcomes.items(), key=lambda item: -item[1]))
    print_text(f"outcomes: {outcomes}")
    out.print("Only the answers are committed; the run reuses them at no cost.")

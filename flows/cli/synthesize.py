"""`headrace synthesize`: trajectories, by scripted roles for nothing, or by language models on a budget."""

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
    do,
    show_focus,
    tell_notes,
)
from flows.cli.terminal import out, told
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
        "--tools", metavar="FILE", help="Catalogue of tools (JSONL) to use instead of worlds; what no world executes is only stored."
    ),
]
Accepted = Annotated[
    int | None, typer.Option("--n", metavar="N", min=1, help="Accepted trajectories to stop at, instead of the configuration's.")
]
Assistant = Annotated[
    str | None, typer.Option("--assistant", metavar="ENGINE", help=f"The teacher: {_ENGINES}.", rich_help_panel=LANGUAGE_MODELS)
]
User = Annotated[
    str | None, typer.Option("--user", metavar="ENGINE", help="Who plays the user; checked turn by turn.", rich_help_panel=LANGUAGE_MODELS)
]
Planner = Annotated[
    str | None,
    typer.Option("--planner", metavar="ENGINE", help="Who plans conversations; solved by code.", rich_help_panel=LANGUAGE_MODELS),
]
Judge = Annotated[
    str | None,
    typer.Option("--judge", metavar="ENGINE", help="Who grades what code cannot decide; measured first.", rich_help_panel=LANGUAGE_MODELS),
]
PlayTools = Annotated[
    str | None,
    typer.Option(
        "--play-tools",
        metavar="ENGINE",
        help="Who plays tools that no world executes; such conversations are marked, and kept apart. Wants all roles but the user's.",
        rich_help_panel=LANGUAGE_MODELS,
    ),
]
Played = Annotated[
    int | None, typer.Option("--played", metavar="N", min=0, help="How many of these to hold.", rich_help_panel=LANGUAGE_MODELS)
]
PreviewOf = Annotated[
    int | None,
    typer.Option(
        "--preview",
        metavar="N",
        min=1,
        help="Hold the first N conversations (20 tell enough), and say what a run would cost. It then has their answers for nothing.",
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
    assistant: Assistant = None,
    user: User = None,
    planner: Planner = None,
    judge: Judge = None,
    play_tools: PlayTools = None,
    played: Played = None,
    max_tokens: MaxTokens = None,
    max_usd: MaxUsd = None,
    usd_per_million: UsdPerMillion = None,
    preview: PreviewOf = None,
    dry_run: DryRun = False,
    debug: Debug = False,
) -> None:
    """Make blueprints over the worlds' tools and simulate them to verified trajectories.

    Scripted roles cost nothing. With language models a killed or stopped run pays for no answer twice; `headrace doctor --engine` looks at
    one. `headrace export` writes what came of it for a trainer.

    Examples:

      headrace synthesize --config configs/sample.yaml --dry-run

      headrace synthesize --world my_shop.yaml --n 200 --store runs/mine/store

      headrace synthesize --focus failures --dry-run --store runs/mine/store

      headrace synthesize --assistant openai:gpt-5-mini --usd-per-million 0.25 2 --preview 20

      headrace synthesize --assistant vllm:models/teacher --user vllm:models/teacher --n 200 --max-tokens 5000000
    """
    with told(debug):
        if preview is not None and dry_run:
            raise BadInput("--preview holds conversations, --dry-run does nothing: give one of the two")
        roles = {"assistant": assistant, "user": user, "planner": planner, "judge": judge, "tools": play_tools, "played": played}
        limits = {"max_tokens": max_tokens, "max_usd": max_usd, "usd_per_million": usd_per_million}
        said = {name: value for name, value in (roles | limits).items() if value is not None}
        settings = validation.synthesis(validation.settings(config, store), worlds or [], tools, accepted, said)
        _run(validation.focused(settings, focus is not None), preview, dry_run)


def _run(settings: Config, preview: int | None, dry_run: bool) -> None:
    """Runs the synthesis; or holds the first conversations to say what it would cost; or shows its plan."""
    show_focus("synthesize", settings)
    if not dry_run:
        validation.engines(settings.synthesize.roles)
    if preview is not None:
        _show(_previewed(settings, preview), has_price=any(settings.synthesize.roles.usd_per_million))
        return
    done = do("synthesize:synthesize", settings, dry_run, ("synthesize",), ("rounds", "outcomes", "diversity"))
    tell_notes((*done["notes"], *done["alarms"]) if done else ())


def _previewed(settings: Config, proposals: int) -> Preview:
    from flows.runtime.progress import report, show_on_console
    from flows.runtime.store_lock import hold_store
    from storage.store import Store
    from synth.run.synthesize import preview

    with hold_store("synthesize", settings.store), show_on_console(out):
        return preview(Store(settings.store), settings.synthesize, proposals=proposals, progress=report)


def _show(found: Preview, *, has_price: bool) -> None:
    from flows.summary_tables import Table, draw

    def line(what: str, conversations: int, tokens: int, usd: float) -> dict[str, str]:
        return {
            "": what,
            "conversations": f"{conversations:,}",
            "tokens": f"{tokens:,}",
            "USD": f"{usd:,.4f}" if has_price else "no price given",
        }

    spent, expected = found.cost, found.expected_cost
    rows = [
        line("preview", found.proposals, spent.prompt_tokens + spent.completion_tokens, spent.usd),
        line("the whole run, about", found.expected_proposals, expected.prompt_tokens + expected.completion_tokens, expected.usd),
    ]
    draw(Table("preview", f"Preview: {found.accepted} of {found.proposals} accepted", rows), out)
    told_of = ", ".join(f"{outcome} {count}" for outcome, count in sorted(found.outcomes.items(), key=lambda item: -item[1]))
    out.print(f"outcomes: {told_of}", markup=False, soft_wrap=True)
    out.print("Nothing is committed but the answers, which the run then has for nothing.")

"""`headrace worlds explore`: tasks of a live world, found by execution; proposed and reworded by a language model if one is named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.shared import Debug
from flows.cli.terminal import handle_errors, print_text
from flows.cli.world.worlds_write import AnswersStore, MaxTokens, MaxUsd, UsdPerMillion, open_writer
from storage.errors import BadInput, HeadraceError

if TYPE_CHECKING:
    from synth.engines.base import Engine
    from synth.explore.explorer import Exploration, Explorer
    from synth.worlds.live.live_world import LiveWorld
    from synth.worlds.live.lock import FoundIntent

Proposer = Annotated[
    str | None,
    typer.Option("--engine", metavar="ENGINE", help="Language model that proposes plans and rewords requests: openai:MODEL, vllm:MODEL."),
]
Proposed = Annotated[int | None, typer.Option("--proposed", metavar="N", min=0, help="Plans to ask the engine for (default: 40).")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Search, print a prompt and the estimated tokens; ask and write nothing.")]


def explore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="YAML file of a live world that is connected.")],
    seconds: Annotated[float, typer.Option("--seconds", metavar="S", min=1, help="Time to spend on the search.")] = 120.0,
    plans: Annotated[int, typer.Option("--plans", metavar="N", min=1, help="Plans to find at most, before those of an engine.")] = 400,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Seed of the search.")] = 0,
    engine: Proposer = None,
    proposed: Proposed = None,
    store: AnswersStore = None,
    max_tokens: MaxTokens = None,
    max_usd: MaxUsd = None,
    usd_per_million: UsdPerMillion = None,
    dry_run: DryRun = False,
    debug: Debug = False,
) -> None:
    """Find tasks in a live world by execution: calls with an effect, look-ups, questions, two goals in one.

    No language model is needed. Every plan is admitted like any other task: its effect is there, doing nothing fails, no call can be
    dropped, and the request determines it. The plans become the world's intents, in its lock file. Then: headrace synthesize --world FILE

    With --engine, a language model is then shown the tools and what some calls returned, and proposes plans with their requests, which are
    executed and admitted in the same way; and it rewords the requests of all plans. Its answers are kept in --store, if one is named.

    Examples:

      headrace worlds explore notes.yaml --seconds 20

      headrace worlds explore notes.yaml --seconds 20 --engine openai:gpt-4.1 --proposed 40 --dry-run
    """
    with handle_errors(debug):
        from synth.engines.budget import Budget
        from synth.explore.explorer import Explorer
        from synth.worlds.live.live_world import make_live_world

        if engine is None:
            _refuse(proposed=proposed, store=store, max_tokens=max_tokens, max_usd=max_usd, dry_run=dry_run)
        count = 40 if proposed is None else proposed
        world = _world_to_explore(file, engine)
        bare = make_live_world(world.spec, world.lock.model_copy(update={"intents": ()}))

        def search(then: Callable[[Explorer], None] | None) -> Exploration:
            return Explorer(bare, seconds=seconds, most=plans, seed=seed, progress=_show_progress(), then=then).run()

        if engine is None:
            _keep(file, world, search(None))
        elif dry_run:
            search(lambda explorer: _print_estimate(explorer, count, seed))
        else:
            with open_writer(engine, file.parent, store, Budget(max_tokens, max_usd, usd_per_million or (0.0, 0.0))) as model:
                _explore_with(model, file, world, search, count, seed)


# ---- parts -----------------------------------------------------------------------------------------------------------------


def _refuse(**options: Any) -> None:
    """Raises BadInput where one of these options was given."""
    given = [f"--{name.replace('_', '-')}" for name, value in options.items() if value not in (None, False)]
    if given:
        raise BadInput(f"{', '.join(given)}: for --engine; without one, nothing is asked and nothing costs money")


def _world_to_explore(file: Path, engine: str | None) -> type[LiveWorld]:
    from synth.engines.engine_names import kind_and_model
    from synth.worlds.live.live_files import live_world_of_file

    if engine is not None:
        kind_and_model(engine)
    world = live_world_of_file(file)
    if "verification" not in world.lock.uses:
        raise BadInput(f"{file}: its tasks cannot be verified; `headrace worlds connect file {file}` says why")
    return world


def _explore_with(
    engine: Engine, file: Path, world: type[LiveWorld], search: Callable[[Callable[[Explorer], None]], Exploration], count: int, seed: int
) -> None:
    """Search, ask the engine for plans, and for other words. What was found before an engine failed is kept."""
    from synth.explore.plan_writer import write_plans
    from synth.explore.rewording import reword, reworded_count
    from synth.worlds.live.live_world import make_live_world

    stopped: list[HeadraceError] = []

    def ask(explorer: Explorer) -> None:
        try:
            written = write_plans(
                engine, explorer, count, seed=seed, progress=lambda asked, kept: print_text(f"{asked} plans proposed, {kept} admitted ...")
            )
        except HeadraceError as error:
            stopped.append(error)
            return
        print_text(f"{written.cost.prompt_tokens:,} tokens read, {written.cost.completion_tokens:,} written for these")
        for problem in written.problems[:3]:
            print_text(f"  refused: {problem[:160]}")

    found = search(ask)
    intents = found.intents
    _keep(file, world, found)
    if not stopped:
        kind = make_live_world(world.spec, world.lock.model_copy(update={"intents": tuple(intents)}))
        try:
            for found.intents in reword(
                engine, kind, seed=seed, progress=lambda done, of: print_text(f"{done} of {of} requests reworded ...")
            ):
                pass
        except HeadraceError as error:
            stopped.append(error)
        finally:
            kind.pool.close()
        _write(file, world, found.intents)
        print_text(f"{reworded_count(intents, found.intents)} further wordings; requests in other words, for example:")
        _print_examples(found.intents)
    if stopped:
        raise HeadraceError(f"stopped: {stopped[0]}; the plans and wordings that were there until then are kept")


def _keep(file: Path, world: type[LiveWorld], found: Exploration) -> None:
    """Write the lock file, and print what was found."""
    _write(file, world, found.intents)
    share = f" ({found.admitted / found.tried:.0%})" if found.tried else ""
    print_text(f"tried {found.tried:,} plans in {found.calls:,} calls, admitted {found.admitted:,}{share}: {len(found.intents)} kinds")
    for reason, count in found.refused.most_common(4):
        print_text(f"  refused {count:,}: {reason.replace('_', ' ')}")
    _print_examples(found.intents)
    if not found.intents:
        raise BadInput(f"{file}: no plan was found; give it more --seconds, or tell more of its state in the file")
    print_text(f"next: headrace synthesize --world {file} --n 40 --store runs/{world.spec.live}/store")


def _write(file: Path, world: type[LiveWorld], intents: Sequence[FoundIntent]) -> None:
    from synth.worlds.live.lock import write_lock

    if intents:
        write_lock(file, world.lock.model_copy(update={"intents": tuple(intents)}))


def _print_examples(intents: Sequence[FoundIntent]) -> None:
    for intent in intents[:: max(1, len(intents) // 5)][:5]:
        calls = f"{len(intent.calls)} call{'s' if len(intent.calls) > 1 else ''}"
        print_text(f"  {calls}: {intent.says[-1].format_map(intent.examples[0])}")


def _print_estimate(explorer: Explorer, count: int, seed: int) -> None:
    import random

    from synth.engines.base import estimated_tokens
    from synth.explore.plan_writer import MAX_TOKENS, REPAIRS, request_for_plan

    request = request_for_plan(explorer, random.Random(f"{seed}/plans"))
    for message in request.messages:
        print_text(f"---- {message.role}\n{message.content}\n")
    prompt = sum(estimated_tokens(message.content or "") for message in request.messages)
    print_text(f"a prompt         {prompt:,} tokens (estimated from its characters)")
    least, most = count * (prompt + 300), count * (REPAIRS + 1) * (prompt + MAX_TOKENS)
    print_text(f"{count} plans         {least:,} tokens if every first answer is kept, at most {most:,}")
    print_text("and some 600 tokens for the rewording of each kind; nothing was asked and nothing was written")


def _show_progress() -> Any:
    last = [""]

    def show(phase: str, tried: int, admitted: int) -> None:
        if phase != last[0]:
            last[0] = phase
            print_text(f"{phase} ... ({tried:,} plans tried, {admitted:,} admitted so far)")

    return show

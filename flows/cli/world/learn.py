"""`headrace worlds learn`: whether a tiny policy can learn in a world, and which intents it cannot learn, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.shared import Debug, DryRun
from flows.cli.terminal import handle_errors, out, print_text

if TYPE_CHECKING:
    from flows.summaries.summary_tables import Table
    from train.proxy.learnable import Learned

_CPU_S_PER_STEP = 0.5
_CPU_S_AT_START = 50

Worlds = Annotated[list[str], typer.Argument(metavar="NAME|FILE...", help="Worlds: names, spec files, or ranges (gen-1..5).")]
Steps = Annotated[int, typer.Option("--steps", metavar="N", min=10, help="RL steps of 8 tasks and 8 rollouts.")]
Experts = Annotated[int, typer.Option("--experts", metavar="N", min=10, help="Expert conversations that the policy learns from first.")]
Positions = Annotated[int, typer.Option("--positions", metavar="N", min=64, help="Longest conversation in tokens.")]
Control = Annotated[
    bool, typer.Option("--control/--no-control", help="Whether RL is run with shuffled rewards, too, for a third of the steps.")
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Seed of weights, tasks and rollouts.")]


def learn(
    worlds: Worlds,
    steps: Steps = 240,
    experts: Experts = 240,
    positions: Positions = 640,
    control: Control = True,
    seed: Seed = 0,
    dry_run: DryRun = False,
    debug: Debug = False,
) -> None:
    """Train a tiny policy in a world for some minutes, and say whether its success climbs: SFT on experts, then RL on fresh tasks.

    RL with shuffled rewards must not rise by half as much. Intents that do not move are listed with the reason: requests with unknown
    words, requests that do not say all that the calls need, tasks that cannot be drawn, or no success to learn from.

    Examples:

      headrace worlds learn library --dry-run

      headrace worlds learn my_shop.yaml --steps 40 --no-control
    """
    with handle_errors(debug):
        from flows.runtime.progress import report, show_on_console
        from storage.errors import BadInput
        from synth.worlds import WORLDS, admitted_names
        from train.proxy.learnable import LearnConfig, learn_world

        names = admitted_names(_checked(worlds))
        config = LearnConfig(steps=steps, control_steps=steps // 3 if control else 0, experts=experts, positions=positions, seed=seed)
        if dry_run:
            each_s = _CPU_S_AT_START + _CPU_S_PER_STEP * (config.steps + config.control_steps)
            print_text(f"{len(names)} worlds, about {len(names) * each_s / 60:.0f} CPU minutes: {', '.join(names)}")
            print_text("nothing was done", style="dim")
            return
        refused = []
        for name in names:
            try:
                with show_on_console(out):
                    learned = learn_world(WORLDS[name], config, progress=report)
            except BadInput as error:
                refused.append(str(error))
            else:
                _print(learned)
        if refused:
            raise BadInput("; ".join(refused))


def _print(learned: Learned) -> None:
    from flows.summaries.summary_tables import print_table

    print_table(_intent_table(learned), out)
    for line in _verdict(learned):
        print_text(line)


def _checked(worlds: list[str]) -> tuple[str, ...]:
    """The worlds' names as a configuration has them: files are read and registered. Raises BadInput for what is no world."""
    from pydantic import TypeAdapter, ValidationError

    from storage.errors import BadInput
    from synth.worlds import WorldRange

    try:
        return TypeAdapter(tuple[WorldRange, ...]).validate_python(tuple(worlds))
    except ValidationError as error:
        raise BadInput(str(error.errors()[0]["msg"]).removeprefix("Value error, ")) from None


def _intent_table(learned: Learned) -> Table:
    from flows.summaries.summary_tables import Table
    from train.proxy.learnable import REASONS

    order = list(REASONS)
    rows = [
        {
            "intent": one.intent,
            "held out": f"{one.tasks}",
            "before RL": f"{one.before:.2f}" if one.tasks else "",
            "after": f"{one.after:.2f}" if one.tasks else "",
            "reason": REASONS[one.reason],
        }
        for one in sorted(learned.intents, key=lambda one: (order.index(one.reason), one.intent))
    ]
    return Table("intents", f"{learned.world}: intents", rows)


def _verdict(learned: Learned) -> list[str]:
    gain = learned.gain
    verdict = "can be learned" if learned.climbs else "was not learned"
    measured = [one for one in learned.intents if one.reason != "unmeasured"]
    lines = [
        f"{learned.world} {verdict}: success {learned.before:.2f} after SFT, {learned.after:.2f} after RL "
        f"({gain.mean:+.2f}, 95 %: {gain.low:+.2f} to {gain.high:+.2f}).",
        f"on fresh tasks, by 10 steps: {' '.join(f'{point:.2f}' for point in learned.curve)}"
        + {True: " (still rising)", False: " (no longer rising)", None: ""}[learned.is_rising],
        f"of {len(measured)} intents that were measured, {learned.moved_share:.0%} moved or were mastered; {learned.fell_share:.0%} fell "
        "by as much, and at least as many may have moved by chance",
        f"{learned.cpu_s:.0f} CPU seconds",
    ]
    if learned.control_gain is not None:
        control = learned.control_gain
        lines.insert(1, f"control with shuffled rewards: {control.mean:+.2f} (95 %: {control.low:+.2f} to {control.high:+.2f})")
    if learned.left_out:
        lines.append(f"{learned.left_out} conversations are longer than the policy's window and were left out: raise --positions")
    return lines

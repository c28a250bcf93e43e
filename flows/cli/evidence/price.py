"""`headrace price`: whether further expert traces or RL bring more for their price, measured by tiny policies in one world."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.shared import Debug, DryRun
from flows.cli.terminal import handle_errors, out, print_text

if TYPE_CHECKING:
    from flows.summaries.summary_tables import Table
    from train.proxy.exchange_rate import ExchangeConfig, ExchangeRate

_CPU_S_PER_POINT, _CPU_S_PER_STEP = 60, 0.5
"""About what a training costs, for the plan: two imitations and a measurement; an RL step."""

World = Annotated[str, typer.Argument(metavar="NAME|FILE", help="World to measure in: its name, or a spec file.")]
Trace = Annotated[float, typer.Option("--trace", metavar="PRICE", min=0, help="What an expert trace costs you, in any currency.")]
Rollout = Annotated[float, typer.Option("--rollout", metavar="PRICE", min=0, help="What a rollout of RL costs you, in the same currency.")]
Traces = Annotated[str, typer.Option("--traces", metavar="N,N,...", help="Numbers of further traces to measure, rising from 0.")]
Steps = Annotated[int, typer.Option("--steps", metavar="N", min=1, help="RL steps of 8 tasks and 8 rollouts.")]
Seeds = Annotated[int, typer.Option("--seeds", metavar="N", min=1, help="Trainings of every point; more of them make intervals narrower.")]
Kept = Annotated[
    Path,
    typer.Option(
        "--kept", metavar="FILE", help="Finished trainings; only what it lacks is trained. The last number of --traces counts for all."
    ),
]
Processes = Annotated[int, typer.Option("--processes", metavar="N", min=1, help="Trainings at the same time, one thread each.")]


def price(
    world: World,
    trace: Trace,
    rollout: Rollout,
    traces: Traces = "0,50,100,200,400",
    steps: Steps = 80,
    seeds: Seeds = 3,
    kept: Kept = Path("runs/price.jsonl"),
    processes: Processes = 2,
    dry_run: DryRun = False,
    debug: Debug = False,
) -> None:
    """Say which rung to buy next: further expert traces or RL, given what a trace and a rollout cost you.

    Tiny policies of the world learn from more and more expert traces, and others by RL. Prints the gain of each with its interval and its
    price, and how many traces RL is worth. Other prices are answered without new trainings. A tiny policy is measured, not your model.

    Examples:

      headrace price library --trace 0.05 --rollout 0.001 --dry-run

      headrace price library --trace 0.05 --rollout 0.001 --traces 0,40,80 --steps 20 --seeds 1
    """
    with handle_errors(debug):
        from flows.runtime.progress import report, show_on_console
        from flows.summaries.summary_tables import print_table
        from train.proxy.exchange_rate import RL, exchange_rate, missing_points, points_of

        config = _config(world, traces, steps, seeds)
        _check_prices(trace, rollout)
        if dry_run:
            left = missing_points(world, config, kept)
            cpu_s = len(left) * _CPU_S_PER_POINT + sum(count == RL for _, count in left) * steps * _CPU_S_PER_STEP
            print_text(f"{len(left)} of {len(points_of(config))} trainings, about {cpu_s / 60:.0f} CPU minutes; the others are in {kept}")
            print_text("nothing was done", style="dim")
            return
        with show_on_console(out):
            rate = exchange_rate(world, config, kept, processes=processes, progress=report)
        print_table(_rung_table(rate, trace, rollout), out)
        for line in _verdict(rate, trace, rollout):
            print_text(line)


def _check_prices(trace: float, rollout: float) -> None:
    from storage.errors import BadInput

    if not (trace > 0 and rollout > 0):
        raise BadInput("--trace and --rollout must be above 0")


def _config(world: str, traces: str, steps: int, seeds: int) -> ExchangeConfig:
    """Raises BadInput for what is no world, or no rising numbers."""
    from pydantic import TypeAdapter, ValidationError

    from storage.errors import BadInput
    from synth.worlds import WorldName
    from train.proxy.exchange_rate import ExchangeConfig

    try:
        TypeAdapter(WorldName).validate_python(world)
        return ExchangeConfig.model_validate({"traces": traces.split(","), "steps": steps, "seeds": seeds})
    except ValidationError as error:
        first = error.errors()[0]
        where = "--traces: " if first["loc"][:1] == ("traces",) else ""
        raise BadInput(f"{where}{first['msg'].removeprefix('Value error, ')}") from None


def _rung_table(rate: ExchangeRate, trace: float, rollout: float) -> Table:
    from flows.summaries.summary_tables import Table

    rows = [
        {
            "rung": f"RL, {rung.amount:,} rollouts" if rung.name == "RL" else f"{rung.amount:,} further traces",
            "price": f"{cost:,.2f}",
            "success": f"{rung.success.mean:.3f}",
            "gain": f"{rung.gain.mean:+.3f}",
            "95 %": f"{rung.gain.low:+.3f} to {rung.gain.high:+.3f}",
            "gain per unit of money": f"{each:+.4f}",
        }
        for rung, cost, each in rate.per_money(trace, rollout)
    ]
    return Table("price", "What to buy, the most gain for its price first; gain over the best that costs nothing", rows)


def _verdict(rate: ExchangeRate, trace: float, rollout: float) -> list[str]:
    best, cost, each = rate.per_money(trace, rollout)[0]
    name = f"RL ({best.amount:,} rollouts)" if best.name == "RL" else f"{best.amount:,} further traces"
    lines = [f"RL's {rate.rollouts:,} rollouts are worth {_traces(rate.traces)} (95 %: {_traces(rate.low)} to {_traces(rate.high)})."]
    if rate.traces > 0:
        less = ", or perhaps fewer" if rate.traces == float("inf") else ""
        lines.append(
            f"To gain as much as they do, RL is cheaper where a trace costs more than {rate.break_even():,.0f} rollouts{less} "
            f"(95 %: {_bounds(rate)})."
        )
    if rate.seeds == 1:
        lines.append("With one seed, intervals are over tasks alone: another training may give another result.")
    if each <= 0:
        return [*lines, "Nothing that was measured adds success: neither is worth its price here."]
    doubt = "" if best.gain.low > 0 else ", but its gain may be chance: use more --seeds"
    begin = " The first traces bring most, so this says where to begin, not how many to buy." if best.name != "RL" else ""
    return [*lines, f"Next: {name} for {cost:,.2f}, the most gain for its price{doubt}.{begin}"]


def _bounds(rate: ExchangeRate) -> str:
    """Of the break-even price. Above the whole curve RL may be cheaper still, and where it may be worth no trace, traces may always be."""
    low = "" if rate.high == float("inf") else f"{rate.break_even(rate.high):,.0f} "
    high = "any number" if rate.low <= 0 else f"{rate.break_even(rate.low):,.0f}"
    return f"{low}{'up ' if not low else ''}to {high}"


def _traces(number: float) -> str:
    return "more traces than were measured" if number == float("inf") else f"{number:,.0f} traces"

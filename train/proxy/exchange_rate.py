"""How many expert traces are worth as much as RL? A curve of success over further traces, and where RL's success lies on it.

One policy learns from a world's first experts. From it begin, on one side, imitations of 0, 50, 100 ... further expert traces (all with the
same number of tokens read, the first experts among them), and on the other RL on fresh tasks. The exchange rate is the number of traces
at which both succeed equally often on held-out tasks. With what a trace and a rollout cost, it says which of the two to buy next.

A tiny policy that can already act in the world is measured, so the rate is one of *this* world and of policies like that; a large model
may need fewer traces for the same gain. Every point is kept, so a killed call continues.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field, TypeAdapter, model_validator

from storage.errors import BadInput
from storage.execution import Progress
from storage.journal import Journal
from storage.records import content_id
from synth.blueprints import single_goal
from synth.worlds import WORLDS, WorldName
from train.child_process import run_in_workers
from train.measure.evaluate import Estimate
from train.proxy.mixtures import Floats
from train.proxy.world_study import StudyConfig, WorldStudy

VERSION = 2
ROLLOUTS_A_STEP = 64
_RESAMPLES = 1_000


class ExchangeConfig(StudyConfig):
    """Configuration of `headrace price`."""

    experts: int = Field(120, ge=10, description="Expert conversations that the policy learns from first.")
    held_out: int = Field(200, ge=10, description="Held-out tasks that policies are measured on.")
    traces: tuple[int, ...] = Field((0, 50, 100, 200, 400), min_length=2, description="Numbers of further expert traces, rising, from 0.")
    trace_tokens: int = Field(300_000, ge=1_000, description="Tokens that each imitation reads, repetitions counted.")
    trace_rate: float = Field(2e-3, gt=0, description="Peak learning rate of the imitations.")
    steps: int = Field(80, ge=1, description="RL steps of 8 tasks and 8 rollouts each.")
    seeds: int = Field(3, ge=1, description="Trainings of everything, each with weights, tasks and rollouts of its own.")

    @model_validator(mode="after")
    def _check_rising(self) -> ExchangeConfig:
        if self.traces[0] != 0 or list(self.traces) != sorted(set(self.traces)):
            raise ValueError(f"traces must rise from 0, and are {', '.join(map(str, self.traces))}")
        return self


@dataclass(frozen=True)
class Rung:
    """Something to buy: `amount` traces, or rollouts of RL. gain: over the better of what costs nothing, the policy as it is and one that
    imitates its first experts again, for as many tokens as the traces are read."""

    name: str
    amount: int
    success: Estimate
    gain: Estimate


@dataclass(frozen=True)
class ExchangeRate:
    """What was measured.

    traces: number of traces that are worth RL's rollouts: 0 if RL brought no more than no traces, infinite if it is above the whole curve.
    low, high: its 95 % interval over seeds and tasks.
    start: success of the policy that all begin with.
    rungs: numbers of traces, rising from 0, then RL.
    rollouts: that RL made.
    seeds: trainings of each point.
    """

    traces: float
    low: float
    high: float
    start: Estimate
    rungs: tuple[Rung, ...]
    rollouts: int
    seeds: int

    def break_even(self, traces: float | None = None) -> float:
        """Rollouts that bring as much as one trace: where a trace costs more, RL is cheaper. Infinite if RL brought nothing. If RL is above
        the whole curve, that of its last point: RL may be cheaper below it, too. traces: what RL is worth, if not as measured."""
        worth = self.traces if traces is None else traces
        most = max(rung.amount for rung in self.rungs if rung.name != "RL")
        return self.rollouts / min(worth, most) if worth > 0 else float("inf")

    def per_money(self, trace: float, rollout: float) -> list[tuple[Rung, float, float]]:
        """Each rung that costs something with its cost and its gain per unit of money, the best first. trace, rollout: price of one."""
        priced = [(rung, rung.amount * (rollout if rung.name == "RL" else trace)) for rung in self.rungs if rung.amount]
        return sorted(((rung, cost, rung.gain.mean / cost) for rung, cost in priced), key=lambda one: -one[2])


def exchange_rate(world: str, config: ExchangeConfig, kept: Path, *, processes: int = 2, progress: Progress | None = None) -> ExchangeRate:
    """Measures what is not in the file `kept` yet, and returns the rate.

    world: a name, or a spec's file.

    Raises:
        BadInput: the world gives too few tasks.
    """
    report = progress or (lambda *_: None)
    keys = {point: point_key(world, config, *point) for point in points_of(config)}
    with Journal(kept) as journal:
        found: dict[str, Any] = journal.entries()
        waiting = [point for point, key in keys.items() if key not in found]
        report("trainings", len(keys) - len(waiting), len(keys))
        for done, (point, rates) in enumerate(_measured(world, config, waiting, processes), len(keys) - len(waiting) + 1):
            found[keys[point]] = rates
            journal.append(keys[point], rates)
            report("trainings", done, len(keys))
    return summarise(config, {point: np.array(found[key]) for point, key in keys.items()})


def missing_points(world: str, config: ExchangeConfig, kept: Path) -> list[Point]:
    """The points that the file `kept` does not have."""
    found = Journal(kept).entries()
    return [point for point in points_of(config) if point_key(world, config, *point) not in found]


Point = tuple[int, int]
"""A seed and a number of traces; or RL, or START, the policy that all begin with."""
RL, START = -1, -2


def points_of(config: ExchangeConfig) -> list[Point]:
    return [(seed, count) for seed in range(config.seeds) for count in (RL, START, *config.traces)]


def point_key(world: str, config: ExchangeConfig, seed: int, count: int) -> str:
    """Of a point's result: what does not bear on it is left out."""
    world = Path(world).read_text(encoding="utf-8") if world.endswith((".yaml", ".yml")) else f"{world} {WORLDS[world].version}"
    settings = config.model_dump(exclude={"traces", "seeds", *_UNUSED.get(count, ("steps",))})
    return content_id("exchange", VERSION, single_goal.VERSION, world, settings, config.traces[-1], seed, count)


_UNUSED = {RL: ("trace_tokens", "trace_rate"), START: ("trace_tokens", "trace_rate", "steps")}
"""Settings that do not bear on a point; the number of steps does not on any number of traces."""


def train_point(world: str, config: ExchangeConfig, seed: int, count: int) -> list[float]:
    """Success by held-out task of the policy after `count` further traces, or RL, or as it begins."""
    named: str = TypeAdapter(WorldName).validate_python(world)  # registers a file's world in this process
    study = WorldStudy(WORLDS[named], config.model_copy(update={"seed": config.seed + seed}), extra=config.traces[-1])
    if len(study.more_experts) < config.traces[-1]:
        raise BadInput(f"{named} gives {len(study.more_experts):,} further traces, {config.traces[-1]:,} are asked for: measure fewer")
    policy = study.first_policy()
    if count == RL:
        study.reinforce(policy, config.steps, "success", lambda step: None)
    elif count != START:
        study.imitate(policy, [*study.experts, *study.more_experts[:count]], config.trace_tokens, learning_rate=config.trace_rate)
    rates: list[float] = study.measure(policy).tolist()
    return rates


def _measured(world: str, config: ExchangeConfig, points: Sequence[Point], processes: int) -> Iterator[tuple[Point, list[float]]]:
    return run_in_workers(train_point, {point: (world, config, *point) for point in points}, processes)


def summarise(config: ExchangeConfig, success: Mapping[Point, Floats]) -> ExchangeRate:
    """The rate from the success by held-out task of every point. A seed's points have the same tasks, and seeds have others, so intervals
    resample seeds, and within each its tasks."""
    counts, rng = (*config.traces, RL, START), np.random.default_rng(0)
    by_seed = [np.stack([success[seed, count] for count in counts]) for seed in range(config.seeds)]
    means = np.mean([rates.mean(axis=1) for rates in by_seed], axis=0)
    resampled = np.empty((_RESAMPLES, len(counts)))
    for at in range(_RESAMPLES):
        drawn = [by_seed[seed] for seed in rng.integers(config.seeds, size=config.seeds)]
        resampled[at] = np.mean([rates[:, rng.integers(rates.shape[1], size=rates.shape[1])].mean(axis=1) for rates in drawn], axis=0)

    def free(points: Floats) -> Floats:
        """Of means, shape [..., counts]: the better of what costs nothing, no traces and the start."""
        best: Floats = np.maximum(points[..., 0], points[..., -1])
        return best

    rungs = tuple(
        Rung(
            "RL" if count == RL else "traces",
            config.steps * ROLLOUTS_A_STEP if count == RL else count,
            _estimate(means[at], resampled[:, at]),
            _estimate(means[at] - free(means), resampled[:, at] - free(resampled)),
        )
        for at, count in enumerate(counts[:-1])
    )
    rate, *rates = (crossing(config.traces, [float(free(point)), *point[1:-2].tolist()], float(point[-2])) for point in (means, *resampled))
    low, high = np.quantile(rates, (0.025, 0.975), method="nearest")
    start = _estimate(means[-1], resampled[:, -1])
    return ExchangeRate(rate, float(low), float(high), start, rungs, config.steps * ROLLOUTS_A_STEP, config.seeds)


def _estimate(mean: float, resampled: Floats) -> Estimate:
    low, high = np.quantile(resampled, (0.025, 0.975))
    return Estimate(float(mean), float(low), float(high))


def crossing(counts: Sequence[int], success: Sequence[float], level: float) -> float:
    """The number of traces at which the curve reaches a level: linear in log(1 + count) between points, made rising by its running maximum.
    0 if the first point is there already, infinite if the last one is not."""
    rising = np.maximum.accumulate(np.asarray(success))
    if level <= rising[0]:
        return 0.0
    if level > rising[-1]:
        return float("inf")
    at = int(np.searchsorted(rising, level))
    share = (level - rising[at - 1]) / (rising[at] - rising[at - 1])
    logs = np.log1p(counts)
    return float(np.expm1(logs[at - 1] + share * (logs[at] - logs[at - 1])))

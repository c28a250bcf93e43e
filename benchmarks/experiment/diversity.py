"""Does the way in which conversations are chosen matter, at equal tokens of data, the same teacher and equal tokens of training?

Arms differ in how their conversations were chosen. Every arm trains the same base policy of a seed, and is measured on the same held-out
conversations of domains that no arm has seen (`held_out.py`). Each comparison is made at two learning rates, and counts by the worse.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks.experiment.cells import Cells, Result, pack, unpack
from benchmarks.experiment.conversations import PoolName
from benchmarks.experiment.ground import base_of, ground_of, read_pool
from benchmarks.experiment.held_out import EACH, STRATA, measure, stratum_of
from benchmarks.experiment.learned import best_shares, draw_by_source, shares_of
from benchmarks.experiment.practice import with_replay
from storage.records import Message
from synth.blueprints.token_coverage import Coverage, CoverageWeights, estimated_tokens, features
from train.measure.evaluate import Estimate, bootstrap
from train.proxy.token_training import Example, TokenTraining, encode, train

Floats = NDArray[np.float64]
Arm = Literal["random", "even", "quantity", "controller", "evolved", "coverage", "coverage_two_thirds", "matched", "learned", "shuffled"]
POOL_OF: Mapping[Arm, PoolName] = {
    "random": "random",
    "even": "even",
    "quantity": "even",
    "controller": "controller",
    "evolved": "evolved",
    "coverage": "evolved",
    "coverage_two_thirds": "evolved",
    "matched": "evolved",
    "learned": "evolved",
    "shuffled": "evolved",
}
CANDIDATES = 5
"""Blueprints that coverage chooses from, as a multiple of what it keeps."""
_LOOKED_AT: Mapping[PoolName, int] = {"random": 1, "even": 2, "controller": 1, "evolved": CANDIDATES}
"""Conversations of a pool that its arms look at, as a multiple of the size."""
_SPARE = 1.1
UNIT_TOKENS = 210
"""Tokens of a conversation, by which sizes become budgets: about the mean of the pool `even`."""
SEEDS, SIZE_SEEDS = (0, 1, 2, 3, 4, 5), (0, 1, 2)
PRIMARY_SEEDS = (*SEEDS, 6, 7, 8)
"""Of the primary comparison: six leave its smallest detectable difference above .03."""
MAIN_SIZE = 500
ARMS: tuple[Arm, ...] = ("even", "coverage", "coverage_two_thirds", "matched", "evolved", "controller", "quantity", "random", "shuffled")
"""Those that need no proxies."""
CURVE_ARMS: tuple[Arm, ...] = ("random", "even", "controller", "coverage")
TRAINING_TOKENS: Mapping[int, int] = {250: 600_000, 500: 900_000, 1_000: 1_300_000}
"""Tokens that are read by size, a quarter of them of the base's practice: so many that the arm `even` refuses from all three bases."""
PRIMARY: tuple[Arm, ...] = ("even", "coverage", "coverage_two_thirds")
"""Arms of the primary comparisons: they have more seeds, and are measured at temperature 1, too."""
RATES = (2e-3, 4e-3)


@dataclass(frozen=True)
class ArmCell:
    """A training of an arm.

    size: conversations' worth of data. rate: peak learning rate. weights: of coverage. shares: of the arm `learned`.
    """

    arm: Arm
    size: int
    rate: float
    seed: int
    weights: tuple[float, float, float] = astuple(CoverageWeights())
    shares: tuple[float, ...] = ()


@dataclass(frozen=True)
class SharesCell:
    """How often the arm even draws each stratum, as shares of its conversations of one stratum; `unmeasured`: the share of all others."""

    seed: int


def run_shares(cell: SharesCell) -> Result:
    """The shares, in the order of STRATA. No training."""
    arm = ArmCell("even", MAIN_SIZE, RATES[0], cell.seed)
    pool, examples = read_pool("even", _pool_size(arm), cell.seed)
    chosen = _within(range(len(pool)), [example.tokens for example in examples], UNIT_TOKENS * MAIN_SIZE)
    found = [stratum_of(pool[at].blueprint) for at in chosen]
    counts = np.array([found.count(stratum) for stratum in STRATA])
    return {"shares": (counts / counts.sum()).tolist(), "unmeasured": found.count(None) / len(found)}


def run(cell: ArmCell) -> Result:
    """Trains a cell's policy and measures it on the held-out set."""
    from transformers import AutoModelForCausalLM

    ground = ground_of(cell.seed)
    tokenizer = ground.tokenizer()
    model = AutoModelForCausalLM.from_pretrained(ground.base(cell.seed))
    examples = examples_of(cell)
    training = TokenTraining(tokens=TRAINING_TOKENS[cell.size], learning_rate=cell.rate)
    losses = train(model, with_replay(tokenizer, base_of(cell.seed), examples), training, seed=cell.seed)
    return measured(model, tokenizer, cell.seed, is_sampled=cell.arm in PRIMARY) | {
        "conversations": len(examples),
        "tokens": sum(example.tokens for example in examples),
        "loss": float(np.mean(losses[-20:])),
    }


def measured(model: object, tokenizer: object, seed: int, *, is_sampled: bool) -> Result:
    """Success on the held-out set, at temperature 0 and perhaps at 1, packed, and the mean over strata of each."""
    held_out = ground_of(seed).held_out
    strata = np.array([one.stratum for one in held_out])
    result: Result = {}
    for name, temperature in (("greedy", 0.0), ("sampled", 1.0))[: 1 + is_sampled]:
        bits = np.array(measure(model, tokenizer, held_out, temperature=temperature, seed=seed))
        result |= {name: pack(bits), f"{name}_mean": float(np.mean([bits[strata == one].mean() for one in dict.fromkeys(strata)]))}
    return result


def examples_of(cell: ArmCell) -> list[Example]:
    """What an arm trains on: conversations in the order of its choice, up to the budget."""
    pool, pool_examples = read_pool(POOL_OF[cell.arm], _pool_size(cell), cell.seed)
    tokens = [example.tokens for example in pool_examples]
    budget = UNIT_TOKENS * cell.size * (2 if cell.arm == "quantity" else 1)
    order: Sequence[int] = range(len(pool))
    if cell.arm == "learned":
        return [pool_examples[at] for at in draw_by_source(pool, tokens, cell.shares, budget, cell.seed)]
    if cell.arm in ("coverage", "coverage_two_thirds", "matched", "shuffled"):
        offered = range(_offered(tokens, CANDIDATES * budget))
        candidates = [(features(pool[at].blueprint), estimated_tokens(pool[at].blueprint)) for at in offered]
        coverage, drawn = Coverage(CoverageWeights(*cell.weights)), 0
        if cell.arm == "coverage_two_thirds":
            drawn = _offered(tokens, budget / 3)
            for covered, _ in candidates[:drawn]:
                coverage.add(covered)
        order = [*range(drawn), *(drawn + at for at in coverage.choose(candidates[drawn:], 4 * cell.size))]
    chosen = _within(order, tokens, budget)
    if cell.arm == "matched":
        shares = shares_of([pool[at] for at in chosen], [tokens[at] for at in chosen])
        return [pool_examples[at] for at in draw_by_source(pool, tokens, shares, budget, cell.seed)]
    if cell.arm == "shuffled":
        conversations = shuffled([pool[at].messages for at in chosen], cell.seed)
        return encode(ground_of(cell.seed).tokenizer(), conversations)
    return [pool_examples[at] for at in chosen]


def _pool_size(cell: ArmCell) -> int:
    return int(_SPARE * cell.size * _LOOKED_AT[POOL_OF[cell.arm]])


def _offered(tokens: Sequence[int], budget: float) -> int:
    """How many conversations of a pool fit a budget."""
    return int(np.searchsorted(np.cumsum(tokens), budget, side="right"))


def _within(order: Sequence[int], tokens: Sequence[int], budget: float) -> list[int]:
    """Positions in this order until the budget is used up; one that does not fit any more is passed over."""
    chosen, left = list[int](), budget
    for position in order:
        if tokens[position] <= left:
            chosen.append(position)
            left -= tokens[position]
    return chosen


def shuffled(conversations: Sequence[Sequence[Message]], seed: int) -> list[tuple[Message, ...]]:
    """The control: each message of the assistant is replaced by one drawn from all, without replacement."""
    rng = random.Random(f"shuffled/{seed}")
    written = [message for messages in conversations for message in messages if message.role == "assistant"]
    rng.shuffle(written)
    deal = iter(written)
    return [tuple(next(deal) if message.role == "assistant" else message for message in messages) for messages in conversations]


# ---- figures --------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """An arm less another, on the same seeds and tasks: over all strata, and in each."""

    estimate: Estimate
    by_stratum: Mapping[str, Estimate]

    @property
    def standard_error(self) -> float:
        return (self.estimate.high - self.estimate.low) / (2 * 1.96)


def main_cells(cells: Cells, arms: Sequence[Arm]) -> list[ArmCell]:
    """Arms at the main size, at both rates."""
    return [arm_cell(cells, arm, rate, seed) for seed in PRIMARY_SEEDS for arm in arms if seed in seeds_of(arm) for rate in RATES]


def seeds_of(*arms: Arm) -> Sequence[int]:
    """Those that all of these arms have."""
    return PRIMARY_SEEDS if set(arms) <= set(PRIMARY) else SEEDS


def arm_cell(cells: Cells, arm: Arm, rate: float, seed: int) -> ArmCell:
    return ArmCell(arm, MAIN_SIZE, rate, seed, shares=best_shares(cells) if arm == "learned" else ())


def size_cells() -> list[ArmCell]:
    """The arms of the curve at the other sizes, at the first rate."""
    sizes = [size for size in TRAINING_TOKENS if size != MAIN_SIZE]
    return [ArmCell(arm, size, RATES[0], seed) for seed in SIZE_SEEDS for size in sizes for arm in CURVE_ARMS]


def difference(cells: Cells, of: ArmCell, to: ArmCell, seeds: Sequence[int], decoding: str = "greedy") -> Comparison:
    """`of` less `to`; the seeds of the two cells are replaced by `seeds`."""
    pairs = [(success(cells, replace(of, seed=seed), decoding), success(cells, replace(to, seed=seed), decoding)) for seed in seeds]
    differences = [one - other for one, other in pairs]
    parts = [[one.reshape(len(STRATA), EACH)[at] for one in differences] for at in range(len(STRATA))]
    return Comparison(bootstrap(differences), dict(zip(STRATA, map(bootstrap, parts), strict=True)))


def by_rate(cells: Cells, arm: Arm, other: Arm, decoding: str = "greedy") -> list[Comparison]:
    """The comparison of two arms at the main size, at both learning rates, the one at which it is lower first."""
    pairs = [(arm_cell(cells, arm, rate, 0), arm_cell(cells, other, rate, 0)) for rate in RATES]
    found = [difference(cells, *pair, seeds_of(arm, other), decoding) for pair in pairs]
    return sorted(found, key=lambda one: one.estimate.mean)


def worse(cells: Cells, arm: Arm, other: Arm, decoding: str = "greedy") -> Comparison:
    """The lower of both: what is said of an arm that gains."""
    return by_rate(cells, arm, other, decoding)[0]


def better(cells: Cells, arm: Arm, other: Arm) -> Comparison:
    """The higher of both: what is said of an arm that does not gain."""
    return by_rate(cells, arm, other)[-1]


def as_drawn(cells: Cells, arm: Arm, other: Arm) -> Estimate:
    """The comparison of two arms where each stratum counts as often as it is drawn (`SharesCell`), at the rate at which it is lower."""
    seeds = seeds_of(arm, other)
    weights = np.mean([cells[SharesCell(seed)]["shares"] for seed in seeds], axis=0) * len(STRATA)
    found = []
    for rate in RATES:
        pairs = [(success(cells, arm_cell(cells, arm, rate, seed)), success(cells, arm_cell(cells, other, rate, seed))) for seed in seeds]
        found.append(bootstrap([(one - another) * np.repeat(weights, EACH) for one, another in pairs]))
    return min(found, key=lambda one: one.mean)


def difference_to_base(cells: Cells, cell: ArmCell, bases: Sequence[Any]) -> Estimate:
    """An arm less the base policies of its seeds, in the order of SEEDS."""
    return bootstrap([success(cells, replace(cell, seed=seed)) - success(cells, base) for seed, base in zip(SEEDS, bases, strict=True)])


def success(cells: Cells, cell: Any, decoding: str = "greedy") -> Floats:
    """Success by held-out task, 0 or 1. All strata have as many tasks, so the mean is that over strata."""
    return unpack(cells[cell][decoding], len(STRATA) * EACH)

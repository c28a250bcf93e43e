"""Does synthesis that looks at what the policy fails make a better policy than synthesis that does not, for the same teacher's tokens?

A seed begins with `ROUND_SIZE` conversations' worth of data, chosen by coverage. Two further rounds add as much each, from the same pool:

    open     by coverage alone
    closed   by coverage, where a conversation is wanted 2^(weight x (urgency of its domain + of its stratum)) times as often, from rollouts
             of the policy that was trained on the data so far; `synthesize` steers likewise with `evolution.focus_weight`, by mode family
             and intent instead of stratum
    other    the same, by the urgencies that another seed's closed loop measured: if that is as good, what counted was not *this* policy

The probe's conversations are in the domains of training; each is drawn `PROBE_DRAWS` times, and these rollouts are the price of closing
the loop: `closed_rollouts`. The weight is 1, or 4 in the figures that end in `_strong`. At the end, all three train the base anew on all
their data, and are measured on the held-out set.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.experiment.cells import Cells, MissingCell, Result, unpack, work
from benchmarks.experiment.conversations import Conversation
from benchmarks.experiment.diversity import RATES, UNIT_TOKENS, Floats, measured
from benchmarks.experiment.ground import base_of, ground_of, read_pool
from benchmarks.experiment.held_out import EACH, STRATA, HeldOut, held_out_set, measure, stratum_of
from benchmarks.experiment.practice import with_replay
from benchmarks.harness import Deadline, Figures
from synth.blueprints.token_coverage import Coverage, estimated_tokens, features
from synth.intervals import wilson
from synth.run.evolution.failure_targeting import urgency
from synth.worlds import WORLDS
from train.measure.evaluate import Estimate, bootstrap
from train.proxy.token_training import TokenTraining, train

SEEDS = (0, 1, 2, 3, 4)
ROUND_SIZE, FURTHER = 250, 2
_POOL = 2_750
_TOKENS = (600_000, 900_000, 1_200_000)
"""Tokens read by the policies of 1, 2 and 3 rounds' data."""
PROBE_EACH, PROBE_DRAWS = 48, 4
WEIGHTS, _SUFFIXES = (1.0, 4.0), ("", "_strong")
RIVALS = ("open", "other")
Focus = tuple[tuple[str, float], ...]
"""Label (a domain, or a stratum) -> urgency; empty: none."""


@dataclass(frozen=True)
class LoopCell:
    """A policy of the loop. focuses: of each further round so far. is_measured: on the held-out set; if not, on the probe. weight: of the
    focuses; 1 without any."""

    seed: int
    focuses: tuple[Focus, ...]
    is_measured: bool = False
    weight: float = 1.0


@dataclass(frozen=True)
class SharedCell:
    """How many of the conversations that the closed loop chose another loop of its seed chose, too."""

    closed: LoopCell
    other: LoopCell


def run_shared(cell: SharedCell) -> Result:
    """The share. No training."""
    pool, examples = read_pool("evolved", _POOL, cell.closed.seed)
    tokens = [example.tokens for example in examples]
    closed, other = (set(chosen_by(pool, tokens, one.focuses, one.weight)) for one in (cell.closed, cell.other))
    return {"share": len(closed & other) / len(closed)}


def run(cell: LoopCell) -> Result:
    """Trains the policy on its data, and measures it on the held-out set, or finds urgencies on the probe."""
    from transformers import AutoModelForCausalLM

    ground = ground_of(cell.seed)
    tokenizer = ground.tokenizer()
    model = AutoModelForCausalLM.from_pretrained(ground.base(cell.seed))
    pool, examples = read_pool("evolved", _POOL, cell.seed)
    chosen = chosen_by(pool, [example.tokens for example in examples], cell.focuses, cell.weight)
    training = TokenTraining(tokens=_TOKENS[len(cell.focuses)], learning_rate=RATES[0])
    train(model, with_replay(tokenizer, base_of(cell.seed), [examples[at] for at in chosen]), training, seed=cell.seed)
    about: Result = {"conversations": len(chosen), "tokens": sum(examples[at].tokens for at in chosen)}
    if cell.is_measured:
        return about | measured(model, tokenizer, cell.seed, is_sampled=False)
    tasks = probe_set(cell.seed)
    hits = np.array(measure(model, tokenizer, tasks, temperature=1.0, seed=cell.seed, draws=PROBE_DRAWS)).reshape(len(tasks), PROBE_DRAWS)
    return about | {"focus": focus_of(tasks, hits), "probed": float(hits.mean()), "rollouts": hits.size}


def probe_set(seed: int) -> tuple[HeldOut, ...]:
    """Conversations of the domains of training that no training data has the frames of."""
    ground = ground_of(seed)
    return held_out_set(ground.domains.training, ground.folder, PROBE_EACH, "probe")


def focus_of(tasks: Sequence[HeldOut], hits: Floats) -> Focus:
    """The urgency of each domain and stratum: mean over its tasks, times 1 less the width of the interval of its success rate."""
    by_label: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for one, draws in zip(tasks, hits.astype(float), strict=True):
        mean = float(draws.mean())
        found = urgency(mean, float(draws.var()) * mean)
        domain = WORLDS[one.task.world].intents[one.task.intent].domain
        for label in (f"domain {domain}", f"stratum {one.stratum}"):
            by_label[label].append((found, mean))
    focus = []
    for label, values in sorted(by_label.items()):
        low, high = wilson(sum(mean for _, mean in values), len(values))
        focus.append((label, round(float(np.mean([each for each, _ in values])) * (1 - (high - low)), 4)))
    return tuple(focus)


def chosen_by(pool: Sequence[Conversation], tokens: Sequence[int], focuses: Sequence[Focus], weight: float) -> list[int]:
    """Positions of the pool: a round by coverage alone, then a further one by each focus, `ROUND_SIZE` conversations' worth each."""
    offered = [(features(one.blueprint), estimated_tokens(one.blueprint)) for one in pool]
    labels = [(f"domain {one.blueprint.domain}", f"stratum {stratum_of(one.blueprint)}") for one in pool]
    coverage, chosen = Coverage(), list[int]()
    for focus in ((), *focuses):
        urgency_of = dict(focus)
        left, budget = sorted(set(range(len(pool))) - set(chosen)), UNIT_TOKENS * ROUND_SIZE
        scale = [2 ** (weight * sum(urgency_of.get(label, 0.0) for label in labels[at]) / 2) for at in left]
        for place in Coverage(coverage.weights, coverage.counts).choose([offered[at] for at in left], 4 * ROUND_SIZE, scale):
            at = left[place]
            if tokens[at] <= budget:
                chosen.append(at)
                coverage.add(offered[at][0])
                budget -= tokens[at]
    return chosen


def measure_loops(cells: Cells, deadline: Deadline) -> Figures:
    """Works on the cells that are missing, round by round; the figures."""
    work([first(seed) for seed in SEEDS], run, cells, deadline, minutes=4)
    for weight in WEIGHTS:
        work([second(cells, seed, weight) for seed in SEEDS], run, cells, deadline, minutes=5)
        work([last for seed in SEEDS for last in finals(cells, seed, weight).values()], run, cells, deadline, minutes=5)
    work(_shared(cells), run_shared, cells, deadline, minutes=2)
    return figures(cells)


def is_whole(cells: Cells) -> bool:
    """Whether no cell is missing."""
    try:
        figures(cells)
    except MissingCell:
        return False
    return True


def first(seed: int) -> LoopCell:
    return LoopCell(seed, ())


def second(cells: Cells, seed: int, weight: float = 1.0) -> LoopCell:
    return LoopCell(seed, (_focus(cells, first(seed)),), weight=weight)


def finals(cells: Cells, seed: int, weight: float = 1.0) -> dict[str, LoopCell]:
    """The three policies that are compared."""
    other = SEEDS[(SEEDS.index(seed) + 1) % len(SEEDS)]
    focuses = {one: (_focus(cells, first(one)), _focus(cells, second(cells, one, weight))) for one in (seed, other)}
    return {
        "open": LoopCell(seed, ((),) * FURTHER, is_measured=True),
        "closed": LoopCell(seed, focuses[seed], is_measured=True, weight=weight),
        "other": LoopCell(seed, focuses[other], is_measured=True, weight=weight),
    }


def _shared(cells: Cells) -> list[SharedCell]:
    every = [finals(cells, seed, weight) for weight in WEIGHTS for seed in SEEDS]
    return [SharedCell(policies["closed"], policies[rival]) for policies in every for rival in RIVALS]


def _focus(cells: Cells, cell: LoopCell) -> Focus:
    return tuple((label, each) for label, each in cells[cell]["focus"])


KEYS = (
    *(f"closed_minus_{rival}{strong}{end}" for strong in _SUFFIXES for rival in RIVALS for end in ("", "_lo95", "_hi95")),
    *(f"closed_shared_with_{rival}{strong}" for strong in _SUFFIXES for rival in RIVALS),
    *(f"{name}_loop" for name in ("open", "closed", "other")),
    "closed_rollouts",
    "closed_worst_stratum",
)


def closed_minus(cells: Cells, rival: str, weight: float) -> Estimate:
    pairs = [finals(cells, seed, weight) for seed in SEEDS]
    return bootstrap([_bits(cells, policies["closed"]) - _bits(cells, policies[rival]) for policies in pairs])


def figures(cells: Cells) -> Figures:
    success = {name: np.array([_bits(cells, finals(cells, seed)[name]) for seed in SEEDS]) for name in ("open", "closed", "other")}
    found: Figures = {f"{name}_loop": float(values.mean()) for name, values in success.items()}
    for weight, strong in zip(WEIGHTS, _SUFFIXES, strict=True):
        for rival in RIVALS:
            estimate, key = closed_minus(cells, rival, weight), f"closed_minus_{rival}{strong}"
            found |= {key: estimate.mean, f"{key}_lo95": estimate.low, f"{key}_hi95": estimate.high}
            policies = [finals(cells, seed, weight) for seed in SEEDS]
            shares = [cells[SharedCell(one["closed"], one[rival])]["share"] for one in policies]
            found[f"closed_shared_with_{rival}{strong}"] = float(np.mean(shares))
    probes = [cell for seed in SEEDS for cell in (first(seed), second(cells, seed))]
    found["closed_rollouts"] = sum(cells[cell]["rollouts"] for cell in probes) / len(SEEDS)
    by_stratum = (success["closed"] - success["open"]).mean(axis=0).reshape(len(STRATA), EACH)
    found["closed_worst_stratum"] = float(by_stratum.mean(axis=1).min())
    return found


def _bits(cells: Cells, cell: LoopCell) -> Floats:
    return unpack(cells[cell]["greedy"], len(STRATA) * EACH)

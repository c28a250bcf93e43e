"""What each arm trains on: the conversations that it selects from its pool, at a budget of tokens that is the same for all.

One idea: for a size of n, an arm looks at the first `oversample` * n conversations' worth of its pool, orders them by its own taste, and
takes them in that order as long as they fit the budget. Random arms take them as they come; quality by `quality`; a controller by P4's
subset selection (`subset.py`), without the term that it has to do without. A conversation beyond the policy's window is in no arm.
The control has the controller's conversations with all that the assistant wrote dealt out anew among them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.experiment.config import TAKES_WHAT_COMES, Arm, DiversityExperimentConfig
from benchmarks.experiment.learn import Example, examples_of
from benchmarks.experiment.pools import Pool, Talk
from benchmarks.experiment.prompts import prompted, shown_tools
from benchmarks.experiment.subset import SubsetWeights, select
from storage.records import Message, is_error
from synth.engines.encoder import encode

_WEIGHTS: dict[Arm, SubsetWeights] = {"no_domain": SubsetWeights(domain=0.0), "no_family": SubsetWeights(mode=0.0)}
_MOST_CALLS = 5


@dataclass(frozen=True)
class Shelf:
    """A pool as a policy reads it: talks that fit its window, each prompted, and as an example."""

    talks: tuple[Talk, ...]
    prompted: tuple[tuple[Message, ...], ...]
    examples: tuple[Example, ...]
    proposals_per_talk: float

    @cached_property
    def vectors(self) -> NDArray[np.float32]:
        """Of what the users said, shape [talks, dimensions]."""
        return encode(["\n".join(message.content or "" for message in talk.messages if message.role == "user") for talk in self.talks])

    @property
    def mean_tokens(self) -> float:
        return float(np.mean([example.tokens for example in self.examples]))


def shelf_of(pool: Pool, tokenizer: Any, config: DiversityExperimentConfig) -> Shelf:
    """Prompts and tokens of a pool."""
    read = prompts_of(pool, config)
    examples = examples_of(tokenizer, read)
    fits = [position for position, example in enumerate(examples) if example.tokens <= config.tiny.positions]
    return Shelf(
        talks=tuple(pool.talks[position] for position in fits),
        prompted=tuple(read[position] for position in fits),
        examples=tuple(examples[position] for position in fits),
        proposals_per_talk=pool.proposals_per_talk,
    )


def prompts_of(pool: Pool, config: DiversityExperimentConfig) -> list[tuple[Message, ...]]:
    """The pool's conversations, each with its compact list of tools."""
    return [
        prompted(talk.messages, shown_tools(talk.world, talk.tools, config.shown_tools, f"{position}/{talk.world}"))
        for position, talk in enumerate(pool.talks)
    ]


def chosen(arm: Arm, shelf: Shelf, size: int, unit_tokens: float, oversample: float) -> list[int]:
    """Positions on the shelf of what an arm trains on at a size; unit_tokens: the mean tokens of a conversation of the random arm."""
    budget = size * unit_tokens
    tokens = [example.tokens for example in shelf.examples]
    seen = int(np.searchsorted(np.cumsum(tokens), oversample * budget, side="right"))
    if arm in TAKES_WHAT_COMES:
        return _fitting(list(range(len(tokens))), tokens, budget)
    if arm == "quality":
        return _fitting(sorted(range(seen), key=lambda position: -quality(shelf.talks[position].messages)), tokens, budget)
    return _fitting(_subset(arm, shelf, seen, tokens, budget), tokens, budget)


def quality(messages: Sequence[Message]) -> float:
    """The fixed score of the quality arm: the share of calls that met no error, in [0, 1], and a tenth for each call up to five.

    So whatever went smoothly and did something comes first; all of the pool has passed the same checks before.
    """
    results = [message.content or "" for message in messages if message.role == "tool"]
    if not results:
        return 0.0
    return sum(not is_error(result) for result in results) / len(results) + 0.1 * min(len(results), _MOST_CALLS)


def _subset(arm: Arm, shelf: Shelf, seen: int, tokens: Sequence[int], budget: float) -> list[int]:
    """P4's selection, of as many as the budget takes."""
    talks = shelf.talks[:seen]
    domains, modes = [talk.domain for talk in talks], [talk.mode for talk in talks]
    count = max(1, round(seen * budget / max(1, sum(tokens[:seen]))))
    while True:
        order = select(domains, modes, shelf.vectors[:seen], count, _WEIGHTS.get(arm))
        if sum(tokens[position] for position in order) >= budget or count >= seen:
            return order
        count = min(seen, math.ceil(1.15 * count))


def _fitting(order: Sequence[int], tokens: Sequence[int], budget: float) -> list[int]:
    """Positions in this order as long as they fit; one that does not is passed over."""
    taken, left = [], budget
    for position in order:
        if tokens[position] <= left:
            taken.append(position)
            left -= tokens[position]
    return taken


def shuffled(conversations: Sequence[Sequence[Message]], seed: int) -> list[tuple[Message, ...]]:
    """The conversations with everything that the assistant wrote dealt out anew: each place gets some assistant message of all."""
    rng = random.Random(f"shuffled/{seed}")
    written = [message for messages in conversations for message in messages if message.role == "assistant"]
    rng.shuffle(written)
    deal = iter(written)
    return [tuple(next(deal) if message.role == "assistant" else message for message in messages) for messages in conversations]

"""The arm `learned`: shares of kinds of conversation, learned from proxies on other domains.

As `headrace value` does it, applied to kinds: sources are the strata of the held-out set and `mixed`, for conversations of none or
several. Each proxy starts from the base policy of a setting seed and trains on a random mixture; its loss on the held-out experts of the
setting domains, mean over strata, is regressed on the shares (`train/proxy/mixtures.py`). The arm draws the mean of the random mixtures
that are predicted best, as RegMix does (Liu et al. 2024, arXiv 2407.01492): the very best one would lie outside what the proxies have
seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.experiment.cells import Cells, Result
from benchmarks.experiment.conversations import Conversation
from benchmarks.experiment.ground import SETTING_SEED, base_of, ground_of, read_pool
from benchmarks.experiment.held_out import STRATA, expert_messages_of, stratum_of
from benchmarks.experiment.practice import with_replay
from train.proxy.mixtures import draw_data, draw_mixtures, fit_ridge
from train.proxy.token_training import TokenTraining, encode, mean_losses, train

SOURCES = (*STRATA, "mixed")
PROXIES = 24
_POOL, _DATA_TOKENS = 2_750, 60_000
_TRAINING = TokenTraining(tokens=300_000, learning_rate=2e-3)
_SEARCHED, _BEST = 20_000, 100


@dataclass(frozen=True)
class ProxyCell:
    """A proxy on a mixture. shares: of SOURCES."""

    shares: tuple[float, ...]
    seed: int = SETTING_SEED


def proxies() -> list[ProxyCell]:
    drawn = draw_mixtures(np.full(len(SOURCES), 1 / len(SOURCES)), PROXIES, np.random.default_rng(0))
    return [ProxyCell(tuple(shares)) for shares in drawn.round(4).tolist()]


def run_proxy(cell: ProxyCell) -> Result:
    from transformers import AutoModelForCausalLM

    ground = ground_of(cell.seed)
    pool, examples = read_pool("evolved", _POOL, cell.seed)
    positions = draw_by_source(pool, [example.tokens for example in examples], cell.shares, _DATA_TOKENS, cell.seed)
    model = AutoModelForCausalLM.from_pretrained(ground.base(cell.seed))
    data = with_replay(ground.tokenizer(), base_of(cell.seed), [examples[at] for at in positions])
    train(model, data, _TRAINING, seed=cell.seed)
    held_out = ground.held_out
    losses = np.array(mean_losses(model, encode(ground.tokenizer(), [expert_messages_of(one) for one in held_out])))
    strata = np.array([one.stratum for one in held_out])
    return {"losses": [float(losses[strata == stratum].mean()) for stratum in STRATA], "mean": float(losses.mean())}


def draw_by_source(pool: Sequence[Conversation], tokens: Sequence[int], shares: Sequence[float], budget: int, seed: int) -> list[int]:
    """Positions of a pool, by shares of SOURCES; the share of a source that the pool lacks goes to the others."""
    members: dict[str, list[int]] = {source: [] for source in SOURCES}
    for at, one in enumerate(pool):
        members[stratum_of(one.blueprint) or "mixed"].append(at)
    present = {source: share for source, share in zip(SOURCES, shares, strict=True) if members[source]}
    total = sum(present.values())
    return draw_data({source: share / total for source, share in present.items()}, members, tokens, budget, seed)


def shares_of(conversations: Sequence[Conversation], tokens: Sequence[int]) -> tuple[float, ...]:
    """Shares of SOURCES in the tokens of these conversations."""
    own = [stratum_of(one.blueprint) or "mixed" for one in conversations]
    return tuple(sum(count for name, count in zip(own, tokens, strict=True) if name == source) / sum(tokens) for source in SOURCES)


def best_shares(cells: Cells) -> tuple[float, ...]:
    """The mean of the random mixtures with the lowest predicted mean losses."""
    trained = proxies()
    shares = np.array([cell.shares for cell in trained])
    fit = fit_ridge(shares, np.array([cells[cell]["mean"] for cell in trained]))
    searched = draw_mixtures(np.full(len(SOURCES), 1 / len(SOURCES)), _SEARCHED, np.random.default_rng(1))
    return tuple(searched[np.argsort(fit.predict(searched))[:_BEST]].mean(axis=0).round(4).tolist())

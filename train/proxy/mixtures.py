"""Mixtures of sources: how they are drawn, and what a ridge regression says of the loss of proxies trained on them.

After RegMix (arXiv 2407.01492): small proxies on random mixtures, and a regression of their held-out loss on the mixtures. It is linear in
the square roots of the shares, because the first conversations of a source bring most: without a source the loss is much higher, with twice
as much of it little lower. Shares add up to 1, so a source counts only relative to the others: `gains` says how much the loss falls if a
part of the usual mixture is replaced by this source. The ridge predicts mixtures; gains are of plain least squares, because a penalty draws
them towards 0, and an interval around a biased value misses the true one too often.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t

Floats = NDArray[np.float64]
_PENALTIES = np.geomspace(1e-4, 10.0, 26)
FREE_RUNS = 4
"""Runs that are needed beyond the number of sources, for an estimate of their noise."""
_EVEN_SHARE = 0.5
"""Weight of equal shares in the mean of the drawn mixtures, beside the store's own shares."""


def draw_mixtures(own_shares: Floats, count: int, rng: np.random.Generator) -> Floats:
    """`count` random mixtures, shape [count, sources], from a Dirichlet distribution with one unit of mass a source around the mean of the
    store's own shares and equal ones."""
    sources = len(own_shares)
    mean = (1 - _EVEN_SHARE) * own_shares + _EVEN_SHARE / sources
    return rng.dirichlet(sources * mean, size=count)


def draw_data(
    shares: Mapping[str, float], members: Mapping[str, Sequence[int]], tokens: Sequence[int], budget: int, seed: int
) -> list[int]:
    """Positions of conversations, each source's up to its share of the budget; a source that is too small is repeated.

    members: source -> positions. tokens: of each position.
    """
    rng = np.random.default_rng(seed)
    chosen: list[int] = []
    for source, share in shares.items():
        left = share * budget
        while left > 0:
            for position in rng.permutation(members[source]).tolist():
                if left < tokens[position] / 2:
                    left = 0
                    break
                chosen.append(position)
                left -= tokens[position]
    return chosen


@dataclass(frozen=True)
class Fit:
    """loss = intercept + coefficients . (sqrt(shares) - mean_roots). penalty: of the ridge, chosen by leave-one-out error."""

    intercept: float
    coefficients: Floats
    mean_roots: Floats
    penalty: float

    def predict(self, shares: Floats) -> Floats:
        """Losses of mixtures, shape [mixtures]."""
        predicted: Floats = self.intercept + (np.sqrt(shares) - self.mean_roots) @ self.coefficients
        return predicted


def fit_ridge(shares: Floats, losses: Floats) -> Fit:
    """A ridge regression of losses, shape [runs], on the roots of shares, shape [runs, sources]; the penalty by exact leave-one-out."""
    roots = np.sqrt(shares)
    mean = roots.mean(axis=0)
    centred, targets = roots - mean, losses - losses.mean()
    u, singular, vt = np.linalg.svd(centred, full_matrices=False)
    projected = u.T @ targets

    def left_out_error(candidate: float) -> float:
        shrunk = singular**2 / (singular**2 + candidate)
        leverage = (u**2 * shrunk).sum(axis=1) + 1 / len(losses)
        return float((((targets - u @ (shrunk * projected)) / (1 - leverage)) ** 2).mean())

    chosen = min(_PENALTIES, key=left_out_error)
    coefficients = vt.T @ (singular / (singular**2 + chosen) * projected)
    return Fit(float(losses.mean()), coefficients, mean, float(chosen))


@dataclass(frozen=True)
class Gain:
    """How much the held-out loss falls (nats a token of the assistant) per 10,000 tokens of a source in place of the usual mixture."""

    source: str
    gain: float
    low: float
    high: float


def gains(names: Sequence[str], shares: Floats, losses: Floats, own_shares: Floats, budget: int) -> list[Gain]:
    """The gain of each source at the store's own shares, with 95 % intervals of least squares (Student's t), each source by itself.

    shares: [runs, sources], with at least `FREE_RUNS` more runs than sources. budget: tokens of data of a run, 10,000 or more.
    """
    unit = 10_000 / budget
    replaced = (1 - unit) * own_shares + unit * np.eye(len(own_shares))
    design = np.column_stack([np.ones(len(losses)), np.sqrt(shares)])
    inverse = np.linalg.pinv(design)
    coefficients = inverse @ losses
    free = len(losses) - design.shape[1]
    variance = ((losses - design @ coefficients) ** 2).sum() / free
    contrasts = np.column_stack([np.zeros(len(names)), np.sqrt(own_shares) - np.sqrt(replaced)])
    found = contrasts @ coefficients
    margin = float(t.ppf(0.975, free)) * np.sqrt(variance * ((contrasts @ inverse) ** 2).sum(axis=1))
    return [Gain(*row) for row in zip(names, found.tolist(), (found - margin).tolist(), (found + margin).tolist(), strict=True)]


def weights(found: Sequence[Gain], strength: float = 0.5) -> dict[str, float]:
    """Weights of sources for the next data, with mean 1: exp(strength * z), z the gain in standard deviations of all gains, and 0 where the
    interval includes 0, so that nothing is weighted by chance."""
    spread = float(np.std([one.gain for one in found])) or 1.0
    raw = {one.source: float(np.exp(strength * one.gain / spread)) if one.low > 0 or one.high < 0 else 1.0 for one in found}
    mean = float(np.mean(list(raw.values())))
    return {source: round(weight / mean, 4) for source, weight in raw.items()}

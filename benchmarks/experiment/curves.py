"""What quantity buys: success by size, its fitted ceiling, and how sure we are of either.

One idea: the same tasks are measured in every seed, arm and size, so one resampling of seeds and of tasks gives a whole curve; the
ceiling is fitted to each resampled curve, and its interval is that of the fits. The curve is `acc = a - b N^(-c)` with `a` in [0, 1],
`b >= 0` and `c` in [0.05, 3]: for every `c` on a grid a linear least squares in a and b, and the best of them.

A ceiling that cannot be fitted (fewer than three sizes, or success that does not rise with them) is 1 with interval [0, 1]: nothing is
known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from synth.intervals import wilson
from train.measure.evaluate import Estimate, bootstrap

Floats = NDArray[np.float64]
UNKNOWN = Estimate(1.0, 0.0, 1.0)
_EXPONENTS = np.geomspace(0.05, 3.0, 60)
_RESAMPLES = 1000
_FEWEST_SIZES = 3


@dataclass(frozen=True, slots=True)
class Curve:
    """a - b N^(-c)."""

    a: float
    b: float
    c: float

    def at(self, size: float) -> float:
        return self.a - self.b * math.pow(size, -self.c)


def rate(by_seed: Sequence[Floats]) -> Estimate:
    """Mean success with its 95 % interval over seeds and tasks; by_seed: an array a seed, shape [tasks]. Wilson's where all are equal."""
    found = bootstrap(by_seed)
    if found.low < found.high:
        return found
    low, high = wilson(round(found.mean * len(by_seed[0])), len(by_seed[0]))
    return Estimate(found.mean, min(low, found.mean), max(high, found.mean))


def gain(before: Sequence[Floats], after: Sequence[Floats]) -> Estimate:
    """How much higher `after` is, on the same seeds and tasks; where all differ alike, as by nothing, Wilson's interval either way."""
    found = bootstrap([second - first for first, second in zip(before, after, strict=True)])
    if found.low < found.high:
        return found
    _, most = wilson(0, len(before[0]))
    return Estimate(found.mean, max(-1.0, found.mean - most), min(1.0, found.mean + most))


def fit(sizes: Sequence[int], rates: Floats) -> Curve | None:
    """The curve of least squares; None where rates do not rise from the smallest to the largest size, or sizes are fewer than three."""
    if len(sizes) < _FEWEST_SIZES or rates[-1] <= rates[0]:
        return None
    powers = np.asarray(sizes, dtype=np.float64)[:, None] ** -_EXPONENTS[None, :]
    centred = powers - powers.mean(axis=0)
    slopes = -(centred * (rates - rates.mean())[:, None]).sum(axis=0) / (centred**2).sum(axis=0)
    b = np.maximum(slopes, 0.0)
    a = np.clip(rates.mean() + b * powers.mean(axis=0), 0.0, 1.0)
    b = np.maximum(((a[None, :] - rates[:, None]) * powers).sum(axis=0) / (powers**2).sum(axis=0), 0.0)
    errors = ((a[None, :] - b[None, :] * powers - rates[:, None]) ** 2).sum(axis=0)
    best = int(errors.argmin())
    return Curve(float(a[best]), float(b[best]), float(_EXPONENTS[best]))


def ceiling(sizes: Sequence[int], success: Floats, *, seed: int = 0) -> tuple[Estimate, Curve | None]:
    """The fitted `a` with its 95 % interval, and the curve.

    success: shape [sizes, seeds, tasks], sizes ascending. A resampled curve that cannot be fitted counts as 0 for the lower end and as 1
    for the upper one.
    """
    curve = fit(sizes, success.mean(axis=(1, 2)))
    if curve is None:
        return UNKNOWN, None
    _, seeds, tasks = success.shape
    rng = np.random.default_rng(seed)
    lows, highs = [], []
    for _ in range(_RESAMPLES):
        shares = rng.multinomial(seeds, np.full(seeds, 1 / seeds)) / seeds
        weights = rng.multinomial(tasks, np.full(tasks, 1 / tasks)) / tasks
        found = fit(sizes, np.einsum("zst,s,t->z", success, shares, weights))
        lows.append(0.0 if found is None else found.a)
        highs.append(1.0 if found is None else found.a)
    return Estimate(curve.a, float(np.quantile(lows, 0.025)), float(np.quantile(highs, 0.975))), curve

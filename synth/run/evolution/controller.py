"""The controller: draws the cells for which blueprints are made (definition P4; our formulas after TDScaling's idea).

A cell is domain x family of coarse reasoning modes x complexity band. The controller counts accepted conversations by cell. A cell's score
is the rarity of its domain and family (-log2 of smoothed shares), the shortfall of its band and, if set, the urgency of what the last
policy fails at (`failure_targeting.py`). The score is multiplied by the cell's feasibility (Wilson lower bounds of success rates). Cells
are drawn from a softmax of the product, mixed with uniform draws. The probability of each band follows from the band's deficit (an integral
term), so that the shares of *accepted* conversations reach their targets. A round is a fixed number of draws. The run is done when some
rounds in a row add almost no entropy and the bands are on target.

The controller knows nothing of tools, worlds or plans. Its state is a pure function of the reports in their order; a resumed run rebuilds
it from stored rows.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from synth.blueprints.cell import BANDS, FAMILIES, OTHER, Band, Cell
from synth.blueprints.diversity import entropy_bits
from synth.intervals import wilson

_PRIOR = 0.5
"""Feasibility before there are enough tries."""
_ACCEPTANCES_AHEAD = 10
"""A band's deficit is computed for the time after this number of further acceptances."""
_FIXED_SHARE = 0.2
"""Share of the draws that follows the bands' targets alone."""

Floats = NDArray[np.float64]
Measured = Literal["cell", "domain", "mode", "prior"]


class EvolutionConfig(BaseModel):
    """Configuration of the controller."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    objective: Literal["coverage", "rarity"] = Field(
        "coverage",
        description="How conversations are chosen: by the tools and decisions that they add per token, or by the rarity of their cell.",
    )
    candidates_per_proposal: int = Field(
        5, ge=1, description="With coverage: blueprints that are planned for each one that is executed; planning costs no tokens."
    )
    proposals_per_round: int = Field(50, ge=1, description="Blueprints asked for in one round; a killed run resumes at a round.")
    domain_weight: float = Field(1.0, ge=0, description="Weight of a domain's rarity (bits) in a cell's score.")
    family_weight: float = Field(1.0, ge=0, description="Weight of a mode family's rarity (bits) in a cell's score.")
    band_weight: float = Field(
        1.0, ge=0, description="Weight of a complexity band's shortfall, relative to its target share, in a cell's score."
    )
    focus_weight: float = Field(
        0.0,
        ge=0,
        description="Weight (bits) of domains, mode families and intents that the last policy fails or wavers at. 1 asks up to twice as "
        "often for what is urgent in one of these as for what is mastered; 0 switches it off.",
    )
    band_shares: tuple[float, float, float] = Field((0.25, 0.45, 0.30), description="Target shares of the bands low, mid and high.")
    temperature: float = Field(0.5, gt=0, description="Temperature of the softmax over cells; lower steers harder.")
    uniform_share: float = Field(0.1, ge=0, le=1, description="Share of draws that ignore the scores; 1 switches steering off.")
    trusted_tries: int = Field(5, ge=1, description="Tries of a cell before its measured success rate replaces the prior of 0.5.")
    least_feasibility: float = Field(
        0.1, gt=0, le=1, description="Least success rate that is assumed of a cell, so that none is given up for good."
    )
    alarm_factor: float = Field(
        3.0,
        gt=1,
        description="Alarm of a collapse if a domain or family has significantly more than this multiple of its share.",
    )
    stop_gain_bits: float = Field(
        0.02, ge=0, description="With rarity: gain in entropy (H_dom + H_mode^1, bits) below which a round is idle."
    )
    stop_idle_rounds: int = Field(3, ge=1, description="With rarity: idle rounds in a row that end the run, if the bands are on target.")
    stop_band_tolerance: float = Field(
        0.03, ge=0, description="Largest distance of a band's share from its target at which the run may end."
    )

    @model_validator(mode="after")
    def _shares_are_shares(self) -> Self:
        if min(self.band_shares) <= 0 or abs(sum(self.band_shares) - 1) > 1e-6:
            raise ValueError(f"band_shares {list(self.band_shares)}: each must be above 0, and they must add up to 1")
        return self


@dataclass(frozen=True, slots=True)
class Draw:
    """A drawn cell, and why it was drawn.

    domain_bits, family_bits, band_deficit, focus: weighted terms of the score; `focus` is 0 without failure targeting.
    feasibility: factor of the score, in (0, 1].
    measured_on: the counts that the feasibility follows from.
    probability: of this draw.
    else_families: all mode families, in a random order by rarity; the planner tries them if the cell is not feasible.
    """

    cell: Cell
    domain_bits: float
    family_bits: float
    band_deficit: float
    feasibility: float
    measured_on: Measured
    probability: float
    else_families: tuple[str, ...]
    focus: float = 0.0


@dataclass(frozen=True, slots=True)
class Report:
    """The result of one proposal.

    requested: the requested cell.
    coarse: coarse mode of the accepted conversation.
    got: cell of the accepted conversation; None if it was not accepted.
    was_planned: whether a blueprint was found and executed.
    """

    requested: Cell
    coarse: str = ""
    got: Cell | None = None
    was_planned: bool = True


class _Rates:
    """Tries and hits in arrays of one shape, and Wilson lower bounds of the hit rates; `prior` until a place has `trusted` tries."""

    def __init__(self, shape: tuple[int, ...], trusted: int, prior: float) -> None:
        self.tries, self.hits = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        self.lower = np.full(shape, prior)
        self._trusted = trusted

    def add(self, at: tuple[int, ...], is_hit: bool) -> None:
        self.tries[at] += 1
        self.hits[at] += is_hit
        if self.tries[at] >= self._trusted:
            self.lower[at] = wilson(int(self.hits[at]), int(self.tries[at]))[0]

    def is_known(self, at: tuple[int, ...]) -> bool:
        return bool(self.tries[at] >= self._trusted)


class Controller:
    """Counts reports by cell, and draws the next cells.

    State is in arrays over (domain, family, band), so that a draw over hundreds of domains takes well under a millisecond.

    Args:
        domains: the fixed label set of domain entropy.
        weights: how many times as often a domain is asked for as one of weight 1; 1 if missing.
        domain_urgency, mode_urgency: urgency of a domain, and of a family in a band, in [0, 1] (`failure_targeting.py`); 0 if missing.
    """

    def __init__(
        self,
        domains: Sequence[str],
        config: EvolutionConfig | None = None,
        *,
        weights: Mapping[str, float] | None = None,
        domain_urgency: Mapping[str, float] | None = None,
        mode_urgency: Mapping[tuple[str, Band], float] | None = None,
    ) -> None:
        self.domains, self.config = tuple(domains), config or EvolutionConfig()
        self.families = (*FAMILIES, OTHER)
        self.used_modes: Counter[str] = Counter()
        """Coarse mode -> number of accepted conversations."""
        self.round_bits: list[float] = []
        """H_dom + H_mode^1 at the end of each round."""
        shape, trusted = (len(self.domains), len(self.families), len(BANDS)), self.config.trusted_tries
        self._place: tuple[Mapping[str, int], ...] = tuple(
            {label: at for at, label in enumerate(labels)} for labels in (self.domains, self.families, BANDS)
        )
        self._counts = tuple(np.zeros(size, dtype=np.int64) for size in shape)
        self._weights = np.array([(weights or {}).get(domain, 1.0) for domain in self.domains])
        by_domain, by_mode = domain_urgency or {}, mode_urgency or {}
        of_domain = np.array([by_domain.get(domain, 0.0) for domain in self.domains])
        of_mode = np.array([[by_mode.get((family, band), 0.0) for band in BANDS] for family in self.families])
        self._focus: Floats = self.config.focus_weight * (of_domain[:, None, None] + of_mode)
        self._by_domain = _Rates(shape[:1], trusted, _PRIOR)
        self._by_mode = _Rates(shape[1:], trusted, _PRIOR)
        self._by_cell = _Rates(shape, trusted, np.nan)

    @property
    def cells(self) -> tuple[Cell, ...]:
        return tuple(Cell(domain, family, band) for domain in self.domains for family in self.families for band in BANDS)

    # ---- reports ------------------------------------------------------------------------------------------------

    def record(self, report: Report) -> None:
        """Counts one proposal. A cell, a (family, band) and a domain are hit if the accepted conversation lies in them.

        If no blueprint was found, the domain is not counted: the cause is the mode and the band."""
        target, got = report.requested, report.got
        at = self._at(target)
        self._by_cell.add(at, got == target)
        self._by_mode.add(at[1:], got is not None and (got.family, got.band) == (target.family, target.band))
        if report.was_planned:
            self._by_domain.add(at[:1], got is not None and got.domain == target.domain)
        if got is not None:
            self.used_modes[report.coarse] += 1
            self._count(got, 1)

    def failures(self, cell: Cell) -> int:
        """Number of proposals that missed this cell."""
        at = self._at(cell)
        return int(self._by_cell.tries[at] - self._by_cell.hits[at])

    def tries(self, domain: str) -> int:
        """Number of proposals in a domain."""
        return int(self._by_cell.tries[self._place[0][domain]].sum())

    def end_round(self) -> None:
        self.round_bits.append(self.bits())

    def _at(self, cell: Cell) -> tuple[int, int, int]:
        domain, family, band = (places[label] for places, label in zip(self._place, (cell.domain, cell.family, cell.band), strict=True))
        return domain, family, band

    def _count(self, cell: Cell, by: int) -> None:
        for counts, at in zip(self._counts, self._at(cell), strict=True):
            counts[at] += by

    # ---- draws ------------------------------------------------------------------------------------------------

    def score(self, cell: Cell) -> float:
        """Weighted rarity of the cell's domain and family, shortfall of its band, and urgency of what the last policy fails at."""
        at = self._at(cell)
        return float(sum(term[place] for term, place in zip(self._terms(), at, strict=True)) + self._focus[at])

    def _terms(self) -> tuple[Floats, Floats, Floats]:
        """The terms of the score by domain, by family and by band, from shares smoothed as (c + 0.5) / (N + 0.5 K); a domain's share counts
        relative to its weight."""
        domain, family, band = ((counts + 0.5) / (counts.sum() + 0.5 * len(counts)) for counts in self._counts)
        domain /= self._weights / self._weights.mean()
        target = np.array(self.config.band_shares)
        deficit: Floats = np.maximum(0.0, (target - band) / target)
        return -self.config.domain_weight * np.log2(domain), -self.config.family_weight * np.log2(family), self.config.band_weight * deficit

    def feasibility(self, cell: Cell) -> float:
        """The Wilson lower bound of the cell if it has enough tries, else the smaller one of its domain's and its (family, band)'s."""
        return float(self._feasibility()[self._at(cell)])

    def _feasibility(self) -> Floats:
        backed_off = np.minimum(self._by_domain.lower[:, None, None], self._by_mode.lower[None])
        cell_rate = self._by_cell.lower
        feasibility: Floats = np.maximum(self.config.least_feasibility, np.where(np.isnan(cell_rate), backed_off, cell_rate))
        return feasibility

    def _measured_on(self, at: tuple[int, int, int]) -> Measured:
        """The counts that the feasibility of a cell follows from."""
        if self._by_cell.is_known(at):
            return "cell"
        domain, mode = self._by_domain.lower[at[0]], self._by_mode.lower[at[1:]]
        if self._by_mode.is_known(at[1:]) and mode <= domain:
            return "mode"
        return "domain" if self._by_domain.is_known(at[:1]) and domain <= mode else "prior"

    def probabilities(self) -> dict[Cell, float]:
        """The probability of each cell in the next draw."""
        return dict(zip(self.cells, self._probabilities(self._feasibility()).ravel().tolist(), strict=True))

    def _probabilities(self, feasibility: Floats) -> Floats:
        """(1 - u) softmax(score * feasibility / T) + u uniform, both times the domain's weight; the sum of the softmax over each band is
        set by `_band_deficits`."""
        domain, family, band = self._terms()
        heat = (domain[:, None, None] + family[None, :, None] + band + self._focus) * feasibility / self.config.temperature
        asked = (self._weights / self._weights.mean())[:, None, None]
        weights = np.exp(heat - heat.max()) * asked
        weights *= self._band_deficits() / np.maximum(weights.sum(axis=(0, 1)), np.finfo(np.float64).tiny)
        uniform = self.config.uniform_share
        probabilities: Floats = (1 - uniform) * weights / weights.sum() + uniform * asked / weights.size
        return probabilities

    def _band_deficits(self) -> Floats:
        """The share of each band in the next draws: in proportion to the acceptances that it will lack a few acceptances from now.

        The band's term of the score alone cannot hold the bands at their targets: it is at most 1 beside rarities of several bits, and
        feasibility scales it down. A fixed part follows the targets alone, so that an infeasible band does not take the others' draws."""
        target = np.array(self.config.band_shares)
        counts = self._counts[2]
        lacking = np.maximum(0.0, target * (counts.sum() + _ACCEPTANCES_AHEAD) - counts)
        owed: Floats = (1 - _FIXED_SHARE) * lacking / lacking.sum() + _FIXED_SHARE * target
        return owed

    def draw(self, rng: random.Random, feasibility: Floats | None = None) -> Draw:
        """Draws a cell. feasibility: of all cells, if it is already computed."""
        feasibility = self._feasibility() if feasibility is None else feasibility
        probabilities = self._probabilities(feasibility)
        totals = np.cumsum(probabilities.ravel())
        index = min(int(np.searchsorted(totals, rng.random() * totals[-1], side="right")), totals.size - 1)
        domain, family, band = (int(place) for place in np.unravel_index(index, probabilities.shape))
        terms = self._terms()
        return Draw(
            cell=Cell(self.domains[domain], self.families[family], BANDS[band]),
            domain_bits=float(terms[0][domain]),
            family_bits=float(terms[1][family]),
            band_deficit=float(terms[2][band]),
            feasibility=float(feasibility[domain, family, band]),
            measured_on=self._measured_on((domain, family, band)),
            probability=float(probabilities[domain, family, band]),
            else_families=self._by_rarity(terms[1].tolist(), rng),
            focus=float(self._focus[domain, family, band]),
        )

    def _by_rarity(self, bits: Sequence[float], rng: random.Random) -> tuple[str, ...]:
        """The families in the order of draws without replacement from a softmax of their rarity (Gumbel's trick)."""
        keys = [rarity / self.config.temperature - math.log(rng.expovariate(1.0)) for rarity in bits]
        return tuple(family for _, family in sorted(zip(keys, self.families, strict=True), reverse=True))

    def draw_round(self, rng: random.Random, proposals: int) -> list[Draw]:
        """Draws the cells of a round. Each draw counts the cells before it as accepted, so that their proposals can run in parallel."""
        feasibility, draws = self._feasibility(), list[Draw]()
        for _ in range(proposals):
            draws.append(self.draw(rng, feasibility))
            self._count(draws[-1].cell, 1)
        for draw in draws:
            self._count(draw.cell, -1)
        return draws

    # ---- stop and alarms ------------------------------------------------------------------------------------

    def bits(self) -> float:
        """H_dom + H_mode^1 (plug-in) of everything accepted so far."""
        return entropy_bits(self._counts[0].tolist()) + entropy_bits(self.used_modes.values())

    def band_shares(self) -> Mapping[Band, float]:
        counts = self._counts[2].tolist()
        return {band: count / sum(counts) if sum(counts) else 0.0 for band, count in zip(BANDS, counts, strict=True)}

    def is_done(self) -> bool:
        """Whether cells are drawn by rarity, the last rounds added almost no entropy, and every band is on target."""
        last = self.round_bits[-(self.config.stop_idle_rounds + 1) :]
        if self.config.objective == "coverage" or len(last) <= self.config.stop_idle_rounds:
            return False
        gains = [later - earlier for earlier, later in itertools.pairwise(last)]
        shares = self.band_shares()
        on_target = all(
            abs(shares[band] - target) <= self.config.stop_band_tolerance
            for band, target in zip(BANDS, self.config.band_shares, strict=True)
        )
        return on_target and all(gain < self.config.stop_gain_bits for gain in gains)

    def alarms(self) -> list[str]:
        """Texts about domains and, with rarity, mode families with more than `alarm_factor` times their target share: signs of collapse.

        More by two standard deviations of a Poisson count, so that a handful of conversations raises none.
        """
        even = np.full(len(self.families), 1 / len(self.families))
        axes = (
            ("domain", self.domains, self._counts[0], self._weights / self._weights.sum()),
            ("family", self.families, self._counts[1], even),
        )[: 1 if self.config.objective == "coverage" else 2]
        return [alarm for axis, labels, counts, targets in axes for alarm in self._collapse_alarms(axis, labels, counts, targets)]

    def _collapse_alarms(self, axis: str, labels: Sequence[str], counts: NDArray[np.int64], targets: Floats) -> list[str]:
        total = int(counts.sum())
        if total < self.config.proposals_per_round:
            return []
        factor = self.config.alarm_factor
        limits = factor * targets * total
        over = counts > limits + 2 * np.sqrt(limits)
        return [
            f"{axis} {labels[i]} has {counts[i] / total:.1%} of the accepted conversations, more than {factor:g} times its share"
            for i in np.flatnonzero(over).tolist()
        ]

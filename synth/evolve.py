"""The controller that decides which cell the next blueprint is asked for (definition P4; our formulas after TDScaling's idea).

A cell is domain x family of coarse reasoning modes x complexity band. The controller counts what was accepted, prefers what is rare
(-log2 of smoothed shares, and bands below their target share), discounts what it finds infeasible (Wilson lower bounds of its own
tries), and draws from a softmax of the product with a floor of uniform draws. A round is a fixed number of proposals; rounds end when
three in a row add next to nothing and the bands are where they should be, or when the budget is spent.

It knows nothing of tools, worlds or plans: `synthesize.py` turns a cell into a blueprint and reports back what came of it. The state
is a pure function of the reports, in order, so that a resumed run rebuilds it from the stored rows.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, cast, get_args

from pydantic import BaseModel, ConfigDict, Field

from synth.diversity import entropy_bits
from synth.intervals import wilson

Band = Literal["low", "mid", "high"]
BANDS: tuple[Band, ...] = get_args(Band)

FAMILIES = ("N", "A>C", "A>P", "P>F", "P>S", "P>R", "C>F", "C>V", "C>R", "C>A", "C>S>F", "C>S>V")
"""Prefixes of coarse signatures (runs collapsed) that are told apart; all else is `other`."""
OTHER = "other"


def mode_family(coarse: str) -> str:
    """The family of a coarse signature: the first listed prefix that it starts with, runs (`C+`) counted as one."""
    plain = coarse.replace("+", "") + ">"
    return next((family for family in FAMILIES if plain.startswith(f"{family}>")), OTHER)


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    domain: str
    family: str
    band: Band


class EvolutionConfig(BaseModel):
    """What the controller is after, and how hard it steers."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    proposals_per_round: int = Field(50, ge=1, description="Blueprints asked for in one round; a round is also the unit of resuming.")
    domain_weight: float = Field(1.0, ge=0, description="Weight of a domain's rarity, in bits.")
    family_weight: float = Field(1.0, ge=0, description="Weight of a mode family's rarity, in bits.")
    band_weight: float = Field(1.0, ge=0, description="Weight of a complexity band's shortfall, relative to its target share.")
    band_shares: tuple[float, float, float] = Field((0.25, 0.45, 0.30), description="Target shares of the bands low, mid and high.")
    temperature: float = Field(0.5, gt=0, description="Of the softmax over cells: lower steers harder.")
    uniform_share: float = Field(0.1, ge=0, le=1, description="Share of draws that ignore the scores. 1 switches steering off.")
    trusted_tries: int = Field(5, ge=1, description="Tries before measured feasibility replaces the prior of 0.5.")
    least_feasibility: float = Field(0.1, gt=0, le=1, description="Floor under feasibility, so that no cell is given up for good.")
    alarm_factor: float = Field(
        3.0, gt=1, description="A domain or family holding more than this many times its target share is a collapse."
    )
    stop_gain_bits: float = Field(0.02, ge=0, description="A round that adds less to H_dom + H_mode^1 is idle.")
    stop_idle_rounds: int = Field(3, ge=1, description="So many idle rounds in a row end the run, if the bands are on target.")
    stop_band_tolerance: float = Field(0.03, ge=0, description="How far a band's share may lie from its target at the end.")


@dataclass(frozen=True, slots=True)
class Report:
    """What became of one proposal: the cell that was asked for, and the cell of what was accepted (None: nothing was).

    was_planned: False where no blueprint was found, so that nothing was executed."""

    asked: Cell
    coarse: str = ""
    got: Cell | None = None
    was_planned: bool = True


@dataclass(slots=True)
class _Record:
    tries: int = 0
    hits: int = 0
    lower: float = 0.0
    """Wilson lower bound of the rate of hits."""

    def add(self, is_hit: bool) -> None:
        self.tries += 1
        self.hits += is_hit
        self.lower = wilson(self.hits, self.tries)[0]


@dataclass
class Controller:
    """Counts, tries and hits by cell; `probabilities` and `draw` say what to ask for next.

    domains: the fixed label set that domain entropy is measured over.
    """

    domains: tuple[str, ...]
    config: EvolutionConfig = field(default_factory=EvolutionConfig)
    accepted: list[tuple[Cell, str]] = field(default_factory=list)
    """Cell and coarse signature of everything accepted, in order."""
    round_bits: list[float] = field(default_factory=list)
    """H_dom + H_mode^1 at the end of each round."""

    def __post_init__(self) -> None:
        self.families = (*FAMILIES, OTHER)
        self.cells = tuple(Cell(domain, family, band) for domain in self.domains for family in self.families for band in BANDS)
        self._by_cell: dict[Cell, _Record] = {}
        self._by_domain: dict[str, _Record] = {}
        self._by_mode: dict[tuple[str, Band], _Record] = {}
        self._count: dict[str, Counter[str]] = {"domain": Counter(), "family": Counter(), "band": Counter()}

    # ---- what came of it ------------------------------------------------------------------------------------------------

    def record(self, report: Report) -> None:
        """Counts one proposal. It is a hit only where what was accepted lies in the cell that was asked for.

        A domain is not blamed for a cell that could not be planned: that says something of the modes and the band."""
        asked, is_hit = report.asked, report.got == report.asked
        self._by_cell.setdefault(asked, _Record()).add(is_hit)
        self._by_mode.setdefault((asked.family, asked.band), _Record()).add(is_hit)
        if report.was_planned:
            self._by_domain.setdefault(asked.domain, _Record()).add(is_hit)
        if report.got is not None:
            self.accepted.append((report.got, report.coarse))
            for axis, value in (("domain", report.got.domain), ("family", report.got.family), ("band", report.got.band)):
                self._count[axis][value] += 1

    def failures(self, cell: Cell) -> int:
        """Tries of a cell that were no hit."""
        record = self._by_cell.get(cell, _Record())
        return record.tries - record.hits

    def end_round(self) -> None:
        self.round_bits.append(self.bits())

    # ---- what to ask for ------------------------------------------------------------------------------------------------

    def share(self, axis: str, value: str, labels: int) -> float:
        """Smoothed share (c + 0.5) / (N + 0.5 K) of a value among what was accepted."""
        counts = self._count[axis]
        return (counts[value] + 0.5) / (counts.total() + 0.5 * labels)

    def score(self, cell: Cell) -> float:
        return self._axis_score("domain", cell.domain) + self._axis_score("family", cell.family) + self._axis_score("band", cell.band)

    def _axis_score(self, axis: str, value: str) -> float:
        if axis == "domain":
            return -self.config.domain_weight * math.log2(self.share(axis, value, len(self.domains)))
        if axis == "family":
            return -self.config.family_weight * math.log2(self.share(axis, value, len(self.families)))
        target = self.config.band_shares[BANDS.index(cast(Band, value))]
        return self.config.band_weight * max(0.0, (target - self.share(axis, value, len(BANDS))) / target)

    def feasibility(self, cell: Cell) -> float:
        """The cell's own Wilson lower bound once it was tried often enough, else the lesser of its domain's and its (family, band)'s."""
        trusted = self.config.trusted_tries
        own = self._by_cell.get(cell)
        if own is not None and own.tries >= trusted:
            return max(self.config.least_feasibility, own.lower)
        kept = (self._by_domain.get(cell.domain), self._by_mode.get((cell.family, cell.band)))
        bounds = [record.lower if record is not None and record.tries >= trusted else 0.5 for record in kept]
        return max(self.config.least_feasibility, min(bounds))

    def probabilities(self) -> dict[Cell, float]:
        """Of every cell to be asked for next; they sum to 1."""
        domain = {value: self._axis_score("domain", value) for value in self.domains}
        family = {value: self._axis_score("family", value) for value in self.families}
        band = {value: self._axis_score("band", value) for value in BANDS}
        heat = [
            (domain[cell.domain] + family[cell.family] + band[cell.band]) * self.feasibility(cell) / self.config.temperature
            for cell in self.cells
        ]
        top = max(heat)
        weights = [math.exp(value - top) for value in heat]
        total, floor = sum(weights), self.config.uniform_share / len(self.cells)
        return {cell: (1 - self.config.uniform_share) * weight / total + floor for cell, weight in zip(self.cells, weights, strict=True)}

    def draw(self, rng: random.Random) -> Cell:
        probabilities = self.probabilities()
        return rng.choices(self.cells, weights=[probabilities[cell] for cell in self.cells])[0]

    def draw_round(self, rng: random.Random, proposals: int) -> list[Cell]:
        """The cells of a whole round, which can then be worked on side by side: each draw counts the cells before it as delivered."""
        before = {axis: counts.copy() for axis, counts in self._count.items()}
        drawn = []
        for _ in range(proposals):
            cell = self.draw(rng)
            drawn.append(cell)
            for axis, value in (("domain", cell.domain), ("family", cell.family), ("band", cell.band)):
                self._count[axis][value] += 1
        self._count = before
        return drawn

    # ---- when to stop, when to shout ------------------------------------------------------------------------------------

    def bits(self) -> float:
        """H_dom + H_mode^1 (plug-in) of everything accepted so far."""
        return entropy_bits(self._count["domain"].values()) + entropy_bits(Counter(coarse for _, coarse in self.accepted).values())

    def band_shares(self) -> Mapping[Band, float]:
        total = self._count["band"].total()
        return {band: self._count["band"][band] / total if total else 0.0 for band in BANDS}

    def is_done(self) -> bool:
        """Whether the last rounds added next to nothing while every band is on target."""
        last = self.round_bits[-(self.config.stop_idle_rounds + 1) :]
        if len(last) <= self.config.stop_idle_rounds:
            return False
        gains = [later - earlier for earlier, later in itertools.pairwise(last)]
        shares = self.band_shares()
        on_target = all(
            abs(shares[band] - target) <= self.config.stop_band_tolerance
            for band, target in zip(BANDS, self.config.band_shares, strict=True)
        )
        return on_target and all(gain < self.config.stop_gain_bits for gain in gains)

    def alarms(self) -> list[str]:
        """Domains and mode families that hold more than `alarm_factor` times their even share: a collapse, in words."""
        found: list[str] = []
        for axis, labels in (("domain", self.domains), ("family", self.families)):
            found += self._collapsed(axis, labels)
        return found

    def _collapsed(self, axis: str, labels: Sequence[str]) -> list[str]:
        counts, limit = self._count[axis], self.config.alarm_factor / len(labels)
        if counts.total() < self.config.proposals_per_round or limit >= 1:
            return []
        return [
            f"{axis} {label} holds {counts[label] / counts.total():.0%} of what was accepted, more than {limit:.0%}"
            for label in labels
            if counts[label] / counts.total() > limit
        ]

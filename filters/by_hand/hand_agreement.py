"""How far people agree with the funnel and the judge: their last verdicts against those made without them, with Cohen's kappa.

A unit is the verdict of one author about one item: keep or drop. A new label counts as keep. Each comparison sets it against one other:
    funnel    requests: kept or dropped by the first run that read the file, so before any annotation
    accepted  trajectories: whether all checks, the judge's among them, held
    judge     trajectories that pass every check by code: what the judge said; a judge is asked about no others
    outcome   rollouts: success or not
People choose what they look at, so a rate here is one of what was looked at, not of the store.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from storage.by_hand.hand_rows import LAST_VERDICTS
from storage.store import Store
from synth.intervals import wilson
from synth.roles.judge_calibration import cohens_kappa

RESAMPLES = 2_000
_SEED = 0

COMPARED: Mapping[str, tuple[str, str, str]] = {
    "funnel": ("requests: people against the funnel", "kept by the funnel", "dropped by the funnel"),
    "accepted": ("trajectories: people against all checks and the judge", "accepted", "rejected"),
    "judge": ("trajectories that pass every check by code: people against the judge", "passed by the judge", "rejected by the judge"),
    "outcome": ("rollouts: people against the verifier", "success", "failure"),
}
"""Comparison -> what is compared, and the two verdicts that are made without people."""
_SQL = f"""WITH said AS (SELECT item_id, author, verdict <> 'drop' AS keeps FROM {LAST_VERDICTS}),
first AS (SELECT v.query_id, arg_min(v.kept, p.rowid) AS kept FROM verdicts v JOIN funnel f ON f.run = v.run AND f.position = 0
  JOIN parts p ON p.part_id = f.part_id WHERE v.query_id IN (SELECT item_id FROM said) GROUP BY ALL),
made AS (SELECT t.trajectory_id, t.accepted, t.reason, t.checks FROM trajectories t WHERE t.trajectory_id IN (SELECT item_id FROM said))
SELECT 'funnel' AS compared, s.keeps, f.kept AS passes FROM said s JOIN first f ON f.query_id = s.item_id
UNION ALL SELECT 'accepted', s.keeps, m.accepted FROM said s JOIN made m ON m.trajectory_id = s.item_id
  WHERE m.reason IS DISTINCT FROM 'calibration'
UNION ALL SELECT 'judge', s.keeps, m.reason IS DISTINCT FROM 'judge' FROM said s JOIN made m ON m.trajectory_id = s.item_id
  WHERE json_exists(m.checks, '$.judge') AND (m.accepted OR m.reason IN ('judge', 'calibration'))
UNION ALL SELECT 'outcome', s.keeps, r.outcome = 'success' FROM said s
  JOIN (SELECT DISTINCT rollout_id, outcome FROM rollouts WHERE rollout_id IN (SELECT item_id FROM said)) r ON r.rollout_id = s.item_id"""


@dataclass(frozen=True)
class HandAgreement:
    """One comparison.

    counts: (a person keeps, the other passes) -> number of verdicts.
    rate, low, high: share of verdicts that agree, with the Wilson 95 % interval.
    kappa, kappa_low, kappa_high: Cohen's kappa with the bootstrap 95 % interval over verdicts; nan if all verdicts of a side
        are the same.
    """

    compared: str
    counts: dict[tuple[bool, bool], int]
    rate: float
    low: float
    high: float
    kappa: float
    kappa_low: float
    kappa_high: float

    @property
    def verdicts(self) -> int:
        return sum(self.counts.values())


def hand_agreement(store: Store) -> list[HandAgreement]:
    """The comparisons that have a verdict, in the order of `COMPARED`."""
    rows = store.query(_SQL).drop_nulls()
    return [
        compare(name, group["keeps"].to_list(), group["passes"].to_list())
        for name in COMPARED
        if (group := rows.filter(compared=name)).height
    ]


def compare(name: str, keeps: Sequence[bool], passes: Sequence[bool]) -> HandAgreement:
    """keeps: what a person said of each item; passes: what was decided without them."""
    agreed = sum(person == other for person, other in zip(keeps, passes, strict=True))
    pairs = [(bool(person), bool(other)) for person, other in zip(keeps, passes, strict=True)]
    low, high = wilson(agreed, len(pairs))
    has_kappa = len(set(keeps)) == len(set(passes)) == 2
    kappa = cohens_kappa(keeps, passes) if has_kappa else math.nan
    kappa_low, kappa_high = _bootstrap(np.array([2 * person + other for person, other in pairs])) if has_kappa else (math.nan, math.nan)
    counts = {(person, other): pairs.count((person, other)) for person in (True, False) for other in (True, False)}
    return HandAgreement(name, counts, agreed / len(pairs), low, high, kappa, kappa_low, kappa_high)


def _bootstrap(cells: np.ndarray[tuple[int], np.dtype[np.int64]]) -> tuple[float, float]:
    """The middle 95 % of kappa over resamples of the verdicts; nan if most of these have none. cells: 2 x person keeps + other passes."""
    shares = np.bincount(cells, minlength=4) / cells.size
    drawn = np.random.default_rng(_SEED).multinomial(cells.size, shares, RESAMPLES) / cells.size
    observed, keeps, passes = drawn[:, 0] + drawn[:, 3], drawn[:, 2] + drawn[:, 3], drawn[:, 1] + drawn[:, 3]
    chance = keeps * passes + (1 - keeps) * (1 - passes)
    kappas = ((observed - chance) / np.where(chance < 1, 1 - chance, 1.0))[chance < 1]
    if kappas.size < RESAMPLES / 2:
        return math.nan, math.nan
    low, high = np.quantile(kappas, [0.025, 0.975])
    return float(low), float(high)

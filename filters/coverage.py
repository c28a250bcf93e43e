"""Coverage: from everything executable to a shortlist of at most ten times the target, in the order in which admission tries it.

One idea: a *stratum* is a static difficulty (with the learnable worlds' rows apart, so that a small policy gets its share), with a quota
of the target (P6). Inside a stratum rare combinations come first: rows are ranked in tiers by how many rows share their combination of
intent, slot names and plan shape; damaged rows (`quality.is_odd`) count among the commonest, because a slot that a typo has lost looks
rare. Inside a tier intents take turns by the square root of their size (P5), and an intent's rows come in k-center greedy order over
sentence vectors, after the farthest few are set aside, because k-center loves outliers.
Everything is deterministic; at most `max_encoded` rows are encoded, the first of every stratum in proportion to its quota: where these
are fewer than the shortlist, the rest of it follows unspread.

What it does not do: execute anything (`admit.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from filters.quality import is_odd
from synth.worlds import WorldName

Vectors = NDArray[np.float32]
Encode = Callable[[Sequence[str]], Vectors]

QUOTAS: Mapping[int, float] = {-1: 0.05, 0: 0.05, 1: 0.10, 2: 0.20, 3: 0.25, 4: 0.20, 5: 0.15}
"""Shares of the target by difficulty (P6; its tenth for -1 and 0 is halved between them)."""
TIERS = (5, 50, 500)
"""Upper ends of the rarity tiers, in rows of the log that ask in a combination."""


class CoverageConfig(BaseModel):
    """How many rows are kept, and of which kind."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    keep: int = Field(100, ge=1, description="Tasks wanted in the end.")
    shortlist: float = Field(8.0, ge=1, le=10, description="Rows on the shortlist for every task wanted: what admission may draw on.")
    learnable_worlds: tuple[WorldName, ...] = Field(("retail",), description="Worlds whose easy tasks the policy in training can learn.")
    learnable_difficulty: int = Field(3, ge=0, le=5, description="Up to this difficulty a row of these worlds counts as learnable.")
    learnable_share: float = Field(
        0.45, ge=0, le=1, description="Share of the target that is reserved for learnable rows, if there are so many."
    )
    max_encoded: int = Field(3000, ge=0, le=20_000, description="Rows that are encoded at most, over all strata.")
    outliers: float = Field(
        0.005, ge=0, lt=0.5, description="Share of a stratum's encoded rows, the farthest from its mean, that come last."
    )


def quotas(available: Mapping[tuple[int, bool], int], config: CoverageConfig) -> dict[tuple[int, bool], int]:
    """Tasks wanted of each stratum (difficulty, is learnable); they add up to `keep` unless there are fewer rows.

    A stratum with fewer rows than its quota gives the rest to the others in proportion.
    """
    easy = [level for level in QUOTAS if 1 <= level <= config.learnable_difficulty]
    easy_share = sum(QUOTAS[level] for level in easy)
    inside = min(1.0, config.learnable_share / easy_share) if easy_share else 0.0
    wanted: dict[tuple[int, bool], float] = {}
    for level, share in QUOTAS.items():
        learnable = inside if level in easy else 0.0
        wanted[level, True], wanted[level, False] = share * learnable, share * (1 - learnable)
    granted = dict.fromkeys(wanted, 0)
    left = config.keep
    while left and (open_strata := {stratum: share for stratum, share in wanted.items() if available.get(stratum, 0) > granted[stratum]}):
        if not any(open_strata.values()):
            open_strata = dict.fromkeys(open_strata, 1.0)
        for stratum, count in _largest_remainder(open_strata, left).items():
            granted[stratum] += min(count, available.get(stratum, 0) - granted[stratum])
        left = config.keep - sum(granted.values())
    return {stratum: count for stratum, count in granted.items() if count}


def step(rows: pl.DataFrame, config: CoverageConfig, encode: Encode) -> pl.DataFrame:
    """Adds stratum_rank (Int32, from 0 within a stratum) to the rows of the shortlist; all others get the reason `not_shortlisted`.

    Args:
        rows: columns row, norm, language, residue, world, intent, quality, difficulty, asked (rows of the log, duplicates included, that
            share the combination of intent, slot names and plan shape).
        encode: texts -> unit vectors, float32 [n, d].
    """
    rarity = pl.when(is_odd(rows)).then(pl.lit(TIERS[-1] + 1)).otherwise(pl.col("asked"))
    pool = rows.select(
        "row", "norm", "intent", "world", "quality", "difficulty",
        is_learnable=pl.col("world").is_in(config.learnable_worlds) & pl.col("difficulty").is_between(1, config.learnable_difficulty),
        tier=pl.sum_horizontal([(rarity > end).cast(pl.Int8) for end in TIERS]),
    )  # fmt: skip
    groups = {
        (int(level), bool(learnable)): group
        for (level, learnable), group in pool.group_by("difficulty", "is_learnable", maintain_order=True)
    }
    wanted = quotas({stratum: group.height for stratum, group in groups.items()}, config)
    ranked = [_ranked(groups[stratum], wanted[stratum], config, encode) for stratum in sorted(wanted)]
    ranks = pl.concat(ranked) if ranked else pl.DataFrame(schema={"row": rows.schema["row"], "stratum_rank": pl.Int32})
    return rows.join(ranks, on="row", how="left", maintain_order="left").with_columns(
        reason=pl.when(pl.col("stratum_rank").is_null()).then(pl.lit("not_shortlisted"))
    )


def _ranked(group: pl.DataFrame, wanted: int, config: CoverageConfig, encode: Encode) -> pl.DataFrame:
    """row and stratum_rank of a stratum's shortlist."""
    size = math.ceil(wanted * config.shortlist)
    budget = config.max_encoded * wanted // config.keep
    counted = group.with_columns(peers=pl.len().over("tier", "world", "intent"))
    candidates = _taking_turns(counted.sort("tier", pl.col("quality").neg(), "row")).head(max(size, budget))
    if budget:
        candidates = pl.concat([_spread(candidates[:budget], config.outliers, encode), candidates[budget:]])
    return _taking_turns(candidates).head(size).with_row_index("stratum_rank").select("row", pl.col("stratum_rank").cast(pl.Int32))


def _taking_turns(ordered: pl.DataFrame) -> pl.DataFrame:
    """Keeps the tiers' order; inside a tier, intents take turns by the square root of their size (`peers`), each in its given order."""
    turn = pl.int_range(pl.len()).over("tier", "world", "intent") / pl.col("peers").sqrt()
    return ordered.with_columns(turn=turn, place=pl.int_range(pl.len())).sort("tier", "turn", "place").drop("turn", "place")


def _spread(candidates: pl.DataFrame, outliers: float, encode: Encode) -> pl.DataFrame:
    """Orders each tier k-center greedily; the farthest rows go to the tier's end."""
    vectors = encode(candidates["norm"].to_list())
    order: list[int] = []
    for (_,), places in candidates.with_row_index("place").group_by("tier", maintain_order=True):
        members = places["place"].to_numpy()
        order += [int(members[chosen]) for chosen in k_center(vectors[members], outliers)]
    return candidates[order]


def k_center(vectors: Vectors, outliers: float = 0.0) -> list[int]:
    """All rows in k-center greedy order: the medoid first, then always the row farthest from those before; ties go to the lower index.

    Args:
        vectors: unit rows, [n, d]. outliers: this share of the rows, the farthest from the mean, is put last (in order of distance).
    """
    count = len(vectors)
    if count == 0:
        return []
    nearness = vectors @ vectors.mean(axis=0)
    far = np.argsort(nearness, kind="stable")[: int(count * outliers)]
    is_open = np.ones(count, dtype=bool)
    is_open[far] = False
    chosen = [int(np.argmax(np.where(is_open, nearness, -np.inf)))]
    closest = np.full(count, -np.inf, dtype=np.float32)
    for _ in range(int(is_open.sum()) - 1):
        is_open[chosen[-1]] = False
        closest = np.maximum(closest, vectors @ vectors[chosen[-1]])
        chosen.append(int(np.argmin(np.where(is_open, closest, np.inf))))
    return chosen + [int(row) for row in far[::-1]]


def _largest_remainder(shares: Mapping[tuple[int, bool], float], total: int) -> dict[tuple[int, bool], int]:
    """Whole numbers in proportion to the shares that add up to `total`; ties go to the first."""
    scale = total / sum(shares.values())
    floors = {stratum: math.floor(share * scale) for stratum, share in shares.items()}
    by_remainder = sorted(shares, key=lambda stratum: floors[stratum] - shares[stratum] * scale)
    for stratum in by_remainder[: total - sum(floors.values())]:
        floors[stratum] += 1
    return floors

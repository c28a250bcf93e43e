"""Coverage: selects a pool of rows to encode (`pool`), and from it a shortlist in the order in which admission tries rows (`shortlist`).

Quotas. A *stratum* is a level: static difficulty, or the measured one (`measured_level.py`); rows of learnable worlds have strata of their
own, so that a small policy gets its share. Each stratum has a quota of the target (P6). Each leaf of the taxonomy has a quota too, by the
square root of its size, but at least a floor (P5). `allot_leaves` combines both to the number of rows of each leaf in a stratum: first rows
of rare combinations, then rows of the leaves that lack most.

Order inside a leaf. Tiers come first: a row's tier is the number of rows with the same combination of intent, slot names and plan shape.
Damaged rows (`quality.is_odd`) are in the last tier, because a typo that destroys a slot makes a combination look rare. Inside a tier,
intents take turns by the square root of their size. The rows of an intent come in k-center greedy order over sentence vectors; the
outliers of the stratum come last, because k-center would choose them first.

With `focus`, levels are measured where there is data, and the intents at which the last policy fails
(`synth/run/evolution/failure_targeting.py`) weigh up to twice as much in the share of their leaf and in the turns of intents. Quotas of
strata and the order of tiers do not change. Rows without a frame are kept if admission makes fewer tasks than the target. The pool takes
one row of each pattern (`filters/requests/patterns.py`) before the second of any; the shortlist takes rows evenly over topics, in the
order of `rank_topics.py`. k-center costs rows times selected rows, so it runs on one intent at a time, and on parts of a large intent. The
result is deterministic.

This module does not encode or execute anything (`admit.py` does).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeVar, cast

import numpy as np
import polars as pl
import polars_hash  # noqa: F401  (registers `nchash`)
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from filters.requests.patterns import patterns
from filters.requests.unlike_others import UNLIKE_OTHERS
from filters.step import Context, WholeStep
from filters.steps.quality import is_odd
from filters.steps.selection.encode import vectors_of
from synth.engines.encoder import Vectors
from synth.worlds import WorldName

Key = TypeVar("Key")

QUOTAS: Mapping[int, float] = {-1: 0.05, 0: 0.05, 1: 0.10, 2: 0.20, 3: 0.25, 4: 0.20, 5: 0.15}
"""Shares of the target by difficulty (P6; its tenth for -1 and 0 is halved between them)."""
TIERS = (5, 50, 500)
"""Upper ends of the rarity tiers: rows with the same combination, in a log of up to a million rows."""
MOST_ENCODED = 200_000
_ENCODED_A_TASK = 30
_IN_RESERVE = 2
"""Rows of a stratum without a quota that may replace rows of others."""
_SPREAD = 2_654_435_761
"""Factor of row numbers: rows sorted by the product modulo 2^32 come from all parts of the log."""
_MIN_TOPIC_ROWS = 3
"""Rows of the log from which a topic has an equal share; smaller ones share what is left."""
_LEAF_COLUMNS = ("leaf", "len", "rare", "size", "turns", "extra", "at")
PART = 5000
"""Most rows that one k-center run compares."""


class CoverageConfig(BaseModel):
    """How many rows are kept, and of which kind."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    keep: int = Field(100, ge=1, description="Tasks to keep.")
    shortlist: float = Field(8.0, ge=1, le=10, description="Rows that admission may choose from, as a multiple of `keep`.")
    learnable_worlds: tuple[WorldName, ...] = Field(("retail",), description="Worlds whose easy tasks a small policy can learn.")
    learnable_difficulty: int = Field(
        3, ge=0, le=5, description="Highest level (static difficulty; with `focus` measured) of a learnable row of these worlds."
    )
    learnable_share: float = Field(
        0.45, ge=0, le=1, description="Share of `keep` that is reserved for learnable rows, if there are enough."
    )
    max_encoded: int | None = Field(
        None,
        ge=1,
        le=MOST_ENCODED,
        description="Rows that are encoded and that the shortlist is drawn from, beside two of each stratum without a quota. "
        "null: 30 times `keep`.",
    )
    outliers: float = Field(
        0.005,
        ge=0,
        lt=0.5,
        description="Share of a stratum's rows that are chosen last, as outliers: those farthest from the mean of their intent.",
    )
    leaf_floor: float = Field(0.02, ge=0, le=1, description="Least share of `keep` for every leaf of the taxonomy that has enough rows.")
    rare_share: float = Field(
        0.75, ge=0, le=1, description="Largest share of `keep` that rare combinations of intent and slots fill first."
    )

    focus: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Weight of what the last policy fails or wavers at: an intent's quota grows by this times its urgency (0 to 1); 0 "
        "switches it off.",
    )

    @property
    def pool_rows(self) -> int:
        """Most rows of the pool."""
        return min(MOST_ENCODED, _ENCODED_A_TASK * self.keep) if self.max_encoded is None else self.max_encoded


def quotas(available: Mapping[tuple[int, bool], int], config: CoverageConfig) -> dict[tuple[int, bool], int]:
    """Target number of tasks of each stratum (level, is learnable); they add up to `keep` unless there are fewer rows.

    What a level with too few rows cannot fill goes to the others in proportion. Learnable rows take their share inside the easy levels;
    what they cannot fill goes to the other rows of the same level.
    """
    at_level = {level: available.get((level, False), 0) + available.get((level, True), 0) for level in QUOTAS}
    targets = _fill_quotas(QUOTAS, at_level, config.keep)
    easy = {level: QUOTAS[level] for level in targets if 1 <= level <= config.learnable_difficulty}
    room = {level: min(targets[level], available.get((level, True), 0)) for level in easy}
    learnable = _fill_quotas(easy, room, round(config.learnable_share * config.keep))
    granted = {}
    for level, target in targets.items():
        others = min(target - learnable.get(level, 0), available.get((level, False), 0))
        granted[level, True], granted[level, False] = target - others, others
    return {stratum: count for stratum, count in granted.items() if count}


def leaf_quotas(sizes: Mapping[str, float], available: Mapping[str, int], total: int, floor: int) -> dict[str, int]:
    """Rows of each leaf, k_b = max(floor, total * sqrt(n_b) / sum of sqrt(n)) (P5), at most the available ones; they add up to `total`
    unless there are fewer rows. If the floors alone exceed the total, they are lowered.

    Args:
        sizes: rows of each leaf in the log, times (1 + extra)^2.
        available: rows of each leaf that can still be taken.
    """
    floor = min(floor, total // max(len(sizes), 1))
    fixed: dict[str, int] = {}
    while True:
        shares = {leaf: math.sqrt(size) for leaf, size in sizes.items() if leaf not in fixed}
        granted = _fill_quotas(shares, available, total - sum(fixed.values()))
        low = {leaf: least for leaf in shares if granted.get(leaf, 0) < (least := min(floor, available.get(leaf, 0)))}
        if not low:
            return fixed | granted
        fixed |= low


def allot_leaves(strata: Mapping[tuple[int, bool], pl.DataFrame], config: CoverageConfig) -> dict[tuple[int, bool], dict[str, int]]:
    """The tasks of each stratum by leaf: stratum -> leaf -> count.

    Tasks are assigned one by one. The next task goes to the leaf that is farthest behind its quota and has a row in a stratum that is not
    full, and to the stratum among these that lacks most. Until `rare_share` of all tasks are assigned, only rows of the rarest tier count.

    Args:
        strata: rows of each, columns leaf, leaf_rows (rows of the leaf in the log), tier, peers, extra (that of a leaf is the mean of
            its intents', each by the square root of its size).
    """
    targets = quotas({stratum: rows.height for stratum, rows in strata.items()}, config)
    cells = [
        rows.with_columns(turns=1 / pl.col("peers").sqrt())
        .group_by("leaf")
        .agg(
            pl.len(),
            rare=(pl.col("tier") == 0).sum(),
            size=pl.col("leaf_rows").max(),
            turns=pl.col("turns").sum(),
            extra=(pl.col("turns") * pl.col("extra")).sum(),
        )
        .with_columns(at=pl.lit(at))
        for at, rows in enumerate(strata.values())
    ]
    table = pl.concat(cells) if cells else pl.DataFrame(schema=dict.fromkeys(_LEAF_COLUMNS, pl.Int64))
    weight = 1 + pl.col("extra").sum() / pl.col("turns").sum()
    leaves = table.group_by("leaf").agg(pl.col("size").max() * weight**2, pl.col("len").sum()).sort("leaf")
    names = leaves["leaf"].to_list()
    sizes, available = dict(zip(names, leaves["size"], strict=True)), dict(zip(names, leaves["len"], strict=True))
    quota = leaf_quotas(sizes, available, config.keep, _floor(config.keep, config))
    target = np.array([max(quota.get(name, 0), 0.5) for name in names])
    room = {kind: np.zeros((len(strata), len(names)), np.int64) for kind in ("rare", "len")}
    place = {name: at for at, name in enumerate(names)}
    for leaf, count, rare, at in table.select("leaf", "len", "rare", "at").iter_rows():
        room["len"][at, place[leaf]], room["rare"][at, place[leaf]] = count, rare
    lacking = np.array([targets.get(stratum, 0) for stratum in strata], np.int64)
    granted = np.zeros_like(room["len"])
    for kind, until in (("rare", int(config.rare_share * lacking.sum())), ("len", int(lacking.sum()))):
        while granted.sum() < until:
            is_open = (granted < room[kind]) & (lacking > 0)[:, None]
            if not is_open.any():
                break
            behind = np.where(is_open.any(axis=0), (granted.sum(axis=0) + 0.5) / target, np.inf)
            leaf_at = int(np.argmin(behind))
            stratum_at = int(np.argmax(np.where(is_open[:, leaf_at], lacking, -1)))
            granted[stratum_at, leaf_at] += 1
            lacking[stratum_at] -= 1
    return {
        stratum: {name: int(count) for name, count in zip(names, granted[at], strict=True) if count} for at, stratum in enumerate(strata)
    }


def pool(
    rows: pl.DataFrame, config: CoverageConfig, log_rows: int = 0, urgency: Mapping[tuple[str, str], float] | None = None
) -> pl.DataFrame:
    """Selects the pool: rows outside it get the reason `not_pooled`.

    Half of `pool_rows` is for rows with a frame, half for rows without one; what one half does not need goes to the other. Each stratum of
    rows with a frame gives its first rows, in proportion to its quota. A stratum without a quota gives up to `_IN_RESERVE` rows beyond
    `pool_rows`, because they may replace rows of other strata. The rows without a frame come from the whole log, the first of every
    pattern before the second of any.

    Adds these columns:
        tier: Int8, 0 for the rarest; null without a frame.
        peers: UInt32, rows of the same stratum, tier and intent; null without a frame.
        extra: Float64, what the row's intent gets beyond its quota, as a share of the quota.
        leaf_rows: UInt32, rows of the leaf that have a frame, or that have none, like this row.
        pattern: String, the words of a row without a frame; null with one.
        pattern_rows: UInt32, rows of the log with the pattern, duplicates included.

    Args:
        rows: columns row, text, frame_id, leaf, language, residue, world, intent, quality, level, masked, asked (rows of the log,
            duplicates included, that share the combination of intent, slot names and plan shape), represented (the row and its duplicates
            in the log).
        log_rows: number of rows of the log. The ends of the tiers are for a million rows, and grow in proportion in a larger log.
        urgency: by world and intent, in [0, 1], how urgent its rows are for the last policy; 0 for an intent that is missing.
    """
    is_framed = rows["frame_id"].is_not_null()
    rows = rows.with_columns(leaf_rows=pl.len().over("leaf", pl.col("frame_id").is_null()).cast(pl.UInt32))
    rows = _with_extra(rows, urgency or {}, config)
    framed, ungrounded = _assign_tiers(rows.filter(is_framed), config, max(1.0, log_rows / 1_000_000)), rows.filter(~is_framed)
    ungrounded = ungrounded.with_columns(patterns(ungrounded["masked"], ungrounded["text"])).with_columns(
        pattern_rows=pl.col("represented").sum().over("pattern").cast(pl.UInt32)
    )
    room = _fill_quotas({True: 1.0, False: 1.0}, {True: framed.height, False: ungrounded.height}, config.pool_rows)
    chosen_rows = []
    strata = _strata(framed)
    available = {stratum: group.height for stratum, group in strata.items()}
    allotment = allot_leaves(strata, config)
    counts = _fill_quotas(quotas(available, config), available, room.get(True, 0))
    for stratum in sorted(strata):
        ordered = strata[stratum].sort("tier", pl.col("quality").neg(), "row")
        chosen_rows.append(_interleave(ordered, allotment[stratum]).head(counts.get(stratum, _IN_RESERVE))["row"])
    ordered = ungrounded.sort(pl.col("row").cast(pl.UInt64) * _SPREAD % (1 << 32))
    first_of_pattern = ordered.sort(pl.int_range(pl.len()).over("pattern"), maintain_order=True)
    chosen_rows.append(first_of_pattern.head(room.get(False, 0))["row"])
    marks = pl.concat(
        [framed.select("row", "tier", pl.col("peers").cast(pl.UInt32)), ungrounded.select("row", "pattern", "pattern_rows")], how="diagonal"
    )
    return rows.join(marks, on="row", how="left", maintain_order="left").with_columns(
        reason=pl.when(~pl.col("row").is_in(pl.concat(chosen_rows).implode())).then(pl.lit("not_pooled"))
    )


def shortlist(rows: pl.DataFrame, vectors: Vectors, config: CoverageConfig) -> pl.DataFrame:
    """Adds stratum_rank (Int32, from 0 within a stratum) to the rows of the shortlist; all others get the reason `not_shortlisted`.

    Args:
        rows: remaining rows of the pool, with the columns that `pool` reads and adds, and those of `rank_topics.py`.
        vectors: of the rows' texts, unit rows [n, d].
    """
    placed = rows.with_row_index("place")
    is_framed = rows["frame_id"].is_not_null()
    ranked = []
    strata = _strata(_mark_learnable(placed.filter(is_framed), config))
    targets = quotas({stratum: group.height for stratum, group in strata.items()}, config)
    allotment = allot_leaves(strata, config)
    for stratum in sorted(strata):
        size = math.ceil(targets.get(stratum, _IN_RESERVE) * config.shortlist)
        ordered = _spread(strata[stratum], vectors, ["tier", "world", "intent"], size, config.outliers)
        ranked.append(_interleave(ordered, allotment[stratum]).head(size))
    ranks = [one.with_row_index("stratum_rank").select("row", pl.col("stratum_rank").cast(pl.Int32)) for one in ranked]
    ranks.append(_first_of_topics(rows.filter(~is_framed), "topic_rank", config.keep).select("row", stratum_rank="topic_rank"))
    empty = pl.DataFrame(schema={"row": rows.schema["row"], "stratum_rank": pl.Int32})
    return rows.join(pl.concat([empty, *ranks]), on="row", how="left", maintain_order="left").with_columns(
        reason=pl.when(pl.col("stratum_rank").is_null()).then(pl.lit("not_shortlisted"))
    )


def fill(rows: pl.DataFrame, count: int) -> pl.DataFrame:
    """Rows of the shortlist without a frame, after admission: keeps the first rows of every topic, `count` in all; others are
    `not_needed`. Columns row, topic, topic_rows, stratum_rank."""
    kept = _first_of_topics(rows, "stratum_rank", count)["row"]
    return rows.with_columns(reason=pl.when(~pl.col("row").is_in(kept.implode())).then(pl.lit("not_needed")))


def topic_quotas(rows: pl.DataFrame, total: int) -> dict[str, int]:
    """Rows of each topic to take, as even as there are rows; they add up to `total` unless there are fewer. Which topics get one more is
    drawn by a hash of their names, so large topics are not preferred. Topics with fewer than `_MIN_TOPIC_ROWS` rows of the log share what
    the others leave, and requests that are unlike others what these leave.

    rows: columns topic, topic_rows (rows of the log, duplicates included).
    """
    drawn = pl.col("topic").nchash.xxh3_64()  # type: ignore[attr-defined]
    sizes = rows.group_by("topic").agg(pl.col("topic_rows").first(), pl.len()).sort(drawn, "topic")
    available = dict(sizes.select("topic", "len").iter_rows())
    granted: dict[str, int] = {}
    is_unlike, is_large = pl.col("topic") == UNLIKE_OTHERS, pl.col("topic_rows") >= _MIN_TOPIC_ROWS
    for comes_next in (is_large & ~is_unlike, ~is_large & ~is_unlike, is_unlike):
        topics = sizes.filter(comes_next)["topic"]
        granted |= _share_evenly({topic: available[topic] for topic in topics}, total - sum(granted.values()))
    return granted


def _first_of_topics(rows: pl.DataFrame, rank: str, total: int) -> pl.DataFrame:
    quota = pl.col("topic").replace_strict(topic_quotas(rows, total), default=0, return_dtype=pl.Int64)
    return rows.filter(pl.col(rank) < quota)


def _with_extra(rows: pl.DataFrame, urgency: Mapping[tuple[str, str], float], config: CoverageConfig) -> pl.DataFrame:
    """Adds extra, in [0, 1]."""
    urgencies = [(world, intent, config.focus * value) for (world, intent), value in urgency.items()]
    extras = pl.DataFrame(urgencies, schema={"world": pl.String, "intent": pl.String, "extra": pl.Float64}, orient="row")
    return rows.join(extras, on=["world", "intent"], how="left", maintain_order="left").with_columns(pl.col("extra").fill_null(0.0))


def _mark_learnable(rows: pl.DataFrame, config: CoverageConfig) -> pl.DataFrame:
    is_easy = pl.col("level").is_between(1, config.learnable_difficulty)
    return rows.with_columns(is_learnable=pl.col("world").is_in(config.learnable_worlds) & is_easy)


def _assign_tiers(rows: pl.DataFrame, config: CoverageConfig, millions: float) -> pl.DataFrame:
    """Rows with a frame, with is_learnable, tier and peers."""
    rarity = pl.when(is_odd(rows)).then(pl.lit(TIERS[-1] + 1)).otherwise(pl.col("asked") / millions)
    tiered = _mark_learnable(rows, config).with_columns(tier=pl.sum_horizontal([(rarity > end).cast(pl.Int8) for end in TIERS]))
    return tiered.with_columns(peers=pl.len().over("level", "is_learnable", "tier", "world", "intent"))


def _strata(rows: pl.DataFrame) -> dict[tuple[int, bool], pl.DataFrame]:
    """The rows of each stratum (level, is learnable), in their order."""
    groups = rows.group_by("level", "is_learnable", maintain_order=True)
    return {cast(tuple[int, bool], stratum): group for stratum, group in groups}


def _interleave(ordered: pl.DataFrame, allotment: Mapping[str, int]) -> pl.DataFrame:
    """Interleaves the leaves of a stratum by their allotment, those without any last. Inside a leaf the tiers keep their order, and inside
    a tier intents take turns by the square root of their size (`peers`), and what they get beyond it (`extra`), each in its order."""
    turn = pl.int_range(pl.len()).over("tier", "world", "intent") / (pl.col("peers").sqrt() * (1 + pl.col("extra")))
    inside = ordered.with_columns(turn=turn, place_in=pl.int_range(pl.len())).sort("tier", "turn", "place_in")
    share = pl.col("leaf").replace_strict(allotment, default=0, return_dtype=pl.Int64)
    nth = pl.int_range(pl.len()).over("leaf") + 0.5
    order = pl.when(share > 0).then(nth / share).otherwise(nth + pl.len())
    return inside.with_columns(turn=order, place_in=pl.int_range(pl.len())).sort("turn", "place_in").drop("turn", "place_in")


def _floor(total: int, config: CoverageConfig) -> int:
    return max(1, int(config.leaf_floor * total)) if config.leaf_floor else 0


def _spread(stratum: pl.DataFrame, vectors: Vectors, by: list[str], count: int, outliers: float) -> pl.DataFrame:
    """The stratum's rows group by group, the first `count` of each in k-center greedy order; rows that are farther from the mean of their
    group than this share of the stratum come last in it. `place` is a row's place in `vectors`."""
    groups = [group["place"].to_numpy() for _, group in stratum.sort("place").group_by(by, maintain_order=True)]
    nearness = [vectors[places] @ vectors[places].mean(axis=0) for places in groups]
    far_count = int(stratum.height * outliers)
    limit = np.sort(np.concatenate(nearness))[far_count] if groups else 0.0
    order: list[int] = []
    for places, near in zip(groups, nearness, strict=True):
        is_far = near < limit
        inside = places[~is_far]
        order += inside[k_center(vectors[inside], count)].tolist()
        order += places[is_far][np.argsort(-near[is_far], kind="stable")].tolist()
    rank = pl.DataFrame({"place": pl.Series(order, dtype=stratum.schema["place"])})
    return rank.join(stratum, on="place", how="left", maintain_order="left")


def k_center(vectors: Vectors, count: int | None = None) -> NDArray[np.int64]:
    """The first `count` rows (all by default) in k-center greedy order: the medoid, then always the row farthest from those before; ties
    go to the lower index. More rows than `PART` are halved along their longest axis until they are fewer, and the parts take turns.

    Args:
        vectors: unit rows, [n, d].
    """
    target = len(vectors) if count is None else min(count, len(vectors))
    if target == 0:
        return np.empty(0, np.int64)
    parts = _parts(vectors, np.arange(len(vectors)))
    share = math.ceil(target / len(parts)) + 1  # halves differ by a row
    orders = [part[_greedy(vectors[part], min(share, len(part)))] for part in parts]
    turns = np.concatenate([np.arange(len(order)) for order in orders])
    merged: NDArray[np.int64] = np.concatenate(orders)[np.argsort(turns, kind="stable")][:target]
    return merged


def _parts(vectors: Vectors, places: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Halves of halves, none larger than `PART`: each cut lies across the line between two far rows."""
    if len(places) <= PART:
        return [places]
    here = vectors[places]
    one = here[np.argmin(here @ here.mean(axis=0))]
    other = here[np.argmin(here @ one)]
    order = np.argsort(here @ (one - other), kind="stable")
    half = len(places) // 2
    return _parts(vectors, np.sort(places[order[:half]])) + _parts(vectors, np.sort(places[order[half:]]))


def _greedy(vectors: Vectors, count: int) -> list[int]:
    centres = [int(np.argmax(vectors @ vectors.mean(axis=0)))]
    closest = np.full(len(vectors), -np.inf, dtype=np.float32)
    for _ in range(count - 1):
        np.maximum(closest, vectors @ vectors[centres[-1]], out=closest)
        closest[centres[-1]] = np.inf
        centres.append(int(np.argmin(closest)))
    return centres


def _fill_quotas(shares: Mapping[Key, float], available: Mapping[Key, int], total: int) -> dict[Key, int]:
    """`total` in proportion to the shares, none beyond what is available: what one cannot take, the others do. None that gets nothing."""
    granted = dict.fromkeys(shares, 0)
    left = total
    while left and (open_shares := {key: share for key, share in shares.items() if available.get(key, 0) > granted[key]}):
        if not any(open_shares.values()):
            open_shares = dict.fromkeys(open_shares, 1.0)
        for key, count in _largest_remainder(open_shares, left).items():
            granted[key] += min(count, available.get(key, 0) - granted[key])
        left = total - sum(granted.values())
    return {key: count for key, count in granted.items() if count}


def _share_evenly(available: Mapping[str, int], total: int) -> dict[str, int]:
    """`total` in equal parts, none beyond what is available; the first get one more."""
    granted, left = dict.fromkeys(available, 0), min(total, sum(available.values()))
    while left:
        open_keys = [key for key in available if available[key] > granted[key]]
        share = max(1, left // len(open_keys))
        for key in open_keys[:left]:
            granted[key] += min(share, available[key] - granted[key])
        left = min(total, sum(available.values())) - sum(granted.values())
    return granted


def _largest_remainder(shares: Mapping[Key, float], total: int) -> dict[Key, int]:
    """Whole numbers in proportion to the shares that add up to `total`; ties go to the first."""
    scale = total / sum(shares.values())
    floors = {key: math.floor(share * scale) for key, share in shares.items()}
    by_remainder = sorted(shares, key=lambda key: floors[key] - shares[key] * scale)
    for key in by_remainder[: total - sum(floors.values())]:
        floors[key] += 1
    return floors


def _shortlist(rows: pl.DataFrame, config: CoverageConfig, _: Context) -> pl.DataFrame:
    return shortlist(rows.drop("vector"), vectors_of(rows), config)


STEP = WholeStep(
    name="coverage",
    needs=(
        *("frame_id", "leaf", "language", "world", "intent", "level"),
        *("tier", "peers", "extra", "leaf_rows", "vector", "topic", "topic_rows", "topic_rank"),
    ),
    adds=("stratum_rank",),
    reasons=("not_shortlisted",),
    soft=("not_shortlisted",),
    config=CoverageConfig,
    function=_shortlist,
)

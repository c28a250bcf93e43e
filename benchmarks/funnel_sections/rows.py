"""The rows that the funnel's benchmark measures on, and what is known of them: generated logs, and what reaches a step of the funnel.

`log` is a generated log with its plants (`synth/haystack/generate.py`). `near_rows` are the first so many rows of a log as the near step
gets them: distinct normalised texts that passed the rules, with the planted pairs among them. Recall and lost needs are counted from the
positions that are left of them, so they can be told of any deduplicator. What was made lies under `.cache/bench/funnel/` and is used again;
nothing in it depends on the code that is measured, except the texts.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import resource
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.harness import ROOT, Figures, code_mark

KEPT = ROOT / ".cache" / "bench" / "funnel"
WORK = KEPT / code_mark()
"""What depends on the code; that of other code is removed."""
LOG_ROWS_A_NEAR_ROW = 1.75
"""So many rows of a log are needed for one that reaches the near step (1.64 at a million rows, 1.71 at ten million)."""
_BATCH = 125_000
SHORT_BYTES, LONG_BYTES = 60, 120
"""Bands of length, by the bytes of a pair's shorter text."""


def log(rows: int, keep: int, seed: int = 0, families: Path | None = None) -> tuple[Path, Path]:
    """A generated log and its plants: made in a process of its own where they are not there."""
    from synth.haystack.generate import HaystackConfig, generate

    name = f"log-{rows}-{keep}-{seed}" + (f"-{families.stem}" if families else "")
    return alone(generate, KEPT / name, HaystackConfig(rows=rows, seed=seed), keep, families)


def alone(call: Callable[..., Any], *given: Any) -> Any:
    """What the call returns in a fresh process, which takes its memory with it."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(call, *given).result()


def kept_json(path: Path, measure: Callable[[], Figures]) -> Figures:
    """A piece of a section: the figures as kept under this path, else measured now and kept."""
    if path.exists():
        return dict(json.loads(path.read_text()))
    found = measure()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found))
    return found


# ---- what reaches a step ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rows:
    """Parquet files. rows: row (number in the log), norm, language, frame (null: junk). pairs: first, second (positions in `rows`),
    jaccard: planted near pairs that are both there."""

    rows: Path
    pairs: Path


def near_rows(count: int) -> Rows:
    found = Rows(WORK / f"near-{count}.parquet", WORK / f"near-{count}-pairs.parquet")
    if not found.pairs.exists():
        queries, plants = log(math.ceil(count * LOG_ROWS_A_NEAR_ROW / 1000) * 1000, keep=100)
        alone(_prepare_near, queries, plants, count, found)
    return found


def _prepare_near(queries: Path, plants: Path, count: int, out: Rows) -> None:
    from filters import normalised_text
    from filters.step import alive
    from filters.steps import rules

    texts = pl.read_parquet(queries, columns=["text"]).with_row_index("row")
    rows = pl.concat([normalised_text.step(part).select("row", "norm", "language") for part in texts.iter_slices(_BATCH)])
    group = rows.select(pl.col("row").min().over("norm")).to_series().to_numpy()
    firsts = rows.filter(pl.col("row") == pl.Series(group))
    rows = alive(pl.concat([rules.step(part, rules.RulesConfig()) for part in firsts.iter_slices(_BATCH)])).head(count)
    if rows.height < count:
        raise ValueError(f"only {rows.height} rows of {queries} reach the near step; raise LOG_ROWS_A_NEAR_ROW")
    planted = pl.read_parquet(plants, columns=["row", "kind", "frame", "twin"])
    out.rows.parent.mkdir(parents=True, exist_ok=True)
    rows = rows.with_columns(frame=planted["frame"].gather(rows["row"]))
    rows.write_parquet(out.rows)
    _near_pairs(rows, planted, group).write_parquet(out.pairs)


def _near_pairs(rows: pl.DataFrame, planted: pl.DataFrame, group: np.ndarray[Any, Any]) -> pl.DataFrame:
    """The planted near pairs, each text as the first row of its exact group."""
    from filters.dedup.minhash import jaccard

    place = np.full(group.size, -1, np.int64)
    place[rows["row"].to_numpy()] = np.arange(rows.height)
    near = planted.filter(kind="near")
    at = [place[group[near[name].to_numpy()]] for name in ("row", "twin")]
    pairs = pl.DataFrame({"first": np.minimum(*at), "second": np.maximum(*at)}).unique().sort("first", "second")
    pairs = pairs.filter((pl.col("first") >= 0) & (pl.col("first") != pl.col("second")))
    texts = zip(rows["norm"].gather(pairs["first"]), rows["norm"].gather(pairs["second"]), strict=True)
    return pairs.with_columns(jaccard=pl.Series([jaccard(one, two) for one, two in texts], dtype=pl.Float64))


def unmasked_rows(count: int) -> Path:
    """norm: the first so many distinct normalised texts of a log as the rules meet them, personal data not yet masked."""
    from filters.normalised_text import normalise_text

    path = WORK / f"unmasked-{count}.parquet"
    if not path.exists():
        queries, _ = log(math.ceil(count * LOG_ROWS_A_NEAR_ROW / 1000) * 1000, keep=100)
        texts = pl.read_parquet(queries, columns=["text"]).select(norm=normalise_text(pl.col("text")))
        path.parent.mkdir(parents=True, exist_ok=True)
        texts.unique(maintain_order=True).head(count).write_parquet(path)
    return path


# ---- what a deduplicator left -------------------------------------------------------------------------------------------------


def near_left(found: Rows) -> tuple[list[int], float, float]:
    """What the near step leaves of rows, as the funnel runs it (guards on), in a process of its own: positions, CPU seconds, the process's
    peak in GiB."""
    return alone(_near_left, found)  # type: ignore[no-any-return]


def _near_left(found: Rows) -> tuple[list[int], float, float]:
    from benchmarks.funnel_sections.contestants import cpu_s, headrace_guarded

    work = headrace_guarded()
    texts = pl.read_parquet(found.rows, columns=["norm"])["norm"].to_list()
    work(texts[:100])
    before = cpu_s()
    left = work(texts)
    return list(left), cpu_s() - before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def recall(found: Rows, left: Sequence[int], rows: int | None = None) -> Figures:
    """Shares of the planted pairs of true Jaccard >= 0.7 (among the first `rows`) of which at most one is left: of all, by language of
    the first, and by length of the shorter. nan where there is no such pair."""
    table = pl.read_parquet(found.rows, columns=["norm", "language"]).select("language", size=pl.col("norm").str.len_bytes())
    is_left = np.zeros(table.height, bool)
    is_left[np.asarray(left, np.int64)] = True
    pairs = pl.read_parquet(found.pairs).filter((pl.col("jaccard") >= 0.7) & (pl.col("second") < (rows or table.height)))
    first, second = pairs["first"], pairs["second"]
    is_found = pl.Series(~(is_left[first.to_numpy()] & is_left[second.to_numpy()]))
    size = pl.select(pl.min_horizontal(table["size"].gather(first), table["size"].gather(second))).to_series()
    language = table["language"].gather(first)
    groups = {
        "": pl.repeat(True, pairs.height, eager=True),
        "_en": language == "en",
        "_zh": language == "zh",
        "_short": size < SHORT_BYTES,
        "_medium": (size >= SHORT_BYTES) & (size < LONG_BYTES),
        "_long": size >= LONG_BYTES,
    }
    return {f"pair_recall{name}": _mean(is_found.filter(chosen)) for name, chosen in groups.items()}


def _mean(shares: pl.Series) -> float:
    return float(shares.cast(pl.Float64).mean() or 0.0) if len(shares) else math.nan  # type: ignore[arg-type]


def needs_lost(found: Rows, left: Sequence[int], rows: int | None = None) -> float:
    """Share of the planted frames among the first `rows` of which no row is left."""
    frames = pl.read_parquet(found.rows, columns=["frame"])["frame"].head(rows or 2**31)
    return 1 - frames.gather(left).drop_nulls().n_unique() / frames.drop_nulls().n_unique()

"""What the funnel keeps of a log about ten worlds without a lexicon, in wordings that the reader's author has not seen.

The log is generated (`synth/haystack/generate.py`) from `spec_wordings.yaml`: 16 intents of each of eight worlds of the library and two
generated ones, in three English and two Chinese wordings each. They were written from what the intents and slots mean, without a look at
the reader, its words, or the worlds' own wordings; never tune the reader to them. One row in 2,000 is kept. Needles are requests of
combinations with at most five rows; these intents have rare combinations at some levels of difficulty only, while the funnel keeps rows of
all levels.

spec_needle_hit_share: share of the kept rows that are needles, at the levels of difficulty that needles have.
spec_frame_precision: share of the kept rows whose intent is the one that the row was made of.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl

from benchmarks.funnel_sections.rows import KEPT, alone
from benchmarks.harness import ROOT, Deadline, Figures

KEYS = ("spec_needle_hit_share", "spec_frame_precision")
MINUTES = 6
ROWS, ONE_IN = 200_000, 2_000
WORDINGS = ROOT / "benchmarks" / "ground_sections" / "spec_wordings.yaml"
WORLDS = ("banking", "clinic", "helpdesk", "hotel", "library", "logistics", "school", "telecom", "gen-3", "gen-7")


def measure(deadline: Deadline) -> Figures:
    from synth.haystack.generate import HaystackConfig, generate

    deadline.allows(MINUTES)
    config = HaystackConfig(rows=ROWS, worlds=WORLDS, only_worded=True)
    queries, plants = alone(generate, KEPT / f"specs-{ROWS}", config, ROWS // ONE_IN, WORDINGS)
    found: Figures = alone(_curated, queries, plants)
    return found


def _curated(queries: Path, plants: Path) -> Figures:
    from filters.funnel import FunnelConfig, curate
    from storage.store import Store

    with TemporaryDirectory() as folder:
        store = Store(Path(folder) / "store")
        result = curate(store, [queries], FunnelConfig(keep_one_in=ONE_IN, worlds=WORLDS))
        frames = store.query(
            "SELECT q.row, f.world, f.intent, f.difficulty, f.status FROM frames f JOIN queries q USING (query_id, run) "
            "WHERE f.frame_id IS NOT NULL"
        )
    planted = pl.read_parquet(plants, columns=["row", "kind", "world", "intent", "difficulty"])
    needles = planted.filter(kind="needle")
    rows = frames.join(planted.select(pl.col("row").cast(frames["row"].dtype), "kind", asked="intent", of="world"), on="row")
    rows = rows.with_columns(
        is_needle=pl.col("kind") == "needle", is_right=(pl.col("intent") == pl.col("asked")) & (pl.col("world") == pl.col("of"))
    )
    kept = rows.filter(status="admitted")
    levels = kept.filter(pl.col("difficulty").is_in(needles["difficulty"].unique().to_list()))
    print(result.funnel.select("step", "rows_in", "kept", "seconds").rows(), flush=True)
    print(f"    {needles.height} needles, {rows['is_needle'].sum()} with a frame; kept by level and kind:", flush=True)
    print(f"    {sorted(kept.group_by('difficulty', 'is_needle').len().iter_rows())}", flush=True)
    return {
        "spec_needle_hit_share": float(levels["is_needle"].mean() or 0.0),
        "spec_frame_precision": float(kept["is_right"].mean() or 0.0),
    }

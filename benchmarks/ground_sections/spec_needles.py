"""What the funnel keeps of a log about ten worlds without a lexicon, in wordings that the reader's author has not seen.

The log is generated (`synth/haystack/generate.py`) from `spec_wordings.yaml`: 16 intents of each of eight worlds of the library and two
generated ones, in three English and two Chinese wordings each. They were written from what the intents and slots mean, without a look at
the reader, its words, or the worlds' own wordings; never tune the reader to them.

spec_needle_hit_share: share of the kept rows that are needles, of one row in 10,000.
spec_frame_precision: share of the kept rows whose frame is the one that the log was made from: world, intent, and slots that are named.
"""

from __future__ import annotations

import polars as pl

from benchmarks.funnel_sections.rows import KEPT, alone
from benchmarks.funnel_sections.scale import ONE_IN, curated
from benchmarks.harness import ROOT, Deadline, Figures

KEYS = ("spec_needle_hit_share",)
MINUTES = 6
ROWS = 1_000_000
WORDINGS = ROOT / "benchmarks" / "ground_sections" / "spec_wordings.yaml"
WORLDS = ("banking", "clinic", "helpdesk", "hotel", "library", "logistics", "school", "telecom", "gen-3", "gen-7")


def measure(deadline: Deadline) -> Figures:
    from synth.haystack.generate import HaystackConfig, generate

    deadline.allows(MINUTES)
    config = HaystackConfig(rows=ROWS, worlds=WORLDS, only_worded=True)
    queries, plants = alone(generate, KEPT / f"specs-{ROWS}", config, ROWS // ONE_IN, WORDINGS)
    needles = pl.read_parquet(plants)["kind"].eq("needle").sum()
    run = curated("specs", queries, plants, {"keep_one_in": ONE_IN, "worlds": WORLDS})
    print(f"    {needles:,} needles in {ROWS:,} rows; {run['wall_s']:.0f} s", flush=True)
    return {"spec_needle_hit_share": run["hit_share"]}

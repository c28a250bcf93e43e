"""The whole funnel over ten million generated rows, read in twelve worlds: two with a lexicon, eight of the library, two generated.

The log (`funnel_sections/rows.py`) is about the city and the shop; the other worlds find nothing there, but are looked for in every row.

ten_million_wall_s, ten_million_peak_gib: of the run, start and imports included.
city_retail_needle_hit_share: share of the kept rows that are needles.
"""

from __future__ import annotations

from benchmarks.funnel_sections.rows import log
from benchmarks.funnel_sections.scale import ONE_IN, curated
from benchmarks.ground_sections.near_misses import WORLDS as LIBRARY
from benchmarks.harness import Deadline, Figures

KEYS = ("ten_million_wall_s", "ten_million_peak_gib", "city_retail_needle_hit_share")
MINUTES = 20
ROWS = 10_000_000
WORLDS = ("city", "retail", *LIBRARY, "gen-1", "gen-2")


def measure(deadline: Deadline) -> Figures:
    deadline.allows(MINUTES)
    run = curated("twelve-worlds", *log(ROWS, ROWS // ONE_IN, 0), {"keep_one_in": ONE_IN, "worlds": WORLDS})
    figures = {"ten_million_wall_s": run["wall_s"], "ten_million_peak_gib": run["peak_gib"]}
    return figures | {"city_retail_needle_hit_share": run["hit_share"]}

"""The funnel at scale: compared with other libraries; recall and losses; cost up to ten million rows; quality of the kept rows.

peers   `peers.py`: the near step and the rules against other libraries
near    planted pairs that are found, needs that are lost, at this step alone, at 700 thousand and 7 million distinct rows
front   CPU time a row of the log until the near step is done (reading, normalise, exact, rules, near), on three million rows
ray     `ray_cluster.py`: a million rows on Ray and on threads
scale   `scale.py`: whole runs from 100,000 rows to ten million: cost, growth, needles, coverage

`.cache/bench/funnel/` has the files kept between calls: generated logs and, in a folder named after the code, finished pieces.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from benchmarks.funnel_sections import peers, ray_cluster, scale
from benchmarks.funnel_sections.rows import KEPT, WORK, alone, kept_json, log, near_left, near_rows, needs_lost, recall
from benchmarks.harness import Deadline, Figures, Section, run_sections

RECALL = ("pair_recall", "pair_recall_en", "pair_recall_zh", "pair_recall_short", "pair_recall_medium", "pair_recall_long")
FRONT_ROWS = 3_000_000


def main() -> int:
    if sys.argv[1:2] == ["--curate"]:
        scale.curate_alone(Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4])
        return 0
    if sys.argv[1:2] in (["--on-threads"], ["--on-ray"]):
        ray_cluster.curate_on(sys.argv[1].removeprefix("--on-"), Path(sys.argv[2]), Path(sys.argv[3]))
        return 0
    WORK.mkdir(parents=True, exist_ok=True)
    for other in KEPT.iterdir():
        if other != WORK and other.is_dir() and not other.name.startswith("log-"):
            shutil.rmtree(other)
    sections = [
        *peers.sections(),
        Section("near: 700 thousand", (*RECALL, "needs_lost_700k"), lambda _: _near(700_000, "needs_lost_700k"), minutes=3),
        Section("near: 7 million", ("needs_lost_7m",), lambda _: _only("needs_lost_7m", _near(7_000_000, "needs_lost_7m")), minutes=15),
        Section("front", ("front_us_per_row",), measure_front, minutes=5),
        *ray_cluster.sections(),
        *scale.sections(),
    ]
    return run_sections("funnel", sections)


def _near(rows: int, key: str) -> Figures:
    def measured() -> Figures:
        found = near_rows(rows)
        left, cpu_s, peak_gib = near_left(found)
        print(f"    {rows:,} rows: {len(left):,} left, {rows / cpu_s:,.0f} rows/CPU-s, {peak_gib:.2f} GiB", flush=True)
        return recall(found, left) | {key: needs_lost(found, left)}

    return kept_json(WORK / f"near-{rows}.json", measured)


def _only(key: str, figures: Figures) -> Figures:
    return {key: figures[key]}


def measure_front(_: Deadline) -> Figures:
    queries, _plants = log(FRONT_ROWS, FRONT_ROWS // scale.ONE_IN)
    spent = alone(scale.front_cpu_s, queries, WORK / "store-front")
    print("    us a row: " + ", ".join(f"{label} {seconds / FRONT_ROWS * 1e6:.2f}" for label, seconds in spent.items()))
    return {"front_us_per_row": sum(spent.values()) / FRONT_ROWS * 1e6}


if __name__ == "__main__":
    sys.exit(main())

"""The viewer in a real browser, over a store of a million tagged requests and more than 20,000 conversations. `make bench view`.

Needs Chromium (Debian: `apt-get install chromium`).

first_page_ms, filter_ms, search_ms, trajectory_ms: what a reader waits for, 95th percentiles (`timings.py`); `real_*`: the
same over requests that people wrote. map_points, map_pan_fps: the map (`map_speed.py`). readers_while_committing, reader_errors: readers
beside a run that commits (`busy_store.py`). axe_violations, overflow_pages: every page in both themes (`page_checks.py`).
hostile_rows_shown, scripts_run: 200 hostile texts (`hostile_rows.py`). outside_requests: requests to any other host, in all of these.
server_peak_gib: resident memory of the viewer and its children, in all of these. wheel_mib: the wheel, which has all that the pages load.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.harness import ROOT, Deadline, Figures, Section, run_sections
from benchmarks.view import busy_store, hostile_rows, map_speed, page_checks, timings
from benchmarks.view.browsing import all_seen
from benchmarks.view.made_store import large_store, real_store


def sections() -> list[Section]:
    return [
        Section("times", timings.KEYS, _over_large(timings.measure), minutes=timings.MINUTES),
        Section("times over real requests", timings.REAL_KEYS, _measure_real, minutes=timings.MINUTES),
        Section("map", map_speed.KEYS, _over_large(map_speed.measure), minutes=map_speed.MINUTES),
        Section("readers beside a run", busy_store.KEYS, _over_large(busy_store.measure), minutes=busy_store.MINUTES),
        Section("pages", page_checks.KEYS, _over_large(page_checks.measure), minutes=page_checks.MINUTES),
        Section("hostile texts", hostile_rows.KEYS, _over_large(hostile_rows.measure), minutes=hostile_rows.MINUTES),
        Section("whole", ("server_peak_gib", "outside_requests", "wheel_mib"), _measure_whole, minutes=3),
    ]


def _over_large(measure: Callable[[Deadline, Path], Figures]) -> Callable[[Deadline], Figures]:
    return lambda deadline: measure(deadline, large_store(deadline))


def _measure_real(deadline: Deadline) -> Figures:
    return timings.measure_real(deadline, real_store(deadline))


def _measure_whole(_: Deadline) -> Figures:
    seen = all_seen()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "build", "--wheel", "--outdir", folder], cwd=ROOT, check=True, capture_output=True)
        (wheel,) = Path(folder).glob("*.whl")
        size = wheel.stat().st_size
    return {"server_peak_gib": seen["peak_gib"], "outside_requests": seen["outside"], "wheel_mib": size / 2**20}


if __name__ == "__main__":
    raise SystemExit(run_sections("view", sections()))

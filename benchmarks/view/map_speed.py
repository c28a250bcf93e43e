"""How many points the map draws, and how many frames a second it moves at, in a window of 1,400 x 1,000.

map_points: on the map of requests. map_pan_fps: frames a second while it is moved by 12 pixels a frame for five seconds, the slower of
two: as a whole, and zoomed in. map_slowest_ms: the longest frame. map_build_s: seconds until the map is there, when nothing is cached.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness import Deadline, Figures
from benchmarks.view.browsing import browsing, forget_maps, open_page, renderer, serving

if TYPE_CHECKING:
    from playwright.sync_api import Page

KEYS = ("map_points", "map_pan_fps", "map_slowest_ms", "map_build_s")
MINUTES = 10
_BUILD_S = 480
_PAN = "(options) => window.headraceMap.measurePan(options)"


def measure(deadline: Deadline, store: Path) -> Figures:
    """`KEYS`."""
    deadline.allows(MINUTES)
    forget_maps()
    with serving(store) as server, browsing(server) as (browser, seen), open_page(browser, seen, server) as page:
        begun = time.monotonic()
        page.goto("/map?of=requests")
        page.wait_for_selector("#map-stage", timeout=1000 * _BUILD_S)  # through the reloads of the page that says what is being made
        built_s = time.monotonic() - begun
        page.goto("/map?of=requests")
        page.wait_for_selector("#map-stage[data-ready]", timeout=60_000)
        page.wait_for_timeout(2000)
        whole = _pan(page)
        for _ in range(4):
            page.click("[data-do='closer']")
        page.wait_for_timeout(2000)
        near = _pan(page)
        print(f"    drawn by {renderer(page) or 'no WebGL'}; whole {whole}; zoomed in {near}", flush=True)
    return {
        "map_points": float(whole["points"]),
        "map_pan_fps": min(whole["fps"], near["fps"]),
        "map_slowest_ms": max(whole["slowest_ms"], near["slowest_ms"]),
        "map_build_s": built_s,
    }


def _pan(page: Page) -> dict[str, Any]:
    found = page.evaluate(_PAN, {"seconds": 5, "pixels_a_frame": 12})
    return dict(found)

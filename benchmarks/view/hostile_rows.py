"""200 hostile texts, each on the page of its row, in the list, and in a search for it.

hostile_rows_shown: rows whose own page has all letters, digits and signs of the text, or as many as a page shows, and which the list finds
by a word that is in no other. scripts_run: scripts of these texts that ran, and markup that they became, on all these pages.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from benchmarks.harness import Deadline, Figures
from benchmarks.view.browsing import browsing, open_page, serving
from benchmarks.view.hostile_texts import Hostile, essence, hostile_texts

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from benchmarks.view.browsing import Seen

KEYS = ("hostile_rows_shown", "scripts_run")
MINUTES = 10
SHOWN_CHARACTERS = 2_000
"""Of a long text, these first ones must be on the page."""
_OTHER_PAGES = ("/", "/overview/funnel", "/by-hand", "/lineage", "/worlds", "/clusters")
"""Pages that show texts of many rows."""


def measure(deadline: Deadline, store: Path) -> Figures:
    """`KEYS`."""
    deadline.allows(MINUTES)
    shown = 0
    with serving(store) as server, browsing(server) as (browser, seen):
        with open_page(browser, seen, server) as page:
            for one in hostile_texts():
                is_shown = _is_shown(page, seen, one)
                shown += is_shown
                if not is_shown:
                    print(f"    not shown: {one.id} {one.text[:60]!r}", flush=True)
            for address in _OTHER_PAGES:
                page.goto(address)
                page.wait_for_load_state("networkidle")
                seen.look(page)
        ran = len(seen.ran) + seen.injected
    return {"hostile_rows_shown": float(shown), "scripts_run": float(ran)}


def _is_shown(page: Page, seen: Seen, one: Hostile) -> bool:
    folder = "/requests" if one.kind == "request" else "/trajectories"
    page.goto(f"{folder}/{quote(one.id, safe='')}", timeout=60_000)
    page.wait_for_timeout(30)
    seen.look(page)
    has_text = essence(one.text[:SHOWN_CHARACTERS]) in essence(page.evaluate("() => document.querySelector('main').textContent"))
    page.goto(f"{folder}?{urlencode({'text': one.mark})}", timeout=60_000)
    seen.look(page)
    return has_text and one.mark in page.evaluate("() => document.querySelector('#results tbody')?.textContent ?? ''")

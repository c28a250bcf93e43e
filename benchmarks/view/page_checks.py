"""Every page of the viewer, in both themes and at three widths.

axe_violations: rules of axe-core that a page breaks in a theme, of impact serious or critical. overflow_pages: pages that can be scrolled
sideways at 1,400, 1,000 or 390 pixels. pages_checked: kinds of pages, each of which is looked at in 2 themes, at 3 widths.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness import Deadline, Figures
from benchmarks.view.browsing import browsing, open_page, serving
from benchmarks.view.page_list import page_addresses
from storage.store import Store

if TYPE_CHECKING:
    from playwright.sync_api import Page

KEYS = ("axe_violations", "overflow_pages", "pages_checked")
MINUTES = 15
WIDTHS = (1400, 1000, 390)


def measure(deadline: Deadline, store: Path) -> Figures:
    """`KEYS`."""
    from axe_playwright_python.sync_playwright import Axe

    deadline.allows(MINUTES)
    axe, violations, too_wide = Axe(), 0, set[str]()
    with serving(store, "--write", "--author", "Ada L.") as server, browsing(server) as (browser, seen):
        pages = page_addresses(server.address, Store(store))
        for theme in ("light", "dark"):
            with open_page(browser, seen, server, color_scheme=theme) as page:
                for kind, address in pages.items():
                    _open(page, address)
                    seen.look(page)
                    for violation in axe.run(page).response["violations"]:
                        if violation["impact"] in ("serious", "critical"):
                            violations += 1
                            where = [node["target"] for node in violation["nodes"][:3]]
                            print(f"    {kind}, {theme}: {violation['id']}: {where}", flush=True)
                    for width in WIDTHS:
                        page.set_viewport_size({"width": width, "height": 1000})
                        page.wait_for_timeout(50)
                        if page.evaluate("() => document.documentElement.scrollWidth > window.innerWidth"):
                            print(f"    {kind} is wider than {width} pixels: {_widest(page)}", flush=True)
                            too_wide.add(kind)
                    page.set_viewport_size({"width": WIDTHS[0], "height": 1000})
    return {"axe_violations": float(violations), "overflow_pages": float(len(too_wide)), "pages_checked": float(len(pages))}


def _open(page: Page, address: str) -> None:
    """With all parts that are fetched when they are seen."""
    page.goto(address)
    for place in page.query_selector_all("[data-load]"):
        place.scroll_into_view_if_needed()
    page.wait_for_load_state("networkidle")


def _widest(page: Page) -> str:
    return str(
        page.evaluate(
            "() => { const wide = [...document.querySelectorAll('main *')].find((one) => one.getBoundingClientRect().right > innerWidth"
            " && !one.closest('.scroll, svg')); return wide ? wide.outerHTML.slice(0, 120) : 'no element'; }"
        )
    )

"""How long a reader waits, in milliseconds, 95th percentiles; the browser's own clock, at a window of 1,400 x 1,000.

first_page_ms: from the start of the navigation to the overview, in a browser that has nothing cached, to its largest text or picture on the
screen. first_page_drawn_ms: until its charts are drawn too.
filter_ms: from the choice of a value of a filter to the rows that fit on the screen, over all filters of the lists of requests and of
conversations; the 180 ms that the page waits for further typing are in it.
search_ms: from the last key pressed to the rows that fit on the screen, the same 180 ms included. Words of the rows, frequent and rare, and
some that no row has.
trajectory_ms: from the start of a navigation to a conversation to its largest text on the screen: conversations and rollouts spread evenly
over the store, and the longest ones.
index_s: seconds from the start of the viewer to an index of all requests. real_*: the same over requests that people wrote.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.harness import Deadline, Figures
from benchmarks.view.browsing import Server, browsing, open_page, serving
from storage.store import Store

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from benchmarks.view.browsing import Seen

KEYS = ("first_page_ms", "first_page_drawn_ms", "filter_ms", "search_ms", "trajectory_ms", "index_s")
REAL_KEYS = ("real_requests", "real_filter_ms", "real_search_ms")
MINUTES = 10
TRIES = 40
LISTS = ("/requests", "/trajectories")
_ABSENT = ("zzyzx", "no row says this", "%_%", "灯灯灯灯")
_ANSWER_MS = 30_000

NAVIGATION = """() => new Promise((tell) => {
  const whenLoaded = () => requestAnimationFrame(() => requestAnimationFrame(() => {
    const drawn = performance.now();
    new PerformanceObserver((list) => tell({
      painted: Math.max(...list.getEntries().map((entry) => entry.startTime)),
      drawn, served: performance.getEntriesByType("navigation")[0].responseEnd,
    })).observe({ type: "largest-contentful-paint", buffered: true });
    setTimeout(() => tell({ painted: drawn, drawn, served: performance.getEntriesByType("navigation")[0].responseEnd }), 2000);
  }));
  document.readyState === "complete" ? whenLoaded() : addEventListener("load", whenLoaded);
})"""
"""Milliseconds from the start of the navigation: painted (largest content), drawn (loaded, and a frame later), served (last byte)."""

_CLOCK = """() => {
  window.__begun = window.__painted = 0;
  const begin = (event) => { window.__begun = event.timeStamp; window.__painted = 0; };
  addEventListener("keydown", begin, true);
  addEventListener("input", begin, true);  // a Chinese text comes without a key
  const form = document.querySelector("form[data-live]");
  new MutationObserver(() => requestAnimationFrame(() => {
    const channel = new MessageChannel();
    channel.port1.onmessage = () => { window.__painted = performance.now(); };
    channel.port2.postMessage(0);
  })).observe(document.getElementById(form.dataset.live), { childList: true });
}"""
"""Notes when a key was pressed or a value chosen, and when the frame with the answer was painted."""


def measure(deadline: Deadline, store: Path) -> Figures:
    """`KEYS`."""
    deadline.allows(MINUTES)
    with serving(store) as server, browsing(server) as (browser, seen):
        first = [_navigate(browser, seen, server, "/") for _ in range(TRIES)]
        opened = conversation_times(browser, seen, server, conversation_ids(Store(store)))
        chosen = [ms for path in LISTS for ms in filter_times(browser, seen, server, path)]
        typed = [ms for path in LISTS for ms in search_times(browser, seen, server, path, words_of(Store(store), path))]
    for name, times in (("conversation", opened), ("filter", chosen), ("search", typed)):
        print(f"    {name}: {len(times)} tries, half of them within {np.median(times):.0f} ms, the slowest {max(times):.0f} ms", flush=True)
    return {
        "first_page_ms": _p95([one["painted"] for one in first]),
        "first_page_drawn_ms": _p95([one["drawn"] for one in first]),
        "filter_ms": _p95(chosen),
        "search_ms": _p95(typed),
        "trajectory_ms": _p95(opened),
        "index_s": server.index_s,
    }


def measure_real(deadline: Deadline, store: Path) -> Figures:
    """`REAL_KEYS`: searches over requests that people wrote, and that no code of this project made."""
    deadline.allows(MINUTES / 2)
    opened = Store(store)
    with serving(store) as server, browsing(server) as (browser, seen):
        chosen = filter_times(browser, seen, server, "/requests")
        typed = search_times(browser, seen, server, "/requests", words_of(opened, "/requests"))
    rows = opened.query("SELECT count(*) AS n FROM queries")["n"][0]
    return {"real_requests": float(rows), "real_filter_ms": _p95(chosen), "real_search_ms": _p95(typed)}


def _p95(times: Sequence[float]) -> float:
    assert len(times) >= TRIES, f"{len(times)} tries are too few for a 95th percentile"
    return float(np.quantile(times, 0.95))


# ---- one figure each ---------------------------------------------------------------------------------------------------


def _navigate(browser: Browser, seen: Seen, server: Server, url: str) -> dict[str, float]:
    with open_page(browser, seen, server) as page:
        page.goto(url)
        return dict(page.evaluate(NAVIGATION))


def conversation_times(browser: Browser, seen: Seen, server: Server, ids: Sequence[str]) -> list[float]:
    """Of a reader who goes from conversation to conversation."""
    times = []
    with open_page(browser, seen, server) as page:
        for id in ids:
            page.goto(f"/trajectories/{id}")
            times.append(page.evaluate(NAVIGATION)["painted"])
    return times


def filter_times(browser: Browser, seen: Seen, server: Server, path: str) -> list[float]:
    """Every filter of a list with its most frequent and four other values, alone and then beside one of another filter."""
    rng, times = random.Random(0), []
    with open_page(browser, seen, server) as page:
        page.goto(path)
        names = page.evaluate("() => [...document.querySelectorAll('form[data-live] select')].map((one) => one.name)")
        for name in names:
            for value in _values(page, path, name, rng):
                page.goto(path)
                page.evaluate(_CLOCK)
                times.append(_timed(page, lambda name=name, value=value: page.select_option(f"[name='{name}']", value, force=True)))
                other = rng.choice([one for one in names if one != name])
                if beside := _options(page, other):
                    choice = rng.choice(beside)
                    times.append(_timed(page, lambda name=other, value=choice: page.select_option(f"[name='{name}']", value, force=True)))
    return times


def _values(page: Page, path: str, name: str, rng: random.Random) -> list[str]:
    page.goto(path)
    values = _options(page, name)
    return [*values[:1], *rng.sample(values[1:], min(4, len(values[1:])))]


def _options(page: Page, name: str) -> list[str]:
    """The values of a filter that are not chosen."""
    found = page.evaluate(
        "(name) => [...document.querySelectorAll(`form[data-live] select[name='${name}'] option`)]"
        ".filter((one) => one.value && !one.selected && !one.disabled).map((one) => one.value)",
        name,
    )
    return [str(value) for value in found]


def search_times(browser: Browser, seen: Seen, server: Server, path: str, words: Sequence[str]) -> list[float]:
    """Each word typed into the empty search field, by a fast typist: a key every 40 ms."""
    times = []
    with open_page(browser, seen, server) as page:
        for word in words:
            page.goto(path)
            page.evaluate(_CLOCK)
            page.focus("form[data-live] input[name='text']")
            times.append(_timed(page, lambda word=word: page.keyboard.type(word, delay=40), text=word))
    return times


def _timed(page: Page, act: Callable[[], object], text: str = "") -> float:
    """Milliseconds from the last input of an act to the paint of its answer, which is there once the address has the text."""
    act()
    page.wait_for_function(
        "(text) => window.__painted > window.__begun && (!text || new URLSearchParams(location.search).get('text') === text)",
        arg=text.strip(),
        timeout=_ANSWER_MS,
    )
    return float(page.evaluate("() => window.__painted - window.__begun"))


# ---- what is looked for ------------------------------------------------------------------------------------------------


def conversation_ids(store: Store) -> list[str]:
    """Conversations and rollouts, evenly over their ids, and the longest of each."""
    ids: list[str] = []
    for table, key in (("trajectories", "trajectory_id"), ("rollouts", "rollout_id")):
        listed = store.query(f"SELECT {key} AS id FROM {table} WHERE length(messages) < 200000 ORDER BY {key}")["id"]
        ids += [listed[int(at)] for at in np.linspace(0, len(listed) - 1, TRIES // 2)] if len(listed) else []
        ids += store.query(f"SELECT {key} AS id FROM {table} WHERE length(messages) < 200000 ORDER BY length(messages) DESC LIMIT 5")[
            "id"
        ].to_list()
    return ids


def words_of(store: Store, path: str) -> list[str]:
    """Words that stand in the rows of a list, whole and cut, in both languages, and some that do not."""
    rng = random.Random(0)
    table = "queries" if path == "/requests" else "trajectories"
    column = "text" if path == "/requests" else "TRY(json_extract_string(messages, '$[1].content'))"
    texts = store.query(f"SELECT {column} AS text FROM {table} WHERE length({column}) BETWEEN 10 AND 400 ORDER BY hash({column}) LIMIT 400")
    return [*_ABSENT, *(_part_of(text, rng) for text in texts["text"][: TRIES - len(_ABSENT)])]


def _part_of(text: str, rng: random.Random) -> str:
    """One to three words that follow each other, the last perhaps cut; of Chinese, up to six signs."""
    words = text.split()
    if len(words) < 4:
        return text.strip()[: rng.randint(2, 6)].strip()
    start = rng.randrange(len(words) - 2)
    part = " ".join(words[start : start + rng.randint(1, 3)])
    return part[: max(2, rng.randint(len(part) // 2, len(part)))].strip()

"""The viewer's server as a user starts it, and Chromium in front of it, both watched.

Of the server: resident memory, of it and of its children. Of every page that is opened: requests to any other host, scripts of hostile
texts that ran, and markup that they became. What is seen is kept in `.cache/bench/view/seen.json` for this state of the code, because
sections of a benchmark may run in several calls.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx

from benchmarks.harness import ROOT, code_mark, fail

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page, Request

_KEPT = ROOT / ".cache" / "bench" / "view"
_SEEN = _KEPT / "seen.json"
_START_S, _INDEX_S = 30.0, 300.0
BROWSER_FLAGS = ("--no-sandbox",)
"""Without its sandbox, because root may run the benchmark; everything else is as Chromium decides for the machine."""

_WATCH = """
window.__injected = 0;
document.addEventListener("securitypolicyviolation", () => { window.__injected += 1; });
"""
_INJECTED = """() => [...document.querySelectorAll("*")].filter((one) =>
  one.hasAttribute("data-hostile") || [...one.attributes].some((attribute) => attribute.name.startsWith("on"))
  || one.matches("iframe, object, embed, base, script:not([src], [type='application/json']), a[href^='javascript:']")).length"""


@dataclass
class Server:
    """address: without a slash at its end. index_s: seconds from the start to an index of all requests."""

    address: str
    process: subprocess.Popen[str]
    peak_bytes: int = 0
    index_s: float = 0.0


@contextmanager
def serving(store: Path, *options: str) -> Iterator[Server]:
    """`headrace view STORE`, once it answers and has an index."""
    command = [sys.executable, "-m", "flows.cli.main", "view", str(store), "--port", "0", "--no-browser", *options]
    environment = os.environ | {"XDG_CACHE_HOME": str(_KEPT / "cache"), "COLUMNS": "300", "PYTHONUNBUFFERED": "1"}
    begun = time.monotonic()
    with (_KEPT / "server.log").open("w") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
    server = Server(_address(process), process)
    done = threading.Event()
    sampler = threading.Thread(target=_sample, args=(server, done), daemon=True)
    sampler.start()
    try:
        _wait_for_index(server.address)
        server.index_s = time.monotonic() - begun
        yield server
    finally:
        done.set()
        sampler.join()
        process.terminate()
        process.wait(20)
        note_seen(peak_gib=server.peak_bytes / 2**30)


def forget_maps() -> None:
    """Deletes the maps that an earlier viewer of the benchmark made."""
    for file in (_KEPT / "cache" / "headrace" / "view").glob("map-*"):
        file.unlink()


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and (line := process.stdout.readline()):
        if found := re.search(r"http://[^\s/]+", line):
            return found[0]
    return fail(f"headrace view did not start: {(_KEPT / 'server.log').read_text()[-400:]}")


def _wait_for_index(address: str) -> None:
    """Until both lists show all that is committed."""
    deadline = time.monotonic() + _INDEX_S
    while time.monotonic() < deadline:
        pages = [httpx.get(f"{address}/{path}", timeout=_INDEX_S) for path in ("requests", "trajectories")]
        if all(page.status_code == 200 and "http-equiv" not in page.text and "not shown yet" not in page.text for page in pages):
            return
        time.sleep(0.25)
    fail(f"headrace view has no index after {_INDEX_S:.0f} seconds")


def _sample(server: Server, done: threading.Event) -> None:
    import psutil

    root = psutil.Process(server.process.pid)
    while not done.wait(0.1):
        total = 0
        for process in (root, *root.children(recursive=True)):
            try:
                total += process.memory_info().rss
            except psutil.Error:
                continue
        server.peak_bytes = max(server.peak_bytes, total)


# ---- what was seen -----------------------------------------------------------------------------------------------------


@dataclass
class Seen:
    """Of pages. outside: addresses of requests to other hosts. ran: traces of hostile scripts that ran. injected: elements and blocked
    scripts that a hostile text became."""

    outside: list[str] = field(default_factory=list)
    ran: list[str] = field(default_factory=list)
    injected: int = 0

    def watch(self, context: BrowserContext, address: str) -> None:
        """Watches all pages of a context."""
        context.add_init_script(_WATCH)
        host = urlsplit(address).netloc

        def on_request(request: Request) -> None:
            parts = urlsplit(request.url)
            if parts.scheme not in ("data", "blob", "about") and parts.netloc != host:
                self.outside.append(request.url)
            if parts.path.startswith("/hacked"):
                self.ran.append(f"request {request.url}")

        context.on("request", on_request)
        context.on("dialog", lambda dialog: (self.ran.append(f"dialog {dialog.message}"), dialog.dismiss()))

    def look(self, page: Page) -> None:
        """Counts what hostile texts did in the page that is open."""
        if page.evaluate("() => window.hacked !== undefined"):
            self.ran.append(f"script in {page.url}")
        injected = page.evaluate(_INJECTED) + page.evaluate("() => window.__injected")
        if injected:
            print(f"    {injected} pieces of hostile markup in {page.url}", flush=True)
        self.injected += injected


@contextmanager
def browsing(server: Server) -> Iterator[tuple[Browser, Seen]]:
    """Chromium. Contexts are opened with `open_context`, so that they are watched."""
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or fail("no chromium: sudo apt-get install -y chromium")
    seen = Seen()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(BROWSER_FLAGS))
        try:
            yield browser, seen
        finally:
            browser.close()
            for address in sorted(set(seen.outside))[:5]:
                print(f"    a request to another host: {address}", flush=True)
            note_seen(outside=len(seen.outside))


@contextmanager
def open_page(browser: Browser, seen: Seen, server: Server, **options: Any) -> Iterator[Page]:
    """A page of a fresh context, without a cache. options: of the context; by default a window of 1,400 x 1,000."""
    context = browser.new_context(**({"viewport": {"width": 1400, "height": 1000}, "base_url": server.address} | options))
    seen.watch(context, server.address)
    try:
        yield context.new_page()
    finally:
        context.close()


def renderer(page: Page) -> str:
    """The WebGL renderer of the browser; empty without WebGL."""
    return str(
        page.evaluate(
            """() => { const gl = document.createElement("canvas").getContext("webgl2");
            return gl ? gl.getParameter(gl.getExtension("WEBGL_debug_renderer_info").UNMASKED_RENDERER_WEBGL) : ""; }"""
        )
    )


def note_seen(*, peak_gib: float = 0.0, outside: int = 0) -> None:
    """Adds to what all sections of this state of the code have seen."""
    before = all_seen()
    _KEPT.mkdir(parents=True, exist_ok=True)
    now = {"commit": code_mark(), "peak_gib": max(before["peak_gib"], peak_gib), "outside": before["outside"] + outside}
    _SEEN.write_text(json.dumps(now))


def all_seen() -> dict[str, float]:
    """peak_gib: of the server; outside: requests to other hosts."""
    kept = json.loads(_SEEN.read_text()) if _SEEN.exists() else {}
    return {key: kept.get(key, 0.0) if kept.get("commit") == code_mark() else 0.0 for key in ("peak_gib", "outside")}

"""Fifty readers at once while a run commits part after part to the store that they look at.

readers_while_committing: readers, each of which asks for page after page. reader_errors: answers that are no page: any status but 200, a
broken connection, or none within 60 seconds. reader_commits, reader_pages: commits and answers
meanwhile; reader_p95_ms: of the answers.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import httpx
import numpy as np

from benchmarks.harness import ROOT, Deadline, Figures, fail
from benchmarks.view.browsing import Server, serving
from benchmarks.view.hostile_texts import Hostile
from benchmarks.view.made_store import request_parts
from storage.store import Store

KEYS = ("readers_while_committing", "reader_errors", "reader_commits", "reader_pages", "reader_p95_ms")
MINUTES = 4
READERS, SECONDS = 50, 60
_TIMEOUT_S = 60.0


def measure(deadline: Deadline, store: Path) -> Figures:
    """`KEYS`."""
    deadline.allows(MINUTES)
    copy = store.parent / "busy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(store, copy, copy_function=_link_parts)
    try:
        with serving(copy) as server:
            command = [sys.executable, "-m", "benchmarks.view.busy_store", str(copy), str(SECONDS)]
            before = _parts(copy)
            writer = subprocess.Popen(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)})
            try:
                answers = asyncio.run(_read(server, _addresses(copy)))
            finally:
                writer.wait(60)
        commits = (_parts(copy) - before) // 4
        if writer.returncode or not commits:
            fail("nothing was committed while the readers read")
        errors = [answer for answer in answers if answer[1]]
        for address, error, _ in errors[:5]:
            print(f"    {address}: {error}", flush=True)
        return {
            "readers_while_committing": float(READERS),
            "reader_errors": float(len(errors)),
            "reader_commits": float(commits),
            "reader_pages": float(len(answers)),
            "reader_p95_ms": float(np.quantile([ms for _, _, ms in answers], 0.95)),
        }
    finally:
        shutil.rmtree(copy, ignore_errors=True)


def _link_parts(source: str, target: str) -> str:
    """Parts never change, so a link to one is a copy."""
    if source.endswith(".parquet"):
        os.link(source, target)
        return target
    return shutil.copy2(source, target)


def _parts(store: Path) -> int:
    return int(Store(store).query("SELECT count(*) AS n FROM parts")["n"][0])


def _addresses(store: Path) -> list[str]:
    opened = Store(store)
    ids = [
        *opened.query("SELECT query_id AS id FROM queries ORDER BY hash(query_id) LIMIT 10")["id"],
        *opened.query("SELECT trajectory_id AS id FROM trajectories ORDER BY hash(trajectory_id) LIMIT 10")["id"],
        *opened.query("SELECT task_id AS id FROM tasks ORDER BY hash(task_id) LIMIT 10")["id"],
    ]
    pages = {"q": "/requests/", "trajectory": "/trajectories/", "task": "/tasks/"}
    lists = ["/", "/overview/work", "/overview/funnel", "/requests", "/requests?text=order&part=true", "/trajectories?part=true", "/tasks"]
    return [*lists, *(pages[id.partition("-")[0]] + httpx.URL("").copy_with(path=f"/{id}").raw_path.decode()[1:] for id in ids)]


async def _read(server: Server, addresses: list[str]) -> list[tuple[str, str, float]]:
    """Address, error (empty: none) and milliseconds of each answer."""
    end, answers = time.monotonic() + SECONDS, list[tuple[str, str, float]]()

    async def read(reader: int, client: httpx.AsyncClient) -> None:
        at = reader
        while time.monotonic() < end:
            address, begun, error = addresses[at % len(addresses)], time.monotonic(), ""
            try:
                answer = await client.get(address)
                error = "" if answer.status_code == 200 else f"status {answer.status_code}: {answer.text[-300:]}"
            except httpx.HTTPError as failure:
                error = f"{type(failure).__name__}: {failure}"
            answers.append((address, error, 1000 * (time.monotonic() - begun)))
            at += 7

    limits = httpx.Limits(max_connections=READERS, max_keepalive_connections=READERS)
    async with httpx.AsyncClient(base_url=server.address, timeout=_TIMEOUT_S, limits=limits) as client:
        await asyncio.gather(*(read(reader, client) for reader in range(READERS)))
    return answers


def commit_again_and_again(store: Store, seconds: float) -> None:
    """Commits a small funnel run of two requests, waits half a second, and so on."""
    end, number = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        run, first = f"funnel-{number:016x}", 2 * number
        requests = [
            Hostile(f"q-0b0b0b0b-{at:08d}", f"row {at}", f"a request that came while others read, number {at}", "request")
            for at in (first, first + 1)
        ]
        store.commit(request_parts(store, run, requests))
        number += 1
        time.sleep(0.5)


if __name__ == "__main__":
    commit_again_and_again(Store(Path(sys.argv[1])), float(sys.argv[2]))

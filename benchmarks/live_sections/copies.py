"""How fast live worlds are set back and called, how many run side by side, and whether a hostile server gets out of its box.

`reset_ms_python_forked`, `reset_ms_node`: the median time to start a copy anew on its start state, until its session has begun; of the
slowest server of each kind, with the machine's clock. `reset_ms_python_clock`: of the two that need a clock of their own, with libfaketime,
under which the event loops of Python wait longer for every message. `sdk_overhead_ms`: the median of a call through the SDK less that of
the same call as bare JSON-RPC.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from benchmarks.harness import Deadline, Figures
from benchmarks.live_sections.live_servers import NODE_SERVERS, PYTHON_SERVERS, live_spec
from synth.worlds.live.copies.live_server import LiveServer
from synth.worlds.live.copies.server_box import Box
from tests.synth.live_servers.specs import notes_spec

KEYS = ("reset_ms_python_forked", "reset_ms_python_clock", "reset_ms_node", "sdk_overhead_ms", "copies_parallel")
RESETS, CALLS, COPIES = 9, 300, 24
MINUTES = 5


def measure_copies(deadline: Deadline) -> Figures:
    deadline.allows(MINUTES)
    python = {name: reset_ms(name) for name in PYTHON_SERVERS}
    clock = {f"{name}, clock": reset_ms(name, with_clock=True) for name in PYTHON_SERVERS if live_spec(name).clock}
    node = {name: reset_ms(name) for name in NODE_SERVERS}
    print(f"    ms of a reset: {json.dumps({**python, **clock, **node})}", flush=True)
    return {
        "reset_ms_python_forked": max(python.values()),
        "reset_ms_python_clock": max(clock.values()),
        "reset_ms_node": max(node.values()),
        "sdk_overhead_ms": max(0.0, through_sdk_ms() - bare_ms()),
        "copies_parallel": float(parallel_copies()),
    }


def reset_ms(name: str, *, with_clock: bool = False) -> float:
    spec = live_spec(name)
    server = LiveServer(spec if with_clock else spec.model_copy(update={"clock": None}))
    start = server.snapshot()
    times = []
    for _ in range(RESETS):
        server._calls = (("", "{}"),)
        began = time.perf_counter()
        server.restore(start, "restart")
        times.append(1000 * (time.perf_counter() - began))
    server.close()
    return round(statistics.median(times), 1)


def through_sdk_ms() -> float:
    server = LiveServer(notes_spec())
    server.tools()
    taken = _median_ms(lambda: server._live().call("get_note", {"note_id": "n1"}))
    server.close()
    return taken


def bare_ms() -> float:
    """The same calls over the pipes of a box, as lines of JSON."""
    server = LiveServer(notes_spec())
    box = Box(server.spec, server.spec.command, server._folder, {})
    pipes = box.start()
    with os.fdopen(pipes.stdin, "wb", buffering=0) as out, os.fdopen(pipes.stdout, "rb") as answers:

        def ask(method: str, params: dict[str, object]) -> bytes:
            out.write(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode() + b"\n")
            return answers.readline()

        ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bare", "version": "1"}})
        taken = _median_ms(lambda: json.loads(ask("tools/call", {"name": "get_note", "arguments": {"note_id": "n1"}})))
    os.close(pipes.stderr)
    box.close()
    server.close()
    return taken


def _median_ms(work: Callable[[], object]) -> float:
    times = []
    for _ in range(CALLS):
        began = time.perf_counter()
        work()
        times.append(1000 * (time.perf_counter() - began))
    return statistics.median(times)


def parallel_copies() -> int:
    """Copies of one server at a time, each with a note of its own, that see that note and no other."""

    def work(number: int) -> tuple[LiveServer, bool]:
        server = LiveServer(notes_spec())
        server.call("add_note", {"title": f"of copy {number}", "text": "x"})
        titles = [row["title"] for row in json.loads(server.call("list_notes", {}).content)["result"]]
        return server, [title for title in titles if title.startswith("of copy")] == [f"of copy {number}"]

    with ThreadPoolExecutor(COPIES) as threads:
        done = list(threads.map(work, range(COPIES)))
    alive = sum(is_right and not server.call("list_notes", {}).is_error for server, is_right in done)
    for server, _ in done:
        server.close()
    return alive

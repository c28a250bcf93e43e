"""Connecting eight servers that nobody here wrote, and ten that lie: what the measurement says, and whether it is right.

Beside what `measure` says itself, calls that it did not make are made twice in fresh copies, and copies are set back in the way that it
chose. A liar counts as caught where a check fails, what varies is masked, or another way back than the plain one is taken. The honest
server beside them must show none of these.
"""

from __future__ import annotations

import json
import random
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from benchmarks.harness import Deadline, Figures
from benchmarks.live_sections.live_servers import RAW, live_spec
from storage.errors import HeadraceError
from storage.records import JSON
from synth.explore.call_proposals import Proposer
from synth.explore.conformance import Measured, measure
from synth.explore.probing import SLOW_S
from synth.explore.sql import tables_of
from synth.explore.value_records import Records
from synth.worlds.live.copies.live_server import LiveServer
from synth.worlds.live.copies.server_box import FORK_SERVER
from synth.worlds.live.live_spec import DATA
from synth.worlds.live.loose_json import parse_loosely
from synth.worlds.live.plans import fill
from tests.synth.live_servers.specs import notes_spec

KEYS = (
    "servers_connected", "servers_conformant", "restore_unfaithful", "observations_differing", "hints_contradicted", "liars_tried",
    "liars_caught", "honest_suspected",
)  # fmt: skip
LIES = ("read_writes", "clock", "random_ids", "memory_only", "shared", "errors_as_text", "late", "error_with_effect", "cache", "order")
CALLS, RESTORES = 40, 3
MINUTES = 20
ProbeCall = tuple[str, dict[str, JSON]]


@cache
def measured_server(name: str) -> Measured:
    return measure(live_spec(name))


def measure_connecting(deadline: Deadline) -> Figures:
    figures = dict.fromkeys(KEYS, 0.0)
    for name in RAW:
        deadline.allows(3)
        try:
            measured = measured_server(name)
        except HeadraceError as error:
            print(f"    {name}: {error}", flush=True)
            continue
        figures["servers_connected"] += 1
        figures["servers_conformant"] += not measured.failed and "verification" in measured.lock.uses
        figures["hints_contradicted"] += any(check.name == "reads_write_nothing" for check in measured.failed)
        differing, unfaithful = replay(measured)
        figures["observations_differing"] += differing
        figures["restore_unfaithful"] += unfaithful
        unfaithful_told = "not set back" if measured.lock.restore == "none" else f"{unfaithful} unfaithful"
        said = ", ".join(f"{check.name} ({check.detail})" for check in measured.failed)
        print(f"    {name}: {measured.lock.restore}, {differing} differ, {unfaithful_told}{f'; {said}' if said else ''}", flush=True)
    figures |= _liars()
    return figures


def replay(measured: Measured, seed: int = 1) -> tuple[int, int]:
    """Of calls that the measurement did not make: how many differ in a second copy; and how many restores are not exact."""
    calls = _calls(measured, random.Random(seed))
    runs = []
    for _ in range(2):
        server = LiveServer(measured.spec)
        runs.append([server.call(tool, arguments).content for tool, arguments in calls])
        server.close()
    differing = sum(one != other for one, other in zip(*runs, strict=True))
    return differing, _unfaithful(measured, calls)


def _unfaithful(measured: Measured, calls: list[ProbeCall]) -> int:
    """Restores after which the state, or what the same calls return, is another; none where the measurement found no way back."""
    if measured.lock.restore == "none":
        return 0
    writers = {tool.name for tool in measured.lock.tools if tool.changes_state}
    server = LiveServer(measured.spec, is_writer=lambda tool: tool in writers)
    wrong = 0
    try:
        for part in range(RESTORES):
            before, after = calls[part::RESTORES], calls[: CALLS // 2]
            for tool, arguments in before:
                server.call(tool, arguments)
            snapshot, state = server.snapshot(), server.state()
            first = [server.call(tool, arguments).content for tool, arguments in after]
            server.restore(snapshot, measured.lock.restore)
            is_same = server.state() == state
            server_again = [server.call(tool, arguments).content for tool, arguments in after]
            wrong += not (is_same and first == server_again)
    finally:
        server.close()
    return wrong


def _calls(measured: Measured, rng: random.Random) -> list[ProbeCall]:
    """Calls of all tools with values from the state and from results; without slow tools, since the calls are made ten times."""
    server = LiveServer(measured.spec)
    records = Records()
    state = server.state()
    records.add(state)
    for path in server.contents():
        records.add_value("path", f"{DATA}/{path}")
    tables = tables_of(state) if any(part.sqlite for part in measured.spec.state) else {}
    proposer = Proposer(records, tables, rng)
    calls: list[ProbeCall] = []
    tools = list(measured.lock.tools)
    for _ in range(4 * CALLS):
        tool = rng.choice(tools)
        proposal = proposer.propose(tool, is_writer=tool.changes_state)
        if proposal is not None and len(calls) < CALLS:
            arguments = {name: fill(source, proposal.slots, []) for name, source in proposal.call.arguments.items()}
            began = time.monotonic()
            observation = server.call(tool.name, arguments)
            if time.monotonic() - began > SLOW_S:
                tools.remove(tool)
                continue
            calls.append((tool.name, arguments))
            if not observation.is_error:
                records.add(parse_loosely(json.loads(observation.content)), at=str(len(calls)))
    server.close()
    return calls


def _liars() -> Figures:
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(3) as threads:
        unboxed = {"isolation": "none", "variables": {"SHARED_FILE": str(Path(folder) / "n.json"), "STDIO_SERVER": str(FORK_SERVER.parent)}}

        def is_caught(lie: str) -> bool:
            measured = measure(notes_spec(lie, **(unboxed if lie == "shared" else {})))
            return bool(measured.failed) or bool(measured.spec.volatile) or measured.lock.restore != "live"

        caught = list(threads.map(is_caught, LIES))
        honest = is_caught("")
    missed = [lie for lie, is_seen in zip(LIES, caught, strict=True) if not is_seen]
    print(f"    liars that were missed: {', '.join(missed) or 'none'}", flush=True)
    return {"liars_tried": len(LIES), "liars_caught": sum(caught), "honest_suspected": float(honest)}

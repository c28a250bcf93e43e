"""Worlds served over HTTP: whether state leaks between episodes, and how many calls a second are served.

`episodes_leaking`: the server is `headrace serve WORLD --http` in a process of its own, the clients are those of the official SDK. Each of
several worlds serves many episodes in both protocol eras at the same time. An episode is a script: the calls of expert plans that change
the state, and then once more those that only read. Four episodes share a seed, and two of them the script, so that any change of one that
another saw would show: all episodes make their first call, then all their second, and so on. An episode leaks if any observation
differs from that of the same calls in process, in a world of its own.
Negative control: the same scripts, where the episodes of a seed share one name, and so one state by right. The check must find some.

`served_calls_per_s`: calls that only read, by sixteen clients at once, each in an episode of its own; the slower of the two eras counts.
These clients are plain ones in two processes, which send what the SDK sends and look at every answer: the SDK's own client takes more of
the machine than the server does, and would be measured in its place. All count the same seconds, which begin when all are connected.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from multiprocessing import get_context
from threading import Barrier
from typing import Any
from urllib.parse import urlsplit

from benchmarks.harness import ROOT, Deadline, Figures
from flows.interactive.world_repl import draw_need, draw_task
from storage.records import CODE_TOOL, Call
from synth.tasks.solver import NotAdmitted
from synth.worlds import make_world

SERVED_WORLDS = ("banking", "hotel", "retail")
EPISODES, PER_SEED, PLANS = 48, 4, 3
ERAS = ("legacy", "2026-07-28")
CLIENTS, CLIENT_PROCESSES, LOAD_S = 16, 2, 6.0
_TRIES = 60
_CONNECT_S = 60.0


@dataclass(frozen=True)
class Script:
    """The calls of one episode, and what they answer in a world of its own."""

    seed: int
    calls: tuple[Call, ...]
    expected: tuple[str, ...]


def measure(deadline: Deadline) -> Figures:
    deadline.allows(4)
    leaking = 0
    for name in SERVED_WORLDS:
        scripts = draw_scripts(name, EPISODES)
        with serving(name) as url:
            leaking += asyncio.run(count_leaking(url, scripts))
            found = asyncio.run(count_leaking(url, scripts, shares=True))
        print(f"    {name}: {2 * len(scripts)} episodes, {leaking} leaking so far; {found} found with shared states", flush=True)
        if found == 0:
            raise ValueError(f"{name}: the check finds no leak where episodes share their state, so it shows nothing")
    return {"episodes_leaking": leaking, "served_calls_per_s": served_calls_per_s(SERVED_WORLDS[0])}


# ---- leaks ------------------------------------------------------------------------------------------------------------------


def draw_scripts(name: str, count: int) -> list[Script]:
    """Scripts of a world: PER_SEED of a seed, the first two of these alike."""
    scripts: list[Script] = []
    for seed in range(count // PER_SEED):
        first = _draw_script(name, seed, random.Random(f"{name}/{seed}"))
        others = [_draw_script(name, seed, random.Random(f"{name}/{seed}/{number}")) for number in range(PER_SEED - 2)]
        scripts += [first, first, *others]
    return scripts


def _draw_script(name: str, seed: int, rng: random.Random) -> Script:
    world = make_world(name, seed)
    changing = {tool.name for tool in world.tools if tool.changes_state}
    calls: list[Call] = []
    for _ in range(_TRIES):
        try:
            plan = draw_task(world, seed, lambda: draw_need(world, rng), "en", rng).plan.calls
        except NotAdmitted:
            continue
        if any(call.tool in changing for call in plan) and all(call.tool != CODE_TOOL for call in plan):
            calls += plan
        if sum(call.tool in changing for call in calls) >= PLANS:
            break
    calls += [call for call in calls if call.tool not in changing]
    alone = make_world(name, seed)
    return Script(seed, tuple(calls), tuple(alone.call(call.tool, call.arguments).content for call in calls))


async def count_leaking(url: str, scripts: Sequence[Script], *, shares: bool = False, eras: Sequence[str] = ERAS) -> int:
    """Plays all scripts in all eras at once, a call of each in turn, and counts the episodes with another observation than expected.

    shares: episodes of an era and seed have one name, and so one state.
    """
    from mcp import Client

    run = f"{random.randrange(2**32):08x}"
    played: list[tuple[Script, list[str]]] = []
    async with AsyncExitStack() as stack:
        clients: list[Any] = []
        for era in eras:
            for number, script in enumerate(scripts):
                name = f"{run}-{era}-{f'seed{script.seed}' if shares else number}"
                is_named = shares or era != "legacy" or number % 2 == 1  # sessions, half of them with a name in the URL
                address = f"{url}?seed={script.seed}" + (f"&episode={name}" if is_named else "")
                clients.append(await stack.enter_async_context(Client(address, mode=era)))
                played.append((script, []))
        for step in range(max(len(script.calls) for script in scripts)):
            going = [(client, *each) for client, each in zip(clients, played, strict=True) if step < len(each[0].calls)]
            random.Random(step).shuffle(going)
            await asyncio.gather(*(_call(client, script.calls[step], seen) for client, script, seen in going))
    return sum(tuple(seen) != script.expected for script, seen in played)


async def _call(client: Any, call: Call, seen: list[str]) -> None:
    result = await client.call_tool(call.tool, call.arguments)
    seen.append(result.content[0].text)


# ---- load -------------------------------------------------------------------------------------------------------------------


def served_calls_per_s(name: str) -> float:
    """Calls a second of the slower era."""
    world = make_world(name, 0)
    changing = {tool.name for tool in world.tools if tool.changes_state}
    reads = [call for script in draw_scripts(name, PER_SEED) for call in script.calls if call.tool not in changing]
    rates = {}
    spawn = get_context("spawn")
    with serving(name) as url, spawn.Manager() as manager, spawn.Pool(CLIENT_PROCESSES) as pool:
        connected = manager.Barrier(CLIENT_PROCESSES)
        for era in ERAS:
            counts = pool.starmap(load, [(url, era, number, reads, connected) for number in range(CLIENT_PROCESSES)])
            rates[era] = sum(counts)
    print("    calls a second: " + ", ".join(f"{era} {rate:.0f}" for era, rate in rates.items()), flush=True)
    return min(rates.values())


def load(url: str, era: str, process: int, reads: Sequence[Call], connected: Barrier) -> float:
    """Calls a second of the clients of this process, from half a second after the clients of all processes are connected."""
    with ThreadPoolExecutor(CLIENTS // CLIENT_PROCESSES) as threads:
        clients = [PlainClient(url, era, f"{process}-{number}") for number in range(CLIENTS // CLIENT_PROCESSES)]
        connected.wait(_CONNECT_S)
        begins = time.monotonic() + 0.5
        counts = list(threads.map(lambda client: client.keep_calling(reads, begins, begins + LOAD_S), clients))
    return sum(counts) / LOAD_S


class PlainClient:
    """One connection to a server, which it keeps."""

    def __init__(self, url: str, era: str, name: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._connection = HTTPConnection(parts.hostname, parts.port)
        self._headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        self._path, self._meta, self._name = parts.path, {}, name
        info = {"name": "load", "version": "1"}
        if era == "legacy":
            hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
            self._post({"id": 0, "method": "initialize", "params": hello})
            self._headers["Mcp-Protocol-Version"] = "2025-11-25"
            self._post({"method": "notifications/initialized"})
        else:
            prefix = "io.modelcontextprotocol/"
            self._path += f"?episode={name}"
            self._headers |= {"Mcp-Protocol-Version": era, "Mcp-Method": "tools/call"}
            self._meta = {f"{prefix}protocolVersion": era, f"{prefix}clientInfo": info, f"{prefix}clientCapabilities": {}}

    def keep_calling(self, reads: Sequence[Call], begins: float, ends: float) -> int:
        """Calls until the time `ends`, and counts the calls since `begins`."""
        rng, counted = random.Random(self._name), 0
        while (now := time.monotonic()) < ends:
            call = rng.choice(reads)
            params = {"name": call.tool, "arguments": call.arguments} | ({"_meta": self._meta} if self._meta else {})
            if self._meta:
                self._headers["Mcp-Name"] = call.tool
            answer = json.loads(self._post({"id": 1, "method": "tools/call", "params": params}))
            if answer["result"].get("isError"):
                raise ValueError(f"{call.tool}: {answer}")
            counted += now >= begins
        return counted

    def _post(self, message: Mapping[str, Any]) -> bytes:
        self._connection.request("POST", self._path, json.dumps({"jsonrpc": "2.0", **message}), self._headers)
        response = self._connection.getresponse()
        body = response.read()
        if response.status >= 300:
            raise ValueError(f"{response.status}: {body.decode()}")
        if session := response.headers.get("Mcp-Session-Id"):
            self._headers["Mcp-Session-Id"] = session
        return body


@contextmanager
def serving(world: str, *options: str, environment: Mapping[str, str] | None = None) -> Iterator[str]:
    """The URL of `headrace serve WORLD --http` on a free port, in a process that ends with SIGTERM and exit code 0."""
    command = [sys.executable, "-P", "-m", "flows.cli.main", "serve", world, "--http", "--port", "0", *options]
    env = {**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})}
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        if "http://" not in line:
            raise RuntimeError(f"the server did not start: {line or process.wait()}")
        yield line.rpartition(" ")[2].strip()
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(20)
        process.stdout.close()
    if code != 0:
        raise RuntimeError(f"the server ended with exit code {code}")


if __name__ == "__main__":
    print(measure(Deadline(time.monotonic() + 3600)))

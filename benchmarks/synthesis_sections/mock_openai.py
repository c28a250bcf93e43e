"""A mock of an OpenAI-compatible server for benchmarks and tests: scripted answers after a fixed wait, and faults on demand.

    python -m benchmarks.synthesis_sections.mock_openai --port 0 --latency-ms 200 --fault error=.05 --journal served.jsonl

The answer is a function of the request (its text backwards, or a call if tools are offered), so equal requests get equal answers.
A fault hits a try, not a request: it is drawn from a hash of the request's bytes and the number of the try, so every request succeeds in
the end. The journal has two lines per try, at its start and at its end: the request's hash, its state (`received`;
`answered`, the fault's name, or `left` where the client did not wait), and when (seconds of the machine's monotonic clock).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

FAULTS = ("rate_limited", "error", "hang", "cut", "malformed")
HANG_S = 3600.0
MODEL = "mock"


class Mock:
    """faults: share of tries by name, together at most 1. counts: tries by what was done with them; tries: of each request, by its hash."""

    def __init__(self, latency_s: float = 0.0, faults: Mapping[str, float] | None = None, journal: Path | None = None) -> None:
        self.latency_s, self.faults = latency_s, dict(faults or {})
        self.counts: Counter[str] = Counter()
        self.tries: Counter[str] = Counter()
        self.most_in_flight = self._in_flight = 0
        self._journal = journal.open("ab", buffering=0) if journal else None

    def app(self) -> web.Application:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_get("/health", self.health)
        app.router.add_get("/v1/models", self.models)
        app.router.add_post("/v1/chat/completions", self.chat)
        return app

    async def health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": MODEL, "object": "model"}]})

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        digest = hashlib.sha256(body).hexdigest()
        self.tries[digest] += 1
        self._write(digest, "received")
        self._in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self._in_flight)
        fault = self.fault(digest, self.tries[digest])
        try:
            if fault != "rate_limited":
                await asyncio.sleep(HANG_S if fault == "hang" else self.latency_s)
            return await self._answered(request, body, digest, fault)
        except asyncio.CancelledError:
            self._write(digest, fault if fault == "hang" else "left")
            raise
        finally:
            self._in_flight -= 1

    def fault(self, digest: str, attempt: int) -> str | None:
        """The fault that strikes this try of a request, if any."""
        drawn = int(hashlib.sha256(f"{digest} {attempt}".encode()).hexdigest()[:12], 16) / 16**12
        for name, share in self.faults.items():
            if drawn < share:
                return name
            drawn -= share
        return None

    async def _answered(self, request: web.Request, body: bytes, digest: str, fault: str | None) -> web.StreamResponse:
        self._note(digest, fault or "answered")
        if fault == "rate_limited":
            return web.json_response({"error": {"message": "slow down"}}, status=429, headers={"Retry-After": "0.05"})
        if fault == "error":
            return web.json_response({"error": {"message": "something broke"}}, status=500)
        said = orjson.dumps(answer(orjson.loads(body)))
        if fault == "malformed":
            return web.Response(body=said[: len(said) // 2], content_type="application/json")
        if fault == "cut":
            response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": str(len(said))})
            await response.prepare(request)
            await response.write(said[: len(said) // 2])
            assert request.transport is not None
            request.transport.close()
            return response
        return web.Response(body=said, content_type="application/json")

    def _note(self, digest: str, what: str) -> None:
        self.counts[what] += 1
        self._write(digest, what)

    def _write(self, digest: str, what: str) -> None:
        if self._journal is not None:
            self._journal.write(orjson.dumps([digest, what, time.monotonic()]) + b"\n")


def answer(body: Mapping[str, Any]) -> dict[str, Any]:
    """The scripted answer to a request: the first tool called with what was said last, else that repeated; of a schema, an empty object."""
    said = str(body["messages"][-1].get("content") or "")
    message: dict[str, Any] = {"role": "assistant", "content": said[::-1]}
    if body.get("tools") and body["messages"][-1]["role"] == "user":
        call = {"name": body["tools"][0]["function"]["name"], "arguments": json.dumps({"text": said}, ensure_ascii=False)}
        message = {"role": "assistant", "content": None, "tool_calls": [{"id": "call_0", "type": "function", "function": call}]}
    elif body.get("response_format"):
        message["content"] = "{}"
    choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": "tool_calls" if "tool_calls" in message else "stop"}
    if body.get("logprobs"):
        alternatives = [{"token": "a", "logprob": -0.693147}, {"token": "b", "logprob": -0.693147}]
        choice["logprobs"] = {"content": [{"token": "a", "logprob": -0.693147, "top_logprobs": alternatives}]}
    usage = {"prompt_tokens": len(said.split()) + 1, "completion_tokens": 10}
    return {"id": "x", "object": "chat.completion", "model": body["model"], "choices": [choice], "usage": usage}


@dataclass(frozen=True, slots=True)
class Running:
    """A mock in a process of its own. url: where its paths begin."""

    process: subprocess.Popen[bytes]
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def started(
    *, latency_ms: float, faults: Mapping[str, float] | None = None, journal: Path | None = None, port: int = 0
) -> Iterator[Running]:
    """A mock in a process of its own, for as long as the context lasts. port: 0 takes any that is free."""
    command = [sys.executable, "-m", "benchmarks.synthesis_sections.mock_openai", "--port", str(port), "--latency-ms", str(latency_ms)]
    command += [part for name, share in (faults or {}).items() for part in ("--fault", f"{name}={share}")]
    command += ["--journal", str(journal)] if journal else []
    root = Path(__file__).resolve().parents[2]
    process = subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    assert process.stdout is not None
    running = Running(process, int(process.stdout.readline()))
    try:
        yield running
    finally:
        running.kill()
        process.stdout.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--latency-ms", type=float, default=0.0)
    parser.add_argument("--fault", action="append", default=[], metavar="NAME=SHARE", help=", ".join(FAULTS))
    parser.add_argument("--journal", type=Path)
    given = parser.parse_args()
    faults = {name: float(share) for name, _, share in (one.partition("=") for one in given.fault)}
    if unknown := set(faults) - set(FAULTS):
        parser.error(f"no fault is called {unknown.pop()}; there are {', '.join(FAULTS)}")
    asyncio.run(_serve(Mock(given.latency_ms / 1000, faults, given.journal), given.port))
    return 0


async def _serve(mock: Mock, port: int) -> None:
    runner = web.AppRunner(mock.app(), access_log=None, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port, backlog=4096, reuse_address=True)
    await site.start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    sys.exit(main())

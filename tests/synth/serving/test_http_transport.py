"""A world over HTTP, by the SDK's own client and by plain requests: episodes do not leak, in both protocol eras; the token; the ends."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the extra live is not installed")

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from benchmarks.live_sections.serving import count_leaking, draw_scripts, serving
from storage.errors import BadInput
from storage.records import JSON
from synth.serving.http_transport import TOKEN_VARIABLE, is_loopback, listen, token_for
from synth.worlds import WORLDS
from synth.worlds.live.live_spec import dump_live_spec
from synth.worlds.live.lock import write_lock
from tests.module_graph import ROOT
from tests.synth.live_servers.specs import NEEDS_BOX, notes_spec
from tests.synth.serving.refusals import refused
from tests.synth.worlds.live.test_live_world import world_of

ERAS = ("legacy", "2026-07-28")
TOKEN = "0123456789abcdef0123"
CUSTOMER = ("get_customer", {"customer": "c001"})
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
HEADERS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server of banking for all tests here. Its end, by SIGTERM, must be clean."""
    with serving("banking") as started:
        yield started


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    with serving("banking", "--episodes", "3", environment={TOKEN_VARIABLE: TOKEN}) as started:
        yield started


async def call(url: str, era: str, *, token: str | None = None, times: int = 1) -> list[str]:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(headers=headers) as http, Client(streamable_http_client(url, http_client=http), mode=era) as client:
        return [(await client.call_tool(*CUSTOMER)).content[0].text for _ in range(times)]


def post(url: str, body: JSON, headers: Mapping[str, str] | None = None) -> httpx2.Response:
    return httpx2.post(url, json=body, headers={**HEADERS, **(headers or {})})


# ---- episodes ---------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_many_episodes_in_both_eras_do_not_leak_and_shared_ones_are_found(url: str) -> None:
    scripts = draw_scripts("banking", 12)
    assert any(len(script.calls) > 4 for script in scripts)
    assert asyncio.run(count_leaking(url, scripts)) == 0
    assert asyncio.run(count_leaking(url, scripts, shares=True)) > 0


def test_a_client_that_names_no_episode_gets_a_session_of_its_own(url: str) -> None:
    """In mode auto the SDK's client asks for the protocol without sessions first."""

    async def connect() -> str:
        async with Client(url, mode="auto") as client:
            return client.protocol_version

    assert asyncio.run(connect()) == "2025-11-25"


def test_the_protocol_without_sessions_needs_a_name(url: str) -> None:
    with refused(r"^protocol 2026-07-28 has no sessions: add \?episode=NAME to the URL"):
        asyncio.run(call(url, "2026-07-28"))


@pytest.mark.parametrize("era", ERAS)
def test_the_url_has_the_seed(url: str, era: str) -> None:
    bank = WORLDS["banking"]
    assert asyncio.run(call(f"{url}?episode=seeded-{era}&seed=5", era)) == [bank(5).call(*CUSTOMER).content]
    assert asyncio.run(call(f"{url}?episode=plain-{era}", era)) == [bank(0).call(*CUSTOMER).content]
    with refused("has seed 5, not 6"):
        asyncio.run(call(f"{url}?episode=seeded-{era}&seed=6", era))


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("seed=-1", "is no whole number"),
        ("seed=x", "is no whole number"),
        ("episode=", "1 to 200 letters"),
        ("episode=a/b", "1 to 200 letters"),
    ],
)
def test_a_url_that_says_nothing_sensible_is_refused_at_once(url: str, query: str, message: str) -> None:
    answer = post(f"{url}?{query}", INITIALIZE).json()
    assert message in answer["error"]["message"]


def test_a_session_header_is_nothing_to_the_protocol_without_sessions(url: str) -> None:
    """A client there cannot enter the session of another."""
    session = post(url, INITIALIZE).headers["mcp-session-id"]
    body: dict[str, Any] = {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {"_meta": META}}
    named = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Session-Id": session, "Mcp-Method": "tools/list"}
    answer = post(url, body, named)
    assert answer.status_code == 400
    assert "has no sessions" in answer.json()["error"]["message"]


META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
}


def test_an_episode_that_its_client_ended_is_gone(url: str) -> None:
    address = f"{url}?episode=short"
    asyncio.run(call(address, "2026-07-28"))
    assert httpx2.delete(address).status_code == 204
    assert httpx2.delete(address).status_code == 404
    assert httpx2.delete(url).status_code == 400
    with refused("^episode 'short' has ended: its client ended it; name another episode, or connect again$"):
        asyncio.run(call(address, "2026-07-28"))


def test_a_session_that_its_client_ended_frees_its_place(guarded: str) -> None:
    """The server has three episodes. A plain client ends its session as the protocol says: DELETE with the session's header."""
    guard = {"Authorization": f"Bearer {TOKEN}"}
    body = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": CUSTOMER[0], "arguments": CUSTOMER[1]}}

    def begin() -> dict[str, str]:
        return {**guard, "Mcp-Session-Id": post(guarded, INITIALIZE, guard).headers["mcp-session-id"]}

    sessions = [begin() for _ in range(5)]
    answers = [post(guarded, body, session).json() for session in sessions[:4]]
    assert ["result" in answer for answer in answers] == [True, True, True, False]
    assert "3 episodes are open, which is the most" in answers[3]["error"]["message"]
    assert httpx2.delete(guarded, headers=sessions[0]).status_code == 200
    assert "result" in post(guarded, body, sessions[4]).json()
    assert post(guarded, body, sessions[0]).status_code == 404
    for session in sessions[1:]:
        assert httpx2.delete(guarded, headers=session).status_code == 200


def test_a_delete_of_the_protocol_without_sessions_ends_the_named_episode(url: str) -> None:
    address = f"{url}?episode=stray"
    asyncio.run(call(address, "2026-07-28"))
    headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Session-Id": "of another protocol"}
    assert httpx2.delete(address, headers=headers).status_code == 204
    assert httpx2.delete(address).status_code == 404


def test_a_named_episode_outlives_sessions_and_gives_its_place_when_they_have_left() -> None:
    with serving("banking", "--episodes", "1") as url:
        for _ in range(2):
            asyncio.run(call(f"{url}?episode=first", "legacy"))
        asyncio.run(call(f"{url}?episode=second", "legacy"))
        with refused("'first' has ended: its last session ended, and another episode took its place"):
            asyncio.run(call(f"{url}?episode=first", "legacy"))


@pytest.mark.slow
def test_an_idle_episode_is_freed() -> None:
    async def wait_and_come_back(url: str) -> None:
        async with Client(f"{url}?episode=a", mode="2026-07-28") as client:
            await client.call_tool(*CUSTOMER)
            await asyncio.sleep(1.6)
            await client.call_tool(*CUSTOMER)

    with serving("banking", "--idle", "0.015") as url, refused("has ended: no call came for 0.015 minutes"):
        asyncio.run(wait_and_come_back(url))


def test_sessions_that_end_make_room_for_others(guarded: str) -> None:
    """The server has three episodes."""

    async def connect_ten() -> None:
        for _ in range(10):
            await call(guarded, "legacy", token=TOKEN)

    asyncio.run(connect_ten())


def test_one_episode_too_many_is_refused(guarded: str) -> None:
    async def open_four() -> None:
        for number in range(4):
            await call(f"{guarded}?episode=many-{number}", "2026-07-28", token=TOKEN)

    with refused("3 episodes are open, which is the most"):
        asyncio.run(open_four())


@NEEDS_BOX
def test_a_live_world_without_a_seed_says_so_when_it_starts_and_has_sixteen_places(tmp_path: Path) -> None:
    path = tmp_path / "notes.yaml"
    world = world_of(notes_spec())
    path.write_text(dump_live_spec(world.spec))
    write_lock(path, world.lock)

    async def open_seventeen(url: str) -> None:
        for number in range(17):
            async with Client(f"{url}?episode=notes-{number}", mode="2026-07-28") as client:
                await client.call_tool("no_such_tool", {})

    command = [sys.executable, "-P", "-m", "flows.cli.main", "serve", str(path), "--http", "--port", "0"]
    with subprocess.Popen(command, env={"PYTHONPATH": str(ROOT), "PATH": os.defpath}, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said, _, url = process.stdout.readline().strip().rpartition(": ")
        with refused("16 episodes are open, which is the most; end one, try again later, or start the server with more"):
            asyncio.run(open_seventeen(url))
        with refused("has one start state: no {seed} stands in its file; leave out `seed`"):
            asyncio.run(call(f"{url}?episode=seeded&seed=3", "2026-07-28"))
        process.terminate()
        assert process.wait(10) == 0
    assert said.endswith(f"world {world.name}, one start state, which takes no seed, {len(world.tools)} tools")


# ---- the door ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", ["", "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", TOKEN, "Bearer \u00e9"])
@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
def test_a_request_without_the_token_is_refused(guarded: str, method: str, sent: str) -> None:
    headers = {**HEADERS, "Authorization": sent.encode("utf-8")}
    answer = httpx2.request(method, f"{guarded}?episode=a", headers=headers, json=INITIALIZE if method == "POST" else None)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert TOKEN not in answer.text


@pytest.mark.parametrize("kind", ["Bearer", "bearer"])
def test_a_request_with_the_token_is_answered(guarded: str, kind: str) -> None:
    answer = post(guarded, INITIALIZE, {"Authorization": f"{kind} {TOKEN}"})
    assert answer.json()["result"]["serverInfo"]["name"] == "headrace-banking"
    ended = httpx2.delete(guarded, headers={"Authorization": f"Bearer {TOKEN}", "Mcp-Session-Id": answer.headers["mcp-session-id"]})
    assert ended.status_code == 200


def test_requests_of_web_pages_are_refused_on_loopback(url: str) -> None:
    assert post(url, INITIALIZE, {"Host": "evil.example"}).status_code == 421
    assert post(url, INITIALIZE, {"Origin": "https://evil.example"}).status_code == 403


def test_beyond_loopback_there_is_always_a_token() -> None:
    assert token_for("127.0.0.1", {}) == (None, False)
    assert token_for("127.0.0.1", {TOKEN_VARIABLE: TOKEN}) == (TOKEN, False)
    assert token_for("0.0.0.0", {TOKEN_VARIABLE: TOKEN}) == (TOKEN, False)
    made, is_new = token_for("0.0.0.0", {})
    assert made is not None and len(made) >= 40 and is_new
    assert token_for("0.0.0.0", {})[0] != made
    for bad in ("", "short", "with a space in it ", "t\u00f6ken-of-many-letters"):
        with pytest.raises(BadInput, match="must hold 16 or more ASCII characters"):
            token_for("127.0.0.1", {TOKEN_VARIABLE: bad})


def test_a_made_token_is_printed_once_and_needed() -> None:
    command = [sys.executable, "-P", "-m", "flows.cli.main", "serve", "banking", "--http", "--host", "0.0.0.0", "--port", "0"]
    with subprocess.Popen(command, env={"PYTHONPATH": str(ROOT), "PATH": ""}, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().rpartition(" ")[2].strip().replace("0.0.0.0", "127.0.0.1")
        token = process.stdout.readline().rpartition(" ")[2].strip()
        statuses = [post(url, INITIALIZE, {"Authorization": f"Bearer {each}"}).status_code for each in ("other", token)]
        process.terminate()
        assert process.wait(10) == 0
        assert token not in process.stdout.read()
    assert statuses == [401, 200]


@pytest.mark.parametrize(
    ("host", "expected"), [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False), ("127.0.0.2", False)]
)
def test_loopback_is_known(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_what_cannot_be_listened_on_is_said_in_words() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BadInput, match=f"cannot listen on 127.0.0.1, port {port}: Address already in use; name others"):
            listen("127.0.0.1", port)
    with pytest.raises(BadInput, match=r"cannot listen on no\.such\.host\.invalid, port 1"):
        listen("no.such.host.invalid", 1)


@pytest.mark.slow
def test_sigterm_ends_the_server_though_a_client_is_connected(tmp_path: Path) -> None:
    async def connect_and_stop() -> None:
        with serving("banking", "--log", str(tmp_path / "calls.jsonl")) as url:
            client = Client(url, mode="legacy")  # it keeps a stream open
            await client.__aenter__()
            await client.call_tool(*CUSTOMER)

    asyncio.run(connect_and_stop())
    assert len((tmp_path / "calls.jsonl").read_text().splitlines()) == 1

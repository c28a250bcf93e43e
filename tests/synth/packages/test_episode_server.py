"""The world as a service of its own: what an MCP client sees, in both eras of the protocol, and what is logged."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.error
import urllib.request

import pytest

from synth.packages.episode_server import ANSWER, LoggedEpisode, respond, serve
from synth.packages.replay_log import judge_log
from synth.packages.runtime import Episode
from synth.packages.task_sources import of_worlds

TASK = next(task for task in of_worlds(["retail"], 8, "tasks").all_tasks if task.success.changes)


@pytest.fixture
def running(tmp_path):
    server = serve(LoggedEpisode(Episode(TASK), tmp_path / "log" / "calls.jsonl"))
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}", tmp_path / "log" / "calls.jsonl"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_the_official_client_plays_a_task(running, mode):
    mcp = pytest.importorskip("mcp", reason="needs the MCP SDK (extra live)")
    url, log = running

    async def play():
        async with mcp.Client(f"{url}/mcp", mode=mode) as client:
            tools = (await client.list_tools()).tools
            for call in TASK.plan.calls:
                result = await client.call_tool(call.tool, call.arguments)
                assert not result.is_error and json.loads(result.content[0].text)
            bad = await client.call_tool(TASK.tools[0], {"unheard_of": 1})
            await client.call_tool(ANSWER, {"text": TASK.plan.answer})
            late = await client.call_tool(TASK.tools[0], {})
            return [tool.name for tool in tools], bad.is_error, late.is_error

    names, bad, late = asyncio.run(play())
    assert names == [*TASK.tools, ANSWER] and bad and late
    assert len(log.read_text().splitlines()) == len(TASK.plan.calls) + 2, "a refused call is logged too; one after the answer is not"


def test_the_log_gives_the_verdict(running):
    url, log = running
    calls = [{"name": call.tool, "arguments": call.arguments} for call in TASK.plan.calls]
    for call in [*calls, {"name": ANSWER, "arguments": {"text": TASK.plan.answer}}]:
        assert "result" in post(url, {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call})
    assert judge_log(TASK, log.read_text()).success
    assert TASK.plan.answer in log.read_text() and "result" not in log.read_text()


def post(url, body):
    request = urllib.request.Request(f"{url}/mcp", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.loads(answer.read() or "null")


@pytest.mark.parametrize(
    ("request_body", "code"),
    [
        ({"id": 1, "method": "no/such"}, -32601),
        ({"id": 1, "method": "tools/call", "params": {}}, -32602),
        ({"id": 1, "method": "tools/call", "params": {"name": "x", "arguments": [1]}}, -32602),
        ({"id": 1}, -32601),
    ],
)
def test_bad_requests_are_errors_in_words(running, request_body, code):
    assert post(running[0], request_body)["error"]["code"] == code


def test_what_is_no_request_is_refused(running):
    for body in (b"[]", b"not json", b""):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(urllib.request.Request(f"{running[0]}/mcp", body), timeout=10)
        assert refused.value.code == 400


def test_a_notification_has_no_answer(tmp_path):
    assert respond(LoggedEpisode(Episode(TASK), tmp_path / "log"), {"method": "notifications/initialized"}) is None

"""A served world by the SDK's own client, over stdio and without a transport: tools, hints, prompts, errors, the end of the process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the extra live is not installed")

from mcp import Client, MCPError, StdioServerParameters

from storage.records import CODE_TOOL
from synth.serving.episodes import Episodes
from synth.serving.mcp_server import build_server, describe_tool
from synth.serving.served import Served, serve_task, serve_world
from synth.worlds import WORLDS, make_world
from synth.worlds.base import Observation
from synth.worlds.run_python import missing
from tests.module_graph import ROOT
from tests.synth.retail_tasks import task_of
from tests.synth.serving.refusals import refused

ERAS = ("legacy", "2026-07-28")
HEADRACE = [sys.executable, "-P", "-m", "flows.cli.main"]


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def in_memory(served: Served, era: str, use: Callable[[Client], Coroutine[Any, Any, Any]]) -> Any:
    async def connect() -> Any:
        async with Client(build_server(Episodes(served, most=1, idle_s=None)), mode=era) as client:
            return await use(client)

    return run(connect())


@pytest.mark.parametrize("world", ["banking", "city", "gen-3"])
def test_tools_are_described_as_the_world_declares_them(world: str) -> None:
    served = serve_world(world)
    tools = in_memory(served, "legacy", lambda client: client.list_tools()).tools
    assert [tool.name for tool in tools] == [tool.name for tool in served.tools]
    for ours, theirs in zip(served.tools, tools, strict=True):
        assert theirs.description == ours.description
        assert theirs.annotations.read_only_hint is not ours.changes_state
        assert theirs.annotations.destructive_hint is ours.changes_state
        assert theirs.input_schema["properties"].keys() == ours.parameters["properties"].keys()
        assert "x-grounded" not in json.dumps(theirs.input_schema)


def test_marks_are_left_out_of_the_schema_only() -> None:
    tool = WORLDS["banking"].tools[0]
    described = describe_tool(tool)
    assert "x-grounded" in json.dumps(tool.parameters)
    assert described.input_schema["required"] == tool.parameters["required"]


def test_programs_are_offered_only_where_a_sandbox_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("synth.serving.served.missing", lambda: "")
    assert CODE_TOOL in [tool.name for tool in serve_world("banking").tools]
    monkeypatch.setattr("synth.serving.served.missing", lambda: "no bubblewrap")
    served = serve_world("banking")
    assert CODE_TOOL not in [tool.name for tool in served.tools]
    result = in_memory(served, "legacy", lambda client: client.call_tool(CODE_TOOL, {"code": "1"}))
    assert (result.is_error, result.content[0].text) == (True, '{"error":"no such tool"}')


def test_programs_run_where_a_sandbox_works() -> None:
    if lacks := missing():
        pytest.skip(f"left out, no sandbox: {lacks}")
    result = in_memory(serve_world("banking"), "2026-07-28", lambda client: client.call_tool(CODE_TOOL, {"code": "sum(range(10))"}))
    assert result.content[0].text == make_world("banking", 0).call(CODE_TOOL, {"code": "sum(range(10))"}).content
    assert json.loads(result.content[0].text)["result_repr"] == "45"


@pytest.mark.parametrize("era", ERAS)
def test_a_served_task_has_its_request_as_a_prompt(era: str) -> None:
    task = task_of("close_order", 0)

    async def read(client: Client) -> tuple[list[str], Any]:
        names = [prompt.name for prompt in (await client.list_prompts()).prompts]
        with pytest.raises(MCPError, match="no prompt 'other'"):
            await client.get_prompt("other")
        return names, (await client.get_prompt("task")).messages[0]

    names, message = in_memory(serve_task(task), era, read)
    assert names == ["task"]
    assert (message.role, message.content.text) == ("user", task.messages[-1].content)


@pytest.mark.parametrize("era", ERAS)
def test_a_world_that_fails_is_an_error_of_the_protocol(era: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Any, tool: str, arguments: Any) -> Observation:
        raise RuntimeError("the bank is closed")

    world = type("Failing", (WORLDS["banking"],), {"call": fail})
    with refused("the world failed, not the call: RuntimeError: the bank is closed; the episode has ended"):
        in_memory(replace(serve_world("banking"), world=world), era, lambda client: client.call_tool("get_customer", {"customer": "c001"}))


def test_arguments_nested_too_deeply_are_refused() -> None:
    deep: Any = "x"
    for _ in range(100):
        deep = [deep]
    with refused("nested too deeply"):
        in_memory(serve_world("banking"), "2026-07-28", lambda client: client.call_tool("get_customer", {"customer": deep}))


# ---- over stdio -------------------------------------------------------------------------------------------------------------


def stdio(*options: str) -> StdioServerParameters:
    return StdioServerParameters(command=HEADRACE[0], args=[*HEADRACE[1:], "serve", *options], env={"PYTHONPATH": str(ROOT)})


@pytest.mark.parametrize("era", ERAS)
def test_the_same_calls_over_stdio_give_the_same_observations_as_in_process(era: str, tmp_path: Path) -> None:
    task = task_of("close_order", 0)
    log = tmp_path / "calls.jsonl"

    async def play() -> list[tuple[str, bool]]:
        seen = []
        async with Client(stdio("retail", "--seed", str(task.world_seed), "--log", str(log)), mode=era) as client:
            if era == "legacy":
                assert client.instructions == WORLDS["retail"].system_prompt
            for call in task.plan.calls:
                result = await client.call_tool(call.tool, call.arguments)
                seen.append((result.content[0].text, result.is_error))
            unknown = await client.call_tool("fly", {})
            seen.append((unknown.content[0].text, unknown.is_error))
        return seen

    world = make_world("retail", task.world_seed)
    alone = [world.call(call.tool, call.arguments) for call in task.plan.calls] + [world.call("fly", {})]
    assert run(play()) == [(each.content, each.is_error) for each in alone]
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    assert [row["observation"] for row in rows] == [each.content for each in alone]
    assert {row["seed"] for row in rows} == {task.world_seed}


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, None])
def test_a_server_on_stdio_ends_cleanly(how: signal.Signals | None) -> None:
    """By a signal, or when its client closes stdin; nothing but the protocol is on stdout."""
    process = subprocess.Popen(
        [*HEADRACE, "serve", "banking"], env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    process.stdin.write('{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["id"] == 1
    if how is None:
        process.stdin.close()
    else:
        process.send_signal(how)
    assert process.wait(10) == 0
    assert process.stdout.read() == ""
    assert process.stderr.read() == ""
    process.stdin.close()
    process.stdout.close()
    process.stderr.close()

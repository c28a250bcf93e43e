"""`headrace serve` and `headrace verify-log`: what they refuse, in words; a stored task is served and judged by its log."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli.main import app
from storage.record_rows import tasks_frame
from storage.records import CODE_TOOL, Call, Task
from storage.store import Store, part_id
from synth.worlds import WORLDS, make_world
from synth.worlds.declarative.compile import compile_file
from synth.worlds.stored_worlds import worlds_frame
from synth.writing.new_spec import new_spec
from tests.module_graph import ROOT
from tests.synth.retail_tasks import task_of

with contextlib.suppress(ImportError):
    import mcp.client.stdio  # noqa: F401  (now, because what is stderr at its import gets the servers' lines)

SDK = "importlib.metadata.version"


def run(*arguments: str, code: int = 0, stdin: str = "") -> str:
    result = CliRunner().invoke(app, list(arguments), input=stdin)
    assert result.exit_code == code, result.output
    assert len(result.stderr.splitlines()) <= 3
    return result.output


@pytest.fixture
def task() -> Task:
    return task_of("close_order", 0)


@pytest.fixture
def store(task: Task, tmp_path: Path) -> Store:
    made = Store(tmp_path / "store")
    made.commit([made.write("tasks", part_id("tasks", [task.id], {}, 1), tasks_frame([task]))])
    return made


def test_the_sdk_is_not_loaded_until_it_is_needed() -> None:
    script = "import sys, flows.cli.main; print([name for name in ('mcp', 'mcp_types', 'uvicorn', 'starlette') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name a world to serve, or a task with --task ID; `headrace worlds list` lists the worlds"),
        (["banking", "--task", "task-1"], "name a world to serve, or a task with --task ID"),
        (["bankin"], "no world is called 'bankin'; did you mean 'banking'?"),
        (["no.yaml"], "no.yaml"),
        (["banking", "--host", "0.0.0.0"], "--host and --port go with --http"),
        (["banking", "--port", "80"], "--host and --port go with --http"),
        (["--task", "task-1", "--seed", "3"], "--seed goes with a world; a task has a seed of its own"),
        (["banking", "--log", "no/folder/calls.jsonl"], "no/folder/calls.jsonl: cannot be written"),
        (["banking", "--http", "--host", "no.such.host.invalid"], "cannot listen on no.such.host.invalid, port 8765"),
        (["banking", "--http", "--port", "99999"], "less than or equal to 65535"),
    ],
)
def test_what_cannot_be_served_is_said_in_words(arguments: list[str], message: str) -> None:
    pytest.importorskip("mcp", reason="the extra live is not installed")
    assert message in " ".join(run("serve", *arguments, code=2).split())


def test_without_the_sdk_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_version(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(SDK, no_version)
    assert "serving needs the MCP SDK: pip install 'headrace[live]'" in run("serve", "banking", code=2)
    monkeypatch.setattr(SDK, lambda name: "1.30.0")
    assert "serving needs version 2 of the MCP SDK, and 1.30.0 is installed" in run("serve", "banking", code=2)


def use(options: Sequence[str], calls: Sequence[Call] = ()) -> tuple[list[str], list[str]]:
    """The names of the tools of a server on stdio, and the results of these calls."""
    mcp = pytest.importorskip("mcp", reason="the extra live is not installed")
    command = ["-P", "-m", "flows.cli.main", "serve", *options]
    server = mcp.StdioServerParameters(command=sys.executable, args=command, env={"PYTHONPATH": str(ROOT)})

    async def connect() -> tuple[list[str], list[str]]:
        async with mcp.Client(server, mode="legacy") as client:
            tools = [tool.name for tool in (await client.list_tools()).tools]
            return tools, [(await client.call_tool(call.tool, call.arguments)).content[0].text for call in calls]

    return asyncio.run(connect())


def test_a_stored_task_is_served_and_judged_by_its_log(task: Task, store: Store, tmp_path: Path) -> None:
    log = tmp_path / "calls.jsonl"
    tools, seen = use(["--task", task.id[:12], "--store", str(store.root), "--log", str(log)], task.plan.calls)
    world = make_world(task.world, task.world_seed)
    assert seen == [world.call(each.tool, each.arguments).content for each in task.plan.calls]
    assert set(tools) <= set(task.tools)
    verify = ["verify-log", str(log), "--task", task.id, "--store", str(store.root)]
    assert json.loads(run(*verify))["solved"] is None
    assert json.loads(run(*verify, "--answer", task.plan.answer))["solved"] is True
    assert "has no episode 'x'" in run(*verify, "--episode", "x", code=2)
    assert "has no task 'task-f00'" in run("verify-log", str(log), "--task", "task-f00", "--store", str(store.root), code=2)


def test_a_world_of_the_stores_own_is_served(store: Store, tmp_path: Path) -> None:
    spec = tmp_path / "my.yaml"
    spec.write_text(new_spec(("en",), None, spec))
    world = compile_file(spec)
    WORLDS.register(world)
    store.commit([store.write("worlds", part_id("worlds", [world.name], {}, 1), worlds_frame([world.name]))])
    tools, _ = use([world.name, "--store", str(store.root)])
    assert set(tools) | {CODE_TOOL} == {tool.name for tool in world.tools} | {CODE_TOOL}

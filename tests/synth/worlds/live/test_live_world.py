"""A live world is a world like any other: calls, state, changes, snapshots, copies; and its failures are nobody's but its own."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from storage.errors import BadInput
from storage.records import Message, Outcome, Plan, Success, Task, ToolCall
from synth.engines.base import ChatAnswer
from synth.explore.conformance import measure
from synth.rollouts.episode import Episode
from synth.worlds.live.copies.copy_errors import ServerDied, ServerHung
from synth.worlds.live.live_spec import LiveSpec, dump_live_spec, parse_live_spec
from synth.worlds.live.live_world import LiveWorld, make_live_world
from synth.worlds.live.lock import Check, LiveTool, Lock
from tests.synth.live_servers.notes_server import TOOLS
from tests.synth.live_servers.specs import NEEDS_BOX, api_spec, functions_spec, hostile_spec, notes_spec

pytestmark = NEEDS_BOX
READS = {"list_notes", "get_note"}


def world_of(spec: LiveSpec, restore: str = "live") -> type[LiveWorld]:
    """The world of the notes server, as if it had been measured."""
    tools = tuple(
        LiveTool(
            name=tool["name"], description=tool["description"], parameters=tool["inputSchema"], changes_state=tool["name"] not in READS
        )
        for tool in TOOLS
    )
    checks = (Check(name="errors_change_nothing", holds=True),)
    return make_live_world(spec, Lock(spec=spec.id, tools=tools, restore=restore, checks=checks, uses=("synthesis", "verification")))


@pytest.fixture(scope="module")
def notes() -> Iterator[type[LiveWorld]]:
    world = world_of(notes_spec())
    yield world
    world.pool.close()


@pytest.mark.parametrize("restore", ["live", "restart", "replay"])
def test_a_snapshot_is_restored_exactly_in_every_way(restore: str) -> None:
    kind = world_of(notes_spec(), restore)
    world = kind(0)
    start, state = world.snapshot(), world.state()
    world.call("move_note", {"note_id": "n2", "shelf": "office"})
    middle, moved = world.snapshot(), world.state()
    world.call("remove_note", {"note_id": "n2"})
    assert world.changes() == {"n2": None}
    world.restore(middle)
    assert world.state() == moved
    assert world.changes() == {"n2/shelf": "office"}
    assert json.loads(world.call("get_note", {"note_id": "n2"}).content)["shelf"] == "office"
    world.restore(start)
    assert world.state() == state
    assert world.changes() == {}
    kind.pool.close()


def test_bad_calls_are_error_observations_and_change_nothing(notes: type[LiveWorld]) -> None:
    world = notes(0)
    for tool, arguments in (
        ("no_such_tool", {}),
        ("move_note", "{"),
        ("move_note", "[]"),
        ("move_note", {"note_id": "n1"}),
        ("move_note", {"note_id": "n1", "shelf": "moon"}),
        ("get_note", {"note_id": "n99"}),
        ("get_note", {"note_id": 7}),
    ):
        observation = world.call(tool, arguments)  # type: ignore[arg-type]
        assert observation.is_error
        assert "error" in json.loads(observation.content)
    assert world.changes() == {}


def test_a_world_that_is_only_looked_at_starts_nothing() -> None:
    kind = world_of(notes_spec(command=["/no/such/server"]))
    assert [tool.name for tool in kind(0).tools] == [tool["name"] for tool in TOOLS]
    assert kind(0).changes() == {}


def test_copies_side_by_side_do_not_see_each_other(notes: type[LiveWorld]) -> None:
    def work(number: int) -> dict[str, object]:
        world = notes(0)
        world.call("add_note", {"title": f"note {number}", "text": "x"})
        return {path: value for path, value in world.changes().items() if path.endswith("title")}

    with ThreadPoolExecutor(16) as threads:
        seen = list(threads.map(work, range(32)))
    assert seen == [{"n7/title": f"note {number}"} for number in range(32)]


def test_a_collected_world_gives_its_copy_back(notes: type[LiveWorld]) -> None:
    notes.pool.close()
    for _ in range(5):
        world = notes(0)
        world.call("remove_note", {"note_id": "n1"})
        del world
    assert len(notes.pool._idle) == 1
    assert "n1" in notes(0).state()


def test_functions_have_another_state_in_every_seed(tmp_path: Path) -> None:
    measured = measure(functions_spec())
    assert measured.lock.uses == ("synthesis", "verification", "rl")
    kind = make_live_world(measured.spec, measured.lock)
    first, second = kind(0), kind(1)
    assert first.state() != second.state()
    assert kind(1).state() == second.state()
    tool = next(tool for tool in kind.tools if tool.name == "set_status")
    assert tool.parameters["properties"]["status"] == {
        "enum": ["open", "packed", "sent"],
        "type": "string",
        "description": "Its new status.",
    }
    assert first.call("set_status", {"order_id": "o10", "status": "lost"}).is_error
    snapshot = first.snapshot()
    assert not first.call("set_status", {"order_id": "o10", "status": "sent"}).is_error
    assert first.changes() == {"orders/o10/status": "sent"}
    first.restore(snapshot)
    assert first.changes() == {}
    kind.pool.close()


def test_an_http_api_runs_in_the_box(tmp_path: Path) -> None:
    from tests.synth.live_servers.shop_api import DESCRIPTION

    description = tmp_path / "api.json"
    description.write_text(json.dumps(DESCRIPTION))
    measured = measure(api_spec(description))
    assert "verification" in measured.lock.uses
    assert {tool.name: tool.changes_state for tool in measured.lock.tools} == {
        "list_items": False, "get_item": False, "delete_item": True, "set_price": True,
    }  # fmt: skip
    world = make_live_world(measured.spec, measured.lock)(0)
    assert json.loads(world.call("get_item", {"item_id": "i1"}).content) == {"item_id": "i1", "name": "mug", "price": 7, "stock": 3}
    assert (
        world.call("get_item", {"item_id": "i9"}).content
        == '{"error": "{\\"status\\": 404, \\"detail\\": {\\"detail\\": \\"no such item\\"}}"}'
    )
    assert not world.call("set_price", {"item_id": "i1", "price": 9}).is_error
    assert world.changes() == {"i1/price": 9}


# ---- failures ----------------------------------------------------------------------------------------------------------


def test_a_hang_and_a_crash_are_told_apart_and_survived() -> None:
    import signal

    kind = world_of(notes_spec(limits={"call_s": 0.5}))
    for number, error in ((signal.SIGSTOP, ServerHung), (signal.SIGKILL, ServerDied)):
        world = kind(0)
        world.call("list_notes", {})
        assert world._server is not None
        world._server.signal(number)
        with pytest.raises(error):
            world.call("list_notes", {})
        assert not kind(0).call("list_notes", {}).is_error
    kind.pool.close()


@pytest.mark.parametrize("attack", ["never_answer", "huge_answer", "use_memory"])
def test_a_failing_server_is_never_blamed_on_the_policy(attack: str) -> None:
    spec = hostile_spec(limits={"call_s": 1, "memory_mib": 200, "answer_mib": 4})
    tool = LiveTool(name="attack", description="", parameters={"type": "object", "properties": {}}, changes_state=True)
    kind = make_live_world(spec, Lock(spec=spec.id, tools=(tool,), restore="live"))
    opening = (Message(role="user", content="go"),)
    task = Task(
        id="task-1", world=kind.name, world_seed=0, intent="x", leaf="x", frame_id="x", slots={}, language="en", messages=opening,
        tools=("attack",), plan=Plan(), success=Success(), difficulty=1, division="seed",
    )  # fmt: skip
    episode = Episode(task, 0, 8, kind=kind)
    call = ToolCall.model_validate({"id": "c", "function": {"name": "attack", "arguments": json.dumps({"attack": attack, "host": {}})}})
    episode.step(ChatAnswer(message=Message(role="assistant", tool_calls=(call,)), finish_reason="tool_calls"))
    assert episode.outcome in (Outcome.INFRA_FAILURE, None)
    if episode.outcome is None:  # the program failed inside the server, which told it as an error
        assert "error" in (episode.messages[-1].content or "")
    else:
        assert "Server" in episode.failure
    kind.pool.close()


# ---- the file ----------------------------------------------------------------------------------------------------------


def test_a_spec_survives_its_file() -> None:
    import yaml

    spec = notes_spec(errors=["^Error: "], fixed={"key": 1}, clock="2026-05-20 09:00:00")
    assert parse_live_spec(yaml.safe_load(dump_live_spec(spec)), "x") == spec


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({"live": "Shop", "command": ["x"]}, "a name has lower-case letters"),
        ({"live": "shop"}, "say what to start"),
        ({"live": "shop", "command": ["x"], "url": "http://x"}, "say what to start"),
        ({"live": "shop", "comand": ["x"]}, "did you mean 'command'"),
        ({"live": "shop", "command": ["x"], "errors": ["("]}, "is no regular expression"),
        ({"live": "shop", "command": ["x"], "state": [{"files": "*", "sqlite": "x"}]}, "one of files, sqlite, json, jsonl, calls"),
        ({"live": "shop", "command": ["x"], "isolation": "docker"}, "needs an `image`"),
        ({"live": "shop", "command": ["x"], "isolation": "none", "clock": "2026-05-20"}, "`clock` needs isolation: bubblewrap"),
        ({"live": "shop", "command": ["x"], "headers": {"A": "b"}}, "`headers` are for `url` and `openapi`"),
        ({"live": "shop", "url": "http://x", "headers": {"A": "${KEY}"}}, "`headers` name ${KEY}, which is none of `secrets`"),
        (["live"], "a mapping that begins with `live: NAME`"),
    ],
)
def test_a_bad_file_is_refused_in_words(raw: object, said: str) -> None:
    with pytest.raises(BadInput, match=None) as refused:
        parse_live_spec(raw, "my.yaml")
    assert said in str(refused.value)
    assert str(refused.value).startswith("my.yaml: ")


def test_secrets_come_from_the_environment_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTES_KEY", raising=False)
    kind = world_of(notes_spec(secrets=["NOTES_KEY"]))
    with pytest.raises(BadInput, match="set the environment variable NOTES_KEY"):
        kind(0).call("list_notes", {})
    monkeypatch.setenv("NOTES_KEY", "hush-hush")
    world = kind(0)
    assert not world.call("list_notes", {}).is_error
    assert "hush-hush" not in json.dumps(kind.source) + dump_live_spec(kind.spec)
    assert os.environ["NOTES_KEY"] == "hush-hush"
    kind.pool.close()

"""`headrace worlds connect` and `explore`: from a command to a world that is synthesised in, in another process and store."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli.main import app
from storage.records import Message
from storage.store import Store, part_id
from synth.engines.base import ChatAnswer, ChatRequest
from synth.worlds import WORLDS
from synth.worlds.live.live_files import live_world_of_file
from synth.worlds.stored_worlds import register_stored, worlds_frame
from tests.flows.cli.chat_server import chat_server
from tests.synth.explore.test_plan_writer import MOVE
from tests.synth.live_servers.specs import HERE, NEEDS_BOX

pytestmark = NEEDS_BOX


class Rewording:
    """Scripted: proposes one plan, and begins every request with `Listen`."""

    def chat(self, requests: list[ChatRequest]) -> list[ChatAnswer]:
        shown = requests[0].messages[-1].content or ""
        says = re.search(r"^The request: (.*)$", shown, re.M)
        answer = MOVE if says is None else {"requests": [f"Listen: {says[1]}"]}
        return [ChatAnswer(Message(role="assistant", content=json.dumps(answer)), "stop")]


def call(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(words))
    return result.exit_code, " ".join(result.output.split())


@pytest.fixture(scope="module")
def connected(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder in which the server of notes is connected, and the report."""
    folder = tmp_path_factory.mktemp("connected")
    file = folder / "notes.yaml"
    code, said = call(
        "worlds", "connect", "mcp", "--name", "notes", "--out", str(file), "--", sys.executable, str(HERE / "notes_server.py")
    )  # fmt: skip
    assert code == 0, said
    return file, said


def test_the_report_says_what_it_may_be_used_for(connected: tuple[Path, str]) -> None:
    _, said = connected
    assert "3 change the state: add_note, move_note, remove_note" in said
    assert "it may be used for synthesis, verification, rl" in said
    assert "next: headrace worlds explore" in said


def test_explored_tasks_are_a_world_that_a_store_keeps(connected: tuple[Path, str], tmp_path: Path) -> None:
    file, _ = connected
    code, said = call("worlds", "explore", str(file), "--seconds", "6", "--plans", "30")
    assert code == 0, said
    assert "admitted" in said
    world = live_world_of_file(file)
    assert len(world.intents) > 5
    WORLDS.register(world)
    store = Store(tmp_path / "store")
    rows = worlds_frame([world.name])
    assert json.loads(rows["spec"][0])["live"]["live"] == "notes"
    store.commit([store.write("worlds", part_id("worlds", [world.name], {}, 1), rows)])
    WORLDS.forget(world.name)
    register_stored(store)
    assert WORLDS[world.name] is world


def test_an_engine_proposes_plans_and_rewords_requests(
    connected: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine is scripted: one plan, then other words for whatever request it is shown."""
    file = tmp_path / "notes.yaml"
    for suffix in (".yaml", ".lock.json"):
        file.with_suffix(suffix).write_text(connected[0].with_suffix(suffix).read_text())
    options = ("--seconds", "1", "--plans", "3", "--engine", "openai:mock", "--proposed", "1")
    code, said = call("worlds", "explore", str(file), *options, "--dry-run")
    assert code == 0, said
    assert "nothing was asked and nothing was written" in said
    assert file.with_suffix(".lock.json").read_text() == connected[0].with_suffix(".lock.json").read_text()
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with chat_server(Rewording()) as url:
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        code, said = call("worlds", "explore", str(file), *options, "--store", str(tmp_path / "answers"))
    assert code == 0, said
    assert "1 plans proposed, 1 admitted" in said
    assert "tokens read" in said
    intents = live_world_of_file(file).lock.intents
    (proposed,) = [intent for intent in intents if intent.says[0].startswith("The note about the {")]
    assert proposed.says[1] == f"Listen: {proposed.says[0]}"
    code, said = call("worlds", "explore", str(file), *options, "--store", str(tmp_path / "answers"))
    assert code == 2
    assert "127.0.0.1" in said, "the server is gone"
    assert live_world_of_file(file).lock.intents == intents


def test_a_measured_key_is_not_written_twice(connected: tuple[Path, str], tmp_path: Path) -> None:
    file = tmp_path / "notes.yaml"
    file.write_text(connected[0].read_text().replace("state:\n- json: notes.json\n", "state: []\n"))
    assert "state: []" in file.read_text()
    code, said = call("worlds", "connect", "file", str(file))
    assert code == 0, said
    assert file.read_text().count("state:") == 1


def test_options_of_an_engine_need_one(connected: tuple[Path, str]) -> None:
    code, said = call("worlds", "explore", str(connected[0]), "--proposed", "3", "--dry-run")
    assert code == 2
    assert "--proposed, --dry-run: for --engine" in said


def test_a_changed_file_has_to_be_measured_again(connected: tuple[Path, str], tmp_path: Path) -> None:
    file, _ = connected
    copy = tmp_path / "notes.yaml"
    copy.write_text(file.read_text() + "hide: [remove_note]\n")
    copy.with_suffix(".lock.json").write_text(file.with_suffix(".lock.json").read_text())
    code, said = call("worlds", "explore", str(copy))
    assert code == 2
    assert "has changed since it was measured" in said


def test_measuring_again_keeps_the_comments_of_a_file(connected: tuple[Path, str], tmp_path: Path) -> None:
    file = tmp_path / "notes.yaml"
    by_hand = "# the notes of the office\n" + "".join(line for line in connected[0].read_text().splitlines(True) if "state" not in line)
    by_hand = by_hand.replace("- json: notes.json\n", "") + "limits: {call_s: 7}  # it is slow\n"
    file.write_text(by_hand)
    assert "json" not in by_hand
    code, said = call("worlds", "connect", "file", str(file))
    assert code == 0, said
    assert file.read_text() == by_hand + "state:\n- json: notes.json\n"
    assert live_world_of_file(file).spec.limits.call_s == 7


def test_some_tools_can_be_named(tmp_path: Path) -> None:
    file = tmp_path / "notes.yaml"
    words = ("--only", "list_notes", "--only", "get_note", "--name", "notes", "--out", str(file), "--", sys.executable)
    code, said = call("worlds", "connect", "mcp", *words, str(HERE / "notes_server.py"))
    assert code == 0, said
    assert [tool.name for tool in live_world_of_file(file).tools] == ["get_note", "list_notes"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["mcp", "npx", "-y", "@modelcontextprotocol/server-memory"], "install it first: npm install"),
        (["mcp", "no-such-command-here"], "no such command"),
        (["mcp", "--env", "X", "cat"], "--env X: write it as NAME=VALUE"),
        (["mcp", "--state", "{", "cat"], "is no JSON"),
        (["mcp", "--header", "Key=${KEY}", "http://127.0.0.1:9"], "`headers` name ${KEY}, which is none of `secrets`"),
        (["openapi", "no_such.json"], "no such file"),
        (["python", "no_such_module:Thing"], "No module named 'no_such_module'"),
        (["file", "no_such.yaml"], "no such file"),
    ],
)
def test_what_cannot_be_connected_is_said_in_words(words: list[str], said: str) -> None:
    code, output = call("worlds", "connect", *words)
    assert code == 2
    assert said in output


def test_a_live_file_is_not_checked_as_a_spec(connected: tuple[Path, str]) -> None:
    code, output = call("worlds", "check", str(connected[0]))
    assert code == 2
    assert "is a live world" in output

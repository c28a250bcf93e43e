"""Servers that are odd in one way, APIs that are odd in another, and boxes that are not bubblewrap's: used, or refused in words."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from storage.errors import BadInput
from synth.explore.conformance import Measured, measure
from synth.sandbox import Docker
from synth.sandbox.docker import IMAGE
from synth.worlds.live.copies.copy_errors import ServerHung
from synth.worlds.live.copies.live_server import LiveServer
from synth.worlds.live.json_references import MOST_NODES, without_references
from synth.worlds.live.live_files import TRUST, live_world_of_source, start_digest
from synth.worlds.live.live_spec import LiveSpec, parse_live_spec
from synth.worlds.live.lock import LiveTool, Lock
from synth.worlds.live.openapi import read_operations
from tests.synth.live_servers.specs import HERE, NEEDS_BOX, api_spec, notes_spec

pytestmark = NEEDS_BOX


def odd_spec(oddity: str, **changed: object) -> LiveSpec:
    raw = {"live": "odd", "command": [sys.executable, str(HERE / "odd_server.py"), oddity], **changed}
    return parse_live_spec(raw, "odd")


def names(measured: Measured) -> list[str]:
    return [tool.name for tool in measured.lock.tools]


# ---- tools and their schemas -------------------------------------------------------------------------------------------


def test_two_thousand_tools_are_too_many_unless_some_are_named() -> None:
    with pytest.raises(BadInput, match=r"the server has 2,000 tools, and a world at most 300; name those that belong together \(--only"):
        measure(odd_spec("many"))
    assert names(measure(odd_spec("many", only=["tool_3", "tool_1999"]))) == ["tool_1999", "tool_3"]


def test_all_pages_of_tools_are_read() -> None:
    server = LiveServer(odd_spec("pages"))
    assert [tool.name for tool in server.tools()] == [f"tool_{number}" for number in range(25)]
    server.close()


def test_a_reference_in_a_circle_ends_in_any_value() -> None:
    (tool,) = measure(odd_spec("circle")).lock.tools
    node = tool.parameters["properties"]["node"]
    assert node["properties"] == {"name": {"type": "string"}, "next": {}}


def test_references_that_explode_make_no_large_schema() -> None:
    measured = measure(odd_spec("fan_out"))
    assert names(measured) == ["grow", "look"]
    assert any("grow: its schema cannot be read (with its references replaced it has more than" in note for note in measured.notes)
    assert len(json.dumps(measured.lock.tools[0].parameters)) < 1000


def test_a_tool_called_like_ours_is_left_out_and_said() -> None:
    measured = measure(odd_spec("named_like_ours"))
    assert names(measured) == ["look"]
    assert any("run_python is left out" in note for note in measured.notes)


def test_a_server_without_hints_is_measured_by_what_its_tools_do() -> None:
    """No tool of it has annotations, and none of its names says that it reads: each may change the state."""
    measured = measure(odd_spec("plain"))
    assert [(tool.name, tool.changes_state) for tool in measured.lock.tools] == [("touch", True)]


def test_a_server_whose_tools_change_is_used_for_nothing() -> None:
    measured = measure(odd_spec("changes"))
    assert [check.name for check in measured.failed][:1] == ["tools_stay"]
    assert measured.lock.uses == ()


def test_a_slow_tool_is_called_seldom() -> None:
    """Two seconds a call, and some forty sequences of calls: only those of the comparison have it."""
    began = time.monotonic()
    measured = measure(odd_spec("slow"))
    assert any("slow, so it was called once and counts in few checks: ponder (2.1 s)" in note for note in measured.notes)
    assert time.monotonic() - began < 30


def test_odd_schemas_are_read_as_far_as_they_say_something() -> None:
    """No choices, a bound below one, items that may be anything, a parameter called like a keyword, a name that begins with a digit."""
    measured = measure(odd_spec("odd_schemas"))
    assert names(measured) == ["choose"]
    properties = measured.lock.tools[0].parameters["properties"]
    assert set(properties) == {"none", "small", "any", "definitions", "2fa"}
    assert "verification" not in measured.lock.uses or measured.lock.tools


def test_every_choice_of_a_read_is_tried() -> None:
    """Two of four choices, of a parameter that may be left out, show what varies, each in a form of its own."""
    measured = measure(odd_spec("choices"))
    assert {volatile.shown for volatile in measured.spec.volatile} == {"(seconds since 1970)", "(a UUID)"}
    assert all(check.holds for check in measured.lock.checks if check.name == "same_observations")


def test_a_toggle_in_memory_is_no_state_and_only_replay_goes_back() -> None:
    measured = measure(odd_spec("toggles"))
    assert {check.name: check.holds for check in measured.lock.checks}["state_is_complete"] is False
    assert measured.lock.restore == "replay"
    assert "verification" not in measured.lock.uses


def test_an_old_version_of_the_protocol_is_refused_in_words() -> None:
    with pytest.raises(BadInput, match="the server speaks a version of MCP that the SDK does not"):
        measure(odd_spec("old"))


# ---- results -----------------------------------------------------------------------------------------------------------


def test_every_kind_of_result_is_shown_as_text() -> None:
    server = LiveServer(odd_spec("kinds"))
    text = json.loads(server.call("look", {}).content)["result"]
    assert text.split("\n") == [
        "seen", "[image image/png, 8 bytes, sha256 4c4b6a3be1314ab8]", "of a file", "[resource_link file:///notes.txt]",
    ]  # fmt: skip
    assert json.loads(server.call("structured", {}).content) == {"sum": 3}
    server.close()


def test_progress_keeps_a_long_call_alive() -> None:
    """Six steps of 0.3 s each, of which the whole is longer than a call may be silent."""
    server = LiveServer(odd_spec("kinds", limits={"call_s": 0.9}))
    assert not server.call("wait", {}).is_error
    server.close()
    server = LiveServer(odd_spec("kinds", limits={"call_s": 0.15}))
    with pytest.raises(ServerHung, match=r"did not answer within 0.15 s \(`limits: \{call_s\}`\)"):
        server.call("wait", {})
    server.close()


@pytest.mark.parametrize("secret", ['hush"hush', "4711", "schlüssel-des-hauses"])
def test_a_secret_that_the_server_repeats_is_masked(monkeypatch: pytest.MonkeyPatch, secret: str) -> None:
    """In texts, structured contents, errors, descriptions and the state; as a text and as a number."""
    monkeypatch.setenv("ODD_KEY", secret)
    server = LiveServer(odd_spec("echo", secrets=["ODD_KEY"], state=[{"files": "**"}]))
    said = [server.call(tool, {}).content for tool in ("look", "say", "fail", "store")]
    said += [json.dumps(server.state()), *(f"{tool.description} {tool.parameters}" for tool in server.tools() if tool.name == "look")]
    for text in said:
        assert secret not in text and json.dumps(secret)[1:-1] not in text
        assert "(secret)" in text
    server.close()


# ---- APIs --------------------------------------------------------------------------------------------------------------


def described(paths: dict[str, Any]) -> str:
    return json.dumps({"openapi": "3.1.0", "paths": paths})


def test_three_hundred_errors_of_a_description_are_told_in_one_line(tmp_path: Path) -> None:
    broken = {"get": {"parameters": [{"$ref": "#/components/nowhere"}]}}
    file = tmp_path / "api.json"
    file.write_text(described({f"/things/{number}": broken for number in range(300)}))
    with pytest.raises(BadInput) as refused:
        read_operations(file)
    said = str(refused.value)
    assert "300 operations cannot be read" in said
    assert said.endswith("and 297 more")
    assert len(said) < 600


def test_dates_of_a_description_stay_texts(tmp_path: Path) -> None:
    file = tmp_path / "api.yaml"
    parameter = "{name: day, in: query, schema: {type: string, example: 2020-01-01}}"
    file.write_text(f"openapi: 3.1.0\npaths: {{/days: {{get: {{operationId: days, parameters: [{parameter}]}}}}}}\n")
    assert read_operations(file)["days"]["tool"]["inputSchema"]["properties"]["day"]["example"] == "2020-01-01"
    assert start_digest(api_spec(file))


def test_a_description_with_references_in_circles_and_fans_is_bounded() -> None:
    circle = {"defs": {"a": {"b": {"$ref": "#/defs/a"}}}}
    assert without_references({"$ref": "#/defs/a"}, circle) == {"b": {}}
    node = {"properties": {"definitions": {"type": "string"}, "next": {"$ref": "#"}}, "definitions": {"x": {}}}
    assert without_references(node, node)["properties"]["next"]["properties"] == {"definitions": {"type": "string"}, "next": {}}
    fan = {"defs": {f"d{level}": {str(number): {"$ref": f"#/defs/d{level + 1}"} for number in range(10)} for level in range(11)}}
    fan["defs"]["d11"] = {}
    with pytest.raises(ValueError, match=f"more than {MOST_NODES:,} parts"):
        without_references({"$ref": "#/defs/d0"}, fan)
    with pytest.raises(ValueError, match="lies elsewhere"):
        without_references({"$ref": "other.json#/a"}, {})


def test_a_changed_description_is_another_start(tmp_path: Path) -> None:
    from tests.synth.live_servers.shop_api import DESCRIPTION

    file = tmp_path / "api.json"
    file.write_text(json.dumps(DESCRIPTION))
    before = start_digest(api_spec(file))
    file.write_text(json.dumps(DESCRIPTION, indent=1))
    assert start_digest(api_spec(file)) == before
    file.write_text(described({"/things": {"get": {"operationId": "list_things"}}}))
    assert start_digest(api_spec(file)) != before


@pytest.fixture
def guarded_api() -> Iterator[tuple[str, list[str]]]:
    """An HTTP API on this machine that asks for a key, and the headers that it got."""
    got: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(self.headers.get("Authorization", ""))
            self.send_error(404)

        def do_GET(self) -> None:
            if self.path == "/away":
                self.send_response(302)
                self.send_header("Location", f"http://127.0.0.2:{self.server.server_address[1]}/things")
                self.end_headers()
                return
            got.append(self.headers.get("Authorization", ""))
            is_known = got[-1] == "Bearer hush-hush"
            self.send_response(200 if is_known else 401)
            self.end_headers()
            self.wfile.write(b'{"things": 3}' if is_known else b'{"detail": "who are you?"}')

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("0.0.0.0", 0), Handler)  # also as 127.0.0.2, which is another host
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", got
    server.shutdown()


def test_headers_with_secrets_reach_an_api_and_no_other_host(
    guarded_api: tuple[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, got = guarded_api
    monkeypatch.setenv("SHOP_KEY", "hush-hush")
    file = tmp_path / "api.json"
    guessed = {"name": "Authorization", "in": "header", "schema": {"type": "string"}}
    operations = {"list_things": "/things", "go_away": "/away"}
    file.write_text(described({path: {"get": {"operationId": name, "parameters": [guessed]}} for name, path in operations.items()}))
    raw: dict[str, Any] = {"live": "shop", "openapi": {"file": str(file), "base_url": url}, "network": True, "secrets": ["SHOP_KEY"]}
    server = LiveServer(parse_live_spec({**raw, "headers": {"Authorization": "Bearer ${SHOP_KEY}"}}, "shop"))
    assert json.loads(server.call("list_things", {}).content) == {"things": 3}
    assert json.loads(server.call("list_things", {"Authorization": "Bearer mine"}).content) == {"things": 3}
    assert server.call("go_away", {}).is_error
    assert got == ["Bearer hush-hush"] * 2
    assert not any("hush" in (entry.data or b"").decode() for entry in server.contents().values())
    server.close()
    server = LiveServer(parse_live_spec(raw, "shop"))
    assert server.call("list_things", {}).is_error
    server.close()
    assert got[2:] == [""]


def test_headers_reach_a_server_at_a_url(guarded_api: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """The API is no MCP server, so the session is refused; it has seen the header."""
    url, got = guarded_api
    monkeypatch.setenv("SHOP_KEY", "hush-hush")
    spec = parse_live_spec({"live": "far", "url": url, "secrets": ["SHOP_KEY"], "headers": {"Authorization": "Bearer ${SHOP_KEY}"}}, "far")
    with pytest.raises(BadInput, match="the server cannot be used") as refused:
        measure(spec)
    assert "hush" not in str(refused.value)
    assert got
    assert set(got) == {"Bearer hush-hush"}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"command": [], "url": "http://127.0.0.1:9/mcp"}, "a server elsewhere"),
        ({"network": True}, "network"),
        ({"isolation": "none"}, "isolation: none"),
        ({"secrets": ["ODD_KEY"]}, "secrets"),
    ],
)
def test_a_world_of_a_store_gets_nothing_without_trust(changed: dict[str, object], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = odd_spec("plain", **changed)
    lock = Lock(spec=spec.id, tools=(LiveTool(name="touch", description="", parameters={}, changes_state=True),), restore="none")
    source = {"live": spec.model_dump(mode="json", by_alias=True, exclude_defaults=True), "lock": lock.model_dump(mode="json")}
    monkeypatch.delenv(TRUST, raising=False)
    with pytest.raises(BadInput, match=f"wants {said}; set HEADRACE_TRUST_STORES=1"):
        live_world_of_source(source, "the store")
    monkeypatch.setenv(TRUST, "1")
    assert live_world_of_source(source, "the store").spec == spec


# ---- other boxes -------------------------------------------------------------------------------------------------------


def test_a_server_runs_in_a_container(docker_engine: Docker, monkeypatch: pytest.MonkeyPatch) -> None:
    if docker_engine.url:
        monkeypatch.setenv("DOCKER_HOST", docker_engine.url)
    spec = notes_spec(command=["python3", str(HERE / "notes_server.py")], mounts=[str(HERE)], isolation="docker", image=IMAGE)
    server = LiveServer(spec)
    assert not server.call("move_note", {"note_id": "n1", "shelf": "travel"}).is_error
    snapshot = server.snapshot()
    assert server.state()["n1"]["shelf"] == "travel"
    server.call("remove_note", {"note_id": "n1"})
    server.restore(snapshot, "restart")
    assert server.state()["n1"]["shelf"] == "travel"
    server.close()

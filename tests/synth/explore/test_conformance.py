"""The measurement of live worlds finds what servers are not: each lie of the server of notes is caught, and the honest one is trusted."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from storage.errors import BadInput
from synth.explore.conformance import Measured, measure
from synth.worlds.live.copies.server_box import FORK_SERVER
from tests.synth.live_servers.notes_server import LIES
from tests.synth.live_servers.specs import NEEDS_BOX, notes_spec

pytestmark = NEEDS_BOX
CAUGHT = {
    "read_writes": "reads_write_nothing",
    "random_ids": "same_state",
    "memory_only": "state_is_complete",
    "shared": "copies_are_apart",
    "errors_as_text": "errors_are_marked",
    "late": "nothing_comes_late",
    "error_with_effect": "errors_change_nothing",
    "cursor": "reads_write_nothing",
    "order": "same_observations",
}
"""Lie -> the check that must fail."""


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Measured]:
    shared = tmp_path_factory.mktemp("shared") / "notes.json"

    def work(lie: str) -> Measured:
        unboxed = {"isolation": "none", "variables": {"SHARED_FILE": str(shared), "STDIO_SERVER": str(FORK_SERVER.parent)}}
        return measure(notes_spec(lie, **(unboxed if lie == "shared" else {})))

    with ThreadPoolExecutor(5) as threads:
        return dict(zip(LIES, threads.map(work, LIES), strict=True))


def test_an_honest_server_may_be_used_for_all(measured: dict[str, Measured]) -> None:
    honest = measured[""]
    assert [check for check in honest.lock.checks if not check.holds] == []
    assert honest.lock.uses == ("synthesis", "verification", "rl")
    assert {tool.name for tool in honest.lock.tools if tool.changes_state} == {"add_note", "move_note", "remove_note"}
    assert honest.lock.restore == "live"


@pytest.mark.parametrize("lie", CAUGHT)
def test_the_lie_is_caught_by_its_check(measured: dict[str, Measured], lie: str) -> None:
    assert CAUGHT[lie] in [check.name for check in measured[lie].failed]


@pytest.mark.parametrize("lie", ["read_writes", "random_ids", "memory_only", "shared", "late", "cursor", "order"])
def test_a_liar_is_not_used_for_verification(measured: dict[str, Measured], lie: str) -> None:
    assert "verification" not in measured[lie].lock.uses


def test_what_varies_is_masked(measured: dict[str, Measured]) -> None:
    (volatile,) = measured["clock"].spec.volatile
    assert volatile.tool == "add_note"
    assert "verification" in measured["clock"].lock.uses


def test_the_way_back_is_measured(measured: dict[str, Measured]) -> None:
    assert measured["cache"].lock.restore == "restart"
    assert measured["next_id"].lock.restore == "replay"


def test_errors_that_are_texts_become_errors(measured: dict[str, Measured]) -> None:
    assert measured["errors_as_text"].spec.errors == ("^Error:",)


# ---- what cannot be connected ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"command": ["no-such-command-here"]}, "no such command"),
        ({"command": ["/bin/cat", "/etc/hostname"]}, "the server cannot be used"),
        ({"command": ["/bin/echo", "hello"]}, "1 lines of its stdout are no MCP messages"),
        ({"hide": ["no_such_tool"]}, "`hide` names no_such_tool"),
        ({"only": ["get_note"], "hide": ["get_note"]}, "no tool that can be offered"),
        ({"folder": "/no/such/folder"}, "no such folder"),
    ],
)
def test_what_cannot_be_connected_is_said_in_words(changed: dict[str, object], said: str) -> None:
    with pytest.raises(BadInput) as refused:
        measure(notes_spec(limits={"start_s": 5}, **changed))
    assert said in str(refused.value)


def test_a_server_that_needs_the_network_is_told_so(tmp_path: Path) -> None:
    import sys

    program = tmp_path / "needs_network.py"
    program.write_text("import urllib.request\nurllib.request.urlopen('http://example.com')\n")
    with pytest.raises(BadInput, match="allow it with --network"):
        measure(notes_spec(command=[sys.executable, str(program)]))

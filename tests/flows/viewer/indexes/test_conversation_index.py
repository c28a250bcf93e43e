"""Conversations are found by what was said in them, also beside one whose JSON DuckDB does not read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flows.viewer.indexes.conversation_index import ConversationIndex, ConversationSearch
from storage.errors import BadInput
from storage.store import Store
from tests.storage.conftest import write


def said(text: str) -> str:
    return json.dumps([{"role": "user", "content": text}, {"role": "assistant", "content": "Done."}])


@pytest.fixture
def index(tmp_path: Path) -> ConversationIndex:
    store = Store(tmp_path / "store")
    shared = {"world": "retail", "mode_coarse": "C>F", "accepted": True}
    draw = {"purpose": "eval_in", "checks": "{}", "turns": "[]", "draw": 0}
    store.commit(
        [
            write(
                store,
                "trajectories",
                shared | {"trajectory_id": "trajectory-1", "messages": said("a red Lamp"), "complexity": 1.0},
                shared | {"trajectory_id": "trajectory-2", "messages": said("half a pair \ud800 of lamps"), "complexity": 2.0},
            ),
            write(
                store,
                "rollouts",
                draw | {"rollout_id": "rollout-1", "task_id": "task-1", "outcome": "tool_failure", "messages": said("a blue lamp")},
                draw | {"rollout_id": "rollout-2", "task_id": "task-1", "outcome": "success", "messages": said("a chair")},
            ),
        ]
    )
    made = ConversationIndex(store, tmp_path / "cache")
    assert made.refresh(30), made.failure
    return made


def found(index: ConversationIndex, of: str, text: str, **chosen: str) -> list[str]:
    rows, _, _ = index.find(ConversationSearch(of, text, "", chosen), first=0, count=10)
    return [row["id"] for row in rows]


def test_a_text_is_found_in_any_case_and_half_a_surrogate_pair_hides_nothing(index: ConversationIndex) -> None:
    assert found(index, "trajectories", "LAMP") == ["trajectory-2", "trajectory-1"]
    assert found(index, "trajectories", "red") == ["trajectory-1"]
    assert found(index, "draws", "lamp") == ["rollout-1"]


def test_draws_are_narrowed_by_whose_fault_a_failure_was(index: ConversationIndex) -> None:
    assert found(index, "draws", "", fault="a tool's") == ["rollout-1"]
    _, count, facets = index.find(ConversationSearch("draws", "", "", {}), first=0, count=10)
    assert count == 2
    assert facets["fault"].values == [("a tool's", 1)]


def test_another_list_is_refused(index: ConversationIndex) -> None:
    with pytest.raises(BadInput, match="no list of weather"):
        found(index, "weather", "")

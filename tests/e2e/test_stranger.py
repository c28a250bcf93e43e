"""A stranger's own domain, or tools, become a training set with its card: the commands of the README."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from storage.records import CODE_TOOL, Message
from storage.store import Store
from synth.worlds import make_world
from synth.worlds.stored_worlds import register_stored
from tests.e2e.conftest import headrace

pytestmark = [pytest.mark.e2e, pytest.mark.server]
N = 40


def training_set(folder: Path) -> list[dict[str, Any]]:
    """The exported conversations of the store `s`, after a look at the card."""
    headrace("export", "--store", "s", "--out", "set", folder=folder, environment=dict(os.environ))
    card = (folder / "set" / "README.md").read_text()
    assert "## Diversity" in card and "tool_library@" in card
    assert "the worlds and tools of tool_library" in card, "whose the domain is"
    return [json.loads(line) for line in (folder / "set" / "sft.conversations.jsonl").read_text(encoding="utf-8").splitlines()]


def check_conversations(rows: list[dict[str, Any]], store: Store) -> None:
    """Every call of a conversation names a tool on offer; calls without faults give what the exported results say."""
    register_stored(store)
    seeds = dict(store.query("SELECT trajectory_id, world_seed FROM trajectories").iter_rows())
    replayed = 0
    for row in rows:
        offered = {tool["function"]["name"] for tool in row["tools"]}
        messages = [Message.model_validate(_with_text_arguments(message)) for message in row["messages"]]
        world = make_world(row["world"], seeds[row["id"]])
        results = {message.tool_call_id: message.content for message in messages if message.role == "tool"}
        for call in (call for message in messages for call in message.tool_calls):
            assert call.function.name in offered
            replayed += world.call(call.function.name, call.function.arguments).content == results[call.id]
    assert replayed >= len(rows), "hardly a result is what the world says"


def _with_text_arguments(message: dict[str, Any]) -> dict[str, Any]:
    """A message whose calls have their arguments as JSON text, as in OpenAI's form."""
    functions = [call["function"] for call in message.get("tool_calls", [])]
    texts = [function | {"arguments": json.dumps(function["arguments"], ensure_ascii=False)} for function in functions]
    calls = [call | {"function": function} for call, function in zip(message.get("tool_calls", []), texts, strict=True)]
    return message | ({"tool_calls": calls} if calls else {})


def test_a_domain_of_ones_own_becomes_a_training_set(prefect_server: str, tmp_path: Path) -> None:
    environment = dict(os.environ)
    headrace("worlds", "new", "mine.yaml", folder=tmp_path, environment=environment)
    assert "tool_library" in headrace("worlds", "check", "mine.yaml", folder=tmp_path, environment=environment)
    shown = headrace("synthesize", "--world", "mine.yaml", "--n", str(N), "--store", "s", folder=tmp_path, environment=environment)
    assert "report.html" in shown and (tmp_path / "report.html").stat().st_size > 1_000_000

    (tmp_path / "mine.yaml").unlink()
    made = Store(tmp_path / "s").query("SELECT trajectory_id FROM trajectories WHERE accepted AND len(tools_used) > 0 LIMIT 1").item()
    assert "plan, and what happened" in headrace("explain", made[:-1], "--store", "s", folder=tmp_path, environment=environment)
    rows = training_set(tmp_path)

    assert 0.9 * N <= len(rows) <= N
    check_conversations(rows, Store(tmp_path / "s"))
    refusals = [bool(json.loads(task)["success"]["refusal"]) for task in pl.read_parquet(tmp_path / "set" / "rl.prompts.parquet")["task"]]
    assert len(refusals) >= N / 2 and sum(refusals) < len(refusals) / 2, "enough tasks to train on, and most of them are acts"
    assert pl.read_parquet(tmp_path / "set" / "eval.prompts.parquet").height, "and some that are set aside"


def test_tools_of_a_catalogue_that_a_world_executes_become_a_training_set(prefect_server: str, tmp_path: Path) -> None:
    environment = dict(os.environ)
    headrace("worlds", "new", "mine.yaml", folder=tmp_path, environment=environment)
    names = ["get_member", "search_members", "get_tool", "search_tools", "get_loan", "list_loans_of_member", "renew_loan", "return_tool"]
    rows: list[dict[str, object]] = [{"name": name, "world": "mine.yaml"} for name in names]
    rows += [{"name": name, "description": f"Does {name}.", "inputSchema": {"type": "object"}} for name in ("send_mail", "send_text")]
    (tmp_path / "tools.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    headrace("synthesize", "--tools", "tools.jsonl", "--n", str(N), "--store", "s", folder=tmp_path, environment=environment)

    found = training_set(tmp_path)

    assert 0.9 * N <= len(found) <= N
    check_conversations(found, Store(tmp_path / "s"))
    used = {call["function"]["name"] for row in found for message in row["messages"] for call in message.get("tool_calls", ())}
    assert used <= {*names, CODE_TOOL}, "and programs, which any cluster may offer"

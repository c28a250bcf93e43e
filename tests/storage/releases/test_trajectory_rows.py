"""ATIF and ShareGPT: the same conversations in two other forms, checked by Harbor's own model where Harbor is installed."""

import json
import subprocess
from pathlib import Path

import pytest

from storage.errors import BadInput
from storage.records import FunctionCall, Message, ToolCall
from storage.releases.export import export
from storage.releases.export_folder import describe_export
from storage.releases.trajectory_rows import _said, _steps
from tests.storage.conftest import EXPERTS

HARBOR = Path(".venv-package-harbor/bin/python")


def read(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def call(name, number, arguments='{"id": 1}'):
    return ToolCall(id=f"c{number}", function=FunctionCall(name=name, arguments=arguments))


PARALLEL = (
    Message(role="system", content="be brief"),
    Message(role="user", content="both"),
    Message(role="assistant", content="I look", tool_calls=(call("a", 1), call("b", 2))),
    Message(role="tool", tool_call_id="c1", content="one"),
    Message(role="tool", tool_call_id="c2", content="two"),
    Message(role="assistant", content="done"),
)


def test_an_atif_trajectory_holds_each_call_with_its_result(sample, tmp_path):
    out = export(sample.store, sample.first_release, tmp_path / "out", "atif")
    rows = read(out / "seed.conversations.jsonl")
    assert [row["session_id"] for row in rows] == [expert.id for expert in EXPERTS]
    first = rows[0]
    assert first["schema_version"] == "ATIF-v1.7"
    assert [(step["step_id"], step["source"]) for step in first["steps"]] == [(1, "user"), (2, "agent"), (3, "agent")]
    assert first["steps"][1]["tool_calls"] == [
        {"tool_call_id": "c1", "function_name": "search_products", "arguments": {"category": "lamp", "max": 30}}
    ]
    assert first["steps"][1]["observation"]["results"] == [{"source_call_id": "c1", "content": EXPERTS[0].messages[2].content}]
    assert first["extra"]["task_id"] == EXPERTS[0].task_id and first["agent"]["tool_definitions"]


def test_results_of_parallel_calls_are_in_the_step_of_the_calls():
    steps = _steps(PARALLEL)
    assert [step["source"] for step in steps] == ["system", "user", "agent", "agent"]
    assert [result["source_call_id"] for result in steps[2]["observation"]["results"]] == ["c1", "c2"]


@pytest.mark.skipif(not HARBOR.exists(), reason="needs Harbor: `make packages` installs it into .venv-package-harbor")
def test_harbor_reads_the_trajectories(sample, tmp_path):
    out = export(sample.store, sample.second_release, tmp_path / "out", "atif")
    program = (
        "import json, sys; from harbor.models.trajectories import Trajectory\n"
        "for line in sys.stdin: Trajectory.model_validate(json.loads(line)); print('valid')"
    )
    lines = "".join(path.read_text() for path in out.glob("*.jsonl"))
    done = subprocess.run([str(HARBOR), "-c", program], input=lines, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["valid"] * len(lines.splitlines()) != []
    broken = lines.replace('"source_call_id": "c1"', '"source_call_id": "c9"')
    assert subprocess.run([str(HARBOR), "-c", program], input=broken, capture_output=True, text=True, check=False).returncode != 0


def test_sharegpt_alternates_calls_and_observations(sample, tmp_path):
    out = export(sample.store, sample.first_release, tmp_path / "out", "sharegpt")
    row = read(out / "seed.conversations.jsonl")[0]
    assert [turn["from"] for turn in row["conversations"]] == ["human", "function_call", "observation", "gpt"]
    assert json.loads(row["conversations"][1]["value"]) == {"name": "search_products", "arguments": {"category": "lamp", "max": 30}}
    assert [tool["name"] for tool in json.loads(row["tools"])] == ["search_products", "buy"]
    assert row["teacher"] == EXPERTS[0].teacher
    from storage.releases.export_rows import split_calls

    speakers = [_said(message)["from"] for message in split_calls(PARALLEL) if message.role != "system"]
    assert speakers == ["human", "function_call", "observation", "function_call", "observation", "gpt"]


@pytest.mark.parametrize("format", ["atif", "sharegpt"])
def test_tasks_without_a_conversation_are_left_out_and_the_card_says_so(sample, tmp_path, format):
    out = export(sample.store, sample.second_release, tmp_path / "out", format)
    assert sorted(path.name for path in out.glob("*.jsonl")) == ["sft2.conversations.jsonl"], "split rl holds prompts alone"
    card = (out / "README.md").read_text(encoding="utf-8")
    assert "Left out: tasks without a conversation" in card and "path: sft2.conversations.jsonl" in card
    assert "each as JSONL; " in describe_export(out)


def test_a_release_without_conversations_is_refused(sample, tmp_path):
    from storage.releases.release import ReleaseItem, make_release

    release = make_release(sample.store, "prompts", {"rl": [ReleaseItem("task", "task-3", "task-3")]}, {})
    with pytest.raises(BadInput, match="no conversations"):
        export(sample.store, release, tmp_path / "out", "atif")
    assert not (tmp_path / "out").exists()

"""Our manager among ROLL's real classes, in `.venv-roll`, with a scripted policy; skipped where `make roll` was not run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cluster.roll_sections import roll_stage
from benchmarks.cluster.roll_sections.roll_classes import SILENCE
from storage.records import Task
from synth.conversations.conversation_play import blueprint_of
from tests.synth.conversations import conversations
from tests.train.tiny_policies import retail_tasks

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(roll_stage.missing()), reason=roll_stage.missing() or "never"),
]

FAILS_ONCE, FAILS = 1, -1
SPOILT = '<tool_call>\n{"name": "list_orders", "arguments": {"user_id": }}\n</tool_call>'


@pytest.fixture(scope="module")
def tasks() -> list[Task]:
    """Six of one turn, of which the first four call tools, and two in which the user goes on."""
    plain = [task for task in retail_tasks(each=1) if len(roll_stage.expert_texts(task)) > 1][:6]
    return [*plain, *(task for task in conversations.tasks("retail", 12) if len(blueprint_of(task).turns) == 2)][:8]


@pytest.fixture(scope="module")
def figures(tasks, tmp_path_factory) -> Mapping[str, Mapping[str, Any]]:
    """One process plays: experts; a policy that says nothing; two broken worlds; the same without our filter; a policy that spoils one call
    and is cut at its limit once; and experts with room for one answer in the conversation that opens longest."""
    folder = tmp_path_factory.mktemp("roll") / "stage"
    roll_stage.write_stage(folder, tasks, groups=2, draws=2)
    experts = {task.id: roll_stage.expert_texts(task) for task in tasks}
    spoilt = dict(experts)
    spoilt[tasks[0].id] = [experts[tasks[0].id][0].replace("<|im_end|>", f"\n{SPOILT}<|im_end|>"), *experts[tasks[0].id][1:]]
    spoilt[tasks[1].id] = [*experts[tasks[1].id][:-1], experts[tasks[1].id][-1].replace("<|im_end|>", " and so on" * 1024)]
    base = {"gpus": 1, "openings": roll_stage.openings(tasks), "answers": experts}
    broken = {**base, "broken": {tasks[2].id: FAILS_ONCE, tasks[3].id: FAILS}}
    plays = {
        "experts": base,
        "silent": {**base, "answers": {task.id: [SILENCE] for task in tasks}},
        "broken": {**broken, "unread": {tasks[0].id: FAILS_ONCE}},
        "unfiltered": {**broken, "filtered": False},
        "spoilt": {**base, "answers": spoilt},
        "no room": {**base, "sequence_length": max(first_answers(folder, tasks).values())},
    }
    return dict(zip(plays, roll_stage.played(folder, *plays.values()), strict=True))


def first_answers(folder: Path, tasks: Sequence[Task]) -> dict[str, int]:
    """Tokens of each task's conversation up to its expert's first answer."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder / "policy")
    rows = [json.loads(line) for line in (folder / "data" / "rl.prompts.jsonl").read_text().splitlines()]
    offered = {row["id"]: json.loads(row["tools"]) for row in rows}
    said = {task.id: tokenizer(roll_stage.expert_texts(task)[0])["input_ids"] for task in tasks}
    render = partial(tokenizer.apply_chat_template, add_generation_prompt=True, enable_thinking=False, return_dict=False)
    openings = {task.id: render([one.to_openai() for one in task.messages], tools=offered[task.id]) for task in tasks}
    return {task.id: len(openings[task.id]) + len(said[task.id]) for task in tasks}


def test_experts_have_score_1_in_every_rollout_of_a_full_batch(figures):
    assert (figures["experts"]["tasks"], figures["experts"]["rollouts"], figures["experts"]["accepted"]) == (8, 16, 8)


def test_a_policy_that_says_nothing_has_none(figures):
    assert (figures["silent"]["rollouts"], figures["silent"]["accepted"]) == (16, 0)


def test_the_mask_of_every_batch_is_what_the_policy_sampled(figures):
    """In the controls a conversation ends before the policy has said all, which counts as missing."""
    assert {name: figures[name]["mask_errors"] for name in ("experts", "silent", "broken")} == {"experts": 0, "silent": 0, "broken": 0}
    assert figures["experts"]["sampled"] > 500


def test_members_of_a_group_share_a_task_and_open_as_the_chat_template_does(figures):
    assert [each["mixed_groups"] for each in figures.values()] == [0] * len(figures)
    assert [each["unlike_template"] for each in figures.values()] == [0] * len(figures)


def test_a_world_that_fails_once_is_played_again_and_one_that_stays_broken_is_in_no_full_batch(figures, tasks):
    assert (figures["broken"]["rollouts"], figures["broken"]["failed"]) == (16, 0)
    assert {tasks[0].id, tasks[2].id} <= set(figures["broken"]["accepted_tasks"])
    assert figures["unfiltered"]["failed"] > 0, "the control: without the filter it would count"


def test_a_call_that_rolls_parser_skips_and_an_answer_that_is_cut_end_the_conversation(figures, tasks):
    assert set(figures["spoilt"]["accepted_tasks"]) == {task.id for task in tasks[2:]}


def test_a_conversation_that_does_not_fit_is_a_failure_of_the_policy_and_stays_in_the_batch(figures):
    """Also its group, so the batch is whole; nothing is played again for it."""
    assert (figures["no room"]["tasks"], figures["no room"]["rollouts"], figures["no room"]["failed"]) == (8, 16, 0)
    assert figures["no room"]["accepted"] < 8

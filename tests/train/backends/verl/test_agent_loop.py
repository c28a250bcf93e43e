"""Our adapters in verl's real classes: its agent-loop worker, its datasets, its checks. `make verl` installs verl apart from ours."""

from __future__ import annotations

import json
import os
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from benchmarks.audits import mutations
from benchmarks.cluster.verl_sections.verl_classes import PYTHON
from benchmarks.cluster.verl_sections.verl_stage import write_configurations, write_stage
from benchmarks.harness import ROOT
from storage.records import Task
from synth.worlds import WORLDS, WorldName
from tests.synth.conversations.conversations import tasks as conversations
from tests.train.tiny_policies import retail_tasks

STARTER = ROOT / "synth" / "worlds" / "declarative" / "starter.yaml"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.exists(), reason=f"verl is not installed in {PYTHON.parents[1]}: make verl"),
]


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `verl_cases.py` prints of ten tasks: plain ones, ones with several user turns, and ones of a world that only the store has."""
    folder = tmp_path_factory.mktemp("verl")
    own = WORLDS[TypeAdapter(WorldName).validate_python(str(STARTER))]
    tasks: list[Task] = [*retail_tasks("order_status", "close_order", each=2), *conversations("retail", 4)]
    release = write_stage(folder, [*tasks, *mutations.draw_tasks(own, 2, random.Random(0))])
    write_configurations(folder, release, ["gspo"])
    command = [str(PYTHON), "-W", "ignore", str(Path(__file__).with_name("verl_cases.py")), str(folder)]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3_000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_an_experts_tokens_come_back_as_they_were_said_with_reward_1(facts):
    """The engine is shown what it said before, token by token, and an answer never gets more tokens than are left."""
    expert = facts["expert"]
    assert expert["reward"] == 1.0 and expert["prompts_grow"]
    assert len(expert["limits"]) == expert["answers"] and max(expert["limits"]) <= 1024


def test_a_wrong_mask_and_a_wrong_token_are_counted(facts):
    assert facts["wrong_masks"] == {"errors": [0, 1, 1]}


def test_what_is_known_of_a_rollout_goes_to_verl_and_to_a_line_of_its_own(facts):
    expert = facts["expert"]
    headrace, line = expert["fields"]["headrace"], expert["line"]
    assert headrace["outcome"] == "success" and headrace["turns"] == expert["num_turns"] == expert["answers"]
    assert expert["fields"]["reward_extra_info"] == {"success": 1.0, "turns": headrace["turns"], "calls": headrace["calls"]}
    assert expert["versions"] == [3, 2 + expert["answers"]], "of the weights of its first answer and its last"
    assert line["task_id"] == headrace["task_id"] and line["reward"] == 1.0 and line["uid"] == "u" and line["global_steps"] == 3
    assert line["trained_tokens"] < line["response_tokens"] and line["generate_s"] > 0


def test_an_answer_without_an_end_is_cut_and_fails(facts):
    assert facts["cut"] == {"reward": 0.0, "response": 1024, "trained": 1024, "logprobs": 1024, "outcome": "policy_failure"}


def test_what_does_not_fit_the_response_length_is_left_out_and_fails(facts):
    case = facts["no_room"]
    assert case["response"] == case["trained"] == case["first_answer"]
    assert (case["reward"], case["outcome"]) == (0.0, "policy_failure")


def test_a_malformed_call_beside_a_good_one_is_a_failure_of_the_policy(facts):
    """verl's parser alone would execute the good one."""
    assert facts["malformed"]["reward"] == 0.0 and facts["malformed"]["calls"] == 0


def test_a_rollout_whose_world_broke_is_not_stored_and_whose_fault_it_was_is_written(facts):
    case = facts["dropped"]
    assert case["stored"] == 1, "the group's other rollout is kept"
    assert case["status"] == "failure"
    (line,) = case["lines"]
    assert line["outcome"] == "infra_failure" and "the disk is gone" in line["failure"] and line["success"] is None


@pytest.mark.parametrize(
    ("case", "says"), [("silent_engine", "the engine returned no tokens"), ("long_prompt", "rollout.prompt_length is 10")]
)
def test_what_the_policy_did_not_cause_is_dropped(facts, case, says):
    assert facts[case]["stored"] == 0 and says in facts[case]["failure"]


def test_the_trainer_that_cannot_drop_is_refused(facts):
    assert facts["old_trainer"] == {"stored": 0}


def test_a_world_of_the_store_is_read_once_in_a_process(facts):
    assert facts["own_world"] == {"rewards": [1.0] * 3, "read": 1}


def test_worlds_that_block_hold_up_neither_the_event_loop_nor_each_other(facts):
    case = facts["slow_world"]
    assert case["ticks"] > 10 and case["seconds"] < 4 * 0.3 * case["calls"]


def test_verls_dataset_trains_every_answer_and_masks_what_the_tools_say(facts):
    """Also results of parallel calls, which verl's own class refuses."""
    assert facts["sft"] == {"errors": 0}


def test_verl_takes_rendered_stages_and_refuses_a_wrong_one(facts):
    assert len(facts["configurations"]) == 8
    assert {name: error for name, error in facts["configurations"].items() if error} == {}
    assert "Invalid loss_agg_mode" in facts["wrong_configuration"]["error"]

"""Packages as files: what each ecosystem's has, what it must not show a policy, and its own tool on it where that is installed."""

from __future__ import annotations

import json
import subprocess
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from storage.errors import BadInput
from storage.record_rows import tasks_frame
from storage.releases.release import EVALUATION_SPLITS, ReleaseItem, make_release
from storage.store import Store, part_id
from synth.packages.checks import check_harbor
from synth.packages.checks.check_package import CHECKS, check_package, find_programs
from synth.packages.checks.ecosystem_tool import Tool, open_package
from synth.packages.forms.for_harbor import LOG
from synth.packages.forms.forms_by_name import FORMS
from synth.packages.scripted_model import IDLE, ORACLE, ScriptedModel
from synth.packages.task_sources import of_release, of_worlds
from synth.packages.write_package import module_name, write_package
from synth.worlds import WORLDS
from synth.worlds.declarative.compile import compile_file

CONTENTS = of_worlds(["retail", "banking"], 8, "shop_tasks")


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    root = tmp_path_factory.mktemp("packages")
    return {name: write_package(CONTENTS, form, root / name / "shop_tasks") for name, form in FORMS.items()}


def by_id(tasks):
    return {split: {task.id: task for task in of_split} for split, of_split in tasks.items()}


@pytest.mark.parametrize("name", FORMS)
def test_a_package_is_whole_and_says_how_it_is_run(packages, name):
    folder = packages[name]
    card = (folder / "README.md").read_text()
    for words in ("## Run it", "```sh", "| train | retail |", "## Origin", "seed 0", "## Licence", "Apache-2.0", FORMS[name].requirement):
        assert words in card, words
    assert subprocess.run(["sha256sum", "-c", "--quiet", "SHA256SUMS"], cwd=folder, check=False).returncode == 0
    opened = open_package(folder)
    assert by_id(opened.tasks) == by_id(CONTENTS.tasks)
    assert (opened.form, opened.name) == (name, "shop_tasks")
    for path in folder.rglob("*.py"):
        compile(path.read_text(), str(path), "exec")


@pytest.mark.parametrize("name", FORMS)
def test_a_package_depends_on_headrace_and_its_ecosystem_alone(packages, name):
    texts = "\n".join(path.read_text() for path in packages[name].rglob("*.py"))
    modules = {
        line.split()[1] for line in texts.splitlines() if line.startswith(("from synth", "import synth", "from storage", "from flows"))
    }
    assert modules <= {"synth.packages.runtime", "synth.packages.episode_server"}
    for path in packages[name].rglob("pyproject.toml"):
        found = tomllib.loads(path.read_text())["project"]["dependencies"]
        assert [each.partition("=")[0].rstrip(">") for each in found] == ["headrace", FORMS[name].requirement.partition(">")[0]]


def test_the_tasks_of_a_release_are_packaged_with_its_origin_and_licences(tmp_path):
    store = Store(tmp_path / "store")
    trained, held_out = CONTENTS.tasks["train"], CONTENTS.tasks["eval_out"]
    store.commit([store.write("tasks", part_id("tasks", ["all"], {}, 1), tasks_frame([*trained, *held_out]))])
    splits = {"rl": trained[:3], EVALUATION_SPLITS: held_out[:1]}
    items = {split: [ReleaseItem("task", task.id, task.id) for task in tasks] for split, tasks in splits.items()}
    release = make_release(store, "mine", items, {})
    contents = of_release(store, release, "shop_tasks", {})
    assert by_id(contents.tasks) == by_id({"train": trained[:3], "eval_out": held_out[:1]})
    assert contents.licence == "Apache-2.0", "all of it is Headrace's"
    card = (write_package(contents, FORMS["inspect"], tmp_path / "shop_tasks") / "README.md").read_text()
    assert release in card and "Apache-2.0" in card


def test_a_second_package_replaces_the_first_and_foreign_files_are_not_touched(tmp_path):
    folder = write_package(CONTENTS, FORMS["harbor"], tmp_path / "shop_tasks")
    write_package(CONTENTS, FORMS["openenv"], folder)
    assert (folder / "openenv.yaml").exists() and not (folder / "train").exists()
    (folder / "server" / "notes.txt").write_text("mine")
    with pytest.raises(BadInput, match=r"server/notes\.txt"):
        write_package(CONTENTS, FORMS["harbor"], folder)


def test_no_agent_of_harbor_can_read_the_plan(packages):
    for folder in (packages["harbor"] / "train").iterdir():
        task = next(task for task in CONTENTS.all_tasks if task.id == folder.name)
        reachable = [folder / "instruction.md", *(path for path in (folder / "environment").rglob("*") if path.is_file())]
        shown = "\n".join(path.read_text() for path in reachable)
        assert task.plan.answer not in shown
        seen_by_world = json.loads((folder / "environment" / "world" / "data" / "train.jsonl").read_text())
        assert not seen_by_world["plan"]["calls"] and not seen_by_world["success"]["changes"] and not seen_by_world["success"]["facts"]
        configuration = tomllib.loads((folder / "task.toml").read_text())
        assert configuration["artifacts"] == [{"source": LOG, "service": "world"}]
        assert configuration["verifier"]["environment_mode"] == "separate"
        assert configuration["environment"]["mcp_servers"][0]["url"].startswith("http://world:"), "a service of its own, no stdio"
        assert {"main", "world"} == set(yaml.safe_load((folder / "environment" / "docker-compose.yaml").read_text())["services"])


def test_rows_of_nemo_gym_hold_neither_plan_nor_criteria(packages):
    folder = packages["nemo-gym"] / "resources_servers" / "shop_tasks"
    rows = [json.loads(line) for line in (folder / "data" / "train.jsonl").read_text().splitlines()]
    assert [row["task_id"] for row in rows] == [task.id for task in CONTENTS.tasks["train"]]
    assert all(set(row) == {"responses_create_params", "task_id", "agent_ref"} for row in rows)
    configuration = yaml.safe_load((folder / "configs" / "shop_tasks.yaml").read_text())
    datasets = configuration["shop_tasks_simple_agent"]["responses_api_agents"]["simple_agent"]["datasets"]
    assert {each["name"]: each["type"] for each in datasets} == {"train": "train", "eval_out": "validation", "example": "example"}


@pytest.mark.parametrize(
    ("licence", "named"),
    [
        ("Apache-2.0", "Apache 2.0"),
        ("mit", "MIT"),
        ("CC-BY-4.0", "Creative Commons Attribution 4.0 International"),
        ("ODbL", "TBD"),
        (None, "TBD"),
    ],
)
def test_nemo_gym_gets_the_stated_licence_or_its_word_for_none(licence, named):
    files = FORMS["nemo-gym"].files(replace(CONTENTS, licence=licence))
    configuration = yaml.safe_load(files["resources_servers/shop_tasks/configs/shop_tasks.yaml"])
    datasets = configuration["shop_tasks_simple_agent"]["responses_api_agents"]["simple_agent"]["datasets"]
    assert {each.get("license") for each in datasets if each["type"] != "example"} == {named}


@pytest.mark.parametrize(
    ("stated", "licence"),
    [({"a": "MIT", "b": "MIT"}, "MIT"), ({"a": "MIT"}, None), ({"a": "MIT", "b": "CC-BY-4.0"}, None), ({}, None)],
)
def test_a_release_has_the_licence_that_was_stated_for_all_its_sources(stated, licence, tmp_path, monkeypatch):
    monkeypatch.setattr("synth.packages.task_sources.sources_of", lambda store, release: [("a", 1), ("b", 1)])
    store = Store(tmp_path / "store")
    task = CONTENTS.tasks["train"][0]
    store.commit([store.write("tasks", part_id("tasks", ["one"], {}, 1), tasks_frame([task]))])
    release = make_release(store, "mine", {"rl": [ReleaseItem("task", task.id, task.id)]}, {})
    assert of_release(store, release, "shop_tasks", stated).licence == licence


def test_the_licence_of_a_users_own_world_is_not_known():
    assert CONTENTS.licence == "Apache-2.0"
    world = compile_file(Path("tests/synth/car_workshop.yaml"))
    WORLDS.register(world)
    try:
        assert of_worlds([world.name], 2, "own").licence is None
    finally:
        WORLDS.forget(world.name)


@pytest.mark.parametrize(("folder", "name"), [("Shop Tasks-2", "shop_tasks_2"), ("7up", "tasks_7up"), ("店", "tasks")])
def test_a_folder_names_a_module(folder, name, tmp_path):
    assert module_name(tmp_path / folder) == name


def test_the_scripted_model_plays_the_expert_by_what_was_answered():
    model = ScriptedModel(CONTENTS.all_tasks)
    task = next(task for task in CONTENTS.all_tasks if len(task.plan.calls) > 1)
    messages = [message.to_openai() for message in task.messages]
    first = model.answer(ORACLE, messages)
    assert first["tool_calls"][0]["function"]["name"] == task.plan.calls[0].tool
    other = [*messages, first, {"role": "tool", "tool_call_id": "call_0", "content": "something else"}]
    assert model.answer(ORACLE, other)["content"] == "I do not know this task."
    assert "tool_calls" not in model.answer(IDLE, messages)


def test_no_package_and_no_ecosystem_are_said_in_words(tmp_path):
    with pytest.raises(BadInput, match="holds no package"):
        open_package(tmp_path)
    with pytest.raises(BadInput, match=r"harbor is not installed: `make packages`"):
        find_programs("harbor", tmp_path)


def installed(name):
    folder = Path(f".venv-package-{name}/bin")
    return (folder / CHECKS[name].command).exists()


FORGERY = """#!/bin/sh
mkdir -p /log /logs/verifier
python3 - <<'PROGRAM'
import json
calls = json.load(open("/solution/calls.json"))
lines = [{"answer": call["arguments"]["text"]} if call["name"] == "answer" else {"tool": call["name"], **call} for call in calls]
open("/log/calls.jsonl", "w").write("".join(json.dumps(line) + chr(10) for line in lines))
PROGRAM
echo '{"reward": 1.0}' > /logs/verifier/reward.json
echo 1 > /logs/verifier/reward.txt
"""
"""What an agent could do that is root in its container: the very log and reward that the expert would get, in its own file system."""


@pytest.mark.slow
@pytest.mark.skipif(not installed("harbor"), reason="needs Harbor: `make packages` installs it")
def test_a_log_and_a_reward_that_harbors_agent_writes_itself_count_for_nothing(tmp_path):
    folder = write_package(of_worlds(["retail"], 1, "shop_tasks"), FORMS["harbor"], tmp_path / "shop_tasks")
    for script in folder.rglob("solve.sh"):
        script.write_text(FORGERY)
    tool = Tool(find_programs("harbor"), tmp_path, "", 1)
    assert list(check_harbor.rewards(open_package(folder), ORACLE, tool).values()) == [0.0]


def run_inside(name, program, folder, tmp_path):
    """Runs a program in an ecosystem's environment, with the package in its path; returns what it prints."""
    tool = Tool(find_programs(name), tmp_path, "", 1)
    script = tmp_path / "program.py"
    script.write_text(program)
    tool.run(["python", str(script)], open_package(folder), "program", folder)
    return (tmp_path / "program.log").read_text().splitlines()[-1]


PARALLEL_CALLS = """
import asyncio, gc, json, sys
from synth.packages.runtime import Episode
from shop_tasks.servers import HeadraceTools, HeadraceState
from shop_tasks.taskset import PACKAGE
import verifiers.v1 as vf

STATES = {}

class WithoutChannel(HeadraceTools):
    # The state channel is a dictionary that takes a while.
    async def _pull_state(self):
        await asyncio.sleep(0.01)
        return STATES[self.rollout].model_copy(deep=True)
    async def _push_state(self, before):
        await asyncio.sleep(0.01)
        STATES[self.rollout] = self.state.model_copy(deep=True)

async def main():
    tools = WithoutChannel(vf.SharedToolsetConfig())
    await tools.setup()
    task = PACKAGE.tasks()[0]
    for rollout in range(20):
        tools.rollout = rollout
        STATES[rollout] = HeadraceState(task_id=task.id)
        await asyncio.gather(*(tools.call_tool(task.tools[0], {"n": n}) for n in range(4)))
    gc.collect()
    kept = sum(isinstance(each, Episode) for each in gc.get_objects())
    print(json.dumps([kept, len(tools._turns), [len(state.calls) for state in STATES.values()]]))

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.skipif(not installed("verifiers"), reason="needs verifiers: `make packages` installs it")
def test_the_tool_server_of_verifiers_keeps_nothing_of_a_rollout_and_loses_no_parallel_call(packages, tmp_path):
    assert json.loads(run_inside("verifiers", PARALLEL_CALLS, packages["verifiers"], tmp_path)) == [0, 0, [4] * 20]


LOST_EPISODE = """
import asyncio, sys
from types import SimpleNamespace
sys.path.insert(0, "resources_servers/shop_tasks")
from fastapi import HTTPException
from app import HeadraceResourcesServer, SESSION_ID_KEY

async def main():
    server = HeadraceResourcesServer.model_construct()
    try:
        await server.verify(SimpleNamespace(session={SESSION_ID_KEY: "s1"}), None)
    except HTTPException as refused:
        print(refused.status_code, refused.detail)

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.skipif(not installed("nemo-gym"), reason="needs nemo-gym: `make packages` installs it")
def test_nemo_gym_gives_no_reward_for_an_episode_that_is_lost(packages, tmp_path):
    said = run_inside("nemo-gym", LOST_EPISODE, packages["nemo-gym"], tmp_path)
    assert said == "409 no episode is kept for s1: none was started, or 4,096 others were used since"


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.skipif(not installed(name), reason=f"needs {name}: `make packages` installs it"))
        for name in FORMS
    ],
)
def test_the_ecosystems_own_tool_scores_the_expert_1_and_idling_0(name, tmp_path):
    contents = of_worlds(["retail", "banking"], 1, "shop_tasks")
    report = check_package(write_package(contents, FORMS[name], tmp_path / "shop_tasks"), tmp_path / "logs")
    assert set(report.expert) == set(report.idle) == {task.id for task in contents.all_tasks}
    assert report.wrong == []

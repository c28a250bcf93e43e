"""The ticket office of configs/worlds: sums that the smallest policy can learn to program, since its lists show one number a row."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flows import config
from storage.records import CODE_TOOL
from synth.blueprints.single_goal import draw_drills
from synth.conversations.expert import expert_trajectory
from synth.tasks.assessment import assess
from synth.tasks.split import DivisionConfig
from synth.worlds import WORLDS, run_python
from synth.worlds.declarative.compile import compile_file
from synth.worlds.declarative.compiled_world import SpecWorld

ROOT = Path(__file__).parents[4]
FILE = ROOT / "configs" / "worlds" / "ticket_office.yaml"

needs_sandbox = pytest.mark.skipif(bool(run_python.missing()), reason=f"no sandbox: {run_python.missing()}")


@pytest.fixture(scope="module")
def office() -> type[SpecWorld]:
    world = compile_file(FILE)
    if world.name not in WORLDS:
        WORLDS.register(world)
    return world


def test_it_compiles_and_its_tasks_are_admitted(office: type[SpecWorld]) -> None:
    assert assess(office, 2 * len(office.intents), seed=0).share > 0.95


@needs_sandbox
def test_the_expert_copies_every_number_of_a_short_list_into_a_program_and_is_right(office: type[SpecWorld]) -> None:
    drills = draw_drills(WORLDS[office.name], 24, [], DivisionConfig(), seed=0, programs=True)

    assert len(drills) == 24
    for drill in drills:
        read, run = (call for call in drill.task.plan.calls)
        assert (read.tool, run.tool) == ("list_tickets_of_visitor", CODE_TOOL)
        messages = expert_trajectory(WORLDS[drill.task.world], drill.task).messages
        shown = json.loads(next(message.content or "" for message in messages if message.role == "tool"))
        assert all(set(row) == {"id", "price"} for row in shown["rows"])
        assert f"values = {[row['price'] for row in shown['rows']]}" in run.arguments["code"]


@needs_sandbox
def test_hundreds_of_tasks_have_frames_of_their_own_and_many_are_held_out(office: type[SpecWorld]) -> None:
    tasks = [drill.task for drill in draw_drills(WORLDS[office.name], 150, [], DivisionConfig(), seed=0, programs=True)]

    assert len({task.frame_id for task in tasks}) == 150
    assert sum(task.division == "held_out" for task in tasks) >= 10


def test_the_full_experiment_asks_for_its_programs_by_its_file(office: type[SpecWorld], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)

    settings = config.read(Path("configs/ladder.yaml"))

    assert settings.synthesize.programs[office.name] > 0
    assert office.name in settings.train.worlds

"""The cascade experiment in miniature: every arm begins where it should, spends what it should, and gives the figures that are told."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import cascade
from benchmarks.cascade_sections.arms import RUNGS, VARIANTS, Cell, run_cell
from benchmarks.harness import Deadline, OutOfTime
from filters.certainty.certainty import DrawsConfig
from flows.config import Config
from storage.record_rows import tasks_frame
from storage.releases.release import load_split
from storage.store import Store, part_id
from synth.blueprints.single_goal import draw_drills
from synth.tasks.split import DivisionConfig
from synth.worlds import WORLDS
from train.config import CascadeConfig
from train.measure.evaluate import CODE_MODE
from train.run import run
from train.spec import StageSpec

pytestmark = pytest.mark.slow

CONFIG = CascadeConfig(
    worlds=("retail",),
    max_difficulty=1,
    expert_budget=60,
    synthesised_share=0.0,
    probe_tasks=40,
    draws=DrawsConfig(k=4, most=4),
    eval_tasks=8,
    eval_out_tasks=8,
    eval_samples=2,
    stages=[
        {"name": "sft1", "max_steps": 40, "plateau_window": 0},
        {"name": "sft2", "max_steps": 2},
        {"name": "rl", "max_steps": 4, "tasks_a_step": 4, "draws": 4, "checkpoint_steps": 0},
    ],
)
ARMS = ("cascade", "longer_sft1", "more_sft", "rft", "more_experts", "rl_uniform", "shuffled", "grpo")


CPU_S = {"start_up": 1.0, "sft2": 2.0, "rl": 4.0}
"""Scripted, so that as many steps follow from them everywhere."""


class Launches:
    """Trains in this process, each stage once, and notes it, with scripted CPU seconds."""

    def __init__(self) -> None:
        self.specs: dict[str, StageSpec] = {}

    def __call__(self, spec: StageSpec, folder: Path) -> Mapping[str, Any]:
        result = folder / "result.json"
        if not result.exists():
            assert spec.name not in self.specs, "trained twice"
            self.specs[spec.name] = spec
            folder.mkdir(parents=True)
            run(spec)
            (folder / "cpu_s.json").write_text(json.dumps(CPU_S.get(spec.name, 2.0)))
        return json.loads(result.read_text())


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cascade")


@pytest.fixture(scope="module")
def base(home: Path) -> Path:
    tasks = [drill.task for drill in draw_drills(WORLDS["retail"], 120, [], DivisionConfig(), seed=0)]
    store = Store(home / "base")
    store.commit([store.write("tasks", part_id("tasks", [], {}, 1), tasks_frame(tasks))])
    return store.root


@pytest.fixture(scope="module")
def launches(home: Path, base: Path) -> Launches:
    found = Launches()
    for arm in ARMS:
        run_cell(home, arm, 0, CONFIG, lambda: base, launch=found)
    return found


@pytest.fixture(scope="module")
def cells(home: Path, base: Path, launches: Launches) -> dict[str, Cell]:
    """As their files have them."""
    return {arm: run_cell(home, arm, 0, CONFIG, lambda: base, launch=launches) for arm in ARMS}


def test_arms_begin_with_the_cascade_s_second_sft_but_for_the_longer_first(launches: Launches) -> None:
    sft2 = launches.specs["sft2"].model_out
    began = {name: spec.model_in for name, spec in launches.specs.items()}
    assert began["longer_sft1"] is None
    assert {began[name] for name in ("more_sft", "rft0", "more_experts", "rl_uniform", "shuffled", "grpo", "rl")} == {sft2}
    assert launches.specs["shuffled"].rl is not None and launches.specs["shuffled"].rl.reward == "shuffled"


def test_controls_have_the_steps_and_the_material_that_are_theirs(launches: Launches, cells: dict[str, Cell], home: Path) -> None:
    specs, store = launches.specs, Store(home / "store-0")

    def items(name: str) -> list[str]:
        return [one.item.item_id for one in load_split(store, specs[name].release_id, specs[name].split)]

    assert specs["longer_sft1"].sft is not None and specs["longer_sft1"].sft.max_steps == 42
    assert items("longer_sft1") == items("sft1") and len(items("sft1")) == CONFIG.expert_budget
    assert items("more_sft") == items("sft2")
    assert specs["more_sft"].sft is not None and specs["more_sft"].sft.max_steps == 6, "(4 - 1) / ((2 - 1) / 2)"
    assert cells["cascade"].policies["rl"].cpu_s == CPU_S["rl"]
    assert set(items("sft2")) < set(items("rft0")), "what it succeeded at comes beside"
    assert cells["more_experts"].told["expert_traces"] == len(items("more_experts")) == 4 * 4
    assert set(items("more_experts")).isdisjoint(items("sft1"))
    weights = {one.item.weight for one in load_split(store, specs["rl_uniform"].release_id, "rl")}
    assert len(weights) == 1 < len({one.item.weight for one in load_split(store, specs["rl"].release_id, "rl")})
    for name in VARIANTS.keys() & specs.keys():
        changed = {key: value for key, value in specs[name].rl.model_dump().items() if value != specs["rl"].rl.model_dump()[key]}
        assert changed == VARIANTS[name]


def test_what_a_killed_arm_has_trained_is_not_trained_again_whatever_others_have_kept(
    home: Path, base: Path, cells: dict[str, Cell]
) -> None:
    """Given arms that were killed before their cells were written, and frames in their store that it did not begin with, then they end with
    the same figures."""

    def never(spec: StageSpec, _: Path) -> Mapping[str, Any]:
        raise AssertionError(f"{spec.name} was trained again")

    store, others = Store(home / "store-0"), [drill.task for drill in draw_drills(WORLDS["retail"], 40, [], DivisionConfig(), seed=1)]
    store.commit([store.write("tasks", part_id("tasks", ["others"], {}, 1), tasks_frame(others))])
    for arm in ("rft", "more_experts", "grpo"):
        (home / f"{arm}-0.json").unlink()
        again = run_cell(home, arm, 0, CONFIG, lambda: base, launch=never)
        assert again.policies == cells[arm].policies


def test_every_arm_is_measured_on_the_same_tasks(cells: dict[str, Cell]) -> None:
    measured = [one for cell in cells.values() for one in cell.policies.values()]
    assert set(cells["cascade"].policies) == set(RUNGS)
    assert len(measured) == len(RUNGS) + len(ARMS) - 1
    assert {tuple(one.eval_in) for one in measured} == {tuple(measured[0].eval_in)} == {tuple(measured[0].eval_in_greedy)}
    assert {tuple(one.fresh) for one in measured} == {tuple(measured[0].fresh)}
    assert set(measured[0].fresh).isdisjoint(measured[0].eval_in)
    assert [row["task_id"] for row in sorted(cells["cascade"].tasks, key=lambda row: row["task_id"])] == sorted(measured[0].eval_in)


def test_the_figures_are_those_that_the_sections_name(cells: dict[str, Cell], monkeypatch: pytest.MonkeyPatch) -> None:
    """Given the same cells for all seeds, those of other losses and bounds alike, and that every second task needs a program."""
    ladder_cell = cells["cascade"]
    tasks = [row | {"mode": CODE_MODE if place % 2 else row["mode"]} for place, row in enumerate(ladder_cell.tasks)]

    def cell(arm: str, seed: int) -> Cell:
        if arm == "cascade":
            return replace(ladder_cell, tasks=tasks)
        return cells.get(arm) or Cell(arm, seed, {arm: cells["grpo"].policies["grpo"]}, 1.0, {"stale_share": 0.5})

    monkeypatch.setattr(cascade, "Cells", lambda *_: cell)
    found = cascade.measure_ladder(None) | cascade.measure_one_seed(None)
    named = [key for section in cascade.sections() if section.name in ("ladder", "one seed") for key in section.keys]
    assert set(found) == set(named) and len(named) == len(set(named))
    ladder = cells["cascade"].policies
    mean = {rung: sum(one.eval_in.values()) / len(one.eval_in) for rung, one in ladder.items()}
    assert found["rl_minus_sft2"] == pytest.approx(mean["rl"] - mean["sft2"])
    assert found["rl_minus_sft2_lo95"] <= found["rl_minus_sft2"] <= found["rl_minus_sft2_hi95"]
    assert found["forget_delta"] <= found["forget_code"]
    assert found["lite_ppo_minus_grpo"] == pytest.approx(-found["async_result_difference"])


def test_policies_that_were_measured_on_different_tasks_are_not_compared() -> None:
    rates = {f"task-{number}": 0.5 for number in range(100)}
    assert cascade.difference([rates], [rates]).mean == 0
    assert cascade.difference([rates], [dict(list(rates.items())[1:])]).mean == 0
    with pytest.raises(ValueError, match="seed 1: 100 tasks against 60, of which 60 are the same"):
        cascade.difference([rates, rates], [rates, dict(list(rates.items())[40:])])


def test_a_cell_is_told_once(home: Path, base: Path, cells: dict[str, Cell], capsys: pytest.CaptureFixture[str]) -> None:
    known = cascade.Cells(home, Config(train=CONFIG), Deadline(0))
    assert known("grpo", 0).policies == known("grpo", 0).policies == cells["grpo"].policies
    assert capsys.readouterr().out.count("seed 0, grpo") == 1
    with pytest.raises(OutOfTime):
        known("gspo", 0)


def test_what_a_store_without_programs_cannot_tell_is_named(cells: dict[str, Cell]) -> None:
    with pytest.raises(ValueError, match="no task of eval_in needs a program"):
        cascade.forgotten([cells["cascade"]])

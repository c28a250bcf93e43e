"""The routing experiment in miniature: every rule spends the same, from the same policy, and what a killed one has done is kept."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness import Deadline, OutOfTime, code_mark
from benchmarks.tags_sections import routing
from benchmarks.tags_sections.routing_cells import (
    FIRST,
    RULES,
    Cell,
    RoutingSettings,
    Success,
    home_of,
    ordered,
    read_cell,
    rl_steps,
    run_cell,
)
from filters.certainty.certainty import DrawsConfig
from storage.errors import HeadraceError
from storage.records import Task
from storage.store import Store
from train.config import CascadeConfig
from train.run import run
from train.spec import RLSettings, StageSpec

pytestmark = pytest.mark.slow

CASCADE = CascadeConfig(
    worlds=("retail",),
    max_difficulty=1,
    expert_budget=60,
    probe_tasks=64,
    draws=DrawsConfig(k=4, most=4),
    eval_tasks=12,
    eval_out_tasks=12,
    eval_samples=2,
    stages=[
        {"name": "sft1", "max_steps": 30, "plateau_window": 0},
        {"name": "sft2", "max_steps": 2},
        {"name": "rl", "tasks_a_step": 16, "draws": 4},
    ],
)
SMALL = RoutingSettings(drills=120, cascade=CASCADE, budget=600)


class Killed(Exception):
    pass


class Launches:
    """Trains in this process, each stage once, and notes it; is killed before the stage of this name."""

    def __init__(self, killed_before: str = "") -> None:
        self.specs: list[StageSpec] = []
        self.killed_before = killed_before

    def __call__(self, spec: StageSpec, folder: Path) -> Mapping[str, Any]:
        result = folder / "result.json"
        if not result.exists():
            if spec.name == self.killed_before:
                raise Killed
            self.specs.append(spec)
            folder.mkdir(parents=True)
            run(spec)
        return json.loads(result.read_text())


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return home_of(tmp_path_factory.mktemp("routing"), SMALL)


@pytest.fixture(scope="module")
def launches(home: Path) -> list[Launches]:
    """Given an experiment that was killed before certainty's RL, and called again until it is done."""
    killed = Launches(killed_before="certainty-rl")
    run_cell(home, FIRST, 0, SMALL, launch=killed)
    with pytest.raises(Killed):
        run_cell(home, "certainty", 0, SMALL, launch=killed)
    again = Launches()
    for rule in (FIRST, *RULES):
        run_cell(home, rule, 0, SMALL, launch=again)
    return [killed, again]


def cells(home: Path) -> dict[str, Cell]:
    return {rule: read_cell(home / f"{rule}-0.json") for rule in RULES}


def test_a_killed_experiment_trains_nothing_twice(home: Path, launches: list[Launches]) -> None:
    assert [[spec.name for spec in launched.specs] for launched in launches] == [
        [FIRST, "certainty-sft2"],
        ["certainty-rl", "static-sft2", "static-rl", "random-sft2", "random-rl"],
    ]
    assert {cell.code for cell in cells(home).values()} == {code_mark()}
    never = Launches(killed_before=FIRST)
    assert run_cell(home, "static", 0, SMALL, launch=never) == cells(home)["static"] and not never.specs


def test_all_rules_spend_the_same_on_rollouts_and_start_from_one_policy(home: Path, launches: list[Launches]) -> None:
    specs = {spec.name: spec for launched in launches for spec in launched.specs}
    store = Store(home / "store-0")
    made = dict(store.query("SELECT purpose, count(*) FROM rollouts WHERE purpose IN ('probe', 'traces') GROUP BY purpose").iter_rows())
    found = cells(home)
    assert made["probe"] == found["certainty"].spent["probe"] == 2 * CASCADE.probe_tasks * 4
    assert made["traces"] <= found["static"].spent["traces"] + found["random"].spent["traces"], "what both draw alike is made once"
    for rule, cell in found.items():
        rl = specs[f"{rule}-rl"].rl
        assert rl is not None and cell.spent["rl"] == rl.max_steps * 64
        assert SMALL.budget - 64 < sum(cell.spent.values()) <= SMALL.budget
    assert {specs[f"{rule}-sft2"].model_in for rule in RULES} == {specs[FIRST].model_out}
    assert len({cell.own_traces for cell in found.values()}) == 1
    conversations = store.query("SELECT release_id, count(*) AS items FROM release_items WHERE split = 'sft2' GROUP BY release_id")
    assert set(conversations["items"]) == {CASCADE.expert_budget + found["certainty"].own_traces}


def test_rules_differ_in_what_they_send_to_rl(home: Path, launches: list[Launches]) -> None:
    weights = {
        spec.name: Store(home / "store-0").query(
            "SELECT task_id, weight FROM release_items WHERE release_id = ? AND split = 'rl' ORDER BY task_id", [spec.release_id]
        )
        for launched in launches
        for spec in launched.specs
        if spec.algorithm == "rl"
    }
    for table in weights.values():
        assert table.height == CASCADE.probe_tasks and table["weight"].sum() == pytest.approx(1)
    tables = list(weights.values())
    assert not any(one.equals(other) for place, one in enumerate(tables) for other in tables[:place])


def test_a_budget_that_is_spent_before_rl_is_refused() -> None:
    settings = RLSettings()
    assert [rl_steps(1_000, spent, settings) for spent in (0, 40, 41, 936)] == [15, 15, 14, 1]
    with pytest.raises(HeadraceError, match="937 of 1000 rollouts are spent before RL"):
        rl_steps(1_000, 937, settings)


def test_static_goes_by_difficulty_and_random_by_the_seed_alone(home: Path, launches: list[Launches]) -> None:
    specs = Store(home / "store-0").query("SELECT spec FROM tasks ORDER BY task_id")["spec"]
    pool = [Task.model_validate_json(spec) for spec in specs]
    orders = {(rule, seed): [task.id for task in ordered(pool, rule, seed)] for rule in ("static", "random") for seed in (0, 1)}
    assert len({tuple(order) for order in orders.values()}) == 4
    assert ordered(pool[::-1], "random", 0) == ordered(pool, "random", 0)
    levels = [task.difficulty for task in ordered(pool, "static", 0)]
    assert levels == sorted(levels) and len(set(levels)) > 1
    assert [task.difficulty for task in ordered(pool, "random", 0)] != levels


def made_up(rule: str, seed: int, rates: list[float]) -> Cell:
    success = Success({f"t{place}": rate for place, rate in enumerate(rates)}, {f"t{place}": 0.0 for place in range(len(rates))})
    spent = {} if rule == FIRST else {"probe": 10, "traces": 0, "rl": 30}
    return Cell(rule, seed, success, None if rule == FIRST else success, spent, 5, 1.0)


def test_differences_are_paired_by_seed_and_task() -> None:
    """Given certainty .25 above random on every task, by .05 more or less in a seed, and equal to static, then so say the figures."""
    base = [0.0, 0.25, 0.5, 0.75] * 30
    found = {rule: [made_up(rule, seed, base) for seed in routing.SEEDS] for rule in (FIRST, *RULES)}
    lower = [[rate - 0.25 - shift for rate in base] for shift in (-0.05, 0.0, 0.05)]
    found["random"] = [made_up("random", seed, rates) for seed, rates in enumerate(lower)]
    figures = routing.figures(found)
    assert sorted(figures) == sorted(routing.KEYS)
    key = "routing_certainty_minus_random"
    assert figures[key] == pytest.approx(0.25)
    assert [figures[f"{key}_seed{seed}"] for seed in (0, 1, 2)] == pytest.approx([0.2, 0.25, 0.3])
    assert 0.2 <= figures[f"{key}_lo95"] < 0.25 < figures[f"{key}_hi95"] <= 0.3 + 1e-9
    static = "routing_certainty_minus_static"
    assert figures[static] == figures[f"{key}_greedy"] == 0 and -0.05 < figures[f"{static}_lo95"] < 0 < figures[f"{static}_hi95"] < 0.05
    assert figures["routing_static_rl_share"] == 0.75 and figures["routing_static_rollouts"] == 40


def test_cells_are_asked_of_the_deadline_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def cell(home: Path, rule: str, seed: int, settings: RoutingSettings) -> Cell:
        asked.append(f"{rule}-{seed}")
        return made_up(rule, seed, [0.5])

    monkeypatch.setattr(routing, "run_cell", cell)
    with pytest.raises(OutOfTime):
        routing.measure(Deadline(0.0), folder=tmp_path, settings=SMALL)
    home = home_of(tmp_path, SMALL)
    home.mkdir()
    (home / f"{FIRST}-0.json").touch()
    with pytest.raises(OutOfTime):
        routing.measure(Deadline(0.0), folder=tmp_path, settings=SMALL)
    assert asked == [f"{FIRST}-0"]
    assert routing.measure(Deadline(float("inf")), folder=tmp_path, settings=SMALL).keys() == set(routing.KEYS)
    assert len(asked) == 1 + 3 * 4

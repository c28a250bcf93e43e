"""The funnel on a real Ray cluster of two nodes keeps the rows of a local run, even if a node is killed in the middle."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from filters.funnel import FunnelConfig, curate
from filters.ingest import IngestConfig
from filters.steps.selection.coverage import CoverageConfig
from flows.runtime.ray_executor import RayExecutor, ray_executor
from storage.errors import BadInput, OutOfReach
from storage.store import Store
from synth.haystack.generate import HaystackConfig, generate
from tests.conftest import RayHead
from tests.e2e.conftest import headrace
from tests.filters.toy_step import WORDS, ToyConfig, with_step

pytestmark = pytest.mark.ray

CONFIG = FunnelConfig(ingest=IngestConfig(batch_rows=1000), coverage=CoverageConfig(keep=10, max_encoded=50))


@pytest.fixture(scope="module")
def executor(ray_head: RayHead) -> Iterator[tuple[RayExecutor, RayHead]]:
    """An executor on two nodes of one CPU each, both on this machine."""
    ray_head.add_second()
    with ray_executor(ray_head.address) as running:
        yield running, ray_head
    ray_head.kill_second()


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return generate(tmp_path_factory.mktemp("log"), HaystackConfig(rows=8000, common_combinations=80, seed=3), 20)[0]


@pytest.fixture(scope="module")
def short_log(log: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("short") / "log.parquet"
    pl.read_parquet(log).head(2000).write_parquet(path)
    return path


def node_and_square(number: int) -> tuple[str, int]:
    import time

    import ray

    time.sleep(0.2)
    return str(ray.get_runtime_context().get_node_id()), number * number


def refuse(number: int) -> int:
    if number == 3:
        raise BadInput("three is bad input")
    return number


def test_both_nodes_get_items_and_results_keep_the_order(executor: tuple[RayExecutor, RayHead]) -> None:
    results = list(executor[0].map(node_and_square, range(30)))
    assert [square for _, square in results] == [number * number for number in range(30)]
    assert len({node for node, _ in results}) == 2


def test_an_exception_of_a_task_is_raised_unchanged(executor: tuple[RayExecutor, RayHead]) -> None:
    with pytest.raises(BadInput, match=r"^three is bad input$"):
        list(executor[0].map(refuse, range(10)))


def test_a_killed_node_does_not_change_the_result(executor: tuple[RayExecutor, RayHead], log: Path, tmp_path: Path) -> None:
    running, nodes = executor
    reports: list[tuple[str, int, int]] = []

    def kill_at_second_sketch(*what: Any) -> None:
        reports.append(what)
        if what[:2] == ("near sketches", 2):
            nodes.kill_second()

    there = Store(tmp_path / "there")
    on_ray = curate(there, [log], CONFIG, executor=running, progress=kill_at_second_sketch)
    here = Store(tmp_path / "here")
    local = curate(here, [log], CONFIG)
    assert ("near sketches", 2, 8) in reports
    assert on_ray.run == local.run and on_ray.task_ids == local.task_ids
    assert there.content_hash() == here.content_hash()
    assert {path.name for path in there.lake.rglob("*") if path.is_file() and path.suffix != ".parquet"} == {there.log.path.name}


def test_a_step_of_a_strangers_runs_there_as_here(executor: tuple[RayExecutor, RayHead], short_log: Path, tmp_path: Path) -> None:
    config, steps = ToyConfig(ingest=CONFIG.ingest, coverage=CONFIG.coverage), with_step(WORDS, "rules")
    there, here = Store(tmp_path / "there"), Store(tmp_path / "here")
    on_ray = curate(there, [short_log], config, steps=steps, executor=executor[0])
    local = curate(here, [short_log], config, steps=steps)
    assert on_ray.task_ids == local.task_ids and there.content_hash() == here.content_hash()
    assert on_ray.funnel.filter(step="words")["dropped"][0] > 10


@pytest.mark.server
def test_ray_local_starts_its_own_cluster_beside_a_running_one(
    prefect_server: str, executor: tuple[RayExecutor, RayHead], short_log: Path, tmp_path: Path
) -> None:
    output = headrace(
        "curate", str(short_log), "--keep", "1/400", "--store", "s", "--ray", "local", folder=tmp_path, environment=dict(os.environ)
    )
    assert "Queries: 5 kept of" in output
    here = Store(tmp_path / "here")
    local = curate(here, [short_log], FunnelConfig(keep_one_in=400))
    assert sorted(local.task_ids) == Store(tmp_path / "s").query("SELECT task_id FROM tasks ORDER BY 1")["task_id"].to_list()


def test_a_missing_cluster_is_an_error_with_advice() -> None:
    if "RAY_ADDRESS" in os.environ:
        pytest.fail("RAY_ADDRESS is set: the tests start a cluster of their own")
    with pytest.raises(OutOfReach, match=r"on a node of the cluster.*ray start --head"), ray_executor("127.0.0.1:1"):
        pass

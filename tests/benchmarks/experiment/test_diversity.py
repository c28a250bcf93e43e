"""The experiment as a whole, far too small to learn anything: what it writes, that it resumes, that it stops in time."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.experiment import base, cells, diversity
from benchmarks.experiment.config import DiversityExperimentConfig, DomainsConfig, Learning
from benchmarks.experiment.diversity import home_of, plan, run_experiment
from benchmarks.experiment.domains import choose_domains
from storage.errors import HeadraceError
from train.device import settle
from train.spec import TinyConfig

pytestmark = pytest.mark.slow

SMALL = DiversityExperimentConfig(
    domains=DomainsConfig(themes=("golf_club", "driving_school"), training=2, held_out=1),
    sizes=(10, 20),
    ablated_arms=("random_even", "shuffled", "no_code"),
    ablated_size=10,
    seeds=(0,),
    held_out_tasks=10,
    code_tasks=10,
    practice_themes=1,
    practice_tasks=20,
    base=Learning(tokens=2_000),
    learning=Learning(tokens=2_000),
    least_tokens=1_000,
    processes=1,
    tiny=TinyConfig(width=32, layers=1, heads=2, feed_forward=64, positions=640),
)


def times(home: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for kind in ("cells", "pools") for path in (home / kind).glob("*.json*")}


@contextmanager
def this_process(count: int) -> Iterator[ThreadPoolExecutor]:
    """Workers that need not start."""
    settle()
    with ThreadPoolExecutor(count) as workers:
        yield workers


def test_it_writes_its_results_stops_in_time_and_makes_what_is_missing_alone(tmp_path: Path) -> None:
    """Given an experiment in this process, when one of its files is lost, then a worker process makes the same again."""
    told: list[tuple[str, int, int]] = []

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(diversity, "_workers", this_process)
        patch.setattr(cells, "_POWER_TASKS", 60)
        patch.setattr(base, "_CODE_TASKS", 500)
        stopped, home = run_experiment(tmp_path, SMALL, minutes=0)
        assert stopped.missing == len(SMALL.cells())
        result, again = run_experiment(tmp_path, SMALL, progress=lambda *said: told.append(said))
    assert again == home
    assert (result.missing, result.has_power) == (0, False)
    written = json.loads((home / "results.json").read_text())
    assert written["experiment_power"] == 0
    assert written["experiment_minutes"] > stopped.minutes
    assert "no power" in (home / "table.md").read_text()
    assert told[-1][1:] == (len(SMALL.cells()) + 2,) * 2
    tokens = {(row["arm"], row["size"]): row["tokens"] for row in written["table"]}
    assert tokens["random_even", 10] == pytest.approx(tokens["random", 10], rel=0.1)
    assert tokens["controller", 20] == pytest.approx(tokens["random", 20], rel=0.1)

    before = times(home)
    lost = home / "cells" / "controller-20-0.json"
    was = json.loads(lost.read_text())
    lost.unlink()
    run_experiment(tmp_path, SMALL)
    made = json.loads(lost.read_text())
    assert {name for name, at in times(home).items() if before[name] != at} == {"controller-20-0.json"}
    assert made | {"cpu_s": 0} == was | {"cpu_s": 0}


def test_other_code_or_another_configuration_is_another_folder_and_what_only_reads_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = tmp_path / "experiment"
    shutil.copytree(Path(diversity.__file__).parent, code)
    monkeypatch.setattr(diversity, "__file__", str(code / "diversity.py"))
    home = home_of(tmp_path, SMALL)
    assert home_of(tmp_path, SMALL.model_copy(update={"seeds": (1,)})) != home

    (code / "result.py").write_text("# read otherwise\n")
    assert home_of(tmp_path, SMALL) == home
    (code / "arms.py").write_text("# chosen otherwise\n")
    assert home_of(tmp_path, SMALL) != home


def test_a_plan_grows_with_what_is_asked_for() -> None:
    assert len(plan(SMALL).cells) == 7
    assert plan(SMALL).minutes < plan(DiversityExperimentConfig()).minutes < 60


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(ValueError, match="random and controller"):
        DiversityExperimentConfig(full_arms=("random",))
    with pytest.raises(ValueError, match="ablated_size"):
        DiversityExperimentConfig(ablated_size=77)
    with pytest.raises(HeadraceError, match="no theme 'moon_base'"):
        choose_domains(DomainsConfig(themes=("moon_base",)))

"""What a set of cells says, with power and without."""

from __future__ import annotations

import numpy as np
import pytest

from train.experiment.cells import Cell
from train.experiment.config import DiversityExperimentConfig
from train.experiment.result import as_json, figures, summarise
from train.experiment.show import curves_page, table

CONFIG = DiversityExperimentConfig(sizes=(10, 20, 40), ablated_size=40, ablated_arms=("shuffled",))
KEYS = {
    "diversity_gain",
    "diversity_gain_lo95",
    "diversity_gain_hi95",
    "ceiling_random",
    "ceiling_random_lo95",
    "ceiling_random_hi95",
    "ceiling_controller",
    "ceiling_controller_lo95",
    "ceiling_controller_hi95",
    "experiment_power",
    "experiment_minutes",
    "shuffled_gain",
    "forgetting_random",
    "forgetting_controller",
}


def cell(arm: str, size: int, seed: int, success: float, code: float = 0.5) -> Cell:
    rng = np.random.default_rng([seed, size, len(arm)])
    return Cell(
        arm=arm,
        size=size,
        seed=seed,
        tasks={f"task-{number:03d}": bool(rng.random() < success) for number in range(200)},
        code=[bool(rng.random() < code) for _ in range(100)],
        conversations=size,
        tokens=100 * size,
        domain_bits=3.0,
        mode_bits=4.0,
        complexity=5.0,
        proposals_per_talk=1.5,
        loss=0.1,
        cpu_s=1.0,
    )


def cells(*, power: float = 0.9, random: float = 0.2, controller: float = 0.4) -> list[Cell]:
    made = [cell("power", 0, 0, power), *(cell("base", 0, seed, 0.0, code=1.0) for seed in range(3))]
    for seed in range(3):
        for share, size in zip((0.3, 0.7, 1.0), CONFIG.sizes, strict=True):
            made += [cell("random", size, seed, random * share), cell("controller", size, seed, controller * share)]
        made.append(cell("shuffled", 40, seed, 0.0))
    return made


def test_a_planted_gain_is_reported_with_an_interval_that_excludes_nothing() -> None:
    result = summarise(cells(), CONFIG, minutes=12)
    found = figures(result)
    assert set(found) >= KEYS
    assert found["experiment_power"] == 1
    assert 0.1 < found["diversity_gain_lo95"] < found["diversity_gain"] < found["diversity_gain_hi95"] < 0.35
    assert found["shuffled_gain"] == 0
    assert found["forgetting_random"] == pytest.approx(0.5, abs=0.1)
    assert "more success" in result.says
    assert result.missing == 0


def test_equal_arms_have_no_gain() -> None:
    found = figures(summarise(cells(controller=0.2), CONFIG, minutes=12))
    assert found["diversity_gain_lo95"] < 0.03
    assert found["diversity_gain_hi95"] > -0.03


@pytest.mark.parametrize("weak", [{"power": 0.3}, {"random": 0.02, "controller": 0.05}], ids=["cannot be learnt", "no arm learns"])
def test_without_power_nothing_is_claimed_and_all_is_written(weak: dict[str, float]) -> None:
    result = summarise(cells(**weak), CONFIG, minutes=12)
    assert figures(result)["experiment_power"] == 0
    assert result.says.startswith("no power")
    assert len(result.rows) == 7
    assert set(as_json(result)) >= KEYS


def test_a_run_that_was_cut_short_says_what_is_missing_and_compares_what_both_arms_have() -> None:
    short = [one for one in cells() if not (one.arm == "controller" and one.size == 40)]
    result = summarise(short, CONFIG, minutes=12)
    assert result.missing == 3
    before = np.mean([np.mean(list(one.tasks.values())) for one in short if (one.arm, one.size) == ("random", 20)])
    after = np.mean([np.mean(list(one.tasks.values())) for one in short if (one.arm, one.size) == ("controller", 20)])
    assert result.gains["controller"].mean == pytest.approx(after - before)


def test_the_table_and_the_curves_show_every_arm() -> None:
    result = summarise(cells(), CONFIG, minutes=12)
    text, page = table(result), curves_page(result)
    assert text.count("| random | 10 |") == 1
    assert "| shuffled | 40 |" in text
    assert "ceiling" in page
    assert "<script" in page

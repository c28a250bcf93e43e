"""What a set of cells says, with power and without."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.experiment.cells import Cell
from benchmarks.experiment.config import DiversityExperimentConfig
from benchmarks.experiment.result import as_json, figures, summarise
from benchmarks.experiment.show import curves_page, table

CONFIG = DiversityExperimentConfig(sizes=(10, 20, 40), ablated_size=40, ablated_arms=("random_even", "quality", "shuffled"))
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
    "gain_over_even",
    "gain_over_even_lo95",
    "gain_over_even_hi95",
    "shuffled_gain",
    "shuffled_gain_lo95",
    "shuffled_gain_hi95",
    "experiment_power",
    "experiment_minutes",
    "base_success",
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


def cells(*, power: float = 0.9, random: float = 0.2, even: float = 0.2, controller: float = 0.4, shuffled: float = 0.0) -> list[Cell]:
    made = [cell("power", 0, 0, power), *(cell("base", 0, seed, 0.0, code=1.0) for seed in range(3))]
    for seed in range(3):
        for share, size in zip((0.3, 0.7, 1.0), CONFIG.sizes, strict=True):
            made += [cell("random", size, seed, random * share), cell("controller", size, seed, controller * share)]
        made += [cell("random_even", 40, seed, even), cell("quality", 40, seed, random), cell("shuffled", 40, seed, shuffled)]
    return made


def test_a_planted_gain_is_reported_with_an_interval_that_excludes_nothing() -> None:
    result = summarise(cells(), CONFIG, minutes=12)
    found = figures(result)
    assert set(found) >= KEYS
    assert found["experiment_power"] == 1
    assert 0.1 < found["diversity_gain_lo95"] < found["diversity_gain"] < found["diversity_gain_hi95"] < 0.35
    assert found["shuffled_gain_lo95"] < found["shuffled_gain"] == 0 < found["shuffled_gain_hi95"] < 0.03
    assert found["forgetting_random"] == pytest.approx(0.5, abs=0.1)
    assert "more success" in result.says
    assert "base policy reaches 0.000" in result.says
    assert result.missing == 0


def test_equal_arms_have_no_gain() -> None:
    found = figures(summarise(cells(controller=0.2), CONFIG, minutes=12))
    assert found["diversity_gain_lo95"] < 0.03
    assert found["diversity_gain_hi95"] > -0.03


@pytest.mark.parametrize(
    "weak", [{"power": 0.3}, {"random": 0.02, "even": 0.02, "controller": 0.05}], ids=["cannot be learnt", "no arm learns"]
)
def test_without_power_nothing_is_claimed_and_all_is_written(weak: dict[str, float]) -> None:
    result = summarise(cells(**weak), CONFIG, minutes=12)
    assert figures(result)["experiment_power"] == 0
    assert result.says.startswith("no power")
    assert "base policy reaches 0.000" in result.says
    assert len(result.rows) == 9
    assert set(as_json(result)) >= KEYS


def test_what_evening_out_the_domains_explains_is_no_gain_over_even() -> None:
    found = figures(summarise(cells(even=0.4), CONFIG, minutes=12))
    assert found["diversity_gain_lo95"] > 0.1
    assert found["gain_over_even_lo95"] < 0.05
    assert found["gain_over_even_hi95"] > -0.05
    kept = figures(summarise(cells(even=0.2), CONFIG, minutes=12))
    assert kept["gain_over_even_lo95"] > 0.1


def test_a_control_that_learns_is_seen() -> None:
    assert figures(summarise(cells(shuffled=0.1), CONFIG, minutes=12))["shuffled_gain_lo95"] > 0.03


def test_what_was_not_compared_is_not_known() -> None:
    short = [one for one in cells() if one.arm not in ("random_even", "shuffled")]
    found = figures(summarise(short, CONFIG, minutes=12))
    for name in ("gain_over_even", "shuffled_gain"):
        assert (found[name], found[f"{name}_lo95"], found[f"{name}_hi95"]) == (0, -1, 1)


def test_an_arm_that_selects_pays_for_what_it_does_not_keep() -> None:
    rows = summarise(cells(), CONFIG, minutes=12).rows
    cost = {row.arm: row.proposals_per_kept for row in rows}
    assert cost["random"] == cost["random_even"] == 1.5
    assert cost["quality"] == cost["controller"] == cost["shuffled"] == 1.5 * CONFIG.oversample


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

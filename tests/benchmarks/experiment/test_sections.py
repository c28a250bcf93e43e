"""The figures of the experiment: each key that is named is measured, a known difference is found, and the worse learning rate counts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from benchmarks.experiment import diversity, learned
from benchmarks.experiment.cells import Cells, pack
from benchmarks.experiment.conversations import Conversation
from benchmarks.experiment.diversity import ARMS, PRIMARY, RATES, ArmCell, examples_of
from benchmarks.experiment.ground import BASES
from benchmarks.experiment.held_out import EACH, STRATA
from benchmarks.experiment.learned import SOURCES, best_shares, draw_by_source, proxies, shares_of
from benchmarks.experiment.sections import DIVERSITY_KEYS, BaseCell, diversity_figures

TASKS = EACH * len(STRATA)
SUCCESS = {"even": 0.3, "coverage": 0.4, "shuffled": 0.02}


@pytest.fixture
def cells(tmp_path: Path) -> Cells:
    """Scripted results: coverage gains .1 over even at the first rate and .05 at the second; look-ups alone lower the proxies' loss."""
    made = Cells(tmp_path / "cells.jsonl")
    rng = np.random.default_rng(0)

    def add(spec: object, rate: float) -> None:
        bits = {name: pack((rng.random(TASKS) < rate).tolist()) for name in ("greedy", "sampled")}
        made.add(spec, bits | {"conversations": 500})

    for cell in proxies():
        made.add(cell, {"losses": [], "mean": 1.0 - cell.shares[SOURCES.index("look-up")]})
    for base in range(BASES):
        add(BaseCell(base), 0.1)
    for seed in diversity.PRIMARY_SEEDS:
        made.add(diversity.SharesCell(seed), {"shares": [1 / len(STRATA)] * len(STRATA), "unmeasured": 0.25})
    for cell in [*diversity.main_cells(made, [*ARMS, "learned"]), *diversity.size_cells()]:
        late = cell.arm == "coverage" and cell.rate == RATES[1]
        add(cell, SUCCESS.get(cell.arm, 0.3) - 0.05 * late)
    return made


def test_every_key_is_measured_and_the_worse_rate_counts(cells: Cells) -> None:
    figures = diversity_figures(cells)

    assert set(figures) == set(DIVERSITY_KEYS)
    assert figures["coverage_minus_even"] == pytest.approx(0.05, abs=0.02)
    assert figures["coverage_minus_even_lo95"] > 0
    assert figures["controller_minus_even_better"] > figures["controller_minus_even"]
    assert figures["controller_minus_even_lo95"] < 0 < figures["controller_minus_even_hi95"]
    assert figures["shuffled_hi95"] < 0
    assert 0 < figures["power_detectable"] < 0.05
    assert figures["base_act"] == pytest.approx(0.1, abs=0.05)


def test_as_drawn_each_stratum_counts_as_often_as_it_is_drawn(cells: Cells) -> None:
    """Given an arm that is better at refusals alone, which are drawn seldom, then its gain is the gain there times their share."""
    refusals = np.repeat(STRATA, EACH) == "refuse: no tool"
    for seed in diversity.PRIMARY_SEEDS:
        shares = [0.02 if stratum == "refuse: no tool" else 0.98 / (len(STRATA) - 1) for stratum in STRATA]
        cells.add(diversity.SharesCell(seed), {"shares": shares})
        for rate in RATES:
            cells.add(diversity.arm_cell(cells, "even", rate, seed), {"greedy": pack([False] * TASKS)})
            cells.add(diversity.arm_cell(cells, "coverage", rate, seed), {"greedy": pack(refusals.tolist())})

    assert diversity.as_drawn(cells, "coverage", "even").mean == pytest.approx(0.02)
    assert diversity.worse(cells, "coverage", "even").estimate.mean == pytest.approx(1 / len(STRATA))


def test_the_learned_shares_follow_the_proxies(cells: Cells) -> None:
    shares = dict(zip(SOURCES, best_shares(cells), strict=True))

    assert max(shares, key=lambda source: shares[source]) == "look-up"


def test_conversations_drawn_by_the_shares_of_others_have_these_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learned, "stratum_of", lambda blueprint: blueprint)
    chosen = [cast(Conversation, SimpleNamespace(blueprint=kind)) for kind in ("act", "act", "ask", None)]
    shares = shares_of(chosen, [10, 30, 40, 20])
    assert {source: share for source, share in zip(SOURCES, shares, strict=True) if share} == {"act": 0.4, "ask": 0.4, "mixed": 0.2}

    pool = [cast(Conversation, SimpleNamespace(blueprint=kind)) for kind in ("act", "look-up", "ask", None) for _ in range(100)]
    drawn = [pool[at] for at in draw_by_source(pool, [10] * len(pool), shares, 1_000, seed=0)]

    assert shares_of(drawn, [10] * len(drawn)) == pytest.approx(shares, abs=0.01)


def test_the_arm_matched_has_the_shares_of_coverage_but_not_its_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a pool in which coverage takes cheap acts first, then `matched` trains on as many tokens of acts, drawn from all of them."""
    pool = [SimpleNamespace(blueprint=(kind, at)) for at in range(100) for kind in ("act", "ask")]
    examples = [SimpleNamespace(at=at, tokens=210) for at in range(len(pool))]
    monkeypatch.setattr(diversity, "read_pool", lambda *_: (pool, examples))
    monkeypatch.setattr(diversity, "features", lambda blueprint: {("act" if blueprint[0] == "act" else "read", str(blueprint[1])): 1})
    monkeypatch.setattr(diversity, "estimated_tokens", lambda blueprint: 1)
    monkeypatch.setattr(learned, "stratum_of", lambda blueprint: blueprint[0])

    chosen, matched = ([pool[one.at].blueprint for one in examples_of(ArmCell(arm, 20, 1e-3, 0))] for arm in ("coverage", "matched"))

    assert [kind for kind, _ in chosen] == [kind for kind, _ in matched] == ["act"] * 20
    assert [at for _, at in chosen] == list(range(20)) != sorted(at for _, at in matched)


def test_coverage_of_two_thirds_begins_with_what_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a pool that ends with what coverage likes, then a third of the budget goes to its beginning, and the rest to its end."""
    pool = [SimpleNamespace(blueprint=("plain", at)) for at in range(70)] + [SimpleNamespace(blueprint=("rich", at)) for at in range(30)]
    examples = [SimpleNamespace(at=at, tokens=210) for at in range(len(pool))]
    monkeypatch.setattr(diversity, "read_pool", lambda *_: (pool, examples))
    monkeypatch.setattr(diversity, "features", lambda blueprint: {("act", f"{blueprint[1]}"): 4 if blueprint[0] == "rich" else 1})
    monkeypatch.setattr(diversity, "estimated_tokens", lambda blueprint: 1)

    kinds = [pool[one.at].blueprint[0] for one in examples_of(ArmCell("coverage_two_thirds", 21, 1e-3, 0))]

    assert kinds == ["plain"] * 7 + ["rich"] * 14


def test_the_primary_comparison_has_more_seeds(cells: Cells) -> None:
    made = diversity.main_cells(cells, ARMS)

    assert {cell.seed for cell in made if cell.arm in PRIMARY} == set(diversity.PRIMARY_SEEDS) > set(diversity.SEEDS)
    assert {cell.seed for cell in made if cell.arm not in PRIMARY} == set(diversity.SEEDS)


def test_missing_cells_are_no_figures(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        diversity_figures(Cells(tmp_path / "none.jsonl"))


def test_the_kept_cells_are_read() -> None:
    kept = Cells()

    assert all(BaseCell(base) in kept for base in range(BASES))
    assert ArmCell("even", 500, RATES[0], 0) in kept

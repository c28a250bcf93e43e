"""The exchange rate and the learnable worlds: figures from scripted cells."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.experiment import exchange, learnable_worlds
from benchmarks.experiment.cells import Cells
from benchmarks.experiment.exchange import CONFIG, ExchangeCell
from benchmarks.experiment.learnable_worlds import LearnCell
from train.proxy.exchange_rate import RL, START, points_of


def test_where_rl_is_worth_so_many_traces_dear_traces_make_it_cheaper(tmp_path: Path) -> None:
    cells = Cells(tmp_path / "cells.jsonl")
    for seed, count in points_of(CONFIG):
        rate = {RL: 0.4, START: 0.1, 0: 0.2, 100: 0.3, 200: 0.4}.get(count, 0.6)
        cells.add(ExchangeCell(seed, count), {"rates": [rate] * 20, "mean": rate})

    found = exchange.figures(cells)

    assert set(found) == set(exchange.KEYS)
    assert found["rl_price_traces"] == pytest.approx(200)
    assert [found[f"rl_is_cheaper_at_{price}"] for price in exchange.TRACE_PRICES] == [0, 0, 1, 1]


def test_shares_of_worlds_are_of_the_library_and_of_generated_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learnable_worlds, "generated", lambda: ("gen-1", "gen-2"))
    monkeypatch.setattr(learnable_worlds, "library", lambda: ("hotel",))
    cells = Cells(tmp_path / "cells.jsonl")
    for world, climbs in (("gen-1", True), ("gen-2", False), ("hotel", True)):
        cells.add(
            LearnCell(world),
            {"climbs": climbs, "control_gain": [0, -0.1, 0.1], "minutes": 2.0, "fell": 0, "reasons": {"moved": 1, "slow": 1}},
        )

    found = learnable_worlds.figures(cells)

    assert set(found) == set(learnable_worlds.KEYS)
    assert (found["worlds_learnable_share"], found["worlds_learnable_share_library"]) == (0.5, 1.0)
    assert found["intents_moved_share"] == 0.5

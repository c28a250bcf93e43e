"""The page of plots: it shows what is measured, says what is not, and is the same for the same cells."""

from __future__ import annotations

from pathlib import Path

from benchmarks.experiment import exchange
from benchmarks.experiment.cells import Cells
from benchmarks.experiment.plots import draw
from train.proxy.exchange_rate import points_of


def test_a_panel_shows_its_cells_and_the_others_say_that_they_have_none(tmp_path: Path) -> None:
    cells = Cells(tmp_path / "cells.jsonl")
    for seed, count in points_of(exchange.CONFIG):
        cells.add(exchange.ExchangeCell(seed, count), {"rates": [0.1 + 0.0001 * max(count, 0)] * 20, "mean": 0.1})

    for name in ("once.svg", "again.svg"):
        draw(cells, tmp_path / name)

    page = (tmp_path / "once.svg").read_text()
    assert page.count("not measured yet") == 7
    assert "further expert traces" in page
    assert page == (tmp_path / "again.svg").read_text()

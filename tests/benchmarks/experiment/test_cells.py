"""Cells: what is done is kept, a killed benchmark continues, and a late one starts nothing."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from benchmarks.experiment.cells import Cells, pack, unpack, work
from benchmarks.harness import Deadline, OutOfTime
from tests.train.warm_processes import warm_workers


@dataclass(frozen=True)
class Square:
    number: int


def square(cell: Square) -> dict[str, float]:
    return {"value": cell.number**2}


def later() -> Deadline:
    return Deadline(time.monotonic() + 600)


def test_results_are_kept_and_not_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warm_workers(monkeypatch, "benchmarks.experiment.cells")
    path = tmp_path / "cells.jsonl"
    work([Square(2), Square(3)], square, Cells(path), later(), minutes=1)
    kept = path.read_text()

    cells = Cells(path)
    work([Square(3), Square(2)], square, cells, later(), minutes=1)

    assert path.read_text() == kept
    assert [cells[Square(number)]["value"] for number in (2, 3)] == [4, 9]
    assert Square(4) not in cells


def test_a_call_that_is_late_starts_nothing_and_says_so(tmp_path: Path) -> None:
    cells = Cells(tmp_path / "cells.jsonl")

    with pytest.raises(OutOfTime):
        work([Square(2)], square, cells, Deadline(time.monotonic() + 30), minutes=1)

    assert Square(2) not in cells


def test_bits_survive_packing() -> None:
    bits = np.random.default_rng(0).random(1_203) < 0.3

    assert (unpack(pack(bits.tolist()), 1_203) == bits).all()

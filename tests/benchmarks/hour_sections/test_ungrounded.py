"""The airline's log is as hard as it says, and evenness tells even from skewed."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.hour_sections.airline_log import JUNK, REQUESTS, write_log
from benchmarks.hour_sections.ungrounded import evenness, random_evenness


def test_the_log_is_skewed_repeats_itself_and_holds_junk(tmp_path: Path) -> None:
    log = write_log(tmp_path)
    rows = [json.loads(line) for line in log.file.read_text(encoding="utf-8").splitlines()]
    counts = Counter(log.kinds)
    assert len(rows) == len(log.kinds) == 20_000 and set(counts) == {JUNK, *REQUESTS} and len(REQUESTS) == 23
    assert counts[JUNK] >= 2_000
    (_, most), *_, (_, least) = Counter(kind for kind in log.kinds if kind != JUNK).most_common()
    assert most > 0.3 * len(rows) and least < 0.003 * len(rows)
    assert len({row["prompt"] for row in rows}) < 0.9 * len(rows)
    assert write_log(tmp_path).kinds == log.kinds


def test_evenness_is_one_if_all_kinds_are_equally_frequent_and_leaves_junk_out() -> None:
    assert evenness(["a", "b", JUNK, JUNK], 2) == pytest.approx(1.0)
    assert evenness(["a", "a"], 2) == 0.0
    assert evenness(["a", "b"], 4) == pytest.approx(math.log(2) / math.log(4))


def test_random_rows_of_a_skewed_log_are_uneven() -> None:
    assert random_evenness(["a"] * 990 + ["b"] * 10, 2) < 0.2
    assert random_evenness(["a", "b"] * 500, 2) > 0.9

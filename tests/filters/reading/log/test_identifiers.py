"""Identifiers in the users' own form are learned from the log; units, and what a world has itself, are not."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl

from filters.funnel import FunnelConfig, curate
from filters.grounding.ground_model import GroundConfig
from filters.reading.log.identifiers import LEAST_NUMBERS, learn_identifiers
from filters.steps.selection.coverage import CoverageConfig
from storage.store import Store


def rows(texts: list[str]) -> pl.DataFrame:
    return pl.DataFrame({"norm": texts}).with_columns(ungrounded=pl.lit("unknown"))


def test_letters_before_many_numbers_are_identifiers() -> None:
    log = [f"cancel order #{n} please" for n in range(100, 140)] + [f"where is ord-{n}?" for n in range(100, 130)]
    learned = learn_identifiers([rows(log[:30]), rows(log[30:])], [])
    assert learned["example"].to_list() == ["#100", "ord-100"] and learned["numbers"].to_list() == [40, 30]


def test_units_rare_letters_and_forms_of_worlds_are_none() -> None:
    log = [f"pay usd{n} for b{n}, it weighs kg{n}" for n in range(100, 200)] + [
        f"part z{n} is broken" for n in range(10, 9 + LEAST_NUMBERS)
    ]
    log += [f"cancel reservation b{n:03d} at 10:{n:02d} in room {n}" for n in range(10, 60)]
    assert learn_identifiers([rows(log)], [r"b\d\d\d"]).is_empty()
    framed = rows([f"order #{n}" for n in range(100, 140)]).with_columns(ungrounded=pl.lit(None, pl.String))
    assert learn_identifiers([framed], []).is_empty()


def test_a_run_reads_requests_with_the_identifiers_of_its_log_and_says_so(tmp_path: Path) -> None:
    """Given a log whose users write #803, then these become tasks about reservations that the hotel has."""
    log = [f"please cancel reservation #{n}" for n in range(800, 840)] + [f"what is the weather in town {n}" for n in range(40)]
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in log), encoding="utf-8")
    store = Store(tmp_path / "store")
    ground = GroundConfig(min_precision=0.8)
    config = FunnelConfig(worlds=("hotel",), ungrounded=False, ground=ground, coverage=CoverageConfig(keep=20))
    result = curate(store, [path], config)
    assert any("#800" in note for note in result.not_done)
    read = store.query("SELECT q.text, f.intent, f.slots FROM frames f JOIN queries q USING (query_id, run) WHERE f.frame_id IS NOT NULL")
    assert read.height and set(read["intent"]) == {"cancel_reservation"}
    assert read["text"].str.contains("#8").all() and read["slots"].str.contains(r'"b\d{3}"').all()

"""What policies were measured at, for whoever shows it: the last measurement whole, by facet, whatever its rows hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from storage.report.evaluation_queries import by_facet, format_rate, parse_pass_k, read_measurements
from storage.store import Store, part_id
from storage.tables import TABLES
from tests.storage.conftest import build_sample

LINE = {"policy_id": "policy-2", "use": "eval_in", "decoding": "sampled", "samples": 40, "low": 0.2, "high": 0.4, "pass_k": "{}"}


def evaluated(store: Store, name: str, *rows: dict[str, Any]) -> None:
    """Commits a measurement of facet values."""
    columns = TABLES["evaluations"].columns
    whole = [dict.fromkeys(columns) | LINE | {"evaluation_id": name, "tasks": 10, "rate": 0.3} | row for row in rows]
    store.commit([store.write("evaluations", part_id("evaluations", [name], {}, 1), pl.DataFrame(whole, schema=columns))])


def test_the_facets_are_those_of_the_last_measurement_alone(tmp_path: Path) -> None:
    """Given a policy that was measured twice, on tasks of other worlds, then no facet of the first is shown."""
    store = build_sample(tmp_path / "store").store
    total = {"facet": "all", "facet_value": "all"}
    evaluated(store, "first", total, {"facet": "world", "facet_value": "city"}, {"facet": "world", "facet_value": "retail"})
    evaluated(store, "second", total, {"facet": "world", "facet_value": "library"}, {"facet": "world", "facet_value": "retail"})
    rows = read_measurements(store)
    assert rows.filter(policy_id="policy-2", facet="world")["facet_value"].to_list() == ["library", "retail"]
    assert rows["policy"].unique(maintain_order=True).to_list() == ["sft1", "sft2"]
    assert [(line.value, line.cells[0], line.last["rate"]) for line in by_facet(rows)] == [("library", None, 0.3), ("retail", None, 0.3)]


def test_engines_of_one_name_and_other_weights_are_told_apart(tmp_path: Path) -> None:
    store = build_sample(tmp_path / "store").store
    columns = TABLES["policies"].columns
    engines = [dict.fromkeys(columns) | {"policy_id": f"engine-{number}", "path": "hf:models/mine"} for number in (1, 2)]
    store.commit([store.write("policies", part_id("policies", ["engines"], {}, 1), pl.DataFrame(engines, schema=columns))])
    for number in (1, 2):
        evaluated(store, f"of-{number}", {"policy_id": f"engine-{number}", "facet": "all", "facet_value": "all"})
    assert read_measurements(store)["policy"].unique(maintain_order=True).to_list() == [
        "hf:models/mine engine-1",
        "hf:models/mine engine-2",
        "sft1",
        "sft2",
    ]


def test_facets_of_one_value_say_nothing_and_numbers_stand_in_their_order(tmp_path: Path) -> None:
    store = build_sample(tmp_path / "store").store
    values = [("intent", "buy"), ("intent", "close"), ("language", "en"), *(("difficulty", str(level)) for level in (2, 10, -1))]
    evaluated(store, "e", *({"facet": facet, "facet_value": value} for facet, value in (("all", "all"), *values)))
    greedy = [{"facet": "category", "facet_value": value, "use": "bfcl", "decoding": "greedy"} for value in ("base", "miss_func")]
    evaluated(store, "b", *greedy, *({**row, "use": "eval_in", "facet": "mode"} for row in greedy))
    lines = [(line.use, line.facet, line.value) for line in by_facet(read_measurements(store))]
    assert lines == [
        ("bfcl", "category", "base"),
        ("bfcl", "category", "miss_func"),
        *(("eval_in", "difficulty", level) for level in ("-1", "2", "10")),
        ("eval_in", "intent", "buy"),
        ("eval_in", "intent", "close"),
    ]


@pytest.mark.parametrize(
    ("stored", "says"),
    [
        ('{"4": [0.5, 0.4, 0.6], "2": [0.7, 0.6, 0.8]}', ["0.700 (0.600 to 0.800)", "0.500 (0.400 to 0.600)"]),
        ('{"2": 0.1}', ["0.100"]),
        (None, []),
    ],
)
def test_powers_are_told_with_their_intervals_where_there_are_any(stored: str | None, says: list[str]) -> None:
    assert [format_rate(*power) for power in parse_pass_k(stored).values()] == says

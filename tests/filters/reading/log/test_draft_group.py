"""What users ask for that no tool serves becomes the first spec of a world that could."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from filters.funnel import FunnelConfig, curate
from filters.reading.log.draft_group import comments, draft_group, group_of, requests_table
from filters.steps.selection.coverage import CoverageConfig
from storage.errors import BadInput
from storage.store import Store
from synth.worlds.declarative.compile import compile_file

PERMITS = [
    f"I need a parking permit for {street} from 16 May at {hour} pm, for {count} cars, it should cost ${price}"
    for street, hour, count, price in [
        *(("Maple Street", 3, 2, 40), ("Cedar Road", 4, 3, 55), ("Oak Avenue", 5, 1, 60), ("Hill Lane", 6, 4, 25), ("Mill Road", 7, 2, 30))
    ]
]


def test_a_row_has_what_a_request_mentions() -> None:
    table = requests_table(PERMITS, "parking permit")
    assert table.columns == ["name", "day", "time", "amount", "number of car"]
    assert table.row(0) == ("Maple Street", "2026-05-16", "15:00", "40", "2")


def test_chinese_requests_give_the_same_columns() -> None:
    table = requests_table([f"5月{day}日下午3点借《{title}》，{day}块钱行吗" for day, title in ((16, "红楼梦"), (17, "活着"))], "借书")
    assert table.columns == ["name", "day", "time", "amount"]
    assert table.row(1) == ("活着", "2026-05-17", "15:00", "17")


def test_requests_without_a_name_are_numbered_and_rare_values_make_no_column() -> None:
    noises = [f"my washing machine makes noise {word}" for word in "abcdefghijklmnopqrstuvwxyz"]
    table = requests_table([*noises, "come on 16 May"], "washing")
    assert table.columns == ["name"] and table["name"].n_unique() == table.height == 27


def test_a_group_of_a_run_becomes_a_spec_that_compiles(tmp_path: Path) -> None:
    """Given a log of which the hotel serves nothing, then its largest group is in the store, and its draft compiles."""
    log = [text.replace("Street", f"Street {n}") for n in range(12) for text in PERMITS]
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in log), encoding="utf-8")
    store = Store(tmp_path / "store")
    with pytest.raises(BadInput, match="no groups of requests"):
        group_of(store, "parking")
    config = FunnelConfig(worlds=("hotel",), ungrounded=True, coverage=CoverageConfig(keep=5))
    curate(store, [path], config)
    topics = store.query("SELECT topic, share, rows FROM unserved ORDER BY rows DESC")
    name = topics["topic"][0]
    assert topics["share"].sum() == pytest.approx(1, abs=0.2) and "permit" in name
    topic, requests = group_of(store, name[:6].upper())
    assert topic == name and len(requests) >= 3
    with pytest.raises(BadInput, match=f"no group begins with 'zebra'; groups are {name}"):
        group_of(store, "zebra")
    spec = tmp_path / "permits.yaml"
    spec.write_text(draft_group(topic, [*requests, "ring \x07 the bell"], spec), encoding="utf-8")
    world = compile_file(spec)
    assert any(name.startswith("suggest_") for name in world.intents)
    assert f"#   {requests[0]}" in spec.read_text(encoding="utf-8")
    (table,) = tmp_path.glob("*.csv")
    assert pl.read_csv(table).height == len(set(pl.read_csv(table)["name"]))
    assert comments(topic, ["ring \x07 the bell" + "!" * 500]).isprintable() is False and "\x07" not in comments(topic, ["a \x07 b"])
    with pytest.raises(BadInput, match="exists, where the table"):
        draft_group(topic, requests, spec)

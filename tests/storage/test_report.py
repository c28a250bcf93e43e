"""The report shows what the store holds, needs no network, and trusts no text."""

import json
import re
from html.parser import HTMLParser

import polars as pl
import pytest

from storage.schema import TABLES
from storage.store import Store, part_id
from storage.view.report import write_report

ATTACK = "<script>alert('x')</script> & \"quotes\""
CALL = {"id": "c1", "type": "function", "function": {"name": "search_products", "arguments": '{"category": "lamp"}'}}
MESSAGES = [
    {"role": "user", "content": f"找一盏灯 {ATTACK}"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "content": '{"rows": []}', "tool_call_id": "c1"},
    {"role": "assistant", "content": "没有。"},
]


def rows(table: str, *given: dict) -> pl.DataFrame:
    columns = TABLES[table].columns
    return pl.DataFrame([dict.fromkeys(columns) | row for row in given], schema=columns)


CONTENT = {
    "queries": rows("queries", *({"query_id": f"q{n}", "run": "r", "row": n, "text": ATTACK, "occurrences": 1} for n in range(4))),
    "verdicts": rows(
        "verdicts",
        *({"query_id": f"q{n}", "run": "r", "step": "exact", "kept": n == 0, "reason": None if n == 0 else "duplicate"} for n in range(4)),
    ),
    "funnel": rows(
        "funnel",
        {"run": "r", "position": 0, "step": "exact", "rows_in": 4, "kept": 1, "dropped": 3, "reasons": '{"duplicate": 3}', "seconds": 0.1},
    ),
    "diversity": rows("diversity", *({"run": "d", "round": n, "metric": "h_dom", "value": 1.0 + n, "sd": 0.1, "n": 50} for n in range(3))),
    "trajectories": rows(
        "trajectories",
        {
            "trajectory_id": "tr",
            "domain": "retail",
            "language": "zh",
            "teacher": "scripted",
            "accepted": True,
            "mode_coarse": "C>F",
            "complexity": 3.0,
            "messages": json.dumps(MESSAGES),
        },
    ),
    "tasks": rows("tasks", {"task_id": "t1", "query_id": "q0", "intent": "buy", "difficulty": 2}),
    "tags": rows(
        "tags", {"task_id": "t1", "policy_id": "p1", "purpose": "probe", "difficulty": 2, "k": 8, "successes": 3, "region": "uncertain"}
    ),
    "release_items": rows(
        "release_items", {"release_id": "rel", "split": "seed", "position": 0, "kind": "task", "item_id": "t1", "task_id": "t1"}
    ),
    "stages": rows(
        "stages", {"stage_id": "s1", "name": "sft1", "algorithm": "sft", "release_id": "rel", "split": "seed", "output_policy_id": "p1"}
    ),
    "policies": rows("policies", {"policy_id": "p1", "stage_id": "s1", "weights_hash": "ab" * 32}),
    "evaluations": rows(
        "evaluations",
        {
            "evaluation_id": "e",
            "policy_id": "p1",
            "use": "eval_in",
            "decoding": "sampled",
            "facet": "all",
            "facet_value": "all",
            "tasks": 9,
            "samples": 36,
            "rate": 0.4,
            "low": 0.3,
            "high": 0.5,
            "pass_k": "{}",
        },
    ),
    "clusters": rows("clusters", {"cluster_id": "c", "domain": "retail", "tool_ids": ["shop.buy"], "edges": '[["a", "b"]]', "rank": 0}),
}


@pytest.fixture
def store(tmp_path) -> Store:
    store = Store(tmp_path / "demo" / "store")
    store.commit([store.write(table, part_id(table, [], {}, 1), frame) for table, frame in CONTENT.items()])
    return store


class Page(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.scripts, self.loads = 0, []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.scripts += tag == "script"
        self.loads += [value for name, value in attrs if name in ("src", "srcset") or (tag == "link" and name == "href")]


def test_report_shows_every_section_and_the_foreign_text(store):
    html = write_report(store).read_text(encoding="utf-8")
    assert "Not run yet" not in html
    for text in ("找一盏灯", "search_products", "1 in 4", "shop.buy", "uncertain", "sft1", "没有。"):
        assert text in html, text


def test_report_loads_nothing_from_anywhere(store):
    assert Page(write_report(store).read_text(encoding="utf-8")).loads == []


def test_text_from_the_data_is_never_code(store):
    html = write_report(store).read_text(encoding="utf-8")
    assert ATTACK not in html
    assert "&lt;script&gt;alert" in html
    harmless = Page(write_report(Store(store.root.parent / "none"), store.root.parent / "empty.html").read_text(encoding="utf-8"))
    charts = html.count("plotly-graph-div")
    assert Page(html).scripts == harmless.scripts + 2 * charts or Page(html).scripts == harmless.scripts + charts


def test_an_empty_store_has_a_report_that_says_so(tmp_path):
    html = write_report(Store(tmp_path / "store")).read_text(encoding="utf-8")
    assert len(re.findall("Not run yet", html)) == 7

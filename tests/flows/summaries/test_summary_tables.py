"""The summary tables of a run: each is one query, and its text is printed unchanged."""

from __future__ import annotations

import io
import json
import subprocess
from pathlib import Path
from typing import Any

import polars as pl
from rich.console import Console

from flows.summaries import summary_tables
from storage.report.page import write_report
from storage.report.sections import ladder
from storage.store import Store, part_id
from storage.tables import TABLES
from tests.storage.conftest import build_sample
from tests.storage.report.test_evaluation_queries import evaluated


def printed(table: summary_tables.Table) -> str:
    screen = io.StringIO()
    summary_tables.print_table(table, Console(file=screen, width=200, highlight=False, emoji=False))
    return screen.getvalue()


def test_a_full_store_fills_all_tables(tmp_path: Path) -> None:
    by_key = {table.key: table for table in summary_tables.tables(build_sample(tmp_path / "store").store)}
    assert list(by_key) == ["funnel", "rounds", "outcomes", "diversity", "difficulty", "certainty", "priors", "ladder"]
    assert by_key["funnel"].title == "Funnel: 1 in 3 kept"
    assert by_key["certainty"].rows[0]["policy"] == "sft1" and by_key["certainty"].rows[0]["certain"] == 1
    assert [row["policy"] for row in by_key["ladder"].rows] == ["sft1", "sft2"]
    for table in by_key.values():
        shown = printed(table)
        assert table.title in shown and all(str(name) in shown for name in table.rows[0])
    assert summary_tables.tables(Store(tmp_path / "none")) == []


def test_the_shell_command_for_tags_works_and_counts_a_task_once(tmp_path: Path) -> None:
    """Given a task that was tagged again with more rollouts, and for another policy, then each policy counts it once."""
    store = build_sample(tmp_path / "a store").store
    columns = TABLES["tags"].columns
    (tag,) = store.query(f"SELECT {', '.join(columns)} FROM tags WHERE purpose = 'probe' LIMIT 1").to_dicts()
    again = [tag | {"k": tag["k"] + 8}, tag | {"policy_id": "policy-other"}]
    store.commit([store.write("tags", part_id("tags", ["again"], {}, 1), pl.DataFrame(again, schema=columns))])
    shown = subprocess.run(summary_tables.tags_command(store.root), shell=True, capture_output=True, text=True, check=True).stdout
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.splitlines() if line.startswith("│")]
    assert lines[0] == ["policy_id", "difficulty", "region", "tasks", "mean_rate"]
    assert [line[3] for line in lines if line[0] in (tag["policy_id"], "policy-other")] == ["1", "1"]


def test_every_round_of_the_last_run_is_listed_with_its_figures(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")

    def add(table: str, run: str, *rows: dict[str, Any]) -> None:
        columns = TABLES[table].columns
        frame = pl.DataFrame([dict.fromkeys(columns) | {"run": run} | row for row in rows], schema=columns)
        store.commit([store.write(table, part_id(table, [run], {}, 1), frame)])

    def decided(number: int, *statuses: str) -> list[dict[str, Any]]:
        return [{"round": number, "position": at, "status": status} for at, status in enumerate(statuses)]

    add("decisions", "before", *decided(0, "accepted"), *decided(1, "accepted"), *decided(2, "accepted"))
    add("diversity", "before", {"round": 0, "metric": "complexity_mean", "value": 9.0, "n": 1})
    add("decisions", "last", *decided(0, "accepted", "rejected", "accepted"), *decided(1, "unfilled"))
    add(
        "diversity",
        "last",
        {"round": -1, "metric": "domain_entropy_bits", "value": 7.0, "n": 9},
        {"round": 0, "metric": "domain_entropy_bits", "value": 1.234, "n": 2},
        {"round": 0, "metric": "user_adherence", "value": 0.5, "n": 4},
        {"round": 1, "metric": "domain_entropy_bits", "value": 1.5, "n": 2},
        {"round": 1, "metric": "tool_coverage", "value": 0.1, "n": 2},
    )
    assert summary_tables.rounds(store).rows == [
        {"round": 0, "asked": "3", "accepted": "2", "H_dom": "1.23", "user adheres": "0.50"},
        {"round": 1, "asked": "1", "accepted": "0", "H_dom": "1.50", "user adheres": ""},
    ]


def test_conversations_are_counted_by_outcome_with_an_example_of_each(tmp_path: Path) -> None:
    """Given conversations with models and a proposal without a plan, then each outcome has its cost, an id to explain, and what it says."""
    store = Store(tmp_path / "store")

    def add(table: str, *rows: dict[str, Any]) -> None:
        columns = TABLES[table].columns
        frame = pl.DataFrame([dict.fromkeys(columns) | row for row in rows], schema=columns)
        store.commit([store.write(table, part_id(table, ["r"], {}, 1), frame)])

    said = json.dumps([{"role": "user", "content": "Where is my order?"}])
    outcomes = [
        ("success", None, 10),
        ("policy_failure", "goal_0.facts", 3),
        ("policy_failure", "goal_1.facts", 4),
        ("tool_failure", "tool_failure", 7),
    ]
    played: dict[str, Any] = {"completion_tokens": 1, "cost_usd": 0.5, "messages": said, "checks": "{}", "cluster_id": "c"}
    add(
        "trajectories",
        *(
            played | {"trajectory_id": f"t-{at}", "blueprint_id": f"b-{at}", "outcome": outcome, "reason": reason, "prompt_tokens": tokens}
            for at, (outcome, reason, tokens) in enumerate(outcomes)
        ),
        played | {"trajectory_id": "expert", "blueprint_id": "b-0", "outcome": "success", "cluster_id": None},
    )
    add("provenance", {"trajectory_id": "t-3", "failure": "the world is down"})
    reasons = [*(reason for _, reason, _ in outcomes), "no_recipe"]
    cell = {"run": "r", "round": 0, "domain": "shop", "mode_family": "C>F", "complexity_band": "low"}
    add("decisions", *(cell | {"position": at, "blueprint_id": f"b-{at}", "reason": reason} for at, reason in enumerate(reasons)))

    shown = summary_tables.outcomes(store).rows
    assert [(row["outcome"], row["conversations"], row["tokens"], row["usd"], row["for example"]) for row in shown] == [
        ("policy_failure", 2, 9, 1.0, "t-1"),
        ("success", 1, 11, 0.5, "t-0"),
        ("tool_failure", 1, 8, 0.5, "t-3"),
        ("unplanned", 1, 0, 0.0, "b-4"),
    ]
    assert shown[0]["why"].startswith("failed check facts (") and shown[1]["why"] == ""
    assert [row["which says"] for row in shown] == ["Where is my order?"] * 2 + ["the world is down", "shop, C>F, low complexity"]
    assert json.loads(json.dumps(shown)) == shown


def test_a_missing_figure_is_left_blank(tmp_path: Path) -> None:
    columns = TABLES["diversity"].columns
    row: dict[str, Any] = {"run": "r-1", "round": 1, "metric": "tool_entropy", "n": 0}
    store = Store(tmp_path / "store")
    rows = pl.DataFrame({name: [row.get(name)] for name in columns}, schema=columns)
    store.commit([store.write("diversity", part_id("diversity", ["r-1"], {}, 1), rows)])
    assert summary_tables.diversity(store).rows == [{"figure": "tool_entropy", "value": "", "sd": "", "over": "0"}]


def test_text_that_looks_like_markup_is_printed_unchanged() -> None:
    shown = printed(summary_tables.Table("k", "Plan of [new]x", [{"what": "runs/o[/new]x/:cat:", "rows": 3, "none": None}]))
    assert "Plan of [new]x" in shown and "runs/o[/new]x/:cat:" in shown and "None" not in shown


def test_facets_of_the_last_policy_stand_beside_earlier_policies(tmp_path: Path) -> None:
    """Given two policies measured by world, then each world has a row with the rate of the first policy, and the rate, interval and pass^k
    of the last. Only the report shows intents."""
    store = build_sample(tmp_path / "store").store
    for policy, rate, power in (("policy-1", 0.1, "{}"), ("policy-2", 0.3, '{"2": [0.2, 0.1, 0.3], "4": [0.1, 0.05, 0.15]}')):
        about = {"policy_id": policy, "rate": rate, "pass_k": power}
        values = (("all", "all"), *((facet, value) for facet in ("world", "intent") for value in ("city", "retail")))
        evaluated(store, policy, *(about | {"facet": facet, "facet_value": value} for facet, value in values))
    assert summary_tables.facets(store).rows == [
        {
            "held out": "known needs",
            "by": "world",
            "value": world,
            "tasks": 10,
            "sft1": "0.100",
            "sft2": "0.300 (0.200 to 0.400)",
            "pass^k": "4: 0.100 (0.050 to 0.150)",
        }
        for world in ("city", "retail")
    ]
    assert [row["pass^4"] for row in summary_tables.ladder(store).rows] == ["", "0.100 (0.050 to 0.150)"]
    (table,) = ladder(store, lambda _: {})["facets"]
    assert [(facet, [line.value for line, _ in lines]) for facet, lines in table["facets"]] == [
        ("world", ["city", "retail"]),
        ("intent", ["city", "retail"]),
    ]
    page = write_report(store, tmp_path / "report.html").read_text()
    assert "By kind, world, language, difficulty, reasoning mode and intent" in page and "pass^4 0.100 (0.050 to 0.150)" in page

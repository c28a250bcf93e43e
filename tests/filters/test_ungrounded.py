"""Queries that no world reads, from a user's file to an export: no junk, rare requests too, all columns, and words about each."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from filters.funnel import FunnelConfig, FunnelResult, curate
from filters.ingest import IngestConfig
from filters.steps.selection.coverage import CoverageConfig
from storage.errors import BadInput
from storage.explanations.explain import explain
from storage.releases.export_queries import export_queries
from storage.releases.lineage import lineage
from storage.store import Store
from synth.clusters.cluster_store import save_clusters
from synth.worlds import WORLDS

KINDS = {
    "connection": ("is there a connection from {city} to Oslo on {n} June", "which flights go from {city} to Lima at {n} pm"),
    "status": ("is flight LX{n} on time", "what time does BA{n} land in {city}", "has UA{n} taken off yet"),
    "refund": ("where is my refund for K{n}QX", "my refund of ${n} has not arrived; if it is lost, send it again, otherwise tell me when"),
    "wheelchair": ("my mother needs a wheelchair at {city} airport", "can I bring my own electric wheelchair on LX{n}"),
    "改签": ("帮我把订单K{n}改到{n}号的航班", "如果{n}号的航班还有票就帮我改签，否则退票"),
}
JUNK = ("asdfgh", "Hello tehre. hi", "good monring", "???", "hi asdkjh", "thanks!!", "你好，在吗")
CONFIG = FunnelConfig(ingest=IngestConfig(column="ask.text"), coverage=CoverageConfig(keep=24), ungrounded=True)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A log of tickets, and what each row is: a kind of request of very different frequency, or junk."""
    rng, kinds, path = random.Random(0), list[str](), tmp_path_factory.mktemp("log") / "tickets.jsonl"
    rows = []
    for number in range(600):
        (kind,) = rng.choices([*KINDS, "junk"], [400, 80, 25, 12, 25, 80])
        text = rng.choice(JUNK if kind == "junk" else KINDS[kind])
        text = text.format(n=rng.randint(11, 29), city=rng.choice(("Boston", "Madrid", "Delhi", "Cairo")))
        text = f"Hi, {text}" if kind != "junk" and rng.random() < 0.3 else text
        rows.append({"ticket": number, "ask": {"text": text, "by": ["app", None]}, "topic": f"own {kind}", "paid": number % 2 == 0})
        kinds.append(kind)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path, kinds


@pytest.fixture(scope="module")
def curated(log: tuple[Path, list[str]], tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, FunnelResult]]:
    store = Store(tmp_path_factory.mktemp("curated") / "store")
    yield store, curate(store, [log[0]], CONFIG)


def kept_kinds(store: Store, kinds: list[str]) -> Counter[str]:
    rows = store.query("SELECT q.row FROM verdicts v JOIN queries q USING (query_id, run) WHERE v.kept")["row"]
    return Counter(kinds[row] for row in rows)


def test_every_kind_is_kept_about_as_often_and_no_junk(curated: tuple[Store, FunnelResult], log: tuple[Path, list[str]]) -> None:
    kept = kept_kinds(curated[0], log[1])
    assert sum(kept.values()) == 24 and set(kept) == set(KINDS)
    assert min(kept.values()) >= 2 and max(kept.values()) <= 10, kept


def test_long_and_conditional_requests_are_preferred(curated: tuple[Store, FunnelResult]) -> None:
    texts = curated[0].query("SELECT q.text FROM verdicts v JOIN queries q USING (query_id, run) WHERE v.kept")["text"]
    assert texts.str.contains("if it is lost").any() and texts.str.contains("如果").any()


def test_greetings_do_not_hide_junk_nor_drop_requests(curated: tuple[Store, FunnelResult]) -> None:
    early = curated[0].query(
        "SELECT q.text, v.reason FROM verdicts v JOIN queries q USING (query_id, run) WHERE v.step = 'rules' ORDER BY q.row"
    )
    reasons = dict(early.iter_rows())
    assert reasons["Hello tehre. hi"] == "chit_chat" and reasons["hi asdkjh"] == "keyboard_mash"
    assert not any("flight" in text or "refund" in text for text in reasons)


def test_short_wordings_that_many_use_are_kept_and_junk_that_no_rule_knows_comes_last(tmp_path: Path) -> None:
    """Given a log of 200 questions, a wording of two words that is there 40 times, and random keys and slips, then the wording is kept."""
    store, path = Store(tmp_path / "store"), tmp_path / "log.txt"
    verbs, things = ("change", "pay for", "cancel", "look up", "print"), ("my seat", "the flight", "a meal", "my ticket", "the invoice")
    questions = [f"how do I {verb} {thing} on LX{n}" for verb in verbs for thing in things for n in range(8)]
    junk = ["wlzoj drg", "xrk pqe", "good monriing team", "往宿辰月"] * 10
    path.write_text("\n".join([*questions, *["forgot password"] * 40, "reset password", *junk]) + "\n", encoding="utf-8")
    curate(store, [path], FunnelConfig(coverage=CoverageConfig(keep=12), ungrounded=True))
    rows = store.query(
        "SELECT q.text, f.topic, v.kept FROM verdicts v JOIN queries q USING (query_id, run) JOIN frames f USING (query_id, run)"
    )
    kept = rows.filter("kept")["text"].to_list()
    assert "forgot password" in kept and not set(kept) & set(junk)


def test_difficulty_is_rated_by_cues_and_said_to_be(curated: tuple[Store, FunnelResult]) -> None:
    store, _ = curated
    frames = store.query("SELECT difficulty, difficulty_by, frame_id, topic FROM frames WHERE status = 'ungrounded'")
    assert set(frames["difficulty_by"]) == {"cues"} and frames["difficulty"].is_between(1, 5).all()
    assert frames["frame_id"].null_count() == frames.height and frames["topic"].null_count() == 0
    assert frames["difficulty"].n_unique() > 1


def test_tools_in_reach_count_in_the_rating(log: tuple[Path, list[str]], tmp_path: Path) -> None:
    """Given a bank's tools in the store, then a question that several of them could serve has more tool load than its words alone give."""
    path, alone, with_tools = tmp_path / "log.txt", Store(tmp_path / "alone"), Store(tmp_path / "tools")
    path.write_text("List all my bank accounts with their balances\nShow the latest transactions of my bank account\n")
    save_clusters(with_tools, WORLDS["banking"].tools)
    loads = []
    for store in (alone, with_tools):
        curate(store, [path], FunnelConfig(coverage=CoverageConfig(keep=5), ungrounded=True))
        loads.append(store.query("SELECT s_tool FROM frames ORDER BY query_id")["s_tool"].to_list())
    assert loads[0] == [1, 1] and max(loads[1]) > 1 and min(loads[1]) >= 1


def test_the_export_has_the_users_columns_and_what_was_found(
    curated: tuple[Store, FunnelResult], log: tuple[Path, list[str]], tmp_path: Path
) -> None:
    store, result = curated
    out = export_queries(store, tmp_path / "out", licences={"tickets.jsonl": "CC-BY-4.0"})
    rows = [json.loads(line) for line in (out / "queries.jsonl").read_text(encoding="utf-8").splitlines()]
    source = [json.loads(line) for line in log[0].read_text(encoding="utf-8").splitlines()]
    assert len(rows) == 24
    for row in rows:
        assert {name: row[name] for name in source[0]} == source[row["ticket"]]
        assert row["query_id"].endswith(f"{row['ticket']:08d}") and row["headrace_topic"] and row["difficulty_by"] == "cues"
    table = pq.read_table(out / "queries.parquet")
    assert table["ticket"].to_pylist() == [row["ticket"] for row in rows] and table["paid"].to_pylist() == [row["paid"] for row in rows]
    assert [json.loads(text) for text in table["ask"].to_pylist()] == [row["ask"] for row in rows]
    card = (out / "README.md").read_text(encoding="utf-8")
    assert "24 queries" in card and "600" in card and "CC-BY-4.0" in card and "headrace_topic" in card and result.run in card
    assert {path.name for path in out.iterdir()} == {"README.md", "SHA256SUMS", "manifest.json", "queries.jsonl", "queries.parquet"}
    assert export_queries(store, tmp_path / "again", result.run).is_dir()


def test_an_export_of_nothing_or_with_a_foreign_licence_is_refused(curated: tuple[Store, FunnelResult], tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="headrace curate"):
        export_queries(Store(tmp_path / "store"), tmp_path / "out")
    with pytest.raises(BadInput, match=r"other\.csv.*tickets\.jsonl"):
        export_queries(curated[0], tmp_path / "out", licences={"other.csv": "MIT"})
    assert not (tmp_path / "out").exists()


def test_of_a_file_that_was_curated_twice_the_last_run_counts(log: tuple[Path, list[str]], tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    first = curate(store, [log[0]], CONFIG)
    second = curate(store, [log[0]], CONFIG.model_copy(update={"coverage": CoverageConfig(keep=6)}))
    (tmp_path / "more.txt").write_text("where do I pick up my lost suitcase in Cairo\n")
    curate(store, [tmp_path / "more.txt"], FunnelConfig(coverage=CoverageConfig(keep=5), ungrounded=True))
    assert first.run != second.run
    lines = (export_queries(store, tmp_path / "out") / "queries.jsonl").read_text().splitlines()
    assert len(lines) == 7 and sum("lost suitcase" in line for line in lines) == 1
    assert len((export_queries(store, tmp_path / "out", first.run) / "queries.jsonl").read_text().splitlines()) == 24


def test_a_last_run_that_kept_nothing_counts_too_and_the_card_counts_each_row_once(tmp_path: Path) -> None:
    """Given two files, one of which is curated again with another result, then the export has its rows of the last run only."""
    store, log, other = Store(tmp_path / "store"), tmp_path / "log.txt", tmp_path / "other.txt"
    log.write_text("where do I pick up my lost suitcase in Cairo\nis there wifi on flight LX17\n")
    other.write_text("can I take my dog on board\n")
    curate(store, [log, other], FunnelConfig(coverage=CoverageConfig(keep=3), ungrounded=True))
    curate(store, [log], FunnelConfig(coverage=CoverageConfig(keep=3), ungrounded=False))
    out = export_queries(store, tmp_path / "out")
    assert [json.loads(line)["text"] for line in (out / "queries.jsonl").read_text().splitlines()] == ["can I take my dog on board"]
    assert "1 queries of users, kept by Headrace of 3," in (out / "README.md").read_text()


def test_no_column_of_the_user_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("text,topic,headrace_topic,headrace_topic_2\nwhere is my lost suitcase,a,b,c\n")
    store = Store(tmp_path / "store")
    curate(store, [path], CONFIG.model_copy(update={"ingest": IngestConfig()}))
    (line,) = (export_queries(store, tmp_path / "out") / "queries.jsonl").read_text().splitlines()
    row = json.loads(line)
    assert [row[name] for name in ("topic", "headrace_topic", "headrace_topic_2")] == ["a", "b", "c"] and "suitcase" in row[
        "headrace_topic_3"
    ]


def test_personal_data_are_masked_in_the_query_and_columns_can_be_left_out(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("text,mail\nplease send my lost suitcase to bob@example.com,bob@example.com\n")
    for keeps in (True, False):
        store = Store(tmp_path / f"store-{keeps}")
        curate(store, [path], CONFIG.model_copy(update={"ingest": IngestConfig(keep_columns=keeps)}))
        (line,) = (export_queries(store, tmp_path / f"out-{keeps}") / "queries.jsonl").read_text().splitlines()
        assert json.loads(line)["text"] == "please send my lost suitcase to <email>"
        assert json.loads(line).get("mail") == ("bob@example.com" if keeps else None)


def test_explain_and_lineage_know_such_a_query(curated: tuple[Store, FunnelResult]) -> None:
    store, _ = curated
    (query,) = store.query("SELECT query_id FROM frames WHERE status = 'ungrounded' ORDER BY query_id LIMIT 1")["query_id"]
    said = " ".join(str(explain(store, query)).split())
    assert (
        "rank in its topic" in said
        and "status kept, no task no task, because " in said
        and "guessed by cues" in said
        and "ticket: " in said
        and "nothing that a world here executes" in said
    )
    assert query in str(lineage(store, query))


def test_a_store_that_runs_again_has_the_same_content(
    curated: tuple[Store, FunnelResult], log: tuple[Path, list[str]], tmp_path: Path
) -> None:
    store = Store(tmp_path / "store")
    curate(store, [log[0]], CONFIG)
    assert store.content_hash() == curated[0].content_hash()

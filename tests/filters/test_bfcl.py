"""A stranger's log: BFCL's user questions mixed into a generated one. Few of them can be executed here; none may get lost."""

import json
import random
from pathlib import Path

import polars as pl
import pytest

from filters.funnel import FunnelConfig, curate
from filters.ingest import IngestConfig
from filters.steps.selection.contamination import bfcl_questions
from filters.steps.selection.coverage import CoverageConfig
from storage.errors import BadInput
from storage.store import Store
from synth.haystack.generate import HaystackConfig, generate


@pytest.fixture(scope="module")
def questions() -> list[str]:
    """Every user message of BFCL's question files, in order."""
    try:
        return bfcl_questions()
    except BadInput as missing:
        pytest.skip(str(missing))


@pytest.mark.slow
def test_bfcl_questions_in_a_generated_log(tmp_path: Path, questions: list[str]) -> None:
    """Given BFCL's questions shuffled into a generated log, when it is curated with `ungrounded`, then every row has its verdict, each
    question is kept or says why not, and the executable tasks still come."""
    queries, _ = generate(tmp_path / "log", HaystackConfig(rows=3000, common_combinations=60, seed=5), 20)
    rows = [(text, False) for text in pl.read_parquet(queries)["text"]] + [(text, True) for text in questions]
    random.Random(0).shuffle(rows)
    path = tmp_path / "mixed.jsonl"
    path.write_text("".join(json.dumps({"question": text}) + "\n" for text, _ in rows), encoding="utf-8")

    config = FunnelConfig(ingest=IngestConfig(column="question"), coverage=CoverageConfig(keep=20, max_encoded=300), ungrounded=True)
    store = Store(tmp_path / "store")
    result = curate(store, [path], config)

    told = store.query("SELECT q.row, q.text, v.* FROM verdicts v JOIN queries q USING (query_id, run) ORDER BY q.row")
    told = told.with_columns(is_bfcl=pl.Series([is_bfcl for _, is_bfcl in rows]))
    assert told.height == len(rows) == result.funnel["rows_in"][0]
    theirs = told.filter("is_bfcl")
    by_reason = dict(theirs.group_by(pl.col("reason").fill_null("kept")).len().iter_rows())
    print(f"{len(questions)} BFCL questions: {by_reason}")
    assert set(by_reason) <= {
        *("kept", "exact_duplicate", "near_duplicate", "equal_frame", "too_short", "too_long", "language", "chit_chat", "no_words"),
        *("keyboard_mash", "only_link", "only_personal_data", "low_quality", "not_pooled", "semantic_duplicate", "not_shortlisted"),
        "not_needed",
    }
    assert told["kept"].sum() == 20
    worth_keeping = sum(
        by_reason.get(reason, 0) for reason in ("kept", "not_pooled", "semantic_duplicate", "not_shortlisted", "not_needed")
    )
    assert worth_keeping >= 0.5 * len(set(questions))
    noise = theirs.filter(pl.col("reason").is_in(["keyboard_mash", "only_link", "only_personal_data", "no_words", "chit_chat"]))
    assert noise.height <= 0.01 * len(questions)
    for text, reason, similarity in theirs.filter(reason="near_duplicate").select("text", "reason", "similarity").head(5).iter_rows():
        print(f"  {reason} {similarity:.2f}: {text[:90]}")
    assert 10 <= len(result.task_ids) <= 20
    stratum = store.query("SELECT count(*) AS n, count(world) AS worlds FROM frames WHERE status = 'ungrounded'")
    assert stratum.row(0) == (20 - len(result.task_ids), 0)

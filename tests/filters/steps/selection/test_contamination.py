"""Held-out questions do not get through: not as they stand, not misspelt, not in other words. Other rows are left alone."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from filters.dedup.minhash import jaccard
from filters.normalised_text import normalise_text
from filters.step import alive
from filters.steps.selection.contamination import (
    BINS,
    ContaminationConfig,
    HeldOut,
    QuestionIndex,
    bfcl_questions,
    compare,
    histogram,
    load,
    step,
)
from storage.errors import BadInput
from synth.engines.encoder import encode
from synth.haystack.generate import HaystackConfig, generate

HELD_OUT = [
    "find out the open hours for the louvre museum in Paris",
    "I'd like to listen to the song 'Dil Nu' by Maninder Buttar on Spotify",
    "Could you tell me the current weather conditions, including the temperature and wind, for London in the UK?",
    "can you search for attractions in Paris that are suitable for children and have free entry",
    "广州和北京的天气如何",
]
IN_OTHER_WORDS = [
    "get the working hours of louvre museum in Paris",
    "I want to listen to 'Dil Nu' by Maninder Buttar. Can you find it on Spotify?",
    "Could you provide the current weather data for London in the UK, including the temperature and the wind?",
    "could you browse attractions in Paris, that are suitable for children and offer free entry",
    "请问广州跟北京的天气怎么样",
]


def log(texts: list[str]) -> pl.DataFrame:
    return pl.DataFrame({"text": texts}).with_row_index("row").with_columns(norm=normalise_text(pl.col("text")))


def through_the_gate(texts: list[str], held_out: HeldOut, config: ContaminationConfig) -> tuple[pl.DataFrame, pl.DataFrame]:
    rows = log(texts)
    compared = compare(rows, encode(rows["norm"].to_list()), held_out)
    return step(rows, compared, config), compared


def held_out_in(folder: Path) -> ContaminationConfig:
    path = folder / "exam.jsonl"
    path.write_text("".join(json.dumps({"question": text}) + "\n" for text in HELD_OUT), encoding="utf-8")
    return ContaminationConfig.model_validate({"held_out": [{"name": "exam", "file": str(path), "column": "question"}]})


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A generated log that knows nothing of the held-out questions."""
    queries, _ = generate(tmp_path_factory.mktemp("log"), HaystackConfig(rows=1000, common_combinations=40, seed=4), 10)
    return pl.read_parquet(queries)["text"].unique(maintain_order=True).to_list()


def misspelt(text: str) -> str:
    """With one letter lost, in the middle of a long text."""
    return text[:20] + text[21:]


@pytest.mark.parametrize("disguise", [str, str.upper, lambda text: f"  {text}!!", misspelt])
def test_held_out_questions_are_caught_as_they_stand_or_nearly(tmp_path: Path, clean: list[str], disguise) -> None:
    config = held_out_in(tmp_path)
    planted = [disguise(text) for text in HELD_OUT[:4]]
    found, _ = through_the_gate([*clean[:50], *planted], load(config, encode), config)

    assert found["reason"].to_list() == [None] * 50 + ["contaminated"] * 4
    assert found["held_out"].drop_nulls().to_list() == ["exam"] * 4
    assert found["held_out_row"].drop_nulls().to_list() == [0, 1, 2, 3]
    assert found["held_out_by"].drop_nulls().to_list() == ["near"] * 4
    assert (found["similarity"].drop_nulls() >= 0.7).all()


def test_held_out_questions_in_other_words_are_caught_and_the_clean_log_is_left_alone(tmp_path: Path, clean: list[str]) -> None:
    config = held_out_in(tmp_path)
    found, compared = through_the_gate([*clean, *IN_OTHER_WORDS], load(config, encode), config)

    planted = found.tail(len(IN_OTHER_WORDS))
    assert planted["held_out_row"].to_list() == [0, 1, 2, 3, 4]
    assert "semantic" in planted["held_out_by"].to_list()
    assert found.head(len(clean))["reason"].null_count() == len(clean)
    assert alive(found)["row"].to_list() == list(range(len(clean)))
    counts = histogram(compared)
    assert counts.height == 2 * BINS
    assert counts.group_by("kind").agg(pl.col("rows").sum())["rows"].to_list() == [found.height] * 2
    high = counts.filter(kind="semantic").filter(pl.col("from") >= config.semantic - 1e-9)["rows"].sum()
    assert high == len(IN_OTHER_WORDS)


def test_each_set_is_told_apart_and_near_is_said_before_semantic() -> None:
    """Given two sets that both have a row's text, one of them in other words, then the row names the set that has it word by word."""
    texts = ["open hours of the louvre", "hours when the louvre is open", "something else"]
    questions = log([texts[1], texts[0], texts[2]]).select(
        set=pl.Series(["first", "second", "second"]), number=pl.Series([7, 8, 9], dtype=pl.Int64), text="text", norm="norm"
    )
    same = np.eye(4, dtype=np.float32)[[0, 0, 1]]
    held_out = HeldOut(questions, lambda _: same)
    rows = log([texts[0], "nothing like it"])
    compared = compare(rows, np.eye(4, dtype=np.float32)[[0, 2]], held_out)
    assert compared.sort("row", "set")["set"].to_list() == ["first", "second"] * 2
    found = step(rows, compared, ContaminationConfig())
    assert found.select("held_out", "held_out_row", "held_out_by", "similarity").rows() == [("second", 8, "near", 1.0), (None,) * 4]


texts_strategy = st.lists(st.text(alphabet="abc 东湖", max_size=14), max_size=12)


@given(texts_strategy, texts_strategy)
def test_the_nearest_text_is_the_one_with_the_highest_jaccard(texts: list[str], questions: list[str]) -> None:
    best, place = QuestionIndex(pl.Series(questions, dtype=pl.String)).nearest(pl.Series(texts, dtype=pl.String))
    for text, found, where in zip(texts, best, place, strict=True):
        expected = [jaccard(text, question) for question in questions]
        assert found == pytest.approx(max(expected, default=0.0), abs=1e-6)
        assert where == (expected.index(max(expected)) if max(expected, default=0.0) > 0 else -1)


def test_without_held_out_sets_nothing_is_contaminated(clean: list[str]) -> None:
    config = ContaminationConfig()
    rows = log(clean[:20])
    compared = compare(rows, np.ones((20, 3), np.float32), load(config, encode))
    assert compared.is_empty() and histogram(compared).is_empty()
    assert step(rows, compared, config)["reason"].null_count() == 20


def test_the_hash_of_the_sets_is_of_their_content(tmp_path: Path) -> None:
    config = held_out_in(tmp_path)
    before = load(config, encode).content_hash
    assert load(held_out_in(tmp_path), encode).content_hash == before
    (tmp_path / "exam.jsonl").write_text('{"question": "another one"}\n', encoding="utf-8")
    assert load(config, encode).content_hash != before


def test_where_a_question_stands_is_part_of_what_a_set_is(tmp_path: Path) -> None:
    config, path = held_out_in(tmp_path), tmp_path / "exam.jsonl"
    one = load(config, encode)
    path.write_text('{"question": " "}\n' + path.read_text(encoding="utf-8"), encoding="utf-8")
    other = load(config, encode)
    assert other.questions["norm"].equals(one.questions["norm"]) and other.content_hash != one.content_hash


def test_a_set_that_cannot_be_used_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = held_out_in(tmp_path)
    (tmp_path / "exam.jsonl").unlink()
    with pytest.raises(BadInput, match=r"exam\.jsonl"):
        load(config, encode)
    (tmp_path / "exam.jsonl").write_text('{"question": "  ?? "}\n', encoding="utf-8")
    with pytest.raises(BadInput, match="'exam': no question"):
        load(config, encode)
    with pytest.raises(ValidationError, match="two sets are called 'bfcl'"):
        ContaminationConfig.model_validate({"held_out": ["bfcl", {"name": "bfcl", "file": "x.txt"}]})
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match="pip install --no-deps bfcl-eval"):
        load(ContaminationConfig(held_out=("bfcl",)), encode)


@pytest.mark.skipif(importlib.util.find_spec("bfcl_eval") is None, reason="pip install --no-deps bfcl-eval")
def test_bfcl_is_a_built_in_set(clean: list[str]) -> None:
    """Given BFCL held out, then each of its questions is found by its text, and a generated log is left alone."""
    config = ContaminationConfig(held_out=("bfcl",))
    held_out = load(config, encode)
    some = HeldOut(held_out.questions.head(400), encode)
    questions = held_out.questions["text"].to_list()
    assert 4000 < len(questions) <= len(set(bfcl_questions()))
    found, _ = through_the_gate([*clean[:300], *questions[:5]], some, config)
    assert found["reason"].to_list() == [None] * 300 + ["contaminated"] * 5
    assert (QuestionIndex(held_out.questions["norm"]).nearest(held_out.questions["norm"])[0] == 1).all()

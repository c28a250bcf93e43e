"""Rows that ask for the same in other words go; those that differ in a number, a name or a direction stay, however near they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filters.normalised_text import languages, normalise_text
from filters.steps.selection import semantic
from filters.steps.selection.semantic import SemanticConfig, calibrate, keep_first, pairs, step
from synth.engines.encoder import encode
from synth.haystack.generate import HaystackConfig, generate
from synth.worlds import WITH_LEXICON, WORLDS

CITIES = ("Lisbon", "Oslo", "Quito", "Accra", "Hanoi", "Tunis", "Lima", "Riga", "Bergen", "Porto")
TEMPLATES = (
    "what is the weather in {} on the {}th",
    "tell me what the weather is in {} on the {}th",
    "the weather in {} on the {}th please",
)


def log(texts: list[str], **columns: object) -> pl.DataFrame:
    rows = pl.DataFrame({"text": texts}).with_row_index("row").with_columns(norm=normalise_text(pl.col("text")))
    rows = rows.with_columns(language=languages(rows["norm"]), leaf=pl.lit("other"), quality=pl.lit(0.5), frame_id=pl.lit(None, pl.String))
    return rows.with_columns(**{name: pl.Series(values) for name, values in columns.items()})


def traffic() -> list[str]:
    """Three wordings of twenty needs: a city and a day each."""
    return [template.format(city, day) for template in TEMPLATES for city in CITIES for day in (12, 17)]


def test_other_words_for_the_same_city_and_day_go_and_other_cities_and_days_stay() -> None:
    rows = log(traffic())
    found = step(rows, encode(rows["norm"].to_list()), SemanticConfig(en=0.6))

    assert found["row"].to_list() == rows["row"].to_list()
    assert found["reason"].to_list() == [None] * 20 + ["semantic_duplicate"] * 40
    assert found["duplicate_of"].to_list() == [None] * 20 + list(range(20)) * 2
    assert found["similarity"].drop_nulls().is_between(0.6, 1.0 + 1e-6).all() and found["similarity"].null_count() == 20


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("what is the weather in Lisbon on the 12th", "what is the weather in Lisbon on the 13th"),
        ("what is the weather in Lisbon on the 12th", "what is the weather in Porto on the 12th"),
        ("book a flight from Lisbon to Oslo", "book a flight from Oslo to Lisbon"),
        ("add a note that says “milk”", "add a note that says “eggs”"),
        ("the road from golden temple to maple university", "the road from maple university to golden temple"),
        ("明天去东湖怎么走", "后天去东湖怎么走"),
        ("order a table for two", "order a table for three"),
        ("play the song again", "play the march again"),
    ],
)
def test_what_differs_in_a_specific_is_no_duplicate_even_with_equal_vectors(one: str, other: str) -> None:
    """Given a pair among rows in which all its words but the specific one are common, and one vector for all."""
    rows = log([one, other, *[one] * 10, *[one.replace("song", "tune")] * 10])
    vectors = np.tile(np.array([[1.0, 0.0]], np.float32), (rows.height, 1))
    found = step(rows, vectors, SemanticConfig())

    assert found["duplicate_of"].to_list()[2:12] == [0] * 10, "the same text is one"
    assert found["reason"][1] is None


def test_the_better_row_is_kept_and_each_leaf_is_for_itself() -> None:
    texts = [TEMPLATES[0].format("Oslo", 12)] * 4
    rows = log(texts, quality=[0.3, 0.9, 0.9, 0.9], leaf=["a", "a", "a", "b"])
    vectors = np.tile(np.array([[0.6, 0.8]], np.float32), (4, 1))
    found = step(rows, vectors, SemanticConfig())
    assert found["duplicate_of"].to_list() == [1, None, 1, None]


def test_a_row_with_a_frame_needs_its_own_threshold() -> None:
    texts = [TEMPLATES[0].format("Oslo", 12)] * 3
    rows = log(texts, frame_id=["f1", "f2", None])
    near = np.array([[1, 0], [0.9, np.sqrt(1 - 0.81)], [0.9, np.sqrt(1 - 0.81)]], np.float32)
    found = step(rows, near, SemanticConfig(en=0.8, framed=0.95))
    assert found["reason"].to_list() == [None, None, "semantic_duplicate"]


@pytest.mark.slow
def test_specifics_make_the_difference_on_a_generated_log(tmp_path: Path) -> None:
    """Given a generated log's first mentions and paraphrases, then of pairs of one leaf with a high cosine, nearly all with equal specifics
    ask for the same, and few of all pairs do (negative control)."""
    queries, plants = generate(tmp_path, HaystackConfig(rows=4000, common_combinations=40, zh_share=0.0, seed=3), 20)
    known = pl.concat([pl.read_parquet(queries), pl.read_parquet(plants)], how="horizontal")
    known = known.filter(pl.col("kind").is_in(["base", "paraphrase"])).sort("row")
    leaves = {(world, name): intent.leaf for world in WITH_LEXICON for name, intent in WORLDS[world].intents.items()}
    rows = log(known["text"].to_list(), leaf=[leaves[key] for key in zip(known["world"], known["intent"], strict=True)])
    vectors, need = encode(rows["norm"].to_list()), known["frame"].to_numpy()

    close = pairs(rows, vectors, SemanticConfig()).filter(pl.col("cosine") >= 0.7)
    with_specifics = (need[close["left"].to_numpy()] == need[close["right"].to_numpy()]).mean()
    left, right = np.nonzero(np.triu(vectors @ vectors.T >= 0.7, 1))
    in_leaf = (rows["leaf"].gather(left) == rows["leaf"].gather(right)).to_numpy()
    alone = (need[left[in_leaf]] == need[right[in_leaf]]).mean()
    print(f"{close.height} pairs, precision {with_specifics:.3f}; by the cosine alone {in_leaf.sum()} pairs, {alone:.3f}")
    assert close.height >= 20 and with_specifics >= 0.95
    assert alone < 0.5


@given(st.integers(0, 10_000), st.integers(0, 60), st.sampled_from([3, 8, 512]))
def test_a_row_goes_just_if_a_kept_earlier_row_is_near(seed: int, count: int, chunk: int) -> None:
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(count, 3)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    thresholds = rng.choice([0.7, 0.9], count)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(semantic, "_CHUNK", chunk)
        keeper, cosine = keep_first(vectors, thresholds)
    kept: list[int] = []
    for row in range(count):
        near = [float(vectors[row] @ vectors[other]) for other in kept]
        if max(near, default=-1.0) >= thresholds[row]:
            assert keeper[row] in kept and vectors[row] @ vectors[keeper[row]] >= thresholds[row]
            assert cosine[row] == pytest.approx(float(vectors[row] @ vectors[keeper[row]]), abs=1e-5)
        else:
            assert keeper[row] == row and cosine[row] == 0
            kept.append(row)


def test_the_index_of_a_large_group_finds_what_comparing_all_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given 6,000 rows of which half are near an earlier one, then the index drops at least 98 % of those, and the same ones each time."""
    rng = np.random.default_rng(1)
    base = rng.normal(size=(3000, 64))
    both = np.concatenate([base, base + rng.normal(scale=0.3, size=base.shape)])[rng.permutation(6000)]
    vectors = (both / np.linalg.norm(both, axis=1, keepdims=True)).astype(np.float32)
    thresholds = np.full(6000, 0.9)
    exact, _ = keep_first(vectors, thresholds)
    monkeypatch.setattr(semantic, "LARGE", 1000)
    first, again = keep_first(vectors, thresholds, seed=7), keep_first(vectors, thresholds, seed=7)
    removable, removed = (exact != np.arange(6000)).sum(), (first[0] != np.arange(6000)).sum()
    assert removable > 2000 and removed >= 0.98 * removable
    assert first[0].tobytes() == again[0].tobytes() and first[1].tobytes() == again[1].tobytes()


def test_one_giant_group_of_one_row_is_one_row() -> None:
    vectors = np.tile(np.eye(8, dtype=np.float32)[:1], (20_000, 1))
    keeper, _ = keep_first(vectors, np.full(20_000, 0.9))
    assert not keeper.any()


def test_calibration_finds_the_lowest_threshold_that_is_precise_enough() -> None:
    """Given pairs that are the same from 0.8 on, and 3 of 4 of which are not below, then the threshold is 0.8; where too few are, 1."""
    cosines = np.linspace(0.5, 1.0, 101)
    is_same = (cosines >= 0.8) | (np.arange(101) % 4 == 0)
    assert calibrate(cosines, is_same, precision=1.0) == pytest.approx(0.8)
    found = calibrate(cosines, is_same, precision=0.95)
    assert found < 0.8 and is_same[cosines >= found].mean() >= 0.95
    assert calibrate(cosines, np.zeros(101, bool)) == 1.0
    assert calibrate(cosines[-5:], is_same[-5:]) == 1.0, "five pairs say nothing"
    assert calibrate(cosines[:0], is_same[:0]) == 1.0


def test_no_rows_and_rows_without_words() -> None:
    assert step(log(["a"]).clear(), np.empty((0, 4), np.float32), SemanticConfig()).height == 0
    found = step(log(["12", "12", "…"]), np.tile(np.eye(4, dtype=np.float32)[:1], (3, 1)), SemanticConfig())
    assert found["duplicate_of"].to_list() == [None, 0, None]
    assert pairs(log(["a", "b"]), np.eye(2, dtype=np.float32), SemanticConfig()).height == 0

"""Near duplicates: removed only for a true Jaccard with a kept row, numbers and terms respected, little missed, no need lost."""

import random
import tracemalloc
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filters import normalised_text
from filters.dedup import near
from filters.dedup.guards import world_terms
from filters.dedup.minhash import jaccard
from filters.dedup.near import NearConfig
from filters.frames.hash_join import firsts
from filters.frames.numba_types import U64
from filters.lexicon_worlds import lexicon_worlds
from filters.steps import exact
from synth.haystack.generate import HaystackConfig, generate

TERMS = ("red", "blue", "green", "mug", "lamp", "old bridge", "north gate", "harbour", "红色", "蓝色", "台灯", "老桥", "北门")


def rows_of(texts: list[str]) -> pl.DataFrame:
    return pl.DataFrame({"row": range(100, 100 + len(texts)), "norm": texts}, schema={"row": pl.UInt32, "norm": pl.String})


def dropped(texts: list[str], config: NearConfig | None = None, terms: tuple[str, ...] = TERMS) -> dict[str, str]:
    """Dropped text -> the text that it duplicates."""
    rows = near.step(rows_of(texts), config or NearConfig(), terms)
    return {
        texts[row - 100]: texts[first - 100]
        for row, first in rows.filter(pl.col("reason").is_not_null()).select("row", "duplicate_of").iter_rows()
    }


WORDING = "a cab cab 1 bac abba cc"
SLIPS = st.builds(lambda at, letter: WORDING[:at] + letter + WORDING[at:], st.integers(0, len(WORDING)), st.sampled_from("abc 1"))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.one_of(st.text("abc 1", min_size=0, max_size=24), SLIPS), max_size=40), st.sampled_from([0.5, 0.7, 0.9]))
def test_every_removal_is_verified_and_names_a_kept_earlier_row(texts: list[str], threshold: float) -> None:
    rows = near.step(rows_of(texts), NearConfig(threshold=threshold, protect=()))
    kept = set(rows.filter(pl.col("reason").is_null())["row"])
    assert rows["row"].to_list() == list(range(100, 100 + len(texts)))
    for row, text, reason, first, similarity in rows.select("row", "norm", "reason", "duplicate_of", "similarity").iter_rows():
        assert (reason, first is None, similarity is None) in ((None, True, True), ("near_duplicate", False, False))
        if reason:
            assert first in kept and first < row
            assert similarity == pytest.approx(jaccard(text, texts[first - 100]), abs=1e-6) and similarity >= threshold - 1e-6


def test_typing_slips_and_small_talk_are_near_duplicates() -> None:
    text = "please find me a quiet place near the old bridge for a long evening"
    slips = [text.replace("quiet", "quite"), text.replace("evening", "evenin"), text + " ok", text.replace("place", "plaace")]
    assert dropped([text, *slips]) == dict.fromkeys(slips, text)


DISTINCT = [
    (
        "i would like to have the red mug delivered to my place by the weekend",
        "i would like to have the blue mug delivered to my place by the weekend",
    ),
    (
        "please book me a table for 2 in the evening somewhere around here",
        "please book me a table for 3 in the evening somewhere around here",
    ),
    ("could you please check what is going on with my order o17 today", "could you please check what is going on with my order o71 today"),
    (
        "how do i get from the old bridge to the north gate without walking",
        "how do i get from the north gate to the old bridge without walking",
    ),
    (
        "please find me something to eat near the old bridge for tonight, hello",
        "please find me something to eat near the old bridge for tonight, hello harbour",
    ),
    ("我想把昨天在你们这里买的那个红色的东西换一下可以吗谢谢", "我想把昨天在你们这里买的那个蓝色的东西换一下可以吗谢谢"),
]


@pytest.mark.parametrize(("one", "other"), DISTINCT)
def test_other_numbers_or_terms_are_another_need(one: str, other: str) -> None:
    assert jaccard(one, other) >= 0.6
    assert dropped([one, other], NearConfig(threshold=0.6)) == {}
    assert dropped([one, other], NearConfig(threshold=0.6, protect=())) == {other: one}


def test_a_term_spoilt_by_a_typo_is_no_other_need() -> None:
    text = "i would like to have the green lamp delivered to my place by the weekend"
    slips = [text.replace("green", "geen"), text.replace("lamp", "lmap")]
    assert dropped([text, *slips]) == dict.fromkeys(slips, text)
    assert dropped([*slips, text]) == {text: slips[0]}  # but two spoilt terms may have been any


def test_memory_is_bounded_by_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given rows of which few are alike, then the step's arrays take what the keys do (8 bytes a band) and half as much at most."""
    monkeypatch.setattr(near, "_ROWS_A_BATCH", 2_000)
    generator = random.Random(0)
    rows = rows_of([f"{generator.getrandbits(80):x} please" for _ in range(40_000)])
    near.step(rows.head(100), NearConfig(), TERMS)
    tracemalloc.start()
    near.step(rows, NearConfig(), TERMS)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 1.5 * 21 * 8 * rows.height


def test_a_bucket_of_all_rows_proposes_few_pairs_a_row() -> None:
    """Given rows that all lie in one bucket and ask for different things, then eight of them stand for it, and pairs stay linear."""
    size = 50_000
    kinds = np.random.default_rng(0).integers(0, 2**32, size, dtype=np.uint32)
    found = near.join([np.zeros(size, np.uint32)], [np.arange(size, dtype=np.uint32)], kinds)
    assert found.firsts.size == 8 and found.pairs.size <= 8 * size
    alike = near.join([np.zeros(size, np.uint32)], [np.arange(size, dtype=np.uint32)], np.zeros(size, np.uint32))
    assert alike.firsts.size == 1 and alike.pairs.size == size - 1
    nothing = near.join([np.empty(0, np.uint32)], [np.empty(0, np.uint32)], np.empty(0, np.uint32))
    assert nothing.firsts.size == nothing.pairs.size == 0


@pytest.mark.slow
def test_one_giant_cluster_leaves_few_rows() -> None:
    """Given 30,000 misspellings of one request, then nine in ten go, each for a verified match with a row that stays."""
    rng = random.Random(0)
    text = "please find me a quiet place near the old bridge for a long evening with friends from out of town"
    texts = list(dict.fromkeys(slipped(slipped(text, rng), rng) for _ in range(30_000)))
    gone = dropped(texts)
    assert len(gone) > 0.9 * len(texts) > 10_000
    assert not set(gone) & set(gone.values())


def test_few_and_empty_rows() -> None:
    assert dropped([]) == {}
    assert dropped(["a"]) == {}
    assert dropped(["", "abc", "abd", "x" * 5000]) == {}


def test_threads_and_batches_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = haystack(2000, seed=5)["norm"].to_list()
    alone = near.step(rows_of(texts), NearConfig(), TERMS)
    monkeypatch.setattr(near, "_ROWS_A_BATCH", 300)
    with ThreadPoolExecutor(3) as threads:
        assert near.step(rows_of(texts), NearConfig(), TERMS, executor=threads).equals(alone)


@given(st.lists(st.lists(st.integers(0, 40), max_size=12), max_size=8))
def test_bands_are_merged_in_any_steps(bands: list[list[int]]) -> None:
    arrays, merged, sizes = [np.array(band, np.uint64) for band in bands], near._merge, list[int]()

    def noted(pairs: Sequence[U64]) -> U64:
        sizes.append(sum(map(len, pairs[1:])))
        return merged(pairs)

    whole = sorted({pair for band in bands for pair in band})
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(near, "_merge", noted)
        for most in (0, 5, 1 << 24):
            sizes.clear()
            patched.setattr(near, "_MERGED_PAIRS", most)
            assert near.distinct(arrays).tolist() == whole
            assert max(sizes) <= max(most, len(whole)) + 12, "what waits is no more than what may, and a band"


# ---- recall and damage, on planted near duplicates of densely templated needs ----------------------------------------------------


def haystack(size: int, seed: int) -> pl.DataFrame:
    """Rows of normalised text with `need` (what is asked) and `base` (the row of which this is a slip; null for a fresh wording)."""
    rng = random.Random(seed)
    colours, things, places = ("red", "blue", "green"), ("mug", "lamp"), ("old bridge", "north gate", "harbour")
    small_talk = ("hi, ", "please ", "i need you to ", "hey there, can you ", "")
    endings = (" thanks", " please", " as soon as possible", ", thank you so much", "")
    rows: list[tuple[str, str, int | None]] = []
    while len(rows) < size:
        if rows and rng.random() < 0.35:
            base = rng.randrange(len(rows))
            base = base if rows[base][2] is None else rows[base][2] or 0
            rows.append((slipped(rows[base][0], rng), rows[base][1], base))
            continue
        colour, thing, place, price, order = (
            rng.choice(colours),
            rng.choice(things),
            rng.choice(places),
            rng.randrange(20, 90),
            rng.randrange(10, 99),
        )
        need, text = rng.choice(
            [
                (f"buy {colour} {thing} {price}", f"buy the cheapest {colour} {thing} that costs no more than {price} dollars"),
                (f"find {thing} {place} {price}", f"find me a shop near the {place} that sells a {thing} for under {price} dollars"),
                (f"exchange {order} {colour} {thing}", f"exchange the thing in my order o{order} for the {colour} {thing} instead"),
            ]
        )
        rows.append((rng.choice(small_talk) + text + rng.choice(endings), need, None))
    frame = pl.DataFrame(rows, schema={"text": pl.String, "need": pl.String, "base": pl.Int64}, orient="row").with_row_index("row")
    return normalised_text.step(frame)


def slipped(text: str, rng: random.Random) -> str:
    """One typing slip that touches no digit, or a word more."""
    spots = [spot for spot in range(1, len(text) - 2) if not any(character.isdigit() for character in text[spot - 1 : spot + 3])]
    spot = rng.choice(spots)
    return rng.choice(
        [
            text[:spot] + text[spot + 1 :],
            text[:spot] + text[spot + 1] + text[spot] + text[spot + 2 :],
            text[:spot] + rng.choice("aeiou") + text[spot:],
            text + rng.choice([" ok", " now", " today", " quickly"]),
        ]
    )


def measured(config: NearConfig, size: int = 30_000) -> tuple[float, float]:
    """(share of planted pairs with Jaccard >= 0.7 of which not both rows stay, share of needs of which no row stays)."""
    rows = haystack(size, seed=1)
    rows = rows.filter(exact.step(firsts(rows))["reason"].is_null())
    after = near.step(rows.select("row", "norm", "need", "base"), config, TERMS).with_columns(stays=pl.col("reason").is_null())
    pairs = after.drop_nulls("base").join(after.select(base=pl.col("row").cast(pl.Int64), base_norm="norm", base_stays="stays"), on="base")
    alike = pairs.filter(pl.Series([jaccard(a, b) >= 0.7 for a, b in pairs.select("norm", "base_norm").iter_rows()]))
    assert alike.height > 5000
    found = (~(alike["stays"] & alike["base_stays"])).mean()
    lost = (~after.group_by("need").agg(pl.col("stays").any())["stays"]).mean()
    assert isinstance(found, float) and isinstance(lost, float)
    return found, lost


def test_near_pairs_are_found_and_no_need_is_lost() -> None:
    recall, lost = measured(NearConfig())
    assert recall >= 0.99
    assert lost <= 0.002


def test_without_guards_needs_are_lost() -> None:
    """The negative control: the measure sees the damage that the guards prevent."""
    _, lost = measured(NearConfig(protect=()))
    assert lost > 0.02


# ---- components ------------------------------------------------------------------------------------------------------------------


def test_components_are_verified_chains_of_at_most_so_many_rows() -> None:
    """Given a chain of wordings each like the next, when components decide, then all but the first go, though the last is unlike it; with
    a cap the chain is cut, and by keep-first only what is like a kept row goes."""
    words = [
        "please",
        "find",
        "me",
        "a",
        "quiet",
        "place",
        "near",
        "the",
        "river",
        "where",
        "we",
        "could",
        "sit",
        "for",
        "a",
        "long",
        "summer",
        "evening",
        "with",
        "some",
        "friends",
    ]
    chain = [" ".join(words[start : start + 12]) for start in range(8)]
    assert all(jaccard(a, b) >= 0.7 for a, b in pairwise(chain)) and jaccard(chain[0], chain[-1]) < 0.7
    rule = NearConfig(rule="components", protect=(), bands=64, rows_a_band=3)
    assert dropped(chain, rule) == dict.fromkeys(chain[1:], chain[0])
    told = near.step(rows_of([*chain, "x" * 5000]), rule).drop_nulls("similarity")
    assert told["similarity"].to_list() == pytest.approx([jaccard(text, chain[0]) for text in chain[1:]], abs=1e-6)
    cut = dropped(chain, rule.model_copy(update={"max_component": 3}))
    assert max(list(cut.values()).count(first) for first in cut.values()) == 2
    first = dropped(chain, rule.model_copy(update={"rule": "keep_first"}))
    assert all(jaccard(gone, kept) >= 0.7 for gone, kept in first.items()) and len(first) < len(cut) + 2


# ---- at scale --------------------------------------------------------------------------------------------------------------------


def needs_lost(told: pl.DataFrame) -> float:
    """The share of needs (column frame) of which no row stays (column stays)."""
    return float((~told.group_by("frame").agg(pl.col("stays").any())["stays"]).mean() or 0.0)  # type: ignore[arg-type]


@pytest.mark.slow
def test_needs_survive_that_collisions_alone_would_lose(tmp_path: Path) -> None:
    """Given more than 170,000 templated queries, when verified matches decide, then hardly a need is lost; when a shared band alone does,
    a third are: what no small log shows."""
    queries, plants = generate(tmp_path, HaystackConfig(rows=320000, seed=7), 100)
    rows = normalised_text.step(pl.read_parquet(queries).with_row_index("row"))
    rows = rows.join(pl.read_parquet(plants).select("row", "frame"), on="row").unique("norm", keep="first", maintain_order=True)
    rows = rows.filter(pl.col("frame").is_not_null()).select("row", "norm", "frame")
    assert rows.height >= 170_000
    with ThreadPoolExecutor(2) as threads:
        verified = near.step(rows, NearConfig(), world_terms(lexicon_worlds()), executor=threads)
        assert needs_lost(verified.with_columns(stays=pl.col("reason").is_null())) <= 0.001
        sketched = near.sketch(rows["norm"], NearConfig(protect=()))
    is_first = np.ones(rows.height, bool)
    for keys in sketched.keys:
        is_first &= np.isin(np.arange(rows.height), np.unique(keys, return_index=True)[1])
    assert needs_lost(rows.with_columns(stays=pl.Series(is_first))) > 0.3

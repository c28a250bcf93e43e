"""Recall and precision of the steps that use vectors, and the calibration of their default thresholds.

log            paraphrases of a generated log, treated as rows without a frame: thresholds calibrated on needs of even number, measured on
               those of odd number
frames         rows that were grounded, no near duplicates, one a frame: the threshold for rows with a frame
bfcl           real questions; two are the same where the benchmark expects the same values for both
index          30,000 rows in one group: faiss against comparing all
contamination  BFCL held out: a generated log, and planted questions

Recall is of all pairs of one language and need (bfcl: of those with a cosine of 0.7): most are lost to the specifics, which must be equal.
The thresholds of `SemanticConfig` are those calibrated here, rounded up: that on real questions for both languages, as real Chinese ones
are not at hand.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from benchmarks.funnel_sections.rows import alone, log
from benchmarks.harness import Deadline, Figures, Section, run_sections
from filters.dedup import near
from filters.dedup.guards import world_terms
from filters.dedup.near import NearConfig
from filters.grounding import ground
from filters.lexicon_worlds import lexicon_worlds
from filters.normalised_text import languages, normalise_text
from filters.step import alive
from filters.steps.selection import contamination, semantic
from filters.steps.selection.semantic import SemanticConfig
from synth.engines.encoder import Vectors, encode
from synth.worlds import WITH_LEXICON, WORLDS
from synth.worlds.bfcl_files import ANSWERS, QUESTIONS, cases, files, user_turns

LOG_ROWS = 1_000_000
NEEDS, LONE_NEEDS = 5000, 8000
INDEXED = 30_000
LOG_KEYS = tuple(f"{key}_{language}" for key in ("threshold", "precision", "precision_alone", "recall") for language in ("en", "zh"))


def main() -> int:
    sections = [
        Section("log", LOG_KEYS, lambda _: alone(measure_log), minutes=4),
        Section("frames", ("threshold_framed", "precision_framed", "pairs_framed"), lambda _: alone(measure_frames), minutes=4),
        Section(
            "bfcl", ("bfcl_threshold", "bfcl_precision", "bfcl_precision_alone", "bfcl_recall"), lambda _: alone(measure_bfcl), minutes=2
        ),
        Section("index", ("index_recall", "index_us_per_row", "all_us_per_row"), lambda _: alone(measure_index), minutes=2),
        Section("contamination", ("clean_lost", "planted_caught", "misspelt_caught", "reworded_caught"), measure_contamination, minutes=3),
    ]
    return run_sections("semantic", sections)


def known_log() -> pl.DataFrame:
    """The generated log with its plants, normalised: row, text, norm, language, kind, need, leaf (of rows that have one)."""
    queries, plants = (pl.read_parquet(path) for path in log(LOG_ROWS, keep=100))
    leaves = [(world, name, intent.leaf) for world in WITH_LEXICON for name, intent in WORLDS[world].intents.items()]
    rows = pl.concat([queries, plants], how="horizontal").rename({"frame": "need"})
    rows = rows.join(
        pl.DataFrame(leaves, schema=["world", "intent", "leaf"], orient="row"), on=["world", "intent"], how="left", maintain_order="left"
    )
    return as_strangers(rows.filter(pl.col("leaf").is_not_null()).select("row", "text", "kind", "need", "leaf"))


def as_strangers(rows: pl.DataFrame) -> pl.DataFrame:
    rows = rows.with_columns(norm=rows.select(normalise_text(pl.col("text"))).to_series())
    return rows.with_columns(language=languages(rows["norm"]), quality=pl.lit(0.5), frame_id=pl.lit(None, pl.String))


def sampled() -> pl.DataFrame:
    """Rows of some needs that are worded twice, and of as many that are worded once."""
    rows = known_log().filter(pl.col("kind").is_in(["base", "paraphrase"])).with_columns(times=pl.len().over("need"))
    rng = np.random.default_rng(0)
    chosen = [
        rng.permutation(rows.filter(is_twice)["need"].unique().sort().to_numpy())[:count]
        for is_twice, count in ((pl.col("times") > 1, NEEDS), (pl.col("times") == 1, LONE_NEEDS))
    ]
    return rows.filter(pl.col("need").is_in(np.concatenate(chosen).tolist()))


def measure_log() -> Figures:
    rows = sampled()
    vectors = encode(rows["norm"].to_list())
    need = dict(zip(rows["row"], rows["need"], strict=True))
    pairs = labelled(semantic.pairs(rows, vectors, SemanticConfig()), need)
    alike = labelled(alike_pairs(rows, vectors), need)
    figures: Figures = {}
    for language in ("en", "zh"):
        threshold = getattr(SemanticConfig(), language)
        here = pairs.filter(language=language)
        even, odd = (here.filter(pl.col("is_odd") == is_odd) for is_odd in (False, True))
        taken = odd.filter(pl.col("cosine") >= threshold)
        same = rows.filter(pl.col("language") == language, pl.col("need") % 2 == 1).filter(pl.len().over("need") == 2).height / 2
        figures |= {
            f"threshold_{language}": semantic.calibrate(even["cosine"].to_numpy(), even["is_same"].to_numpy()),
            f"precision_{language}": share(taken),
            f"precision_alone_{language}": share(alike.filter(pl.col("cosine") >= threshold, language=language)),
            f"recall_{language}": taken["is_same"].sum() / same,
        }
        print(f"    {language}: {taken.height} pairs of {same:.0f} at {threshold}")
    return figures


def labelled(pairs: pl.DataFrame, need: Mapping[int, int]) -> pl.DataFrame:
    left, right = (pairs[side].replace_strict(need, return_dtype=pl.Int64) for side in ("left", "right"))
    return pairs.with_columns(is_same=left == right, is_odd=left % 2 == 1)


def alike_pairs(rows: pl.DataFrame, vectors: Vectors) -> pl.DataFrame:
    """All pairs of one leaf and language with a cosine of at least 0.7."""
    parts = []
    for (_, language), group in rows.with_row_index("place").group_by("leaf", "language", maintain_order=True):
        places = group["place"].to_numpy()
        cosine = vectors[places] @ vectors[places].T
        one, other = np.nonzero(np.triu(cosine >= 0.7, 1))
        found = {"left": group["row"].gather(one), "right": group["row"].gather(other), "cosine": pl.Series(cosine[one, other])}
        parts.append(pl.DataFrame(found).with_columns(language=pl.lit(language)))
    return pl.concat(parts)


def share(pairs: pl.DataFrame) -> float:
    """Of pairs that are the same; 0 where there is no pair."""
    return float(pairs["is_same"].mean() or 0.0)  # type: ignore[arg-type]


def measure_frames() -> Figures:
    """Of grounded rows, one a frame: pairs with equal specifics are one need that the parser read in two ways, or two needs."""
    known = known_log().filter(pl.col("kind") != "exact")
    left = alive(near.step(known.select("row", "norm", "language"), NearConfig(), world_terms(lexicon_worlds())))
    grounded = alive(ground.step(left, lexicon_worlds()))
    rows = grounded.sort("row").unique("frame_id", keep="first", maintain_order=True).select("row", "frame_id")
    rows = rows.join(known.drop("frame_id"), on="row", maintain_order="left")
    agreeing = semantic.pairs(rows, np.zeros((rows.height, 1), np.float32), SemanticConfig()).drop("cosine")
    numbers = pl.concat([agreeing["left"], agreeing["right"]]).unique().sort()
    vectors = encode(rows.filter(pl.col("row").is_in(numbers.implode()))["norm"].to_list())
    one, other = (vectors[numbers.search_sorted(agreeing[side]).to_numpy()] for side in ("left", "right"))
    need = dict(zip(rows["row"], rows["need"], strict=True))
    pairs = labelled(agreeing.with_columns(cosine=pl.Series(np.einsum("nd,nd->n", one, other))), need)
    taken = pairs.filter(pl.col("cosine") >= SemanticConfig().framed)
    print(f"    {rows.height:,} frames, {pairs.height} pairs with equal specifics, {taken.height} at {SemanticConfig().framed}")
    threshold = semantic.calibrate(pairs["cosine"].cast(pl.Float64).to_numpy(), pairs["is_same"].to_numpy())
    return {"threshold_framed": threshold, "precision_framed": share(taken), "pairs_framed": float(taken.height)}


# ---- real questions -----------------------------------------------------------------------------------------------------------


def bfcl() -> tuple[pl.DataFrame, dict[int, Any]]:
    """BFCL's questions of one turn, as a stranger's rows of one leaf; and by row what answers it: the calls, and their required values."""
    answers = {case["id"]: case["ground_truth"] for path in files(ANSWERS) for case in cases(path)}
    texts: dict[str, tuple[str, Any]] = {}
    for path in files(QUESTIONS):
        for case in cases(path):
            asked = [text for turn in user_turns(case) for text in turn]
            calls = answers.get(case["id"])
            if len(asked) == 1 and calls and all(isinstance(call, dict) for call in calls):
                texts.setdefault(asked[0], (json.dumps(calls, sort_keys=True), required(calls)))
    rows = pl.DataFrame({"text": list(texts)}).with_row_index("row").with_columns(leaf=pl.lit("other"))
    rows = as_strangers(rows).unique("norm", keep="first", maintain_order=True)
    return rows, {number: texts[text] for number, text in rows.select("row", "text").iter_rows()}


def required(calls: list[dict[str, dict[str, list[Any]]]]) -> tuple[str, ...]:
    """The first accepted value of every argument that may not be left out, lower case, sorted."""
    values = (accepted for call in calls for arguments in call.values() for accepted in arguments.values() if "" not in accepted)
    return tuple(sorted({str(accepted[:1]).lower() for accepted in values}))


def is_same(one: tuple[str, tuple[str, ...]], other: tuple[str, tuple[str, ...]]) -> bool:
    return one[0] == other[0] or (bool(one[1]) and one[1] == other[1])


def measure_bfcl() -> Figures:
    rows, answers = bfcl()
    vectors = encode(rows["norm"].to_list())

    def judged(pairs: pl.DataFrame) -> pl.DataFrame:
        same = [is_same(answers[left], answers[right]) for left, right in pairs.select("left", "right").iter_rows()]
        return pairs.with_columns(is_same=pl.Series(same, dtype=pl.Boolean))

    pairs, alike = judged(semantic.pairs(rows, vectors, SemanticConfig())), judged(alike_pairs(rows, vectors))
    taken = pairs.filter(pl.col("cosine") >= SemanticConfig().en)
    print(f"    {rows.height} questions, {alike['is_same'].sum()} like pairs, {taken.height} found")
    return {
        "bfcl_threshold": semantic.calibrate(pairs["cosine"].to_numpy(), pairs["is_same"].to_numpy()),
        "bfcl_precision": share(taken),
        "bfcl_precision_alone": share(alike.filter(pl.col("cosine") >= SemanticConfig().en)),
        "bfcl_recall": taken["is_same"].sum() / alike["is_same"].sum(),
    }


def measure_contamination(_: Deadline) -> Figures:
    """`reworded`: of BFCL's questions that another one says in other words (as `bfcl` judges), those found where the other is held out."""
    config = contamination.ContaminationConfig(held_out=(contamination.BFCL,))
    held_out = contamination.load(config, encode)
    some = held_out.questions.filter(pl.col("norm").str.len_chars() >= 40)[::10]
    clean = sampled()
    rows, answers = bfcl()
    vectors = encode(rows["norm"].to_list())
    likes: dict[Any, list[int]] = {}
    for place, number in enumerate(rows["row"]):
        likes.setdefault(answers[number][0], []).append(place)
    reworded = [places[:2] for places in likes.values() if len(places) > 1]
    own, other = (vectors[[pair[side] for pair in reworded]] for side in (0, 1))

    def caught(texts: pl.Series) -> float:
        found = pl.DataFrame({"row": pl.int_range(len(texts), dtype=pl.UInt32, eager=True), "norm": texts})
        compared = contamination.compare(found, encode(texts.to_list()), held_out)
        return 1 - contamination.step(found, compared, config)["reason"].null_count() / len(texts)

    return {
        "clean_lost": caught(clean["norm"]),
        "planted_caught": caught(some["norm"]),
        "misspelt_caught": caught(some["norm"].str.slice(0, 18) + some["norm"].str.slice(19)),
        "reworded_caught": float((np.einsum("nd,nd->n", own, other) >= config.semantic).mean()),
    }


# ---- the index ----------------------------------------------------------------------------------------------------------------


def measure_index() -> Figures:
    """Rows around the vectors of a generated log, of which about half have another one near the threshold."""
    texts = sampled()["norm"].to_list()
    rng = np.random.default_rng(0)
    vectors = encode(texts)[rng.integers(0, len(texts), INDEXED)]
    vectors = vectors + rng.normal(0, 0.02, vectors.shape).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    removed, spent = {}, {}
    for name, large in (("all", INDEXED), ("index", 0)):
        semantic.LARGE = large
        since = time.process_time()
        keeper, _ = semantic.keep_first(vectors, np.full(INDEXED, 0.78))
        spent[name], removed[name] = time.process_time() - since, int((keeper != np.arange(INDEXED)).sum())
    print(f"    {removed['all']:,} of {INDEXED:,} rows are removable")
    return {
        "index_recall": removed["index"] / removed["all"],
        "index_us_per_row": spent["index"] / INDEXED * 1e6,
        "all_us_per_row": spent["all"] / INDEXED * 1e6,
    }


if __name__ == "__main__":
    sys.exit(main())

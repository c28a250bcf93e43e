"""Semantic duplicates: rows of one leaf of the taxonomy that ask for the same in other words.

A cosine alone is not enough: two queries that differ in one slot are as near as paraphrases. So rows are compared only if their *specifics*
are equal: numbers and declared terms in order ("from A to B" is not "from B to A"), names (capitalised words inside a sentence, in order),
text in quotation marks, and words that are rare in the leaf. In such a group a row is dropped if a kept row (better quality, or earlier)
has at least the threshold's cosine.

Rows with a frame have a threshold near 1: equal frames were dropped before, so two frames differ in a slot unless the parser misread one.
Equal values in two frames are no evidence either: most such pairs swap two places or two numbers.

Limits: two common words with different meanings (a theatre show, a music show), if no world declares them; and most paraphrases, which
share only some of their specifics. `benchmarks/semantic.py` measures both and calibrates the thresholds. Groups of more than `LARGE` rows
are searched with faiss (inverted lists over k-means cells), smaller ones exactly.
"""

from __future__ import annotations

from collections.abc import Sequence

import faiss
import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from filters.dedup.guards import guards, world_terms
from filters.frames.numba_types import I64
from filters.lexicon_worlds import lexicon_worlds
from filters.requests.patterns import SENTENCE_START
from filters.step import Context, WholeStep
from filters.steps.selection.encode import vectors_of
from synth.engines.encoder import Vectors

F64 = NDArray[np.float64]

LARGE = 30_000
"""Rows of a group from which the index is faster than comparing all (512 dimensions, one thread)."""
_CHUNK = 512
_PROBES = 16
_RARE_ROWS = 5
_WORD = r"[\p{L}--\p{Han}][\p{L}\p{M}'’-]*|\p{Han}"
_NAME = r"\b\p{Lu}[\w'’-]*"
_NO_NAME = r"^i(?:['’]\w+)?$"
_QUOTED = '["“”「『《]([^"“”「」『』《》]{1,80})["“”」』》]'


class SemanticConfig(BaseModel):
    """Cosines from which rows with equal specifics are duplicates. The thresholds fit the encoder (see `calibrate`)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    en: float = Field(0.80, ge=0, le=1, description="Cosine similarity from which a row in English is a duplicate; fits the encoder.")
    zh: float = Field(0.80, ge=0, le=1, description="Cosine similarity from which a row in Chinese is a duplicate; fits the encoder.")
    framed: float = Field(
        0.94, ge=0, le=1, description="Cosine similarity from which a row that a world can execute is a duplicate; fits the encoder."
    )
    rare_en: float = Field(
        0.005, ge=0, le=1, description="Duplicates in English must share the words that occur in at most this share of a leaf's rows."
    )
    rare_zh: float = Field(
        0.02, ge=0, le=1, description="Duplicates in Chinese must share the characters that occur in at most this share of a leaf's rows."
    )
    seed: int = Field(0, ge=0, description="Seed of the k-means cells of the index.")


def step(rows: pl.DataFrame, vectors: Vectors, config: SemanticConfig, terms: Sequence[str] | None = None) -> pl.DataFrame:
    """The joining step: `semantic_duplicate` where a kept row of the same leaf and specifics is as near as the threshold, with that row and
    the cosine. Rows of higher quality are kept first, then earlier ones.

    Args:
        rows: columns row, text (as written), norm, language, leaf, frame_id, quality.
        vectors: of the rows' texts, unit rows [n, d].
        terms: words that carry meaning; those of the worlds by default.
    """
    keeper = np.arange(rows.height)
    similarity = np.zeros(rows.height)
    thresholds = rows.select(
        pl.when(pl.col("frame_id").is_not_null()).then(config.framed)
        .when(pl.col("language") == "zh").then(config.zh)
        .otherwise(config.en)
    ).to_series().to_numpy()  # fmt: skip
    for places in _groups(rows, config, terms):
        kept_place, cosine = keep_first(vectors[places], thresholds[places], config.seed)
        keeper[places], similarity[places] = places[kept_place], cosine
    is_dropped = pl.Series(keeper != np.arange(rows.height))
    return rows.with_columns(
        reason=pl.when(is_dropped).then(pl.lit("semantic_duplicate")),
        duplicate_of=pl.when(is_dropped).then(rows["row"].gather(keeper)),
        similarity=pl.when(is_dropped).then(pl.Series(similarity)),
    )


def pairs(rows: pl.DataFrame, vectors: Vectors, config: SemanticConfig, terms: Sequence[str] | None = None) -> pl.DataFrame:
    """All pairs that `step` would compare (columns left, right: rows; language: of the left one; cosine), to calibrate and measure with."""
    left: list[I64] = []
    right: list[I64] = []
    for places in _groups(rows, config, terms):
        one, other = np.triu_indices(len(places), 1)
        left.append(places[one])
        right.append(places[other])
    if not left:
        return pl.DataFrame(schema={"left": rows.schema["row"], "right": rows.schema["row"], "language": pl.String, "cosine": pl.Float64})
    first, second = np.concatenate(left), np.concatenate(right)
    cosine = np.einsum("nd,nd->n", vectors[first], vectors[second]).astype(np.float64)
    numbers, languages = rows["row"], rows["language"]
    return pl.DataFrame(
        {"left": numbers.gather(first), "right": numbers.gather(second), "language": languages.gather(first), "cosine": pl.Series(cosine)}
    )


def calibrate(cosines: F64, is_same: NDArray[np.bool_], precision: float = 0.95, at_least: int = 20) -> float:
    """The lowest threshold at which, of labelled pairs with equal specifics, this share is the same; 1.0 where none has it.

    Args:
        cosines, is_same: of the pairs, [n]. at_least: pairs that must lie above the threshold, for a share to mean anything.
    """
    order = np.argsort(-cosines, kind="stable")
    share = np.cumsum(is_same[order]) / np.arange(1, len(order) + 1)
    is_last = np.append(cosines[order][1:] < cosines[order][:-1], True)[: len(order)]
    good = np.flatnonzero((share >= precision) & is_last & (np.arange(len(order)) >= at_least - 1))
    return float(cosines[order][good[-1]]) if len(good) else 1.0


def specifics(rows: pl.DataFrame, config: SemanticConfig, terms: Sequence[str] | None = None) -> pl.DataFrame:
    """What must agree besides the wording, as columns digits and terms (hashes), names, quoted and rare (text)."""
    guarded = guards(rows["norm"], world_terms(lexicon_worlds()) if terms is None else terms)
    text, norm, joined = pl.col("text"), pl.col("norm"), "\x1f"
    names = text.str.replace_all(SENTENCE_START, " ").str.extract_all(_NAME).list.eval(
        pl.element().str.to_lowercase().str.replace(r"['’]s?$", "").filter(~pl.element().str.to_lowercase().str.contains(_NO_NAME))
    )  # fmt: skip
    return rows.select(
        names=names.list.join(joined),
        quoted=norm.str.extract_all(_QUOTED).list.eval(pl.element().str.strip_chars('"“”「」『』《》 ')).list.join(joined),
        rare=_rare(rows, config),
    ).with_columns(digits=pl.Series(guarded.digits), terms=pl.Series(guarded.kinds()))


def _rare(rows: pl.DataFrame, config: SemanticConfig) -> pl.Series:
    """The words of each row that few rows of its leaf have, sorted."""
    at = rows.select("leaf", "language", words=pl.col("norm").str.extract_all(_WORD).list.unique()).with_row_index("at")
    words = at.explode("words", empty_as_null=False)
    size = pl.len().over("leaf", "language")
    share = pl.when(pl.col("language") == "zh").then(config.rare_zh).otherwise(config.rare_en)
    limits = at.select("at", limit=pl.max_horizontal(pl.lit(float(_RARE_ROWS)), share * size))
    counted = words.with_columns(rows=pl.len().over("leaf", "words")).join(limits, on="at", maintain_order="left")
    rare = counted.filter(pl.col("rows") <= pl.col("limit")).group_by("at").agg(pl.col("words").sort().str.join(" "))
    return at.join(rare, on="at", how="left", maintain_order="left")["words_right"].fill_null("")


def _groups(rows: pl.DataFrame, config: SemanticConfig, terms: Sequence[str] | None) -> list[I64]:
    """Places of rows of one leaf and equal specifics, two at least, each group in the order in which rows are kept."""
    keys = specifics(rows, config, terms).with_columns(
        rows["leaf"], rows["quality"], rows["row"], place=pl.int_range(pl.len(), eager=False)
    )
    by = ["leaf", "digits", "terms", "names", "quoted", "rare"]
    shared = keys.filter(pl.len().over(by) > 1).sort(pl.col("quality").neg(), "row")
    return [group["place"].to_numpy() for _, group in shared.group_by(by, maintain_order=True)]


def keep_first(vectors: Vectors, thresholds: F64, seed: int = 0) -> tuple[I64, F64]:
    """Drops each row, in order, whose cosine to a kept row is at least the row's threshold.

    Args:
        vectors: unit rows [n, d]. thresholds: cosines [n]. seed: of the index, for more than `LARGE` rows.

    Returns:
        keeper: number of the kept row that each row duplicates, or its own number [n]. cosine: to the keeper; 0 for a kept row [n].
    """
    count = len(vectors)
    keeper, cosine = np.arange(count), np.zeros(count)
    search = _Cells(vectors, seed) if count > LARGE else _All(vectors)
    for start in range(0, count, _CHUNK):
        stop = min(start + _CHUNK, count)
        nearest, near = search.nearest(start, stop)
        is_open = near < thresholds[start:stop]
        keeper[start:stop], cosine[start:stop] = np.where(is_open, keeper[start:stop], nearest), np.where(is_open, 0.0, near)
        places = np.flatnonzero(is_open)
        among = vectors[start:stop][places] @ vectors[start:stop][places].T
        for at, place in enumerate(places):
            if keeper[start + place] == start + place:
                later = places[at + 1 :]
                is_duplicate = (among[at, at + 1 :] >= thresholds[start + later]) & (keeper[start + later] == start + later)
                keeper[start + later[is_duplicate]], cosine[start + later[is_duplicate]] = start + place, among[at, at + 1 :][is_duplicate]
        search.add(start + places[keeper[start + places] == start + places])
    return keeper, cosine


class _All:
    """Kept rows, each compared with each new one."""

    def __init__(self, vectors: Vectors) -> None:
        self.vectors, self.kept, self.numbers = vectors, np.empty_like(vectors), np.empty(len(vectors), np.int64)
        self.size = 0

    def add(self, numbers: I64) -> None:
        end = self.size + len(numbers)
        self.kept[self.size : end], self.numbers[self.size : end] = self.vectors[numbers], numbers
        self.size = end

    def nearest(self, start: int, stop: int) -> tuple[I64, Vectors]:
        """The nearest kept row of each of these, and its cosine; -1 where none is kept."""
        if not self.size:
            return np.full(stop - start, -1), np.full(stop - start, -1, np.float32)
        cosine = self.vectors[start:stop] @ self.kept[: self.size].T
        best = cosine.argmax(axis=1)
        return self.numbers[best], cosine[np.arange(stop - start), best]


class _Cells:
    """Kept rows in the cells of a k-means, of which a new row looks into the nearest few."""

    def __init__(self, vectors: Vectors, seed: int) -> None:
        cells = min(4 * int(np.sqrt(len(vectors))), len(vectors) // 40)
        self.vectors = vectors
        self.index = faiss.IndexIVFFlat(faiss.IndexFlatIP(vectors.shape[1]), vectors.shape[1], cells, faiss.METRIC_INNER_PRODUCT)
        self.index.cp.seed, self.index.cp.niter, self.index.nprobe = seed + 1, 8, _PROBES
        self.index.cp.max_points_per_centroid = 64
        faiss.omp_set_num_threads(1)
        self.index.train(vectors)

    def add(self, numbers: I64) -> None:
        self.index.add_with_ids(self.vectors[numbers], numbers)

    def nearest(self, start: int, stop: int) -> tuple[I64, Vectors]:
        cosine, numbers = self.index.search(self.vectors[start:stop], 1)
        return numbers[:, 0], np.where(numbers[:, 0] >= 0, cosine[:, 0], np.float32(-1))


def _step(rows: pl.DataFrame, config: SemanticConfig, _: Context) -> pl.DataFrame:
    return step(rows.drop("vector"), vectors_of(rows), config)


STEP = WholeStep(
    name="semantic",
    needs=("text", "norm", "language", "leaf", "frame_id", "quality", "vector"),
    reasons=("semantic_duplicate",),
    soft=("semantic_duplicate",),
    config=SemanticConfig,
    function=_step,
)

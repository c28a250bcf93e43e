"""The contamination gate: drops rows that repeat a question of a held-out set, nearly word for word or in other words.

Every row is compared with every question of every set, so its nearest question is known; the verdicts and the report's histogram use the
same figures. Near: Jaccard of byte 6-grams of the normalised texts, for all pairs that share one. Semantic: cosine of the sentence vectors.

Unlike semantic duplicates (`semantic.py`), rows need no equal specifics here: a policy that trained on a held-out question with another
city has learnt how to solve it. A row that is dropped in vain is one of millions; a leak spoils the evaluation.

Limit: an encoder does not recognise every rewording. Half of free rewordings lie below any threshold that keeps other questions.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np
import polars as pl
from pydantic import BaseModel, ConfigDict, Field, model_validator

from filters import ingest, normalised_text
from filters.frames.batches import query_ids
from filters.frames.numba_types import F32, I64, U8, U64, compile_kernel, text_buffer
from filters.ingest import IngestConfig
from filters.step import Context, Setup, WholeStep
from filters.steps.selection.encode import vectors_of
from storage.errors import BadInput
from synth.engines.encoder import Encode, Vectors, encoder
from synth.suites.suite_questions import SuiteName, suite_questions
from synth.worlds import bfcl_files

BFCL: Literal["bfcl"] = "bfcl"
SUITES: tuple[Literal["bfcl"] | SuiteName, ...] = (BFCL, *get_args(SuiteName))
"""Suites whose questions may be held out."""
BINS = 20
_CELLS = 1 << 24


class HeldOutFile(BaseModel):
    """A held-out set in a file of the user's."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1, description="Name of the set in verdicts and reports.")
    file: str = Field(min_length=1, description="Path, pattern or URL of its questions, in any format that queries may have.")
    column: str = Field("text", description="Column or key that holds the question; ignored for text files.")


class ContaminationConfig(BaseModel):
    """The held-out sets and the thresholds. The semantic threshold fits the encoder."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    held_out: tuple[Literal["bfcl"] | SuiteName | HeldOutFile, ...] = Field(
        (), description="Held-out sets: files, or the questions of a suite: bfcl (of bfcl-eval), tau2-retail, tau2-airline, agentdojo."
    )
    near: float = Field(0.7, ge=0.5, le=1, description="Jaccard similarity of byte 6-grams from which a row counts as a held-out question.")
    semantic: float = Field(
        0.75, ge=0.5, le=1, description="Cosine similarity from which a row counts as a held-out question in other words; fits the encoder."
    )

    @model_validator(mode="after")
    def _has_one_of_each_name(self) -> ContaminationConfig:
        names = [_name(one) for one in self.held_out]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"held_out: two sets are called {twice[0]!r}; give each its own name")
        return self


@dataclass(frozen=True)
class HeldOut:
    """The questions of all sets.

    questions: columns set, number (row within the set), text, norm; sets in order, each norm once a set.
    encode: encoder of the questions.
    """

    questions: pl.DataFrame
    encode: Encode

    @cached_property
    def content_hash(self) -> str:
        """Hash of the sets' names, numbers and texts, hexadecimal; part of ids that depend on them."""
        digest = hashlib.sha256()
        for name, number, norm in self.questions.select("set", "number", "norm").iter_rows():
            digest.update(f"{name}\0{number}\0{norm}\0".encode())
        return digest.hexdigest()

    @cached_property
    def vectors(self) -> Vectors:
        """Unit rows [questions, d], computed at first use."""
        return self.encode(self.questions["norm"].to_list())


def load(config: ContaminationConfig, encode: Encode) -> HeldOut:
    """The held-out sets of the configuration.

    Raises:
        BadInput: a file cannot be used (see `ingest.inspect`), holds no question, or the package of a suite is not installed.
    """
    parts = []
    for one in config.held_out:
        texts = pl.Series("text", questions_of(one), pl.String) if isinstance(one, str) else _of_file(one)
        rows = pl.DataFrame({"row": pl.int_range(len(texts), dtype=pl.UInt32, eager=True), "text": texts})
        read = normalised_text.step(rows).filter(pl.col("norm").str.len_bytes() > 0).unique("norm", keep="first", maintain_order=True)
        if read.is_empty():
            raise BadInput(f"held-out set '{_name(one)}': no question in it")
        parts.append(read.select(set=pl.lit(_name(one)), number=pl.col("row").cast(pl.Int64), text="text", norm="norm"))
    empty = pl.DataFrame(schema={"set": pl.String, "number": pl.Int64, "text": pl.String, "norm": pl.String})
    return HeldOut(pl.concat([empty, *parts]), encode)


def questions_of(suite: Literal["bfcl"] | SuiteName) -> list[str]:
    """The questions of a suite.

    Raises:
        BadInput: its package is not installed.
    """
    return bfcl_questions() if suite == BFCL else suite_questions(suite)


def bfcl_questions() -> list[str]:
    """Every user message of BFCL's question files, in order of files and lines.

    Raises:
        BadInput: the package bfcl-eval is not installed.
    """
    cases = (case for path in bfcl_files.files(bfcl_files.QUESTIONS) for case in bfcl_files.cases(path))
    return [text for case in cases for turn in bfcl_files.user_turns(case) for text in turn]


def compare(rows: pl.DataFrame, vectors: Vectors, held_out: HeldOut) -> pl.DataFrame:
    """The nearest question of every held-out set to every row, by text and by vector.

    Args:
        rows: columns row, norm. vectors: of the rows' texts, unit rows [n, d], of the encoder that `held_out` has.

    Returns:
        columns row, set, near (Jaccard, 0..1), near_number (row of that question in its set; null where nothing is shared), semantic
        (cosine), semantic_number; a row for each row and set.
    """
    parts = []
    for name in held_out.questions["set"].unique(maintain_order=True):
        places = held_out.questions.with_row_index("place").filter(set=name)["place"].to_numpy()
        questions = held_out.questions[places]
        near, near_place = QuestionIndex(questions["norm"]).nearest(rows["norm"])
        cosine, place = _nearest_vectors(vectors, held_out.vectors[places])
        numbers = questions["number"]
        parts.append(
            rows.select(
                "row",
                set=pl.lit(name),
                near=pl.Series(near),
                near_number=numbers.gather(pl.Series(near_place).replace(-1, None)),
                semantic=pl.Series(cosine),
                semantic_number=numbers.gather(place),
            )
        )
    schema = {"set": pl.String, "near": pl.Float32, "near_number": pl.Int64, "semantic": pl.Float32, "semantic_number": pl.Int64}
    return pl.concat([pl.DataFrame(schema={"row": rows.schema["row"], **schema}), *parts])


def step(rows: pl.DataFrame, compared: pl.DataFrame, config: ContaminationConfig) -> pl.DataFrame:
    """The joining step: `contaminated` where a held-out question is as near as a threshold, with its set (held_out), its row in there
    (held_out_row, Int64), how it was found (held_out_by: near | semantic) and the similarity.

    Args:
        rows: column row. compared: what `compare` found for these rows.
    """
    is_near = pl.col("near") >= config.near
    leaks = compared.filter(is_near | (pl.col("semantic") >= config.semantic)).select(
        "row",
        held_out="set",
        held_out_row=pl.when(is_near).then("near_number").otherwise("semantic_number"),
        held_out_by=pl.when(is_near).then(pl.lit("near")).otherwise(pl.lit("semantic")),
        similarity=pl.when(is_near).then("near").otherwise("semantic").cast(pl.Float64),
    )
    nearest = leaks.sort("held_out_by", pl.col("similarity").neg(), maintain_order=True).unique("row", keep="first", maintain_order=True)
    joined = rows.join(nearest, on="row", how="left", maintain_order="left")
    return joined.with_columns(reason=pl.when(pl.col("held_out").is_not_null()).then(pl.lit("contaminated")))


def histogram(compared: pl.DataFrame) -> pl.DataFrame:
    """How near the nearest questions are: columns set, kind (near | semantic), from (lower end of the bin; `BINS` of equal width from 0 to
    1, a negative cosine counts as 0), rows."""
    values = compared.unpivot(on=["near", "semantic"], index="set", variable_name="kind", value_name="value")
    bins = pl.DataFrame({"bin": pl.int_range(BINS, eager=True)})
    every = values.select("set", "kind").unique().join(bins, how="cross")
    binned = values.group_by("set", "kind", bin=(pl.col("value") * BINS).floor().clip(0, BINS - 1).cast(pl.Int64)).agg(rows=pl.len())
    counts = every.join(binned, on=["set", "kind", "bin"], how="left").sort("set", "kind", "bin")
    return counts.select("set", "kind", pl.col("bin").truediv(BINS).alias("from"), pl.col("rows").fill_null(0).cast(pl.Int64))


def _name(one: str | HeldOutFile) -> str:
    return one if isinstance(one, str) else one.name


def _of_file(one: HeldOutFile) -> pl.Series:
    config = IngestConfig(column=one.column)
    pieces = [piece for source in ingest.inspect([one.file], config) for piece in source.pieces]
    return pl.concat([texts for piece in pieces for texts in ingest.read_piece(piece)])


def _nearest_vectors(vectors: Vectors, questions: Vectors) -> tuple[F32, I64]:
    """The highest cosine of each vector to one of the questions, and which that is."""
    best, place = np.empty(len(vectors), np.float32), np.empty(len(vectors), np.int64)
    size = max(1, _CELLS // len(questions))
    for start in range(0, len(vectors), size):
        block = slice(start, start + size)
        cosine = vectors[block] @ questions.T
        place[block] = cosine.argmax(axis=1)
        best[block] = cosine.max(axis=1)
    return best, place


class QuestionIndex:
    """Questions (normalised), indexed by their byte 6-grams."""

    def __init__(self, questions: pl.Series) -> None:
        keys, self._owners, self._sizes = _postings(questions)
        self._keys = np.unique(keys)
        self._starts = np.append(np.searchsorted(keys, self._keys, side="left"), keys.size)

    def nearest(self, texts: pl.Series) -> tuple[F32, I64]:
        """The highest Jaccard of each text to one of the questions, and which that is; 0 and -1 where no 6-gram is shared."""
        best, place = np.zeros(len(texts), np.float32), np.full(len(texts), -1, np.int64)
        _nearest(*text_buffer(texts), self._keys, self._starts, self._owners, self._sizes, best, place)
        return best, place


def _postings(questions: pl.Series) -> tuple[U64, I64, I64]:
    """All distinct shingles of every question, sorted, with their question; and how many each question has."""
    data, offsets = text_buffer(questions)
    keys, sizes = np.empty(int(offsets[-1] - offsets[0]) + len(questions), np.uint64), np.empty(len(questions), np.int64)
    total = _all_shingles(data, offsets, keys, sizes)
    order = np.argsort(keys[:total], kind="stable")
    return keys[:total][order], np.repeat(np.arange(len(questions)), sizes)[order], sizes


@compile_kernel
def _shingles(data: U8, start: int, end: int, out: U64) -> int:
    """The distinct shingles of `data[start:end]`, sorted, each as its bytes and length in 64 bits; returns how many."""
    width = min(end - start, 6)
    count = end - start - width + 1 if width else 0
    for first in range(count):
        packed = np.uint64(width) << np.uint64(56)
        for offset in range(width):
            packed |= np.uint64(data[start + first + offset]) << np.uint64(8 * offset)
        out[first] = packed
    out[:count].sort()
    distinct = 0
    for index in range(count):
        if index == 0 or out[index] != out[distinct - 1]:
            out[distinct] = out[index]
            distinct += 1
    return distinct


@compile_kernel
def _all_shingles(data: U8, offsets: I64, out: U64, sizes: I64) -> int:
    total = 0
    for row in range(sizes.size):
        sizes[row] = _shingles(data, offsets[row], offsets[row + 1], out[total:])
        total += sizes[row]
    return total


@compile_kernel
def _nearest(data: U8, offsets: I64, keys: U64, starts: I64, owners: I64, sizes: I64, best: F32, place: I64) -> None:
    longest = 0
    for row in range(best.size):
        longest = max(longest, offsets[row + 1] - offsets[row])
    mine = np.empty(longest + 1, np.uint64)
    shared = np.zeros(sizes.size, np.int64)
    touched = np.empty(sizes.size, np.int64)
    for row in range(best.size):
        count = _shingles(data, offsets[row], offsets[row + 1], mine)
        seen_count = 0
        for index in range(count):
            at = np.searchsorted(keys, mine[index])
            if at == keys.size or keys[at] != mine[index]:
                continue
            for entry in range(starts[at], starts[at + 1]):
                question = owners[entry]
                if shared[question] == 0:
                    touched[seen_count] = question
                    seen_count += 1
                shared[question] += 1
        for index in range(seen_count):
            question = touched[index]
            jaccard = np.float32(shared[question] / (count + sizes[question] - shared[question]))
            if jaccard > best[row] or (jaccard == best[row] and question < place[row]):
                best[row], place[row] = jaccard, question
            shared[question] = 0


_COMPARED = "compared"


def _load(setup: Setup) -> tuple[HeldOut, ContaminationConfig]:
    return load(setup.config.contamination, encoder(setup.config.encoder)), setup.config.contamination


def _step(rows: pl.DataFrame, inputs: tuple[HeldOut, ContaminationConfig], context: Context) -> pl.DataFrame:
    held_out, config = inputs
    compared = context.work.once(_COMPARED, lambda: compare(rows, vectors_of(rows), held_out))
    return step(rows.select("row"), compared, config)


def _tables(rows: pl.DataFrame, _: object, context: Context) -> dict[str, pl.DataFrame]:
    """The dropped rows with their questions, and the histogram of nearness to the sets."""
    run, leaks = pl.lit(context.run), rows.drop_nulls("held_out")
    ids = query_ids(leaks["row"], context.files)
    bins = histogram(context.work.read(_COMPARED))
    return {
        "contaminated": leaks.select("held_out", "held_out_row", "similarity", run=run, query_id=ids, found_by="held_out_by"),
        "nearness": bins.select("rows", run=run, held_out="set", found_by="kind", bin_from="from"),
    }


STEP = WholeStep(
    name="contamination",
    needs=("norm", "vector"),
    adds=("held_out", "held_out_row", "held_out_by"),
    reasons=("contaminated",),
    config=ContaminationConfig,
    load=_load,
    made_by=lambda inputs: (inputs[0].content_hash,),
    function=_step,
    writes=("contaminated", "nearness"),
    tables=_tables,
)

"""The step `near` over a log of any length: runs `filters/dedup/near.py` batch by batch and band by band.

Any process can compute a batch's sketch or a band's pairs; both read and write arrays of the workspace. Only `decide_near` is one pass over
all rows, in the process that runs the funnel; it holds the compared texts and some 40 bytes a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from filters.dedup import near
from filters.dedup.dedup_index import DedupIndex
from filters.dedup.guards import Guards, guards, world_terms
from filters.dedup.near import NearConfig
from filters.frames.batches import Batch
from filters.frames.numba_types import I64, U32, text_buffer
from filters.frames.workspace import Workspace
from filters.lexicon_worlds import lexicon_worlds
from filters.step import BandStep, Setup


@dataclass(frozen=True)
class Inputs:
    """config: of the step. terms: words that carry meaning in some world."""

    config: NearConfig
    terms: tuple[str, ...]


def load(setup: Setup) -> Inputs:
    return Inputs(setup.config.near, world_terms(lexicon_worlds()))


def sketch(rows: pl.DataFrame, inputs: Inputs) -> Mapping[str, np.ndarray[Any, Any]]:
    """The arrays of a batch: texts, guards and band keys."""
    sketched = near.sketch(rows["norm"], inputs.config, inputs.terms)
    data, ends = text_buffer(rows["norm"])
    return {
        "text": data[ends[0] : ends[-1]],
        "lengths": np.diff(ends),
        "digits": sketched.guards.digits,
        "terms": sketched.guards.terms,
        "counts": np.diff(sketched.guards.offsets),
        "kinds": sketched.guards.kinds(),
        "keys": sketched.keys,
    }


def prepare(batches: Sequence[Batch], work: Workspace, index: DedupIndex, inputs: Inputs) -> None:
    """Writes the hash of every row's terms, earlier runs included, as `near-kinds`, and the representatives of earlier runs as
    `near-before-<band>`."""
    if not work.has_array("near-kinds"):
        kinds = np.zeros(batches[-1].numbers.stop if batches else index.rows, np.uint32)
        kinds[: index.rows] = index.kinds()
        for batch in batches:
            kinds[work.array(f"near-rows-{batch.name}")] = work.array(f"near-kinds-{batch.name}")
        work.write_array("near-kinds", kinds)
    for band in range(inputs.config.bands):
        work.write_array(f"near-before-{band}", index.firsts(band))


def join_band(band: int, batches: Sequence[Batch], work: Workspace) -> None:
    """Writes the pairs and the firsts of a band (`near.join`) as `near-pairs-<band>` and `near-firsts-<band>`."""
    if work.has_array(f"near-firsts-{band}"):
        return
    keys = [work.array(f"near-keys-{batch.name}")[band] for batch in batches]
    rows = [work.array(f"near-rows-{batch.name}") for batch in batches]
    joined = near.join(keys, rows, work.array("near-kinds"), work.array(f"near-before-{band}"))
    work.write_array(f"near-pairs-{band}", joined.pairs)
    work.write_array(f"near-firsts-{band}", joined.firsts)


def decide_near(batches: Sequence[Batch], work: Workspace, index: DedupIndex, inputs: Inputs) -> pl.DataFrame:
    """row, keeper (the kept row that represents it, or the row itself) and similarity of every compared row. Keepers may be of earlier
    runs."""
    config, terms = inputs.config, inputs.terms
    own_rows: U32 = np.concatenate([work.array(f"near-rows-{batch.name}") for batch in batches])
    pairs = near.distinct(work.array(f"near-pairs-{band}") for band in range(config.bands))
    later, earlier = (pairs >> np.uint64(32)).astype(np.uint32), pairs.astype(np.uint32)
    before = index.standing(np.unique(earlier[earlier < index.rows]))
    old: U32 = np.unique(np.concatenate([before["row"].to_numpy(), before["keeper"].to_numpy()]))
    place = np.zeros(int(own_rows[-1]) + 1 - index.rows if own_rows.size else 0, np.uint32)
    place[own_rows - np.uint32(index.rows)] = np.arange(old.size, old.size + own_rows.size, dtype=np.uint32)

    def compact(rows: U32) -> U32:
        is_old = rows < index.rows
        places = np.empty(rows.size, np.uint32)
        places[is_old] = np.searchsorted(old, rows[is_old])
        places[~is_old] = place[rows[~is_old] - np.uint32(index.rows)]
        return places

    pairs = (compact(later).astype(np.uint64) << np.uint64(32)) | compact(earlier)
    del later, earlier
    keeper = np.arange(old.size + own_rows.size, dtype=np.uint32)
    keeper[np.searchsorted(old, before["row"].to_numpy())] = np.searchsorted(old, before["keeper"].to_numpy())
    if config.rule == "components":  # compares rows themselves; of old rows, only keepers have a text
        pairs = (pairs >> np.uint64(32) << np.uint64(32)) | keeper[pairs & np.uint64(0xFFFFFFFF)]
    old_texts = _old_texts(index, old, before)
    old_data, old_ends = text_buffer(old_texts)
    old_guards = guards(old_texts, terms if "terms" in config.protect else (), digits="digits" in config.protect)

    def all_of(name: str, first: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.concatenate([first, *(work.array(f"near-{name}-{batch.name}") for batch in batches)])

    guarded = Guards(
        all_of("digits", old_guards.digits),
        all_of("terms", old_guards.terms),
        _offsets(all_of("counts", np.diff(old_guards.offsets))),
        old_guards.term_bytes,
    )
    offsets = _offsets(all_of("lengths", np.diff(old_ends)))
    similarity = near.decide(all_of("text", old_data), offsets, guarded, pairs, config, keeper)
    numbers: U32 = np.concatenate([old, own_rows])
    return pl.DataFrame({"row": own_rows, "keeper": numbers[keeper[old.size :]], "similarity": similarity[old.size :]})


def _old_texts(index: DedupIndex, old: U32, before: pl.DataFrame) -> pl.Series:
    """The texts of old rows: those of kept rows, and empty texts for the others, which are not compared."""
    keepers: U32 = np.unique(before["keeper"].to_numpy())
    texts = pl.select(pl.repeat("", old.size, dtype=pl.String)).to_series()
    return texts.scatter(np.searchsorted(old, keepers), index.texts(keepers))


def _offsets(lengths: I64) -> I64:
    offsets = np.zeros(lengths.size + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def duplicates(compared: pl.DataFrame) -> pl.DataFrame:
    """The rows dropped: `near_duplicate`."""
    is_dropped = pl.col("keeper") != pl.col("row")
    return compared.filter(is_dropped).select("row", "similarity", reason=pl.lit("near_duplicate"), duplicate_of="keeper")


STEP = BandStep(
    name="near",
    needs=("norm",),
    reasons=("near_duplicate",),
    config=NearConfig,
    load=load,
    sketch=sketch,
    prepare=prepare,
    bands=lambda inputs: inputs.config.bands,
    join=join_band,
    decide=decide_near,
    function=duplicates,
)

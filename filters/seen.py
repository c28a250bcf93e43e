"""What earlier runs have read, so that a log is deduplicated against everything that was ever seen, kept or not.

One idea: every run leaves a *segment* in the store: of its distinct rows the keys (table `seen`), and of every band the rows that stand for
their buckets (table `bands`). A later run goes on from there, its rows numbered after those of all segments before, and so leaves just
what one run over all the files would, in the order in which they were first read.
Segments before a run: those of the same recipe (how rows are normalised and sketched) that were committed before any of the run's own
files was first read; so a file that is curated again, with other settings, never duplicates itself.

What it does not do: decide (`dedup.py`).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from filters.compiled import U32, U64
from filters.ingest import Source
from storage.errors import HeadraceError
from storage.store import Store


class NothingNew(HeadraceError):
    """Only new files were wanted, and there are none."""


def unread(store: Store, files: Sequence[Source]) -> list[Source]:
    """The files that no run has read into the store, numbered anew. Raises NothingNew where there are none."""
    told = store.query("SELECT files FROM segments")["files"]
    known = {content_hash for read in told for content_hash, *_ in json.loads(read)}
    new = [file for file in files if file.content_hash not in known]
    if not new:
        raise NothingNew(f"nothing new: every file ({len(files)} in all) was read into {store.root} before")
    firsts = itertools.accumulate((file.rows for file in new), initial=0)
    return [replace(file, first_row=first) for file, first in zip(new, firsts, strict=False)]


@dataclass(frozen=True, slots=True)
class Segment:
    """first_row: number of its row 0 among all rows seen; stored_first_row: when it was made."""

    id: str
    first_row: int
    rows: int
    stored_first_row: int


class Seen:
    """The segments before a run. `rows`: how many rows they have read; `sources`: the files, `first_row` counted over all of them;
    `known`: segments of the recipe, later ones as well; `not_compared`: what was read by another recipe, in words."""

    def __init__(self, store: Store, recipe: str, files: Sequence[Source]) -> None:
        self._store = store
        self.segments: list[Segment] = []
        self.sources: list[Source] = []
        self.rows = 0
        own = {file.content_hash for file in files}
        known = store.query("SELECT segment, first_row, files FROM segments WHERE recipe = ? ORDER BY position", [recipe])
        self.known = known.height
        for segment, stored_first_row, told in known.iter_rows():
            read = json.loads(told)
            if own & {content_hash for content_hash, *_ in read}:
                break
            start = self.rows
            for content_hash, name, rows in read:
                self.sources.append(Source(name, content_hash, self.rows, rows, ()))
                self.rows += rows
            self.segments.append(Segment(segment, start, self.rows - start, stored_first_row))
        others: dict[str, int] = {}
        for (told,) in store.query("SELECT files FROM segments WHERE recipe <> ?", [recipe]).iter_rows():
            others |= {content_hash: rows for content_hash, _, rows in json.loads(told)}
        unread = sum(rows for content_hash, rows in others.items() if content_hash not in own | {one.content_hash for one in self.sources})
        why = "with other settings of near (bands, rows_a_band, seed, protect) or by another version"
        again = "curate their files again to have them in this index"
        self.not_compared = f"not compared with {unread:,} rows that were read before {why}: {again}" if unread else None

    def keys(self) -> pl.DataFrame:
        """row, key_high, key_low of every distinct text."""
        return self._all("SELECT row, key_high, key_low FROM seen WHERE segment = ?", {"key_high": pl.Int64, "key_low": pl.Int64}).select(
            "row", pl.col("key_high", "key_low").reinterpret(signed=False)
        )

    def frames(self) -> pl.DataFrame:
        """row and frame_id of every distinct frame that runs over these files have found; a frame's first row."""
        files = {source.content_hash[:8]: source.first_row for source in self.sources}
        found = self._store.query(
            "SELECT query_id, frame_id FROM frames WHERE frame_id IS NOT NULL AND list_contains(?, query_id[3:10])", [list(files)]
        )
        first = pl.col("query_id").str.slice(2, 8).replace_strict(files, default=0, return_dtype=pl.UInt32)
        row = pl.col("query_id").str.slice(11).cast(pl.UInt32) + first
        return (
            found.select(row.alias("row"), "frame_id").group_by("frame_id").agg(pl.col("row").min()).select("row", "frame_id").sort("row")
        )

    def kinds(self) -> U32:
        """The kind of terms of each row that was compared, by its number; 0 elsewhere."""
        told = self._all("SELECT row, kind FROM seen WHERE segment = ? AND kind IS NOT NULL", {"kind": pl.Int64})
        kinds = np.zeros(self.rows, np.uint32)
        kinds[told["row"].to_numpy()] = told["kind"].to_numpy()
        return kinds

    def firsts(self, band: int) -> U64:
        """`key << 32 | row` of the rows that stand for the buckets of a band."""
        pieces = [np.empty(0, np.uint64)]
        for segment in self.segments:
            entries = self._store.query("SELECT entry FROM bands WHERE segment = ? AND band = ?", [segment.id, band])["entry"]
            pieces.append(entries.to_numpy().view(np.uint64) + np.uint64(segment.first_row))
        return np.concatenate(pieces)

    def standing(self, rows: U32) -> pl.DataFrame:
        """row, keeper (the kept row that stands for it; its own number where it is kept) of compared rows."""
        pieces = [pl.DataFrame(schema={"row": pl.UInt32, "keeper": pl.UInt32})]
        for segment, wanted in self._by_segment(rows):
            sql = "SELECT row, keeper FROM seen WHERE segment = ? AND row IN (SELECT unnest(?))"
            told = self._store.query(sql, [segment.id, wanted])
            keeper = told["keeper"].to_numpy()
            moved = np.where(keeper >= segment.stored_first_row, keeper - segment.stored_first_row + segment.first_row, keeper)
            pieces.append(pl.DataFrame({"row": told["row"] + segment.first_row, "keeper": moved}).cast(pl.UInt32))
        return pl.concat(pieces).sort("row")

    def texts(self, rows: U32) -> pl.Series:
        """The normalised texts of kept rows, in ascending order of their numbers."""
        pieces = [pl.DataFrame(schema={"row": pl.UInt32, "norm": pl.String})]
        for segment, wanted in self._by_segment(rows):
            told = self._store.query("SELECT row, norm FROM seen WHERE segment = ? AND row IN (SELECT unnest(?))", [segment.id, wanted])
            pieces.append(told.select((pl.col("row") + segment.first_row).cast(pl.UInt32), "norm"))
        return pl.concat(pieces).sort("row")["norm"]

    def _by_segment(self, rows: U32) -> list[tuple[Segment, list[int]]]:
        """The segments that rows are of, with their places in them."""
        ends = [(one, rows[(rows >= one.first_row) & (rows < one.first_row + one.rows)]) for one in self.segments]
        return [(one, (places.astype(np.int64) - one.first_row).tolist()) for one, places in ends if places.size]

    def _all(self, sql: str, schema: dict[str, type[pl.DataType]]) -> pl.DataFrame:
        """What a query says of every segment, rows numbered over all of them."""
        pieces = [pl.DataFrame(schema={"row": pl.UInt32, **schema})]
        for segment in self.segments:
            told = self._store.query(sql, [segment.id])
            pieces.append(told.with_columns((pl.col("row") + segment.first_row).cast(pl.UInt32)))
        return pl.concat(pieces).sort("row")

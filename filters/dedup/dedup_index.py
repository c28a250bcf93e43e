"""The index of earlier runs: a log is deduplicated against all rows that were ever read, kept or dropped.

Every run writes a *segment* to the store: the keys of its distinct rows (table `seen`), and for each band the rows that represent their
buckets (table `bands`). The rows of a later run are numbered after the rows of all earlier segments. It finds the duplicates that one run
over all files, in the order of first reading, would find (exact, equal, and near by `keep_first`; with `components`, only the rows that
represent others are known).

A run uses the segments of the same recipe (how rows are normalised and sketched) that were committed before any of its files was first
read. So a file that is curated again with other settings is no duplicate of itself.

The index does not decide. It reads the parts of these segments, not the views over all parts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from filters.frames.batches import Batch, Sources, read_alive
from filters.frames.hash_join import key_of
from filters.frames.numba_types import U32, U64, Mask
from filters.frames.workspace import Workspace
from filters.ingest import ID_DIGITS, Source
from storage.errors import BadInput, HeadraceError
from storage.parts import read_part
from storage.store import Part, Store

INDEXED = ("exact", "near", "equal")
"""The steps that compare with earlier runs. A segment holds what they need; they and the steps before them decide its content."""
INDEXED_COLUMNS = ("norm", "key_high", "key_low", "frame_id", "combination")


class NothingNew(HeadraceError):
    """Only new files were to be read, and there are none."""


def read_before(store: Store) -> frozenset[str]:
    """The content hashes of all files that were read into the store."""
    segment_files = store.query("SELECT files FROM segments")["files"]
    return frozenset(content_hash for read in segment_files for content_hash, *_ in json.loads(read))


@dataclass(frozen=True, slots=True)
class Segment:
    """The rows of one earlier run.

    first_row: number of its first row, as this run numbers rows.
    stored_first_row: the same number when the segment was written.
    parts: table (`seen`, `asked`, `bands`) -> ids of its parts; those of `bands` in the order of the bands.
    """

    id: str
    first_row: int
    rows: int
    stored_first_row: int
    parts: dict[str, list[str]]


def _check_ids(store: Store, files: Sequence[Source]) -> None:
    hash_of_id = {content_hash[:ID_DIGITS]: content_hash for content_hash in read_before(store)}
    for file in files:
        if hash_of_id.get(file.content_hash[:ID_DIGITS], file.content_hash) != file.content_hash:
            raise BadInput(f"{file.location}: its rows would have the ids of a file that was read before; read it into another store")


class DedupIndex:
    """The segments before a run.

    rows: number of rows in them.
    sources: their files, with `first_row` counted over all of them.
    known: number of segments of the recipe, later ones included.
    not_compared: a note on the rows that the run is not compared with; None if there are none.

    Raises BadInput: the rows of a file would have the ids of another file's rows.
    """

    def __init__(self, store: Store, recipe: str, files: Sequence[Source]) -> None:
        _check_ids(store, files)
        self._store = store
        self.segments: list[Segment] = []
        self.sources: list[Source] = []
        self.rows = 0
        hashes, later = {file.content_hash for file in files}, dict[str, int]()
        sql = "SELECT segment, first_row, files, parts FROM segments WHERE recipe = ? ORDER BY position, segment"
        segments = store.query(sql, [recipe])
        self.known = segments.height
        for segment, stored_first_row, files_json, parts in segments.iter_rows():
            read = json.loads(files_json)
            if later or hashes & {content_hash for content_hash, *_ in read}:
                later |= {content_hash: rows for content_hash, _, rows in read}
                continue
            start = self.rows
            for content_hash, name, rows in read:
                self.sources.append(Source(name, content_hash, self.rows, rows, ()))
                self.rows += rows
            self.segments.append(Segment(segment, start, self.rows - start, stored_first_row, json.loads(parts)))
        others = {
            content_hash: rows
            for (files_json,) in store.query("SELECT files FROM segments WHERE recipe <> ?", [recipe]).iter_rows()
            for content_hash, _, rows in json.loads(files_json)
        }
        compared = hashes | {one.content_hash for one in self.sources}
        self.not_compared = _not_compared(_rows_of(later, compared) if len(hashes) > 1 else 0, _rows_of(others, compared | later.keys()))

    def keys(self) -> Iterator[pl.DataFrame]:
        """row, key_high, key_low of every distinct text, part after part."""
        return self._each(["key_high", "key_low"])

    def frames(self) -> Iterator[pl.DataFrame]:
        """row, key_high, key_low of every distinct frame: a frame's first row, and its key; part after part."""
        for columns in self._each(["frame_high", "frame_low"]):
            yield columns.rename({"frame_high": "key_high", "frame_low": "key_low"})

    def kinds(self) -> U32:
        """The kind of terms of each row that was compared, by its number; 0 elsewhere."""
        kinds = np.zeros(self.rows, np.uint32)
        for column in self._each(["kind"]):
            kinds[column["row"].to_numpy()] = column["kind"].to_numpy()
        return kinds

    def firsts(self, band: int) -> U64:
        """`key << 32 | row` of the rows that represent the buckets of a band."""
        pieces = [np.empty(0, np.uint64)]
        for segment, rows in self._read("bands", self.segments, at=band):
            pieces.append(rows["entry"].to_numpy().view(np.uint64) + np.uint64(segment.first_row))
        return np.concatenate(pieces)

    def standing(self, rows: U32) -> pl.DataFrame:
        """row, keeper (the kept row that represents it, or the row itself) of the rows that were compared, ascending by row."""
        pieces = [pl.DataFrame(schema={"row": pl.UInt32, "keeper": pl.UInt32})]
        for segment, rows_of_segment in self._of(rows, "keeper"):
            values = rows_of_segment.drop_nulls()
            keeper = values["keeper"].to_numpy()
            moved = np.where(keeper >= segment.stored_first_row, keeper - segment.stored_first_row + segment.first_row, keeper)
            pieces.append(pl.DataFrame({"row": values["row"], "keeper": moved}).cast(pl.UInt32))
        return pl.concat(pieces).sort("row")

    def combinations(self, rows: U32) -> pl.DataFrame:
        """row, key (`key_of` of the combination of the row or of its keeper) of the rows that have a combination."""
        standing = self.standing(rows)
        pieces = [pl.DataFrame(schema={"row": pl.UInt32, "combination": pl.Int64})]
        pieces += [part for _, part in self._of(np.unique(standing["keeper"].to_numpy()), "combination", "asked")]
        keys = pl.concat(pieces).select(keeper="row", key=pl.col("combination").reinterpret(signed=False))
        return standing.join(keys, on="keeper").select("row", "key")

    def texts(self, rows: U32) -> pl.Series:
        """The normalised texts of kept rows, in ascending order of their numbers."""
        pieces = [pl.DataFrame(schema={"row": pl.UInt32, "norm": pl.String}), *(part for _, part in self._of(rows, "norm"))]
        return pl.concat(pieces).sort("row")["norm"]

    def _of(self, rows: U32, column: str, table: str = "seen") -> Iterable[tuple[Segment, pl.DataFrame]]:
        """row and a column of a table of some rows, a segment after the other."""
        rows_of = {one.id: rows[(rows >= one.first_row) & (rows < one.first_row + one.rows)] for one in self.segments}
        for segment, table_rows in self._read(table, [one for one in self.segments if rows_of[one.id].size], ["row", column]):
            numbered = table_rows.with_columns((pl.col("row") + segment.first_row).cast(pl.UInt32))
            yield segment, numbered.join(pl.DataFrame({"row": rows_of[segment.id]}), on="row", how="semi")

    def _each(self, columns: list[str]) -> Iterator[pl.DataFrame]:
        """row and these columns (UInt64) of every part of `seen`, where they are not null."""
        for segment, table_rows in self._read("seen", self.segments, ["row", *columns]):
            row = (pl.col("row") + segment.first_row).cast(pl.UInt32)
            yield table_rows.drop_nulls().select(row, pl.col(columns).reinterpret(signed=False))

    def _read(
        self, table: str, segments: Sequence[Segment], columns: list[str] | None = None, at: int | None = None
    ) -> Iterable[tuple[Segment, pl.DataFrame]]:
        """The parts of a table (or the one of a number), segment after segment, part after part."""
        for segment in segments:
            parts = segment.parts.get(table) if at is None else [segment.parts[table][at]]
            if not parts:  # of an older index
                continue
            paths = self._store.query("SELECT part_id, path FROM parts WHERE list_contains(?, part_id)", [parts])
            path_of = dict(paths.iter_rows())
            for part in parts:
                yield segment, read_part(self._store.root, path_of[part], columns)


def _rows_of(files: dict[str, int], but: Iterable[str]) -> int:
    return sum(rows for content_hash, rows in files.items() if content_hash not in set(but))


def _not_compared(later: int, others: int) -> str | None:
    """The note on rows that a run is not compared with: rows read after the first of its files, and rows of another recipe."""
    notes = []
    if later:
        notes.append(f"{later:,} rows that were read after the first of these files; curate new files apart from old ones (--new)")
    if others:
        notes.append(
            f"{others:,} rows that were read with other settings of near (bands, rows_a_band, seed, protect) or by another version; "
            "curate their files again to have them in this index"
        )
    return f"not compared with {'; nor with '.join(notes)}" if notes else None


# ---- writing a segment ----------------------------------------------------------------------------------------------------------


def write_seen(
    batch: Batch,
    is_distinct: Mask,
    has_own_frame: Mask,
    keepers: pl.DataFrame,
    store: Store,
    work: Workspace,
    texts: Sources,
    frames: Sources,
    segment: str,
    first_row: int,
    parts: Mapping[str, str],
) -> Part:
    """The part of `seen` with a batch's distinct rows: their keys, of those that were compared (`keepers`: row, keeper) kind, keeper and,
    where they were kept, the normalised text, and the keys of frames that no earlier row has.

    Args:
        texts, frames: passes with norm and its key, and with frame_id.
    """
    row_frames = read_alive(batch, has_own_frame, work, frames).drop_nulls()
    high, low = key_of("frame_id")
    own_frames = row_frames.select("row", high.alias("frame_high"), low.alias("frame_low"))
    kinds = pl.DataFrame({"row": work.array(f"near-rows-{batch.name}"), "kind": work.array(f"near-kinds-{batch.name}")})
    rows = read_alive(batch, is_distinct, work, texts)
    for array in (keepers, kinds, own_frames):
        rows = rows.join(array, on="row", how="left", maintain_order="left")
    columns = rows.select(
        pl.lit(segment).alias("segment"),
        pl.col("row").cast(pl.Int64) - first_row,
        pl.col("key_high", "key_low", "frame_high", "frame_low").reinterpret(signed=True),
        pl.col("kind", "keeper").cast(pl.Int64),
        pl.when(pl.col("keeper") == pl.col("row")).then("norm").alias("norm"),
    )
    return store.write("seen", parts[f"seen-{batch.name}"], columns)


def write_asked(batch: Batch, store: Store, work: Workspace, frames: str, segment: str, first_row: int, parts: Mapping[str, str]) -> Part:
    """The part of `asked` with the rows of a batch that have a combination, and its key. frames: the pass that grounded them."""
    rows = work.read(f"{frames}-{batch.name}", ["row", "combination"]).drop_nulls()
    columns = rows.select(
        pl.lit(segment).alias("segment"),
        pl.col("row").cast(pl.Int64) - first_row,
        key_of("combination")[0].reinterpret(signed=True).alias("combination"),
    )
    return store.write("asked", parts[f"asked-{batch.name}"], columns)


def write_band(band: int, store: Store, work: Workspace, segment: str, first_row: int, parts: Mapping[str, str]) -> Part:
    """The part of `bands` with the rows that represent the buckets of a band."""
    entries = np.sort((work.array(f"near-firsts-{band}") - np.uint64(first_row)).view(np.int64))
    rows = pl.DataFrame({"entry": entries}).select(segment=pl.lit(segment), band=pl.lit(band, pl.Int32), entry="entry")
    return store.write("bands", parts[f"bands-{band}"], rows)

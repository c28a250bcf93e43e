"""What a run of the funnel leaves in the store, part by part: queries, verdicts and frames, and the index for later runs
(`dedup_index.py`).

Every function writes the parts of one batch, one band or one group of batches, from the workspace and what the runner tells it, and can run
on any thread, process or machine that sees the store's folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from filters.batches import Batch, query_ids
from filters.hash_join import key_of
from filters.ingest import Source
from filters.numba_types import U32, Mask
from filters.workspace import Workspace
from storage.store import Part, Store
from storage.tables import TABLES

FRAMES_A_PART = 1_000_000
"""Rows read that one part of `frames` speaks of: every part of a catalogue table is held against all that is there."""


def groups(batches: Sequence[Batch]) -> list[tuple[Batch, ...]]:
    """Successive batches, each group the batches of one part of `frames`."""
    found: dict[int, list[Batch]] = {}
    for batch in batches:
        found.setdefault((batch.first_row - batches[0].first_row) // FRAMES_A_PART, []).append(batch)
    return [tuple(group) for group in found.values()]


def write_batch(
    batch: Batch,
    occurrences: U32,
    verdicts: pl.DataFrame,
    store: Store,
    work: Workspace,
    run: str,
    files: Sequence[Source],
    parts: Mapping[str, str],
) -> list[Part]:
    """The parts of `queries` and `verdicts` with this batch's rows."""
    ids = query_ids(verdicts["row"], files)
    counted = pl.Series(occurrences)
    queries = work.read(f"read-{batch.name}", ["row", "text", "language"]).select(
        query_id=ids,
        run=pl.lit(run),
        source=pl.lit(batch.file),
        row=pl.col("row").cast(pl.Int64) - batch.first_row + batch.file_row,
        text="text",
        language="language",
        occurrences=pl.when(counted > 0).then(counted).cast(pl.Int64),
    )
    told = verdicts.drop("row").with_columns(query_id=ids, run=pl.lit(run), duplicate_of=query_ids(verdicts["duplicate_of"], files))
    return [
        store.write("queries", parts[f"queries-{batch.name}"], queries),
        store.write("verdicts", parts[f"verdicts-{batch.name}"], told),
    ]


def write_seen(
    batch: Batch,
    is_distinct: Mask,
    has_own_frame: Mask,
    keepers: pl.DataFrame,
    store: Store,
    work: Workspace,
    segment: str,
    first_row: int,
    parts: Mapping[str, str],
) -> Part:
    """The part of `seen` with this batch's distinct rows: their keys, of those that were compared (`keepers`: row, keeper) kind, keeper
    and, where they were kept, the normalised text, and the keys of frames that no earlier row has."""
    frames = work.read(f"grounded-{batch.name}", ["row", "frame_id"])
    frames = frames.filter(has_own_frame[frames["row"].to_numpy() - batch.first_row]).drop_nulls()
    high, low = key_of("frame_id")
    own_frames = frames.select("row", high.alias("frame_high"), low.alias("frame_low"))
    kinds = pl.DataFrame({"row": work.array(f"near-rows-{batch.name}"), "kind": work.array(f"near-kinds-{batch.name}")})
    rows = work.read(f"read-{batch.name}", ["row", "norm", "key_high", "key_low"]).filter(is_distinct)
    told = rows
    for known in (keepers, kinds, own_frames):
        told = told.join(known, on="row", how="left", maintain_order="left")
    seen = told.select(
        pl.lit(segment).alias("segment"),
        pl.col("row").cast(pl.Int64) - first_row,
        pl.col("key_high", "key_low", "frame_high", "frame_low").reinterpret(signed=True),
        pl.col("kind", "keeper").cast(pl.Int64),
        pl.when(pl.col("keeper") == pl.col("row")).then("norm").alias("norm"),
    )
    return store.write("seen", parts[f"seen-{batch.name}"], seen)


def write_asked(batch: Batch, store: Store, work: Workspace, segment: str, first_row: int, parts: Mapping[str, str]) -> Part:
    """The part of `asked` with this batch's rows that ask in a combination, and its key."""
    rows = work.read(f"grounded-{batch.name}", ["row", "combination"]).drop_nulls()
    asked = rows.select(
        pl.lit(segment).alias("segment"),
        pl.col("row").cast(pl.Int64) - first_row,
        key_of("combination")[0].reinterpret(signed=True).alias("combination"),
    )
    return store.write("asked", parts[f"asked-{batch.name}"], asked)


def write_band(band: int, store: Store, work: Workspace, segment: str, first_row: int, parts: Mapping[str, str]) -> Part:
    """The part of `bands` with the rows that stand for the buckets of a band."""
    entries = np.sort((work.array(f"near-firsts-{band}") - np.uint64(first_row)).view(np.int64))
    rows = pl.DataFrame({"entry": entries}).select(segment=pl.lit(segment), band=pl.lit(band, pl.Int32), entry="entry")
    return store.write("bands", parts[f"bands-{band}"], rows)


def write_frames(
    group: Sequence[Batch],
    verdicts: pl.DataFrame,
    has_own_frame: Mask,
    pooled: pl.DataFrame,
    store: Store,
    work: Workspace,
    run: str,
    files: Sequence[Source],
    part: str,
) -> Part:
    """The part of `frames` with what became of every distinct frame of a group of batches, and of its rows without one. `reason` says why a
    row has no frame, or why it was refused; of a frame that a model read, then which model.

    Args:
        verdicts: of the group's rows. has_own_frame: of the group's rows, those that no earlier row equals.
        pooled: row, leaf, ungrounded, cluster_id, tool_id, nearness, stratum_rank of the rows of the pool.
    """
    about = ["row", "frame_id", "world", "intent", "slots", "combination", "shape", "ungrounded", "read_by"]
    rated = ["row", "leaf", "quality", "difficulty", "s_tool", "s_chain", "s_constraints"]
    own = pl.concat([work.read(f"grounded-{batch.name}", about) for batch in group])
    own = own.filter(has_own_frame[own["row"].to_numpy() - group[0].first_row])
    poor = [work.read(f"rated-{batch.name}-dropped", ["row", "quality"]) for batch in group]
    told = pl.concat([*(work.read(f"rated-{batch.name}", rated) for batch in group), *poor], how="diagonal")
    frames = own.join(told, on="row", how="left", maintain_order="left").join(verdicts, on="row", how="left", maintain_order="left")
    frames = frames.join(pooled, on="row", how="left", maintain_order="left", suffix="_pooled")
    is_refused = (pl.col("step") == "admission") & (pl.col("reason") != "not_needed")
    status = (
        pl.when("kept").then(pl.when(pl.col("frame_id").is_null()).then(pl.lit("ungrounded")).otherwise(pl.lit("admitted")))
        .when(is_refused).then(pl.lit("refused"))
        .otherwise(pl.col("reason").cast(pl.String))
    )  # fmt: skip
    why = pl.when(is_refused).then(pl.col("reason").cast(pl.String)).otherwise(pl.coalesce("ungrounded_pooled", "ungrounded"))
    why = pl.coalesce(pl.format("{} ({})", why, "read_by"), "read_by", why)
    frames = frames.with_columns(
        run=pl.lit(run),
        query_id=query_ids(frames["row"], files),
        leaf=pl.coalesce("leaf_pooled", "leaf"),
        status=status,
        reason=why,
        nearness=pl.col("nearness").round(6),
    )
    return store.write("frames", part, frames.select(list(TABLES["frames"].columns)))


def write_gate(
    leaks: pl.DataFrame, nearness: pl.DataFrame, store: Store, run: str, files: Sequence[Source], parts: Mapping[str, str]
) -> list[Part]:
    """The parts of `contaminated` and `nearness`. leaks: rows that the gate has dropped (`contamination.step`); nearness: its histogram."""
    ids = query_ids(leaks["row"], files)
    told = leaks.select("held_out", "held_out_row", "similarity", run=pl.lit(run), query_id=ids, found_by="held_out_by")
    bins = nearness.select("rows", run=pl.lit(run), held_out="set", found_by="kind", bin_from="from")
    return [store.write("contaminated", parts["contaminated"], told), store.write("nearness", parts["nearness"], bins)]

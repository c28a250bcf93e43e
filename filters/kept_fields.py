"""The table `query_fields`: all columns that a kept row has in the user's file, read from the file again once it is known what is kept.

The query is stored as the funnel read it, with personal data masked; other columns are copied as they are (`ingest.keep_columns`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import polars as pl

from filters.frames.batches import Batch, query_ids
from filters.frames.numba_types import U32
from filters.frames.workspace import Workspace
from filters.ingest import Piece, Source, read_fields
from filters.ingest.row_fields import with_value


def fields_of_piece(
    cut: tuple[Piece, Sequence[Batch]], kept: U32, work: Workspace, read: str, run: str, files: Sequence[Source]
) -> pl.DataFrame:
    """The rows of `query_fields` of a piece.

    kept: numbers of all kept rows of the run, ascending. read: name of the pass that read the rows.
    """
    piece, batches = cut
    first, last = batches[0].first_row, batches[-1].first_row + batches[-1].rows
    rows: U32 = kept[np.searchsorted(kept, first) : np.searchsorted(kept, last)]
    texts = [
        text
        for batch in batches
        for text in work.read(f"{read}-{batch.name}", ["row", "text"]).filter(pl.col("row").is_in(pl.Series(rows).implode()))["text"]
    ]
    found = read_fields(piece, (rows - np.uint32(first)).tolist())
    fields = [json.dumps(with_value(row, piece.keys, text), ensure_ascii=False) for row, text in zip(found, texts, strict=True)]
    return pl.DataFrame({"query_id": query_ids(pl.Series(rows), files), "fields": pl.Series(fields, dtype=pl.String)}).with_columns(
        run=pl.lit(run)
    )

"""Places for all rows of a map: texts -> vectors -> places, a Parquet file.

Memory is bounded: vectors are fitted on a sample, and rows pass in batches. Standard output has a line of progress at a time.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from contextlib import closing
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.spatial import cKDTree

from flows.viewer.map.map_layout import BLANK, MOST_LANDMARKS, Layout, Placer, lay_out
from flows.viewer.map.map_rows import RowKind
from flows.viewer.map.text_vectors import TextVectors, fit_text_vectors
from storage.files import replace_atomically
from storage.store import Store

MOST_DRAWN = 1_000_000
"""Points that a page draws; of more rows, a random sample of about this size."""
_SAMPLE = 30_000
_BATCH = 20_000
_MEMORY_LIMIT = "128MB"
_WORD = re.compile(r"[a-z\u00c0-\u024f]{3,}|[\u4e00-\u9fff]{2}")
_NAMING_WORDS = 3
_SEED = 7


def write_places(store: Store, kind: RowKind, target: Path) -> None:
    """Writes key, place, region, and whether it is drawn of each row, as a Parquet file that appears whole or not at all."""
    with closing(store.connect()) as connection:
        connection.execute(f"SET memory_limit = '{_MEMORY_LIMIT}'")
        connection.execute("SET threads = 1")
        replace_atomically(target, lambda draft: _place_rows(connection, kind, draft))


def _place_rows(connection: duckdb.DuckDBPyConnection, kind: RowKind, draft: Path) -> None:
    _tell(f"learning the words of a sample of the {kind.noun}")
    sample = connection.sql(f"SELECT said FROM ({kind.texts_sql}) ORDER BY hash(key) LIMIT {_SAMPLE}").to_arrow_table()["said"]
    said = pl.Series(sample).fill_null("")
    vectors = fit_text_vectors(said.to_arrow())
    _tell("laying out the landmarks")
    layout, landmarks = _landmarks(said, vectors)
    ((total,),) = connection.execute(f"SELECT count(*) FROM ({kind.texts_sql})").fetchall()
    schema = pa.schema(
        [("key", pa.uint64()), ("x", pa.float32()), ("y", pa.float32()), ("region", pa.uint8()), ("drawn", pa.bool_())],
        metadata={"regions": json.dumps(_describe_regions(layout, landmarks))},
    )
    placer, rng, done = Placer(layout), np.random.default_rng(_SEED), 0
    with pq.ParquetWriter(draft, schema) as writer:
        for batch in connection.sql(f"SELECT key, said FROM ({kind.texts_sql})").to_arrow_reader(_BATCH):
            found, regions = placer.place(vectors.of(batch["said"]))
            drawn = rng.random(len(batch)) < MOST_DRAWN / max(total, 1)
            writer.write_table(pa.table([batch["key"], found[:, 0], found[:, 1], regions, drawn], schema=schema))
            done += len(batch)
            _tell(f"placing the {kind.noun}: {done:,} of {total:,}")


def _tell(line: str) -> None:
    print(line, flush=True)


def _landmarks(said: pl.Series, vectors: TextVectors) -> tuple[Layout, pl.Series]:
    """Different texts, with the layout of them."""
    distinct = said.unique(maintain_order=True).head(MOST_LANDMARKS)
    found = vectors.of(distinct.to_arrow())
    is_filled = np.asarray(found.any(axis=1))
    if not is_filled.any():
        is_filled[:1] = True
    return lay_out(found[is_filled]), distinct.filter(pl.Series(is_filled))


def _describe_regions(layout: Layout, texts: pl.Series) -> list[dict[str, object]]:
    """Name and centre of each region; a name is the words that are in more of its landmarks' texts than elsewhere."""
    _, nearest = cKDTree(layout.regions).query(layout.places)
    words = [set(_WORD.findall(text.lower())) for text in texts.to_list()]
    everywhere = Counter(word for found in words for word in found)
    regions = []
    for region, (x, y) in enumerate(layout.regions.tolist()):
        here = Counter(word for at in np.flatnonzero(nearest == region) for word in words[at])
        size = max(1, int((nearest == region).sum()))
        scores = {word: count / size * math.log(count / size * len(words) / everywhere[word]) for word, count in here.items()}
        best = sorted(scores, key=lambda word: (-scores[word], word))[:_NAMING_WORDS]
        regions.append({"name": ", ".join(best) or f"region {region + 1}", "x": x, "y": y})
    return [*regions, {"name": "no frequent word", "x": BLANK[0], "y": BLANK[1]}]

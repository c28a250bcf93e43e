"""Samples queries of a store or of files to evolve a taxonomy on, without duplicates and without texts that are no requests.

The sample is the texts with the smallest keyed hashes, so it depends on the seed and the texts, not on their order or the number of files.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl
import polars_hash  # noqa: F401  (registers `nchash`)

from filters import ingest, normalised_text
from filters.ingest import IngestConfig
from filters.step import alive
from filters.steps import rules
from filters.steps.rules import RulesConfig
from storage.errors import BadInput
from storage.store import Store


def sample_store(store: Store, rows: int, seed: int) -> list[str]:
    """Up to `rows` normalised texts of queries that the near step of any run left, in a drawn order.

    Raises:
        BadInput: the store holds no queries.
    """
    texts = store.query(
        """SELECT DISTINCT q.text FROM queries q JOIN verdicts v USING (query_id, run) JOIN funnel f ON f.run = v.run AND f.step = v.step
           JOIN funnel n ON n.run = v.run AND n.step = 'near' WHERE f.position > n.position AND q.text IS NOT NULL
           ORDER BY md5(concat(?, q.text)), q.text LIMIT ?""",
        [f"{seed}:", 2 * rows],
    )
    if not texts.height:
        raise BadInput(f"{store.root} holds no queries yet; curate some first, or name files of queries")
    return _requests(texts["text"]).unique("norm", maintain_order=True).head(rows)["norm"].to_list()


def sample_files(files: Sequence[str | Path], config: IngestConfig, rows: int, seed: int) -> list[str]:
    """Up to `rows` distinct normalised texts of query files, in a drawn order; files are read batch by batch.

    Raises:
        BadInput: see `ingest.inspect`; or no row is a request.
    """
    smallest = pl.DataFrame(schema={"norm": pl.String})
    for source in ingest.inspect(files, config):
        for piece in source.pieces:
            for texts in ingest.read_piece(piece):
                smallest = _smallest(pl.concat([smallest, _requests(texts)]), rows, seed)
    if not smallest.height:
        raise BadInput(f"{files[0]}: no row is a request in English or Chinese; is it the right column (--column)?")
    return smallest["norm"].to_list()


def _requests(texts: pl.Series) -> pl.DataFrame:
    """norm of the rows that pass the rules."""
    rows = pl.DataFrame({"text": texts}).with_row_index("row")
    normalised = alive(normalised_text.step(rows))
    return alive(rules.step(normalised, RulesConfig())).select("norm")


def _smallest(texts: pl.DataFrame, rows: int, seed: int) -> pl.DataFrame:
    """The distinct rows with the smallest keyed hashes."""
    keyed = pl.concat_str(pl.lit(f"{seed}:"), "norm").nchash.xxh3_64()  # type: ignore[attr-defined]
    return texts.unique("norm").with_columns(key=keyed).sort("key", "norm").head(rows).drop("key")

"""The steps that label rows with a leaf of the taxonomy (`filters/taxonomy/label.py`): `taxonomy` labels every row, and
`taxonomy_by_vectors` later labels rows without a frame by their vectors. Nothing is dropped."""

from __future__ import annotations

import polars as pl

from filters import taxonomy
from filters.step import BatchStep, Context, Setup, WholeStep
from filters.steps.selection.encode import vectors_of
from filters.taxonomy.tree import Tree
from filters.taxonomy.versions import newest
from synth.engines.encoder import Encode, encoder


def _tree(setup: Setup) -> Tree:
    return newest(setup.store).tree


def _tree_and_encoder(setup: Setup) -> tuple[Tree, Encode]:
    return _tree(setup), encoder(setup.config.encoder)


def by_vectors(rows: pl.DataFrame, inputs: tuple[Tree, Encode], _: Context) -> pl.DataFrame:
    """The leaf of rows without a frame, by their vectors."""
    nothing = pl.lit(None, pl.String)
    if rows["frame_id"].null_count() == 0:
        return rows.with_columns(reason=nothing)
    return taxonomy.by_vectors(rows, vectors_of(rows), *inputs).with_columns(reason=nothing)


STEP = BatchStep(
    name="taxonomy",
    needs=("norm", "language", "world", "intent"),
    adds=("leaf",),
    load=_tree,
    made_by=lambda tree: (tree.id,),
    function=taxonomy.step,
)
BY_VECTORS = WholeStep(
    name="taxonomy_by_vectors",
    needs=("norm", "world", "intent", "frame_id", "leaf", "vector"),
    adds=("leaf",),
    load=_tree_and_encoder,
    function=by_vectors,
    is_counted=False,
)

"""Labels rows with a leaf of the tree, for counts and reports (table `frames`). Nothing is dropped.

A grounded row has the leaf of its intent. A row without a frame (kept only with `ungrounded`) gets the most likely leaf by its cues and the
kinds of its values, or `other` (`step`); later, its label is that of the scripted annotator, by its vector (`by_vectors`). So new topics
appear in an `other`.

Rows that grounding dropped get no label, and no row gets a second leaf.
"""

from __future__ import annotations

from functools import lru_cache

import polars as pl

from filters.grounding.ground import nearest_leaves
from filters.lexicon_worlds import lexicon_worlds
from filters.taxonomy.annotate import Scripted
from filters.taxonomy.built_in import built_in
from filters.taxonomy.salient_terms import Corpus
from filters.taxonomy.tree import OTHER, Tree
from synth.engines.encoder import Encode, Vectors
from synth.worlds import WITH_LEXICON, WORLDS

_AT_ONCE = 4096
"""Rows that are compared with all leaves at a time."""


def step(rows: pl.DataFrame, tree: Tree | None = None) -> pl.DataFrame:
    """The batch step (columns norm, language, world, intent): adds leaf (dotted, or `other`). tree: the built-in one by default."""
    tree = tree or built_in()
    labelled = _with_own_leaves(rows.with_columns(leaf=_of_intent(tree)))
    strange = rows["intent"].is_null().arg_true()
    about = pl.Series([leaf or OTHER for leaf in nearest_leaves(rows[strange], tree.leaf_of_intent, lexicon_worlds())], dtype=pl.String)
    return labelled.with_columns(leaf=labelled["leaf"].scatter(strange, about), reason=pl.lit(None, pl.String))


def _with_own_leaves(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows; a row of a world without a lexicon, which a tree need not know, has the leaf that its world declares."""
    is_strange = (pl.col("leaf") == OTHER) & pl.col("intent").is_not_null() & ~pl.col("world").is_in(WITH_LEXICON)
    strange = rows.filter(is_strange).select("world", "intent").unique()
    if strange.is_empty():
        return rows
    leaves = {f"{world}/{intent}": WORLDS[world].intents[intent].leaf for world, intent in strange.iter_rows()}
    own = pl.concat_str("world", "intent", separator="/").replace_strict(leaves, default=None, return_dtype=pl.String)
    return rows.with_columns(leaf=pl.coalesce(own, "leaf"))


def by_vectors(rows: pl.DataFrame, vectors: Vectors, tree: Tree, encode: Encode) -> pl.DataFrame:
    """The rows with leaf (id of a leaf, or `<node>.other`, or `other`) and leaf_confidence (Float64, 0..1; 1 for grounded rows).

    Args:
        rows: columns norm, world, intent. vectors: unit rows [n, d] of norm. encode: what made them; it encodes the tree's examples.
    """
    annotator, strange = _annotator(tree, encode), rows["intent"].is_null().arg_true()
    leaf = _with_own_leaves(rows.with_columns(leaf=_of_intent(tree)))["leaf"]
    confidence = pl.select(pl.repeat(1.0, rows.height)).to_series()
    for places in (strange.slice(start, _AT_ONCE) for start in range(0, len(strange), _AT_ONCE)):
        labels, sure = annotator.classify(rows["norm"].gather(places).to_list(), vectors[places.to_numpy()], tree)
        leaf, confidence = leaf.scatter(places, pl.Series(labels, dtype=pl.String)), confidence.scatter(places, pl.Series(sure))
    return rows.with_columns(leaf=leaf, leaf_confidence=confidence)


@lru_cache(maxsize=1)
def _annotator(_: Tree, encode: Encode) -> Scripted:
    """The annotator of one tree, which keeps the tree's prototypes for the next rows."""
    return Scripted(encode, Corpus(()))


def _of_intent(tree: Tree) -> pl.Expr:
    """A grounded row's leaf; `other` where the tree has no leaf for its intent."""
    return pl.concat_str("world", "intent", separator="/").replace_strict(tree.leaf_of_intent, default=OTHER, return_dtype=pl.String)

"""What a query is about: a leaf of the tree, for counts and reports (table `frames`). Nothing is dropped for it.

A grounded row has its intent's leaf. One that no world can execute (it is here only where the funnel keeps such rows) needs no complete
request: it has the leaf for which its cues and the kinds of its values speak most, and `other` where none does, so that what is new
shows up there.

What it does not do: label what grounding has dropped, or give a second leaf or the constraints a text states.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from filters import lexicon, parser
from filters.intents import nearest
from filters.symbols import read
from filters.taxonomy.built_in import built_in
from filters.taxonomy.tree import OTHER, Tree


def step(rows: pl.DataFrame, tree: Tree | None = None) -> pl.DataFrame:
    """The batch step (columns norm, language, world, intent): adds leaf (dotted, or `other`). tree: the built-in one by default."""
    leaf_of = (tree or built_in()).leaf_of_intent
    intent = pl.concat_str("world", "intent", separator="/")
    labelled = rows.with_columns(leaf=intent.replace_strict(leaf_of, default=OTHER, return_dtype=pl.String))
    strange = rows["intent"].is_null().arg_true()
    about = pl.Series([leaf or OTHER for leaf in by_rules(rows[strange], leaf_of)], dtype=pl.String)
    return labelled.with_columns(leaf=labelled["leaf"].scatter(strange, about), reason=pl.lit(None, pl.String))


def by_rules(rows: pl.DataFrame, leaf_of: dict[str, str]) -> list[str | None]:
    """What each row (columns norm, language) is about by its symbols alone; None where too little speaks for any leaf."""
    signatures, which = read(rows).signatures()
    classes = lexicon.lexicon().classes
    about = [nearest(parser.classes_of(np.frombuffer(one, np.uint16).tolist(), classes), leaf_of) for one in signatures]
    return [about[number] for number in which]

"""What a query is about: a leaf of the taxonomy, for counts and reports (table `frames`). Nothing is dropped for it.

The tree is read from the worlds' intents (the city's: 5 top classes, 16 groups, 30 leaves after STAgent, 2512.24957; the shop adds its
own). A grounded row has its intent's leaf. One that no world can execute (it is here only where the funnel keeps such rows) needs no
complete request: it has the leaf for which its cues and the kinds of its values speak most, and `other` where none does, so that what
is new shows up there.

What it does not do: label what grounding has dropped, or give a second leaf or the constraints a text states.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from filters import lexicon, parser
from filters.intents import nearest
from filters.symbols import read
from synth.worlds import GROUNDED, WORLDS

OTHER = "other"


def step(rows: pl.DataFrame) -> pl.DataFrame:
    """The batch step (columns norm, language, world, intent): adds leaf (dotted, or `other`)."""
    leaves = [(world, name, intent.leaf) for world in GROUNDED for name, intent in WORLDS[world].intents.items()]
    table = pl.DataFrame(leaves, schema={"world": pl.String, "intent": pl.String, "leaf": pl.String}, orient="row")
    labelled = rows.join(table, on=["world", "intent"], how="left", maintain_order="left")
    strange = labelled["leaf"].is_null().arg_true()
    about = pl.Series(_nearest(rows[strange]), dtype=pl.String)
    return labelled.with_columns(leaf=labelled["leaf"].scatter(strange, about), reason=pl.lit(None, pl.String))


def _nearest(rows: pl.DataFrame) -> list[str]:
    """What each row is about, by its symbols alone."""
    signatures, which = read(rows).signatures()
    classes = lexicon.lexicon().classes
    about = [nearest(parser.classes_of(np.frombuffer(one, np.uint16).tolist(), classes)) or OTHER for one in signatures]
    return [about[number] for number in which]

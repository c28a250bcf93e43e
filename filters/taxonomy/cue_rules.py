"""What a text is about by the grounding rules of the worlds' intents alone, its request complete or not."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from filters.grounding import lexicon, parser
from filters.grounding.intent_index import nearest
from filters.grounding.tagger import read


def by_rules(rows: pl.DataFrame, leaf_of: Mapping[str, str]) -> list[str | None]:
    """The leaf for which a row's cues and the kinds of its values speak most; None where too little speaks for any.

    Args:
        rows: columns norm, language. leaf_of: `world/intent` -> leaf; other intents do not count.
    """
    signatures, signature_of_row = read(rows).signatures()
    classes = lexicon.lexicon().classes
    about = [nearest(parser.classes_of(np.frombuffer(one, np.uint16).tolist(), classes), leaf_of) for one in signatures]
    return [about[number] for number in signature_of_row]

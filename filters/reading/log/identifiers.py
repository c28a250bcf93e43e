"""Identifiers as the users of a log write them: `#803`, `ord-5512`; learned from the log, beside those that a world has itself.

One idea: an identifier is a sign or a few letters with a number, and in a log the same letters stand before many different numbers. So do
units and currencies, which are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import polars as pl

from filters.reading.english_words import words

_TOKEN = r"(?:^|[^0-9a-z#])(#|(?:#?[a-z]{1,6}[-_/]?))([0-9]{2,12})(?:$|[^0-9a-z.,:%])"
LEAST_NUMBERS, LEAST_SHARE = 20, 0.0005
"""Different numbers behind the same letters that make these an identifier: so many, and so large a share of the rows."""
_DIGITS = range(1, 9)
"""Digits that identifiers of a world may have."""
SCHEMA = {"pattern": pl.String, "example": pl.String, "numbers": pl.Int64}


def learn_identifiers(rows: Iterable[pl.DataFrame], known: Sequence[str]) -> pl.DataFrame:
    """The forms of identifiers of a log: columns pattern (a regular expression), example, numbers (different ones).

    rows: norm, ungrounded (null: has a frame), in pieces. known: patterns of identifiers of the worlds and of the user's own.
    """
    found, total = pl.DataFrame(schema={"letters": pl.String, "number": pl.String}), 0
    for piece in rows:
        texts = piece.filter(pl.col("ungrounded").is_not_null())["norm"]
        total += len(texts)
        groups = texts.str.extract_groups(_TOKEN).struct
        fresh = pl.DataFrame({"letters": groups.field("1"), "number": groups.field("2")}).drop_nulls()
        is_unit = pl.col("letters").str.strip_chars("-_/#").is_in(words("no_identifiers"))
        found = pl.concat([found, fresh.filter(~is_unit)]).unique()
    least = max(LEAST_NUMBERS, LEAST_SHARE * total)
    counted = found.group_by("letters").agg(numbers=pl.len().cast(pl.Int64), number=pl.col("number").min())
    counted = counted.filter(pl.col("numbers") >= least).sort("numbers", "letters", descending=[True, False])
    forms = [re.compile(pattern, re.IGNORECASE) for pattern in known]
    learned = [
        {"pattern": f"{re.escape(letters)}[0-9]+", "example": letters + number, "numbers": numbers}
        for letters, number, numbers in counted.select("letters", "number", "numbers").iter_rows()
        if not any(form.fullmatch(letters + "1" * digits) for form in forms for digits in _DIGITS)
    ]
    return pl.DataFrame(learned, schema=SCHEMA)

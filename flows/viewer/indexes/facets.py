"""Facets: how many rows there are of every value of a column, whatever was chosen in that column, from one count over all columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

MOST_VALUES = 40


@dataclass(frozen=True)
class Facet:
    """The most frequent values of a column with their numbers of rows, the one that was chosen among them. more: values left out."""

    values: list[tuple[str, int]]
    more: int


def count_facets(cube: pl.DataFrame, columns: Sequence[str], chosen: Mapping[str, str]) -> tuple[int, dict[str, Facet]]:
    """Rows that fit all that was chosen, and the facet of each column.

    cube: rows by every combination of values. Columns: `columns`, and n, the number of rows.
    """
    facets = {}
    for column in columns:
        fits = [pl.col(other) == value for other, value in chosen.items() if other != column]
        counts = (
            cube.filter(pl.col(column).is_not_null(), *fits)
            .group_by(column)
            .agg(pl.col("n").sum())
            .sort("n", column, descending=[True, False])
        )
        values = list(counts.head(MOST_VALUES).iter_rows())
        wanted = chosen.get(column)
        if wanted is not None and wanted not in [value for value, _ in values]:
            values.append((wanted, counts.filter(pl.col(column) == wanted)["n"].sum()))
        facets[column] = Facet(values, max(0, counts.height - len(values)))
    fits = [pl.col(column) == value for column, value in chosen.items()]
    return int(cube.filter(*fits)["n"].sum() if fits else cube["n"].sum()), facets

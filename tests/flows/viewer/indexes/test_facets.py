"""Facets: their counts do not depend on their own choice, and the value that was chosen is always among them."""

from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from flows.viewer.indexes.facets import MOST_VALUES, count_facets

ROWS = st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from(["x", "y"])), max_size=30)


def cube_of(rows: list[tuple[str | None, str]]) -> pl.DataFrame:
    table = pl.DataFrame(rows, schema={"one": pl.String, "two": pl.String}, orient="row")
    return table.group_by("one", "two").agg(pl.len().cast(pl.Int64).alias("n"))


@given(ROWS, st.sampled_from([{}, {"one": "a"}, {"one": "b", "two": "y"}]))
def test_counts_are_those_of_the_rows(rows: list[tuple[str | None, str]], chosen: dict[str, str]) -> None:
    count, facets = count_facets(cube_of(rows), ["one", "two"], chosen)

    fits = [(one, two) for one, two in rows if chosen.get("one", one) == one and chosen.get("two", two) == two]
    assert count == len(fits)
    for value, n in facets["one"].values:
        assert n == sum(one == value and chosen.get("two", two) == two for one, two in rows)
    assert None not in [value for value, _ in facets["one"].values]


def test_a_rare_value_that_was_chosen_keeps_its_count() -> None:
    rows = [(f"common-{number}", "x") for number in range(MOST_VALUES + 5) for _ in range(2)] + [("rare", "x")]

    count, facets = count_facets(cube_of(rows), ["one", "two"], {"one": "rare"})

    assert count == 1
    assert facets["one"].values[-1] == ("rare", 1)
    assert facets["one"].more == 5

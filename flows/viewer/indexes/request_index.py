"""An index of the raw rows of a store: one table of text, verdict and frame (`store_index.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flows.viewer.indexes.facets import Facet, count_facets
from flows.viewer.indexes.store_index import StoreIndex
from storage.store import Store

FACETS = ("run", "step", "reason", "world", "leaf", "language")
"""Columns that a search can be narrowed by."""
VERDICTS = {"kept": "kept", "dropped": "NOT kept", "none": "kept IS NULL"}
_BUILD_SQL = """CREATE TABLE built.requests AS
SELECT q.query_id, q.run, q.source, q.row, q.text, lower(q.text) AS lowered, q.language, q.occurrences, v.step, v.reason, v.kept,
  v.duplicate_of, v.similarity, f.world, f.intent, f.leaf, f.quality, f.difficulty
FROM queries q LEFT JOIN verdicts v USING (run, query_id) LEFT JOIN frames f USING (run, query_id) ORDER BY q.run, q.source, q.row"""


@dataclass(frozen=True)
class Search:
    """What is looked for. text: a part of the text, in any case; verdict: a key of `VERDICTS`, or empty; chosen: facet -> value;
    least_quality: of the frame, 0 to 1, or None."""

    text: str = ""
    verdict: str = ""
    chosen: Mapping[str, str] = field(default_factory=dict)
    least_quality: float | None = None

    def where(self, *, with_facets: bool) -> tuple[str, list[Any]]:
        """What must hold beside the text, and its parameters."""
        conditions, values = [VERDICTS.get(self.verdict, "true")], list[Any]()
        if self.least_quality is not None:
            conditions.append("quality >= ?")
            values.append(self.least_quality)
        if with_facets:
            conditions += [f'"{column}" = ?' for column in self.chosen]
            values += self.chosen.values()
        return " AND ".join(conditions), values


class RequestIndex(StoreIndex):
    """The index of all raw rows."""

    def __init__(self, store: Store, folder: Path | None = None) -> None:
        super().__init__(store, "requests", ("queries", "verdicts", "frames"), _BUILD_SQL, folder)

    def find(self, search: Search, *, first: int, count: int) -> tuple[list[dict[str, Any]], int, dict[str, Facet]]:
        """Rows in the order of their sources, the number of all that fit, and the facets."""
        listed, counted = search.where(with_facets=True), search.where(with_facets=False)
        rows, cube = self.search("requests", search.text, listed, counted, FACETS, ("kept", "quality"), first=first, count=count)
        return rows, *count_facets(cube, FACETS, search.chosen)

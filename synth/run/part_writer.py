"""The parts of a run of synthesis: found or written, kept in order, and committed together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import polars as pl

from storage.store import Part, Store, part_id


class Ledger:
    """versions: of whatever decides what a run makes; a part's id follows from them. parts: all so far, in order."""

    def __init__(self, store: Store, version: int, versions: Mapping[str, Any]) -> None:
        self.store, self._version, self._versions = store, version, dict(versions)
        self.parts: list[Part] = []
        self._uncommitted: list[Part] = []

    def id(self, table: str, inputs: Sequence[str], parameters: Mapping[str, Any]) -> str:
        """The id of a part, from what it is made from."""
        return part_id(table, inputs, {**parameters, "versions": self._versions}, self._version)

    def keep(self, *parts: Part | None) -> None:
        """Counts parts that are there to this run; None is left out."""
        written = [part for part in parts if part is not None]
        self.parts += written
        self._uncommitted += written

    def kept(self, table: str, id: str, make: Callable[[], pl.DataFrame]) -> Part:
        """The part of that id, kept: as it was found, or written with the rows that are made."""
        part = self.store.find(id) or self.store.write(table, id, make())
        self.keep(part)
        return part

    def commit(self) -> None:
        self.store.commit(self._uncommitted)
        self._uncommitted = []

    def read(self, part: Part | None) -> pl.DataFrame:
        """The rows of a part that is there."""
        assert part is not None
        return pl.read_parquet(self.store.root / part.path)

"""Store parts of a synthesis run: found or written, kept in order, and committed together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import polars as pl

from storage.parts import read_part
from storage.store import Part, Store, part_id


class PartWriter:
    """Collects the parts of a run until they are committed.

    version, versions: of the code and data that determine the run; the ids of its parts follow from them.
    parts: all parts so far, in order.
    """

    def __init__(self, store: Store, version: int, versions: Mapping[str, Any]) -> None:
        self.store, self._version, self._versions = store, version, dict(versions)
        self.parts: list[Part] = []
        self._uncommitted: list[Part] = []

    def id(self, table: str, inputs: Sequence[str], parameters: Mapping[str, Any]) -> str:
        """The id of a part. inputs: ids of the parts that it is derived from."""
        return part_id(table, inputs, {**parameters, "versions": self._versions}, self._version)

    def add(self, *parts: Part) -> None:
        """Adds existing parts to the run."""
        self.parts += parts
        self._uncommitted += parts

    def find_or_write(self, table: str, id: str, make_rows: Callable[[], pl.DataFrame]) -> Part:
        """The part with this id, added to the run; it is written if the store does not have it."""
        part = self.store.find(id) or self.store.write(table, id, make_rows())
        self.add(part)
        return part

    def commit(self) -> None:
        self.store.commit(self._uncommitted)
        self._uncommitted = []

    def read(self, part: Part) -> pl.DataFrame:
        """The rows of a part."""
        return read_part(self.store.root, part.path)

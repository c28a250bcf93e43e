"""The store that is looked at: its name, its tables, and its index of raw rows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flows.viewer.request_index import RequestIndex
from storage.errors import BadInput
from storage.store import Store


class ViewedStore:
    """A store of a folder, opened anew where it was not there before."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.name = self.root.parent.name if self.root.name == "store" else self.root.name
        self._store: Store | None = None
        self._index: RequestIndex | None = None

    @property
    def store(self) -> Store:
        """Raises BadInput: the folder holds no store, or one that this Headrace cannot read; the message says which."""
        if not (self.root / "catalog.read.duckdb").exists():
            self._store = self._index = None
            raise BadInput(f"there is no store in {self.root}: it was moved or removed, or nothing was committed to it yet")
        if self._store is None:
            self._store = Store(self.root)
        return self._store

    @property
    def index(self) -> RequestIndex:
        if self._index is None:
            self._index = RequestIndex(self.store)
        return self._index

    def row(self, sql: str, *values: Any) -> Mapping[str, Any] | None:
        return next(iter(self.store.query(sql, values).to_dicts()), None)

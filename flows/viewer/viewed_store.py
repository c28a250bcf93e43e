"""The store that is looked at: its name, its tables, its indexes, and its maps."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

from flows.viewer.indexes.conversation_index import ConversationIndex
from flows.viewer.indexes.request_index import RequestIndex
from flows.viewer.map.map_index import MapIndex
from flows.viewer.map.map_rows import KINDS
from storage.errors import BadInput
from storage.store import Store


@dataclass(frozen=True)
class _Opened:
    store: Store
    requests: RequestIndex
    conversations: ConversationIndex
    maps: dict[str, MapIndex]


class ViewedStore:
    """A store of a folder, opened anew where it was not there before. Safe to share between threads."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.name = self.root.parent.name if self.root.name == "store" else self.root.name
        self._mutex = threading.Lock()
        self._opened: _Opened | None = None

    @property
    def store(self) -> Store:
        """Raises BadInput: the folder holds no store, or one that this Headrace cannot read; the message says which."""
        return self._open().store

    @property
    def index(self) -> RequestIndex:
        """Raises BadInput as `store` does."""
        return self._open().requests

    @property
    def conversations(self) -> ConversationIndex:
        """Raises BadInput as `store` does."""
        return self._open().conversations

    @property
    def maps(self) -> dict[str, MapIndex]:
        """Kind of rows -> its map. Raises BadInput as `store` does."""
        return self._open().maps

    def _open(self) -> _Opened:
        with self._mutex:
            if not (self.root / "catalog.read.duckdb").exists():
                self._opened = None
                raise BadInput(f"there is no store in {self.root}: it was moved or removed, or nothing was committed to it yet")
            if self._opened is None:
                store = Store(self.root)
                self._opened = _Opened(
                    store, RequestIndex(store), ConversationIndex(store), {kind: MapIndex(store, kind) for kind in KINDS}
                )
            return self._opened

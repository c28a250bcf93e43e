"""The values that a world holds: records with named fields and keys, and how they hang together.

One idea: a mapping with scalar fields is a record; a mapping of records is a collection, whose keys name individuals (`orders/#W1`: a key
`order_id`). A record is near another if one holds the other, or names it by its key. Parameters take values from fields called like them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from storage.records import JSON
from synth.worlds.live.loose_json import parse_loosely

MOST_NEAR = 400
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_ID_WORDS = frozenset(("id", "ids", "uuid", "uid", "key", "code"))
_EMPTY_WORDS = frozenset(("new", "old", "target", "the", "of", "a", "to", "from", "source", "current", "existing"))
Value = str | int | float


def slot_name(text: str) -> str:
    """A name for a slot that a template can hold: a Python identifier."""
    name = re.sub(r"\W", "_", text)
    return name if name.isidentifier() else f"value_{name}"


@dataclass(eq=False)
class Record:
    """fields: scalar fields by name, lists of scalars by their singular name. key: in its collection. at: its path."""

    at: str
    key: str | None
    collection: str
    parent: Record | None
    fields: dict[str, list[Value]] = field(default_factory=lambda: defaultdict(list))
    inner: list[Record] = field(default_factory=list)

    def values(self) -> Iterator[tuple[str, Value]]:
        """(name, value) of all fields, and of the key."""
        if self.key is not None:
            yield key_name(self.collection), self.key
        for name, values in self.fields.items():
            for value in values:
                yield name, value


@dataclass
class Records:
    """All that is known so far. names: field name -> values with their records, in order of discovery."""

    names: dict[str, list[tuple[Value, Record]]] = field(default_factory=lambda: defaultdict(list))
    by_value: dict[str, list[Record]] = field(default_factory=lambda: defaultdict(list))
    by_key: dict[str, list[Record]] = field(default_factory=lambda: defaultdict(list))
    _known: set[tuple[str, str, str]] = field(default_factory=set)

    def add(self, tree: JSON, at: str = "", collection: str = "") -> None:
        """Adds a state, or a result. at: where it comes from."""
        self._add(parse_loosely(tree), at, collection, None, None)

    def add_value(self, name: str, value: Value) -> None:
        """Adds a value that no record holds, such as the path of a file."""
        record = Record(f"{name}/{value}", str(value), "", None)
        record.fields[name] = [value]
        self._index(record)

    def near(self, record: Record) -> list[Record]:
        """The record, and those that hang together with it, the nearest first."""
        found, seen = [record], {id(record)}
        for each in found:
            if len(found) > MOST_NEAR:
                break
            around = [*each.inner, *([each.parent] if each.parent is not None else [])]
            for _, value in each.values():
                around += self.by_key.get(str(value), [])
            around += self.by_value.get(each.key, [])[:8] if each.key is not None else []
            for other in around:
                if id(other) not in seen and len(found) <= MOST_NEAR:
                    seen.add(id(other))
                    found.append(other)
        return found

    def matching(self, name: str, description: str = "") -> list[tuple[float, str]]:
        """Field names that a parameter may take its values from, the likeliest first, with a score in (0, 1]."""
        scored = [(match(name, each, description), each) for each in self.names]
        return sorted(((score, each) for score, each in scored if score > 0), key=lambda pair: (-pair[0], pair[1]))

    def _add(self, tree: JSON, at: str, collection: str, key: str | None, parent: Record | None) -> None:
        if isinstance(tree, Mapping):
            is_collection = _is_collection(tree)
            record = parent if is_collection else Record(at, key, collection, parent)
            if not is_collection:
                assert record is not None
                for name, value in tree.items():
                    self._add_field(record, name, value, at)
                if parent is not None:
                    parent.inner.append(record)
                self._index(record)
            for name, value in tree.items():
                if isinstance(value, Mapping):
                    inner_collection, inner_key = (collection, name) if is_collection else (name, None)
                    self._add(value, f"{at}/{name}", inner_collection, inner_key, record)
        elif isinstance(tree, list):
            for place, each in enumerate(tree):
                if isinstance(each, Mapping):
                    self._add(each, f"{at}/{place}", collection, None, parent)

    def _add_field(self, record: Record, name: str, value: JSON, at: str) -> None:
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            record.fields[name].append(value)
        elif isinstance(value, list):
            for place, each in enumerate(value):
                if isinstance(each, str | int | float) and not isinstance(each, bool):
                    record.fields[singular(name)].append(each)
                elif isinstance(each, Mapping):
                    self._add(each, f"{at}/{name}/{place}", name, None, record)

    def _index(self, record: Record) -> None:
        if record.key is not None:
            self.by_key[record.key].append(record)
        for name, value in record.values():
            self.by_value[str(value)].append(record)
            mark = (name, str(value), record.at)
            if mark not in self._known:
                self._known.add(mark)
                self.names[name].append((value, record))


def _is_collection(tree: Mapping[str, JSON]) -> bool:
    """Whether a mapping holds records: all of its values are mappings, and one of them has a scalar field."""
    values = list(tree.values())
    return (
        bool(values)
        and all(isinstance(each, Mapping) for each in values)
        and any(not isinstance(inner, Mapping) for each in values[:20] for inner in each.values())
    )


def words_of(name: str) -> tuple[str, ...]:
    """`newItemIds` -> (new, item, id)."""
    return tuple(singular(word.lower()) for word in _WORDS.findall(name))


def singular(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("ses", "xes", "ches", "shes")):
        return word[:-2]
    if word == "ids":
        return "id"
    return word[:-1] if word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 3 else word


def key_name(collection: str) -> str:
    """What the keys of a collection are called: `orders` -> `order_id`."""
    return f"{singular(collection)}_id" if collection else "id"


def match(parameter: str, name: str, description: str = "") -> float:
    """How well a parameter's name fits a field's name: 1 for the same, 0 for none."""
    wanted, offered = words_of(parameter), words_of(name)
    if not wanted or not offered:
        return 0.0
    if wanted == offered:
        return 1.0
    core, other = _core(wanted), _core(offered)
    if core == other and core:
        return 0.8
    if offered == ("id",) and wanted[-1:] == ("id",):
        return 0.4
    if len(offered) > 1 and wanted[-len(offered) :] == offered:
        return 0.7
    if wanted[-1] == offered[-1] and wanted[-1] not in _ID_WORDS:
        return 0.6
    if description and set(offered) <= set(words_of(description)):
        return 0.3
    return 0.0


def _core(words: Sequence[str]) -> tuple[str, ...]:
    return tuple(word for word in words if word not in _ID_WORDS and word not in _EMPTY_WORDS)


def is_key_like(name: str, schema: Mapping[str, Any] | None = None) -> bool:
    """Whether a parameter names an individual: an id, a key, a code, a path, a name, an address of mail."""
    words = words_of(name)
    last = words[-1] if words else ""
    return bool(schema and schema.get("pattern")) or last in _ID_WORDS or last in ("path", "number", "name", "email", "slug", "handle")

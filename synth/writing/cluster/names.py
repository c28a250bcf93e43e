"""Names for a skeleton: tools and parameters of a catalogue as names that expressions can use, and fields with proper names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from keyword import iskeyword

from synth.worlds.declarative.language.values import check_key

LONGEST = 30
"""Characters of an entity's name, so that names of its tools and parameters stay below 40."""


def name_field(name: str, label: str = "") -> dict[str, object]:
    """A field with a proper name, any of which a request may give."""
    words = name.replace("_", " ")
    values = tuple(f"{first} {words}" for first in _FIRST_WORDS)
    return {"type": "name", "open": "true", "label": label or words, "values": values}


_FIRST_WORDS = ("Amber", "Birch", "Cedar", "Delta", "Ember", "Falcon", "Granite", "Harbor", "Indigo", "Juniper", "Kestrel", "Lunar")


def is_key(text: str) -> bool:
    try:
        check_key(text)
    except ValueError:
        return False
    return len(text) <= LONGEST


def service_word(server: str) -> str:
    """The first word of a server's key that says something."""
    return next((word for word in server.split("-") if word not in _EMPTY_WORDS), "item")


_EMPTY_WORDS = frozenset({"my", "mcp", "server", "tool", "tools", "the", "api"})


def usable_key(text: str, other: str) -> str:
    """The text as a name that expressions can use; `other` if nothing of it can be one."""
    key = re.sub(r"_+", "_", re.sub(r"[^a-z0-9_]", "", text.lower())).strip("_")[:LONGEST].strip("_")
    key = key if key[:1].isalpha() else f"n{key}" if key else other
    return key if not key or (is_key(key) and not iskeyword(key)) else f"{key}_one"


def free_name(name: str, used: Mapping[str, object] | set[str]) -> str:
    return next(each for each in _numbered(name) if each not in used)


def _numbered(name: str) -> Iterator[str]:
    yield name
    number = 2
    while True:
        yield f"{name}_{number}"
        number += 1

"""What a slot holds, by its name, its description and its possible values, where a schema does not say."""

from __future__ import annotations

import re
from collections.abc import Sequence

from filters.reading.declaration import ReadableKind, split_name

_COUNTED = re.compile(r"\bnumber of (?:days|nights|weeks|people|tickets|seats)\b|\blength of stay\b|\bin days\b")
_DAY, _DAY_OF = re.compile(r"\bdates?\b|\bday\b"), re.compile(r"\bdates?\b|\bday of\b")
_TIME = re.compile(r"\btime\b")
_MONEY = re.compile(r"\b(?:price|cost|fare|rent|amount|balance|fee|money|sum|value)\b")
_NUMBER = re.compile(r"\b(?:rating|score|number of|phone|humidity|temperature|percentage|chance|wind)\b")


def kind_of(name: str, about: str, values: Sequence[str] = ()) -> ReadableKind:
    """The kind of a slot. values: all that it may hold, if these are few."""
    words, about = split_name(name), about.lower()
    named = " ".join(words)
    if values:
        if {value.lower() for value in values} <= {"true", "false"}:
            return "flag"
        return "count" if all(value.isdigit() for value in values) else "choice"
    if _COUNTED.search(about):
        return "count"
    if _DAY.search(named) or (_DAY_OF.search(about) and "time" not in words):
        return "day"
    if "time" in words or _TIME.search(about):
        return "time"
    if _MONEY.search(f"{named} {about}") and "name" not in about:
        return "money"
    return "number" if _NUMBER.search(f"{named} {about}") and "airport" not in about else "name"

"""The form of what a spec says of its reading tools: what they are called, what they tell, how many rows they show.

One idea: an entity that says nothing has the usual tools; `tools: [get]` names some of them, and keys in their place say how each differs.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from synth.worlds.declarative.language.values import Key, Strict, Text

DEFAULT_LIMIT, MAX_LIMIT = 3, 6
"""Rows that a search shows, unless asked for more; and that it shows at most."""


class _Described(Strict):
    """What all reading tools may say.

    name: from outside.
    about: its description.
    words: with which people name outright what it does.
    """

    name: Key | None = None
    about: str | None = Field(default=None, max_length=200)
    words: tuple[Text, ...] = Field(default=(), max_length=30)


class Getting(_Described):
    """shows: the fields of a row that it shows, in this order."""

    shows: tuple[Key, ...] = ()


class Listing(Getting):
    """bare: it shows rows alone, and does not tell how many there are."""

    bare: bool = False


class Searching(Listing):
    """A search.

    needs: filters that must be given.
    sort: the order where none is asked for.
    limit: rows that it shows, unless asked for another number.
    most: rows that it shows at most.
    """

    needs: tuple[Key, ...] = ()
    sort: Key | None = None
    limit: int = Field(default=DEFAULT_LIMIT, ge=1, le=20)
    most: int = Field(default=MAX_LIMIT, ge=1, le=20)

    @model_validator(mode="after")
    def _shows_enough(self) -> Searching:
        if self.most < self.limit:
            raise ValueError("most: no less than `limit`")
        return self


class Reading(Strict):
    """The reading tools of an entity; `list` says more of the one that its owner's rows have anyway."""

    get: Getting | None = None
    search: Searching | None = None
    list: Listing | None = None

    def __contains__(self, name: str) -> bool:
        return getattr(self, name) is not None

    @property
    def is_usual(self) -> bool:
        """Whether they show what they would if nothing were said of them."""
        tools = [each.model_copy(update={"name": None, "about": None, "words": ()}) for each in (self.get, self.search, self.list) if each]
        return all(each == type(each)() for each in tools)


def as_reading(value: Any) -> Any:
    """`[get, search]` as keys."""
    if isinstance(value, (list, tuple)):
        return {str(name): {} for name in value}
    return value

"""All worlds by name. A world's module is imported when it is first asked for: the city takes a moment to load."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Annotated

from pydantic import AfterValidator, Field

from synth.worlds.base import World


class _Worlds(Mapping[str, type[World]]):
    """World classes by name, in a fixed order."""

    _names = ("city", "retail")

    def __getitem__(self, name: str) -> type[World]:
        if name == "city":
            from synth.worlds.city.world import CityWorld

            return CityWorld
        if name == "retail":
            from synth.worlds.retail.world import RetailWorld

            return RetailWorld
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


WORLDS: Mapping[str, type[World]] = _Worlds()


def _known(name: str) -> str:
    if name in WORLDS:
        return name
    nearest = difflib.get_close_matches(name.lower(), list(WORLDS), n=1, cutoff=0.5)
    hint = f"did you mean {nearest[0]!r}?" if nearest else f"there are {', '.join(WORLDS)}"
    raise ValueError(f"no world is called {name!r}; {hint}")


WorldName = Annotated[str, AfterValidator(_known), Field(json_schema_extra={"enum": list(WORLDS)})]
"""The name of a world, for configuration: pydantic refuses any other, and names the nearest."""


def make_world(name: str, seed: int) -> World:
    """A fresh world of that seed.

    Raises:
        KeyError: there is no world of that name.
    """
    return WORLDS[name](seed)

"""All worlds by name. A world's module is imported when it is first asked for: the city takes a moment to load."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

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

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


WORLDS: Mapping[str, type[World]] = _Worlds()


def make_world(name: str, seed: int) -> World:
    """A fresh world of that seed.

    Raises:
        KeyError: there is no world of that name.
    """
    return WORLDS[name](seed)

"""All worlds by name. A world's module is imported when its name is first looked up, because the import of the city is slow."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from storage.errors import BadInput
from storage.records import Given
from synth.worlds.base import NOTHING, World

WITH_LEXICON: tuple[str, ...] = ("city", "retail")
"""Worlds in which raw queries are grounded: each has a `grounding.yaml`, by which the wording of requests is read."""


@cache
def _city() -> type[World]:
    from synth.worlds.city.world import CityWorld

    return CityWorld


@cache
def _library() -> Callable[[str], type[World]]:
    from synth.worlds.declarative.library_worlds import world_of

    return world_of


class Worlds:
    """World classes by name: `WORLDS["retail"]`, `"retail" in WORLDS`."""

    def __init__(self) -> None:
        self._registered: dict[str, Callable[[], type[World]]] = {}

    def __getitem__(self, name: str) -> type[World]:
        """Raises KeyError: there is no world of that name. BadInput: its spec cannot be compiled."""
        if name in self._registered:
            return self._registered[name]()
        return _city() if name == "city" else _library()(name)

    def __contains__(self, name: object) -> bool:
        if name in WITH_LEXICON or name in self._registered:
            return True
        from synth.worlds.declarative.library_worlds import is_known

        return isinstance(name, str) and is_known(name)

    def names(self) -> tuple[str, ...]:
        """The grounded worlds, then those of the library, then registered ones. Generated worlds (`gen-17`) have valid names too, but are
        not listed."""
        from synth.worlds.declarative.library_worlds import library_specs

        return tuple(dict.fromkeys((*WITH_LEXICON, *library_specs(), *self._registered)))

    def listed(self) -> str:
        """The names, for a message: all that Headrace ships, and how many others there are."""
        names = [name for name in self.names() if name not in self._registered]
        return ", ".join(names) + (f" and {len(self._registered)} of your own" if self._registered else "")

    def register(self, world: type[World]) -> None:
        """Makes a world known in this process; one of the same name is replaced.

        Raises:
            ValueError: the name is that of a world that Headrace ships.
        """
        from synth.worlds.declarative.library_worlds import is_known

        if world.name in WITH_LEXICON or is_known(world.name):
            raise ValueError(f"a world of its own is called {world.name!r} already; give yours another name")
        self._registered[world.name] = lambda: world

    def register_later(self, name: str, compile_world: Callable[[], type[World]]) -> None:
        """Makes a world known in this process, to be compiled when it is first looked up; one of the same name is replaced."""
        self._registered[name] = cache(compile_world)

    def versions(self, domain: str) -> list[str]:
        """Names of the registered worlds of a domain: `bakery@1a2b3c4d` is one of `bakery`."""
        return [name for name in self._registered if name.startswith(f"{domain}@")]

    def forget(self, name: str) -> None:
        """Undoes `register`; does nothing if no world of this name is registered."""
        self._registered.pop(name, None)


WORLDS = Worlds()


def _check_name(name: str) -> str:
    if name in WORLDS:
        return name
    if name.endswith((".yaml", ".yml")):
        return _of_file(Path(name))
    if versions := WORLDS.versions(name):
        if len(versions) > 1:
            raise ValueError(f"{name!r} has several versions here; name one of {', '.join(versions)}")
        return versions[0]
    nearest = difflib.get_close_matches(name.lower(), WORLDS.names(), n=1, cutoff=0.5)
    hint = f"did you mean {nearest[0]!r}?" if nearest else f"there are {WORLDS.listed()}"
    raise ValueError(f"no world is called {name!r}; {hint}")


def _of_file(path: Path) -> str:
    """The name of the world that a spec file gives, registered."""
    from synth.worlds.declarative.compile import compile_file
    from synth.worlds.live.live_files import is_live_file, live_world_of_file

    try:
        world: type[World] = live_world_of_file(path) if is_live_file(path) else compile_file(path)
    except BadInput as error:
        raise ValueError(str(error)) from None
    WORLDS.register(world)
    return world.name


WorldName = Annotated[str, AfterValidator(_check_name), Field(json_schema_extra={"examples": list(WITH_LEXICON)})]
"""A world, for configuration: its name, or a domain spec's file, for which the name of its world stands then. A registered world of the
user's own may be named by its domain alone. pydantic refuses any other, and names the nearest."""


MOST_GENERATED = 5_000
"""Generated worlds of one range."""
_RANGE = re.compile(r"gen-(0|[1-9]\d{0,8})\.\.(0|[1-9]\d{0,8})")


def _known_or_range(name: str) -> str:
    match = _RANGE.fullmatch(name)
    if match is None:
        return _check_name(name)
    if not 0 <= int(match[2]) - int(match[1]) < MOST_GENERATED:
        raise ValueError(f"{name!r} is no range of 1 to {MOST_GENERATED:,} generated worlds; write it as gen-1..100")
    return name


WorldRange = Annotated[str, AfterValidator(_known_or_range), Field(json_schema_extra={"examples": [*WITH_LEXICON, "gen-1..100"]})]
"""A `WorldName`, or a range of generated worlds: `gen-1..100`, both ends included."""


def names_in(ranges: Iterable[str]) -> tuple[str, ...]:
    """The names of all worlds of some `WorldRange`s, each once, in order."""
    names: list[str] = []
    for each in ranges:
        match = _RANGE.fullmatch(each)
        names += [each] if match is None else [f"gen-{number}" for number in range(int(match[1]), int(match[2]) + 1)]
    return tuple(dict.fromkeys(names))


def admitted_names(ranges: Iterable[str]) -> tuple[str, ...]:
    """`names_in` without the generated worlds of ranges that are not admitted: not every seed gives a usable domain."""
    ranges = tuple(ranges)
    return tuple(name for name in names_in(ranges) if name in ranges or _is_admitted(name))


def _is_admitted(name: str) -> bool:
    try:
        WORLDS[name]
    except BadInput:
        return False
    return True


def make_world(name: str, seed: int, given: Given = NOTHING) -> World:
    """A fresh world of that seed. given: as `World`.

    Raises:
        KeyError: there is no world of that name.
    """
    return WORLDS[name](seed, given)

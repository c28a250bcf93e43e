"""Finds spec worlds by name: shipped specs (`library/*.yaml`; a folder of the same name holds handwritten wording and lexicon) and
generated ones (`gen-17`).

Both are compiled on first use. The caller registers specs from other files (`WORLDS.register`).
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path

from synth.worlds.declarative.compile import CACHED, compile_file, compile_spec
from synth.worlds.declarative.compiled_world import SpecWorld
from synth.worlds.declarative.generate import generate

_GENERATED = re.compile(r"gen-(0|[1-9]\d{0,8})")


@cache
def library_specs() -> dict[str, Path]:
    """The specs that come with Headrace, by domain."""
    folder = Path(str(files("synth.worlds"))) / "library"
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def is_known(name: str) -> bool:
    """Whether `world_of` finds it."""
    return name in library_specs() or _GENERATED.fullmatch(name) is not None


@lru_cache(maxsize=CACHED)
def world_of(name: str) -> type[SpecWorld]:
    """The world of a shipped or generated spec.

    Raises:
        KeyError: there is none of that name.
    """
    path = library_specs().get(name)
    if path is not None:
        files = path.with_suffix("")
        return compile_file(path, name=path.stem, files=files if files.is_dir() else None)
    match = _GENERATED.fullmatch(name)
    if match is None:
        raise KeyError(name)
    return compile_spec(generate(int(match.group(1))), name=name)

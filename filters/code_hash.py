"""A hash of source code, for ids of results that depend on it."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent


@cache
def code_hash(*rooms: str, root: Path = ROOT) -> str:
    """Hash of all Python and YAML files in these rooms (`filters`, `synth` ...) and their names; 16 hexadecimal digits.

    It covers whole rooms, so that no import is missed: a harmless change repeats a run, but no run is stale.
    """
    digest = hashlib.sha256()
    for path in sorted(path for room in rooms for ending in ("py", "yaml") for path in (root / room).rglob(f"*.{ending}")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]

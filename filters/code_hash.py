"""A hash of source code, for ids of results that depend on it."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent


@cache
def code_hash(*rooms: str, root: Path = ROOT) -> str:
    """Of all Python sources and YAML files in these rooms (`filters`, `synth` ...), their names included; 16 hexadecimal digits.

    Whole rooms, so that no import can be forgotten: a change that changes no result costs a run that is done again, never a stale one.
    """
    digest = hashlib.sha256()
    for path in sorted(path for room in rooms for ending in ("py", "yaml") for path in (root / room).rglob(f"*.{ending}")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]

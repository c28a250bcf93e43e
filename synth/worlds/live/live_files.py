"""Live worlds from their files, and from the rows of a store."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from storage.errors import BadInput
from storage.records import JSON
from synth.worlds.live.copies.live_server import start_contents
from synth.worlds.live.copies.private_folder import Contents
from synth.worlds.live.live_spec import LiveSpec, parse_live_spec, read_live_spec
from synth.worlds.live.live_world import LiveWorld, make_live_world
from synth.worlds.live.lock import Lock, read_lock

TRUST = "HEADRACE_TRUST_STORES"
"""Environment variable that lets worlds of a store run unboxed, with the network, or with secrets."""


def is_live_file(path: Path) -> bool:
    """Whether a YAML file is a live world's: one of its lines begins with `live:`."""
    try:
        return any(line.startswith("live:") for line in path.read_text(encoding="utf-8", errors="replace").splitlines())
    except OSError:
        return False


def resolved_spec(path: Path) -> LiveSpec:
    """The spec of a file, with its paths made absolute. Raises BadInput."""
    spec = read_live_spec(path)
    changed: dict[str, object] = {}
    if spec.folder is not None:
        changed["folder"] = str((path.parent / spec.folder).resolve())
    if spec.openapi is not None:
        changed["openapi"] = spec.openapi.model_copy(update={"file": str((path.parent / spec.openapi.file).resolve())})
    return spec.model_copy(update=changed) if changed else spec


def live_world_of_file(path: Path) -> type[LiveWorld]:
    """The world of a spec file and its lock.

    Raises:
        BadInput: one of them is missing or broken, or the spec or its folder has changed since it was measured.
    """
    spec = resolved_spec(path)
    lock = read_lock(path, spec)
    check_folder(spec, lock, str(path))
    return make_live_world(spec, lock)


def live_world_of_source(source: Mapping[str, JSON], where: str) -> type[LiveWorld]:
    """The world of what a store holds. Raises BadInput: it cannot be read, or its folder is gone or has changed."""
    spec = parse_live_spec(source["live"], where)
    try:
        lock = Lock.model_validate(source["lock"])
    except ValidationError as error:
        raise BadInput(f"{where}: its measurement cannot be read ({str(error.errors()[0]['msg'])[:80]})") from None
    _check_trust(spec, where)
    check_folder(spec, lock, where)
    return make_live_world(spec, lock)


def _check_trust(spec: LiveSpec, where: str) -> None:
    """Raises BadInput where a store's world would run unboxed, with the network or with secrets, and the user has not allowed it."""
    wishes = {"isolation: none": spec.isolation == "none", "network": spec.network, "secrets": bool(spec.secrets)}
    asks = [name for name, is_asked in wishes.items() if is_asked]
    if asks and not os.environ.get(TRUST):
        raise BadInput(f"{where} wants {', '.join(asks)}; set {TRUST}=1 if you trust who made the store")


def check_folder(spec: LiveSpec, lock: Lock, where: str) -> None:
    """Raises BadInput where the start folder is not the one that was measured."""
    if spec.folder is not None and folder_digest(start_contents(spec)) != lock.folder:
        raise BadInput(f"{where}: {spec.folder} has changed since it was measured; run: headrace worlds connect file {where}")


def folder_digest(contents: Contents) -> str:
    """A hash of names and contents; empty for nothing."""
    if not contents:
        return ""
    digest = hashlib.sha256()
    for path, entry in sorted(contents.items()):
        digest.update(f"{path}\0{entry.link}\0".encode() + hashlib.sha256(entry.data or b"").digest())
    return digest.hexdigest()[:16]

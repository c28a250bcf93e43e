"""Live worlds from their files, and from the rows of a store."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import yaml
from pydantic import ValidationError

from storage.errors import BadInput
from storage.records import JSON, canonical_json
from synth.worlds.live.copies.live_server import start_contents
from synth.worlds.live.copies.private_folder import Contents
from synth.worlds.live.live_spec import LiveSpec, dump_live_spec, parse_live_spec, read_live_spec
from synth.worlds.live.live_world import LiveWorld, make_live_world
from synth.worlds.live.lock import Lock, read_lock
from synth.worlds.live.openapi import read_operations

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


def updated_text(path: Path | None, measured: LiveSpec) -> str:
    """The YAML text of a spec after its measurement.

    path: its file before, to whose text new keys are added, so that comments stay; for None, or where a key of it has another value now,
    the text is made anew.
    """
    whole = dump_live_spec(measured)
    if path is None:
        return whole
    before = dump_live_spec(resolved_spec(path))
    old, new = yaml.safe_load(before), yaml.safe_load(whole)
    if any(new.get(key) != value for key, value in old.items()):
        return whole
    added = {key: value for key, value in new.items() if key not in old}
    text = path.read_text(encoding="utf-8")
    if set(added) & set(yaml.safe_load(text)):
        return whole
    return text if not added else f"{text.rstrip()}\n{yaml.safe_dump(added, sort_keys=False, allow_unicode=True, width=120)}"


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
    """Raises BadInput where a store's world would run unboxed or elsewhere, with the network or with secrets, unless the user allows it."""
    wishes = {
        "isolation: none": spec.isolation == "none",
        "network": spec.network,
        "secrets": bool(spec.secrets),
        "a server elsewhere": spec.is_elsewhere,
    }
    asks = [name for name, is_asked in wishes.items() if is_asked]
    if asks and not os.environ.get(TRUST):
        raise BadInput(f"{where} wants {', '.join(asks)}; set {TRUST}=1 if you trust who made the store")


def check_folder(spec: LiveSpec, lock: Lock, where: str) -> None:
    """Raises BadInput where the start folder, or the description of the API, is not the one that was measured."""
    if start_digest(spec) != lock.folder:
        changed = spec.folder if spec.openapi is None else spec.openapi.file if spec.folder is None else "its folder or description"
        raise BadInput(f"{where}: {changed} has changed since it was measured; run: headrace worlds connect file {where}")


def start_digest(spec: LiveSpec) -> str:
    """A hash of what a world starts from: its folder, and the description of its API; empty where it has neither."""
    digest = folder_digest(start_contents(spec))
    if spec.openapi is None:
        return digest
    operations = canonical_json(read_operations(Path(spec.openapi.file)))
    return hashlib.sha256(f"{digest}\0{operations}".encode()).hexdigest()[:16]


def folder_digest(contents: Contents) -> str:
    """A hash of names and contents; empty for nothing."""
    if not contents:
        return ""
    digest = hashlib.sha256()
    for path, entry in sorted(contents.items()):
        digest.update(f"{path}\0{entry.link}\0".encode() + hashlib.sha256(entry.data or b"").digest())
    return digest.hexdigest()[:16]

"""Finds what a store can do without, and removes it: old checkpoints, models that were not promoted, left-overs of killed runs.

One idea: rows stay. Only what is made again, or is of no use any more, goes; a policy whose model is removed keeps its row, its draws and
its figures, and a note in its stage's folder says that it was pruned.
"""

from __future__ import annotations

import json
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from storage.files import replace_atomically
from storage.health.repair import ASIDE
from storage.health.weights import PRUNED
from storage.store import Store

_DAY_S = 86_400.0


@dataclass(frozen=True)
class Prunable:
    """A file or folder that can go. what: in words. age_s: since its last change."""

    path: Path
    what: str
    size_bytes: int
    age_s: float


def find_prunable(store: Store, *, older_than_s: float = 7 * _DAY_S, keep_bytes: int | None = None) -> list[Prunable]:
    """What can go, oldest first. No flow may be at work.

    older_than_s: least age of models and of what a repair set aside; left-overs of killed runs are a day old or more.
    keep_bytes: most bytes that models may have together; the oldest beyond it go whatever their age. None: no limit.
    """
    found = [*_left_overs(store, older_than_s), *_uncommitted(store)]
    models = _unpromoted(store)
    total = sum(size_of(path) for path in store.root.glob("models/*/model"))
    for one in models:
        if one.age_s >= older_than_s or (keep_bytes is not None and total > keep_bytes):
            found.append(one)
            total -= one.size_bytes
    aside = (_prunable(path, "set aside by a repair") for path in store.root.glob(f"{ASIDE}/*"))
    found += [one for one in aside if one.age_s >= older_than_s]
    return sorted(found, key=lambda one: -one.age_s)


def prune(store: Store, found: list[Prunable]) -> int:
    """Removes these; how many bytes that frees."""
    for one in found:
        if one.path.name == "model":
            replace_atomically(one.path.parent / PRUNED, partial(_write_note, one))
        if one.path.is_dir():
            shutil.rmtree(one.path)
        else:
            one.path.unlink(missing_ok=True)
    return sum(one.size_bytes for one in found)


def _write_note(one: Prunable, draft: Path) -> None:
    draft.write_text(json.dumps({"pruned": int(time.time()), "bytes": one.size_bytes}))


def _left_overs(store: Store, older_than_s: float) -> list[Prunable]:
    """Intermediate rows, checkpoints of finished stages, folders of stages that were never finished, and temporary files."""
    root, of_policies = store.root, {Path(path).parent.name for path in store.query("SELECT path FROM policies")["path"]}
    found = [_prunable(path, "intermediate rows of a killed run") for path in root.glob("lake/_work/*")]
    found += [_prunable(path, "a temporary file") for path in root.rglob(".tmp-*")]
    unfinished = []
    for stage in root.glob("models/*/"):
        is_done = (stage / "result.json").exists() or stage.name in of_policies
        if is_done and (stage / "checkpoints").is_dir():
            found.append(_prunable(stage / "checkpoints", "checkpoints of a finished stage"))
        elif not is_done and not (stage / "job.json").exists():  # a job may go on in its cluster
            unfinished.append(_prunable(stage, "a stage that was not finished"))
    least_s = max(older_than_s, _DAY_S)
    return [*(one for one in found if one.age_s >= _DAY_S), *(one for one in unfinished if one.age_s >= least_s)]


def _uncommitted(store: Store) -> list[Prunable]:
    """Parts on disk that no commit has; those that a repair forgot are taken again, so they stay."""
    kept = set(store.query("SELECT path FROM parts")["path"]) | {str(one.part.path) for one in store.log.parts()} | store.log.forgotten()
    files = (path for path in (store.root / "lake").glob("[!_]*/[!.]*.parquet") if str(path.relative_to(store.root)) not in kept)
    return [one for one in (_prunable(path, "a part that was never committed") for path in files) if one.age_s >= _DAY_S]


def _unpromoted(store: Store) -> list[Prunable]:
    """Models of policies that were never promoted, are not the latest, and from which no stage goes on, finished or not; oldest first."""
    rows = store.query(
        """SELECT p.path FROM policies p WHERE NOT contains(p.path, ':')
           AND p.policy_id NOT IN (SELECT policy_id FROM promotions WHERE passed)
           AND p.policy_id NOT IN (SELECT input_policy_id FROM stages WHERE input_policy_id IS NOT NULL)
           AND p.policy_id NOT IN (SELECT policy_id FROM policies JOIN parts USING (part_id) ORDER BY committed_at DESC LIMIT 1)"""
    )
    begun = _begun_from(store.root)
    folders = [store.root / path for path in rows["path"]]
    found = (_prunable(path, "a model that was not promoted") for path in folders if path.is_dir() and path not in begun)
    return sorted(found, key=lambda one: -one.age_s)


def _begun_from(root: Path) -> set[Path]:
    """Model folders from which a stage that is not finished goes on."""
    found = set()
    for spec in root.glob("models/*/spec.json"):
        if not (spec.parent / "result.json").exists():
            with suppress(OSError, ValueError, TypeError, KeyError):
                found.add(root / json.loads(spec.read_bytes())["model_in"])
    return found


def _prunable(path: Path, what: str) -> Prunable:
    return Prunable(path, what, size_of(path), _age_s(path))


def _age_s(path: Path) -> float:
    newest = max((file.stat().st_mtime for file in (path, *path.rglob("*")) if file.exists()), default=time.time())
    return time.time() - newest


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    return sum(file.stat().st_size for file in (path, *path.rglob("*")) if file.is_file())

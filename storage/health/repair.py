"""Repairs a store: sets damaged files aside, forgets the commits that they belong to, and builds the catalogue again.

One idea: a part's id is made from its inputs, so what is forgotten is made again by the same commands, with the same content. Whatever was
committed together is forgotten together, because a step looks at one of its parts to see whether it is done; parts of such a commit that
are whole stay on disk and are taken again. Later commits stay: they hold for the content that will be made again.
With a backup nothing is forgotten that the backup has.
"""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from storage import duckdb_catalog
from storage.commits.commit_log import CommitLog, by_commit
from storage.errors import BadInput
from storage.files import sync_dir
from storage.health.damage import Damage, Progress, check, check_models, check_parts
from storage.parts import DamagedPart, Part, check_part, part_of_path, rows_on_disk
from storage.store import Store

ASIDE = "damaged"
"""Folder of a store with what a repair set aside."""
_MADE_BY = {
    "headrace synthesize": ["tools", "worlds", "clusters", "blueprints", "decisions", "diversity", "focus", "trajectories", "provenance"],
    "headrace curate": (
        *("queries", "verdicts", "funnel", "frames", "query_fields", "unserved", "contaminated", "nearness"),
        *("segments", "seen", "asked", "bands", "tasks"),
    ),
    "headrace taxonomy": ["taxonomies"],
    "headrace train": ["releases", "release_items", "stages", "policies", "promotions"],
    "headrace tag": ["tags", "rollouts"],
    "headrace evaluate": ["evaluations"],
}
"""Command -> tables whose rows it makes again; `headrace run` calls all but the third."""
_BY_PEOPLE = ("by_hand", "withdrawals", "withdrawn")
_PAID = ("answers",)


@dataclass(frozen=True)
class Repaired:
    """What a repair did.

    damages: what was damaged. aside: folder of the damaged files, if any. restored: paths that came from the backup.
    forgotten: table -> forgotten parts. commands: what makes them again. notes: what no command makes again.
    """

    damages: tuple[Damage, ...]
    aside: Path | None
    restored: tuple[Path, ...]
    forgotten: dict[str, int]
    commands: tuple[str, ...]
    notes: tuple[str, ...]


def repair(
    root: Path, *, backup: Path | None = None, progress: Progress = lambda *_: None, at: datetime.datetime | None = None
) -> Repaired:
    """Repairs the store at `root`, of which no flow may be at work. Killed anywhere, it can be called again.

    backup: folder of `headrace store backup`, to take whole files from.
    at: for the name of the folder of what is set aside; None: now.

    Raises:
        BadInput: there is no store, or the backup is none.
    """
    if backup is not None and not (backup / "lake").is_dir():
        raise BadInput(f"{backup} is no backup of a store: it has no folder lake")
    damages = check(root, progress)
    aside = root / ASIDE / (at or datetime.datetime.now(datetime.UTC)).strftime("%Y-%m-%dT%H%M%SZ")
    log = CommitLog(root)
    if is_lost := _mend_catalogue(root, log, damages, aside):
        damages += [one for one in check_parts(root, log.parts(), progress) if one not in damages]
    restored, forgotten = list[Path](), list[Part]()

    def mend(found: Sequence[Damage], is_lost: bool) -> None:
        """Restores or sets aside each of these, forgets what is lost, and builds the catalogue again if need be."""
        restored.extend(one.path for one in found if backup is not None and _restore(root, backup, one, aside))
        lost = [one for one in found if one.path not in restored]
        for one in lost:
            _set_aside(root, one, aside)
        gone = _forget(root, log, lost)
        forgotten.extend(gone)
        if gone or is_lost:
            Store(root).rebuild_catalogue()

    mend([one for one in damages if one.kind not in ("catalogue", "model")], is_lost)
    if is_lost:
        damages += [one for one in check_models(Store(root), progress) if one not in damages]
    mend([one for one in damages if one.kind == "model"], False)
    tables = {part.table for part in forgotten}
    counts = {table: sum(part.table == table for part in forgotten) for table in sorted(tables)}
    commands = tuple(command for command, made in _MADE_BY.items() if tables & set(made))
    return Repaired(tuple(damages), aside if aside.exists() else None, tuple(restored), counts, commands, _notes(tables))


def _notes(tables: set[str]) -> tuple[str, ...]:
    by_people = sorted(tables & set(_BY_PEOPLE))
    notes = [f"no command makes table {', '.join(by_people)} again: take it from a backup with --backup"] if by_people else []
    if tables & set(_PAID):
        notes.append("answers of language models are lost: a run that asks for them again pays again, and other answers may come")
    return tuple(notes)


# ---- the catalogue -----------------------------------------------------------------------------------------------------


def _mend_catalogue(root: Path, log: CommitLog, damages: Sequence[Damage], aside: Path) -> bool:
    """Sets damaged files of the catalogue aside, and lets a whole one replace the other; writes the log if it is lost. Whether no file of
    the catalogue is whole."""
    broken = {one.path.name for one in damages if one.kind == "catalogue"} - {log.path.name}
    for name in broken:
        _move(root, Path(name), aside)
        (root / f"{name}.wal").unlink(missing_ok=True)
    if broken == {"catalog.duckdb"} and not (root / "catalog.stale").exists():
        shutil.copyfile(root / "catalog.read.duckdb", root / "catalog.duckdb")
    elif "catalog.duckdb" in broken:
        (root / "catalog.read.duckdb").unlink(missing_ok=True)
    if any(root / one.path == log.path for one in damages):
        _move(root, log.path.relative_to(root), aside)
    if damages and not log.path.exists():
        _log_what_lies_there(root, log)
    return bool(damages) and not (root / "catalog.duckdb").exists()


def _log_what_lies_there(root: Path, log: CommitLog) -> None:
    """Logs the parts of the catalogue; without one, every whole part on disk in the order of their times."""
    if (root / "catalog.duckdb").exists():
        connection = duckdb_catalog.open_for_reading(root / "catalog.duckdb", root)
        commits = duckdb_catalog.list_commits(connection)
        connection.close()
    else:
        commits = {}
        for path in sorted((root / "lake").glob("[!_]*/*.parquet"), key=lambda file: (file.stat().st_mtime_ns, file.name)):
            count = rows_on_disk(path)
            if count is not None:
                part = part_of_path(path.relative_to(root), count)
                commits.setdefault(path.stat().st_mtime_ns // 1_000, []).append(part)
    for at_us, parts in commits.items():
        log.add(at_us, parts)


# ---- parts and models --------------------------------------------------------------------------------------------------


def _forget(root: Path, log: CommitLog, lost: Sequence[Damage]) -> list[Part]:
    """Takes every commit that has a lost part, or the policy of a lost model, out of the log; the parts of these commits."""
    paths = {one.path for one in lost if one.kind == "part"}
    models = {str(one.path) for one in lost if one.kind == "model"}
    if models:
        rows = Store(root).query(
            "SELECT parts.path FROM policies p JOIN parts USING (part_id) WHERE p.path IN (SELECT unnest(?))", [sorted(models)]
        )
        paths |= {Path(path) for path in rows["path"]}
    if not paths:
        return []
    forgotten = [part for _, parts in by_commit(log.parts()) if any(part.path in paths for part in parts) for part in parts]
    log.forget(str(part.path) for part in forgotten)
    return forgotten


def _restore(root: Path, backup: Path, damage: Damage, aside: Path) -> bool:
    """Takes a damaged part or model from a backup, if it is whole there."""
    source, target = backup / damage.path, root / damage.path
    if damage.kind not in ("part", "model") or not source.exists():
        return False
    if damage.kind == "part":
        try:
            check_part(backup, part_of_path(damage.path, 0))
        except DamagedPart:
            return False
    _set_aside(root, damage, aside)
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".tmp-{target.name}")
    if source.is_dir():
        shutil.copytree(source, draft, dirs_exist_ok=True)
    else:
        shutil.copyfile(source, draft)
    draft.replace(target)
    sync_dir(target.parent)
    return True


def _set_aside(root: Path, damage: Damage, aside: Path) -> None:
    """Moves the damaged file away; of a model the whole folder of its stage, of intermediate rows the folder of their run."""
    if damage.kind == "journal" and not (root / damage.path).is_dir():
        return  # unreadable lines are skipped, the others are worth money
    _move(root, damage.path.parent if damage.kind in ("model", "work") else damage.path, aside)


def _move(root: Path, path: Path, aside: Path) -> None:
    if (root / path).exists():
        target = aside / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(root / path, target)
        sync_dir((root / path).parent)

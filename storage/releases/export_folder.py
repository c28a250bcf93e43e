"""The folder of an export: files, a manifest, a card and checksums, which appear together or not at all.

One idea: everything is written into a draft beside the folder, and renamed into place. Only an earlier export may be replaced; what a
killed export left is mended by the next one.
"""

from __future__ import annotations

import glob
import hashlib
import json
import re
import secrets
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from storage.errors import BadInput
from storage.files import disk_errors, sync_dir, sync_file

CHECKSUMS = "SHA256SUMS"
_MANIFEST = "manifest.json"
_MARK = "headrace_export"
"""Key in the manifest of a Headrace export."""
_DRAFT, _OLD = ".tmp-", ".tmp-old-"
_DRAFT_LIFE_S = 86_400.0
"""A draft without changes for this time belongs to a killed export."""


def describe_export(folder: Path) -> str:
    """For the user: the files of an export with their rows, and where to read on."""
    rows = {path.stem: pq.read_metadata(path).num_rows for path in sorted(folder.glob("*.parquet"))}
    if not rows:
        rows = {path.stem: path.read_text(encoding="utf-8").count("\n") for path in sorted(folder.glob("*.jsonl"))}
    counted = ", ".join(f"{name} ({count:,} row{'' if count == 1 else 's'})" for name, count in rows.items())
    forms = "JSONL and Parquet" if any(folder.glob("*.parquet")) else "JSONL"
    return f"wrote {folder}: {counted}, each as {forms}; README.md there shows how to load them"


def write_export(
    out_dir: Path,
    doing: str,
    manifest: Mapping[str, Any],
    write_files: Callable[[Path], Sequence[str]],
    write_card: Callable[[Mapping[str, str]], str],
) -> Path:
    """Writes an export into folder `out_dir` and returns it. An earlier export there is replaced; any other content is not touched.

    Args:
        doing: what is done, for error messages.
        write_files: writes the files into a folder and returns their names; one in a folder of its own is named by its path.
        write_card: the text of the card, from the names of the files and their SHA-256.

    Raises:
        BadInput: `out_dir` holds something else, or cannot be made.
        HeadraceError: the disk is full.
    """
    out_dir = Path(out_dir).resolve()
    with disk_errors(f"looking at {out_dir.name}", out_dir):
        _mend(out_dir)
        _refuse_foreign(out_dir)
    draft = out_dir.parent / f"{_DRAFT}{secrets.token_hex(4)}-{out_dir.name}"
    with disk_errors(doing, out_dir):
        try:
            draft.mkdir(parents=True)
        except (FileNotFoundError, FileExistsError, NotADirectoryError) as error:
            raise BadInput(f"{out_dir} cannot be made: {error.strerror}: {error.filename}; name another folder") from None
        try:
            hashes = {name: _sha256(draft / name) for name in write_files(draft)}
            described = {_MARK: 1, **manifest}
            (draft / _MANIFEST).write_text(json.dumps(described, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")
            (draft / "README.md").write_text(write_card(dict(hashes)), encoding="utf-8")
            hashes |= {name: _sha256(draft / name) for name in (_MANIFEST, "README.md")}
            lines = [f"{digest}  {name}\n" for name, digest in sorted(hashes.items())]
            (draft / CHECKSUMS).write_text("".join(lines), encoding="utf-8")
            _put_in_place(draft, out_dir)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return out_dir


def _refuse_foreign(out_dir: Path) -> None:
    """Nothing but an export may be replaced: our manifest, checksums, and no file that these do not list."""
    if not out_dir.exists() or (out_dir.is_dir() and not any(out_dir.iterdir())):
        return
    listed = _files_of_export(out_dir)
    if listed is None:
        raise BadInput(f"{out_dir} holds something that is not an export of Headrace; name another folder")
    folders = {parent.as_posix() for name in listed for parent in Path(name).parents}
    paths = {path.relative_to(out_dir).as_posix(): path for path in out_dir.rglob("*")}
    foreign = sorted(name for name, path in paths.items() if not (path.is_file() and name in listed) and name not in folders)
    if foreign:
        raise BadInput(f"{out_dir} holds {foreign[0]}, which is not of the export there; move it away, or name another folder")


def _files_of_export(folder: Path) -> set[str] | None:
    """The file names of the export in this folder; None if it is no export."""
    try:
        manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        lines = (folder / CHECKSUMS).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return None
    return {CHECKSUMS, *(line.partition("  ")[2] for line in lines)} if isinstance(manifest, dict) and _MARK in manifest else None


def _put_in_place(draft: Path, out_dir: Path) -> None:
    for path in draft.rglob("*"):
        (sync_dir if path.is_dir() else sync_file)(path)
    sync_dir(draft)
    if out_dir.exists():
        old = out_dir.with_name(draft.name.replace(_DRAFT, _OLD, 1))
        out_dir.rename(old)
        draft.rename(out_dir)
        shutil.rmtree(old, ignore_errors=True)
    else:
        draft.rename(out_dir)
    sync_dir(out_dir.parent)


def _mend(out_dir: Path) -> None:
    """Restores the `out_dir` that a killed export had moved away, and removes the leftovers of killed exports."""
    for path in sorted(out_dir.parent.glob(f"{_DRAFT}*-{glob.escape(out_dir.name)}")):
        if _leftover_name(_OLD, out_dir).fullmatch(path.name):
            if out_dir.exists():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.rename(out_dir)
        elif _leftover_name(_DRAFT, out_dir).fullmatch(path.name) and path.stat().st_mtime < time.time() - _DRAFT_LIFE_S:
            shutil.rmtree(path, ignore_errors=True)


def _leftover_name(prefix: str, out_dir: Path) -> re.Pattern[str]:
    return re.compile(f"{re.escape(prefix)}[0-9a-f]{{8}}-{re.escape(out_dir.name)}")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

"""Releases as files that other trainers read: JSONL and Parquet in OpenAI form, a dataset card, checksums.

One idea: a split becomes `<split>.conversations` (items to imitate) and `<split>.prompts` (tasks to draw rollouts on), each as JSONL and as
Parquet; what differs between trainers is only the columns of a row (`export_rows.py`). The folder appears whole or not at all, and a
release gives the same bytes whenever it is exported, because an export uses only parts committed before the release (`release.py`).

What it does not do: tokenise, or publish anywhere. The task's full record is in every prompt row, so that our environments can verify it.
"""

from __future__ import annotations

import glob
import hashlib
import json
import re
import secrets
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import get_args

import pyarrow.parquet as pq

from storage.errors import BadInput
from storage.files import disk_errors, sync_dir, sync_file
from storage.releases.dataset_card import card
from storage.releases.export_rows import (
    DEFAULT_FORM,
    SCHEMAS,
    Format,
    MessageForm,
    Signatures,
    as_table,
    has_object_arguments,
    offered_tools,
    row_of,
)
from storage.releases.export_rows import signatures as signatures_at
from storage.releases.release import ReleasedItem, load_split, manifest_of
from storage.store import Store

CHECKSUMS = "SHA256SUMS"
_MANIFEST = "manifest.json"
_MARK = "headrace_export"
"""Key in the manifest of a Headrace export."""
_VERL_DATASET = Path(__file__).with_name("verl_dataset.py")
_DRAFT, _OLD = ".tmp-", ".tmp-old-"
_DRAFT_LIFE_S = 86_400.0
"""A draft without changes for this time belongs to a killed export."""


def export(
    store: Store,
    release_id: str,
    out_dir: Path,
    format: Format = "trl",
    *,
    form: MessageForm = DEFAULT_FORM,
    licences: Mapping[str, str] | None = None,
) -> Path:
    """Writes a release into folder `out_dir` and returns it. An earlier export there is replaced; any other content is not touched.

    Args:
        format: the trainer that will read it: `trl`, `verl` or `roll`.
        form: form of the tool calls, for the chat template that will render them. With arguments as objects, a conversation with a call
            whose arguments are no JSON object is left out; the card has the number.
        licences: licence of each source of raw queries, by the name in column `source`; shown in the card.

    Raises:
        BadInput: no such release, an unknown format, `out_dir` holds something else, or cannot be made.
        HeadraceError: the disk is full, or a tool's signature is not in the store.
    """
    if format not in get_args(Format):
        raise BadInput(f"format {format!r} is not one of {', '.join(get_args(Format))}")
    manifest = manifest_of(store, release_id)
    out_dir = Path(out_dir).resolve()
    with disk_errors(f"looking at {out_dir.name}", out_dir):
        _mend(out_dir)
        _refuse_foreign(out_dir)
    tools = signatures_at(store, release_id)
    released = {split: load_split(store, release_id, split) for split in manifest["splits"]}
    splits = {
        split: [item for item in items if form.arguments == "text" or has_object_arguments(item)] for split, items in released.items()
    }
    draft = out_dir.parent / f"{_DRAFT}{secrets.token_hex(4)}-{out_dir.name}"
    with disk_errors(f"exporting {release_id}", out_dir):
        try:
            draft.mkdir(parents=True)
        except (FileNotFoundError, FileExistsError, NotADirectoryError) as error:
            raise BadInput(f"{out_dir} cannot be made: {error.strerror}: {error.filename}; name another folder") from None
        try:
            files = [name for split, items in splits.items() for name in _write_split(draft, split, items, format, form, tools)]
            if format == "verl":
                shutil.copyfile(_VERL_DATASET, draft / _VERL_DATASET.name)
                files.append(_VERL_DATASET.name)
            described = {_MARK: 1, "release": release_id, "format": format, "form": asdict(form), **manifest}
            (draft / _MANIFEST).write_text(json.dumps(described, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")
            hashes = {name: _sha256(draft / name) for name in files}
            text = card(store, release_id, manifest, splits, format, form=form, files=hashes, licences=licences or {})
            (draft / "README.md").write_text(text, encoding="utf-8")
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
    foreign = sorted(path.name for path in out_dir.iterdir() if path.name not in listed or not path.is_file())
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
    for path in draft.iterdir():
        sync_file(path)
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


def _write_split(
    folder: Path, split: str, items: Sequence[ReleasedItem], format: Format, form: MessageForm, tools: Signatures
) -> list[str]:
    """The files of one split; returns their names."""
    names: list[str] = []
    for kind in ("conversations", "prompts"):
        selected = [item for item in items if (item.conversation is not None) == (kind == "conversations")]
        if selected:
            rows = [row_of(item, index, split, format, form, offered_tools(item, tools)) for index, item in enumerate(selected)]
            names += [f"{split}.{kind}.jsonl", f"{split}.{kind}.parquet"]
            with (folder / names[-2]).open("w", encoding="utf-8") as file:
                file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            pq.write_table(as_table(rows, SCHEMAS[format, kind]), folder / names[-1], compression="zstd")
    return names

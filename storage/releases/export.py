"""Releases as files that other trainers read: JSONL and Parquet in OpenAI form, a dataset card, checksums.

One idea: a split becomes `<split>.conversations` (items to imitate) and `<split>.prompts` (tasks to draw rollouts on), each as JSONL and as
Parquet; what differs between trainers is only the columns of a row (`export_rows.py`). The folder appears whole or not at all
(`export_folder.py`), and a release gives the same bytes whenever it is exported, because an export uses only parts committed before the
release (`release.py`).

What it does not do: tokenise, or publish anywhere. The task's full record is in every prompt row, so that our environments can verify it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import pyarrow.parquet as pq

from storage.errors import BadInput
from storage.releases.dataset_card import card
from storage.releases.export_folder import write_export
from storage.releases.export_rows import (
    DEFAULT_FORM,
    SCHEMAS,
    TRAJECTORIES,
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
from storage.releases.trajectory_rows import ROWS
from storage.store import Store

_VERL_DATASET = Path(__file__).with_name("verl_dataset.py")


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
        format: the trainer that will read it: `trl`, `verl` or `roll`; or a format of conversations alone: `atif`, `sharegpt`.
        form: form of the tool calls, for the chat template that will render them. With arguments as objects, a conversation with a call
            whose arguments are no JSON object is left out; the card has the number.
        licences: licence of each source of raw queries, by the name in column `source`; shown in the card.

    Raises:
        BadInput: no such release, an unknown format, no conversation for a format of conversations alone, `out_dir` holds something else,
            or cannot be made.
        HeadraceError: the disk is full, or a tool's signature is not in the store.
    """
    if format not in get_args(Format):
        raise BadInput(f"format {format!r} is not one of {', '.join(get_args(Format))}")
    manifest = manifest_of(store, release_id)
    tools = signatures_at(store, release_id)
    released = {split: load_split(store, release_id, split) for split in manifest["splits"]}
    takes_text = form.arguments == "text" and format not in TRAJECTORIES
    splits = {split: [item for item in items if takes_text or has_object_arguments(item)] for split, items in released.items()}
    if format in TRAJECTORIES:
        splits = {split: [item for item in items if item.conversation is not None] for split, items in splits.items()}
        if not any(splits.values()):
            raise BadInput(f"release {release_id} has no conversations, and {format} takes nothing else; export it for trl, verl or roll")

    def write_files(folder: Path) -> list[str]:
        files = [name for split, items in splits.items() for name in _write_split(folder, split, items, format, form, tools)]
        if format == "verl":
            shutil.copyfile(_VERL_DATASET, folder / _VERL_DATASET.name)
            files.append(_VERL_DATASET.name)
        return files

    def write_card(hashes: Mapping[str, str]) -> str:
        return card(store, release_id, manifest, splits, format, form=form, files=hashes, licences=licences or {})

    described = {"release": release_id, "format": format, "form": asdict(form), **manifest}
    return write_export(out_dir, f"exporting {release_id}", described, write_files, write_card)


def _write_split(
    folder: Path, split: str, items: Sequence[ReleasedItem], format: Format, form: MessageForm, tools: Signatures
) -> list[str]:
    """The files of one split; returns their names."""
    names: list[str] = []
    if format in TRAJECTORIES:
        if not items:
            return names
        _write_lines(folder / f"{split}.conversations.jsonl", [ROWS[format](item, offered_tools(item, tools)) for item in items])
        return [f"{split}.conversations.jsonl"]
    for kind in ("conversations", "prompts"):
        selected = [item for item in items if (item.conversation is not None) == (kind == "conversations")]
        if selected:
            rows = [row_of(item, index, split, format, form, offered_tools(item, tools)) for index, item in enumerate(selected)]
            names += [f"{split}.{kind}.jsonl", f"{split}.{kind}.parquet"]
            _write_lines(folder / names[-2], rows)
            pq.write_table(as_table(rows, SCHEMAS[format, kind]), folder / names[-1], compression="zstd")
    return names


def _write_lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)

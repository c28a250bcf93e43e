"""Releases as files that other trainers read: JSONL and Parquet in OpenAI form, a dataset card, checksums.

One idea: a split becomes `<split>.conversations` (items to imitate) and `<split>.prompts` (tasks to draw rollouts on), each as JSONL and as
Parquet; what differs between trainers is only which columns a row has. Tool-call arguments and tool signatures stay JSON *strings*,
because nested Arrow structs would invent null arguments. The folder appears whole or not at all, and a release gives the same bytes
whenever it is exported, because an export uses only parts committed before the release (`storage/releases/release.py`).

    trl   messages, tools (JSON string)            | prompt, tools, task columns
    verl  messages, tools (JSON string)            | prompt, data_source, agent_name, reward_model, extra_info (docs of verl 0.9)
    roll  messages (JSON string), tag, difficulty  | the same with ground_truth (ROLL's RLVR columns)

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
from pathlib import Path
from typing import Any, Literal, get_args

import pyarrow as pa
import pyarrow.parquet as pq

from storage.errors import BadInput, HeadraceError
from storage.files import disk_errors, sync_dir, sync_file
from storage.records import JSON, Message, canonical_json
from storage.releases.dataset_card import card
from storage.releases.release import RELEASED_AT_SQL, ReleasedItem, load_split, manifest_of
from storage.store import Store

Format = Literal["trl", "verl", "roll"]
CHECKSUMS = "SHA256SUMS"
_MANIFEST = "manifest.json"
_MARK = "headrace_export"
"""Key in the manifest of a Headrace export."""
_DRAFT, _OLD = ".tmp-", ".tmp-old-"
_DRAFT_LIFE_S = 86_400.0
"""A draft without changes for this time belongs to a killed export."""

_TEXT = pa.string()
_CALL = pa.struct([("id", _TEXT), ("type", _TEXT), ("function", pa.struct([("name", _TEXT), ("arguments", _TEXT)]))])
_MESSAGES = pa.list_(pa.struct([("role", _TEXT), ("content", _TEXT), ("tool_calls", pa.list_(_CALL)), ("tool_call_id", _TEXT)]))
_ABOUT = [
    ("task_id", _TEXT),
    ("world", _TEXT),
    ("intent", _TEXT),
    ("language", _TEXT),
    ("difficulty", pa.int32()),
    ("weight", pa.float64()),
]
_OF_CONVERSATION = [("id", _TEXT), ("kind", _TEXT), ("teacher", _TEXT), ("reward", pa.float64()), *_ABOUT]

_SCHEMAS: dict[tuple[Format, str], pa.Schema] = {
    ("trl", "conversations"): pa.schema([("messages", _MESSAGES), ("tools", _TEXT), *_OF_CONVERSATION]),
    ("trl", "prompts"): pa.schema([("prompt", _MESSAGES), ("tools", _TEXT), *_ABOUT, ("task", _TEXT)]),
    ("verl", "conversations"): pa.schema([("messages", _MESSAGES), ("tools", _TEXT), *_OF_CONVERSATION]),
    ("verl", "prompts"): pa.schema(
        [
            ("prompt", _MESSAGES),
            ("data_source", _TEXT),
            ("agent_name", _TEXT),
            ("ability", _TEXT),
            ("reward_model", pa.struct([("style", _TEXT), ("ground_truth", _TEXT)])),
            (
                "extra_info",
                pa.struct(
                    [
                        ("index", pa.int64()),
                        ("split", _TEXT),
                        ("tools", _TEXT),
                        ("task", _TEXT),
                        ("tool_selection", pa.list_(_TEXT)),
                        *_ABOUT,
                    ]
                ),
            ),
        ]
    ),
    ("roll", "conversations"): pa.schema([("id", _TEXT), ("messages", _TEXT), ("tools", _TEXT), ("tag", _TEXT), *_OF_CONVERSATION[1:]]),
    ("roll", "prompts"): pa.schema(
        [("id", _TEXT), ("messages", _TEXT), ("tools", _TEXT), ("tag", _TEXT), ("ground_truth", _TEXT), *_ABOUT]
    ),
}
"""(trainer, kind of rows) -> columns."""


def export(store: Store, release_id: str, out_dir: Path, format: Format = "trl", *, licences: Mapping[str, str] | None = None) -> Path:
    """Writes a release into folder `out_dir` and returns it. An earlier export there is replaced; any other content is not touched.

    Args:
        format: the trainer that will read it: `trl`, `verl` or `roll`.
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
    tools = _signatures(store, release_id)
    splits = {split: load_split(store, release_id, split) for split in manifest["splits"]}
    draft = out_dir.parent / f"{_DRAFT}{secrets.token_hex(4)}-{out_dir.name}"
    with disk_errors(f"exporting {release_id}", out_dir):
        try:
            draft.mkdir(parents=True)
        except (FileNotFoundError, FileExistsError, NotADirectoryError) as error:
            raise BadInput(f"{out_dir} cannot be made: {error.strerror}: {error.filename}; name another folder") from None
        try:
            files = [name for split, items in splits.items() for name in _write_split(draft, split, items, format, tools)]
            described = {_MARK: 1, "release": release_id, "format": format, **manifest}
            (draft / _MANIFEST).write_text(json.dumps(described, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")
            hashes = {name: _sha256(draft / name) for name in files}
            text = card(store, release_id, manifest, splits, format, files=hashes, licences=licences or {})
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


# ---- rows ------------------------------------------------------------------------------------------------------------------


def _signatures(store: Store, release_id: str) -> dict[tuple[str, str], dict[str, JSON]]:
    """(world, name) -> the tool in OpenAI form, without the `x-` marks of Headrace.

    The version is the last one committed before the release, else the first one after it. Items do not record the version of their tools,
    so an item that is older than the last version of a tool gets a newer signature.
    """
    rows = store.query(
        f"""SELECT world, name, description, parameters FROM tools JOIN (SELECT part_id, rowid - {RELEASED_AT_SQL} AS late FROM parts)
              USING (part_id)
            QUALIFY row_number() OVER (PARTITION BY world, name ORDER BY late > 0, abs(late), tool_id) = 1""",
        [release_id],
    )
    return {
        (world, name): {
            "type": "function",
            "function": {"name": name, "description": description, "parameters": _remove_marks(json.loads(parameters))},
        }
        for world, name, description, parameters in rows.iter_rows()
    }


def _remove_marks(schema: JSON) -> JSON:
    if isinstance(schema, dict):
        return {key: _remove_marks(value) for key, value in schema.items() if not key.startswith("x-")}
    return [_remove_marks(value) for value in schema] if isinstance(schema, list) else schema


def _write_split(
    folder: Path, split: str, items: Sequence[ReleasedItem], format: Format, tools: Mapping[tuple[str, str], dict[str, JSON]]
) -> list[str]:
    """The files of one split; returns their names."""
    names: list[str] = []
    for kind in ("conversations", "prompts"):
        selected = [item for item in items if (item.conversation is not None) == (kind == "conversations")]
        if selected:
            rows = [_row(item, index, split, format, _tools_text(item, tools)) for index, item in enumerate(selected)]
            names += [f"{split}.{kind}.jsonl", f"{split}.{kind}.parquet"]
            with (folder / names[-2]).open("w", encoding="utf-8") as file:
                file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            pq.write_table(pa.Table.from_pylist(rows, schema=_SCHEMAS[format, kind]), folder / names[-1], compression="zstd")
    return names


def _tools_text(item: ReleasedItem, tools: Mapping[tuple[str, str], dict[str, JSON]]) -> str:
    world, offered = item.setting.world, item.setting.tools
    if missing := next((name for name in offered if (world, name) not in tools), None):
        raise HeadraceError(f"tool {missing} of world {world} is not in the store's table of tools; run `headrace synthesize` first")
    return json.dumps([tools[world, name] for name in offered], ensure_ascii=False)


def _openai(messages: Sequence[Message]) -> list[dict[str, JSON]]:
    return [message.to_openai() for message in messages]


def _row(item: ReleasedItem, index: int, split: str, format: Format, tools: str) -> dict[str, Any]:
    task = item.task
    about = {
        "task_id": task.id if task else None,
        "world": item.setting.world,
        "intent": task.intent if task else None,
        "language": item.setting.language,
        "difficulty": task.difficulty if task else None,
        "weight": item.item.weight,
    }
    if item.conversation is not None:
        messages: JSON = _openai(item.conversation.messages)
        row = {"id": item.item.item_id, "kind": item.item.kind, "teacher": item.conversation.teacher, "reward": item.conversation.reward}
        if format == "roll":
            return {"messages": json.dumps(messages, ensure_ascii=False), "tools": tools, "tag": item.setting.world, **row, **about}
        return {"messages": messages, "tools": tools, **row, **about}
    assert task is not None
    opening, spec = _openai(task.messages), canonical_json(task.model_dump(mode="json"))
    if format == "roll":
        text = json.dumps(opening, ensure_ascii=False)
        return {"id": task.id, "messages": text, "tools": tools, "tag": task.world, "ground_truth": spec, **about}
    if format == "verl":
        return {
            "prompt": opening,
            "data_source": f"headrace/{task.world}",
            "agent_name": "headrace",
            "ability": "tool_use",
            "reward_model": {"style": "rule", "ground_truth": task.id},
            "extra_info": {"index": index, "split": split, "tools": tools, "task": spec, "tool_selection": list(task.tools), **about},
        }
    return {"prompt": opening, "tools": tools, **about, "task": spec}

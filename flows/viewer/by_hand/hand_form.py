"""The values of `by_hand_form.html.j2`, by which a page takes annotations of its item; and a sent form as an annotation.

A page includes the template and passes `by_hand=hand_form(request, id, ...)`.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import Request

from filters.by_hand.run_decisions import check_label
from flows.runtime.locks import is_held
from flows.runtime.notes.run_records import notes_folder
from flows.viewer.by_hand.write_access import write_access
from flows.viewer.viewed_store import ViewedStore
from storage.by_hand.hand_rows import VERDICTS, Annotation, read_annotations
from storage.errors import BadInput
from storage.records import Frame
from storage.store import Store
from synth.worlds import WORLDS
from synth.worlds.stored_worlds import register_stored

_MOST_WORLDS = 40
"""Worlds whose intents the form of a label lists."""


@dataclass(frozen=True)
class LabelForm:
    """The part of a form in which a request or frame is read anew.

    intents: world -> names of its intents.
    chosen: world/intent that is marked. slots: as JSON.
    """

    intents: Mapping[str, Sequence[str]]
    chosen: str
    slots: str


def hand_form(request: Request, item: str, *, frame_id: str | None = None) -> dict[str, Any]:
    """What the template needs. item: a request, frame, trajectory or rollout. frame_id: of a request, how it is read."""
    viewed: ViewedStore = request.app.state.viewed
    access = write_access(request)
    is_read = item.startswith(("q-", "frame-"))
    rows = read_annotations(viewed.store, item)
    if frame_id is not None:
        rows = read_annotations(viewed.store, frame_id).vstack(rows)
    return {
        "item": item,
        "choices": {"this request": item, "all requests with the same frame": frame_id} if frame_id else {},
        "annotations": rows.to_dicts(),
        "author": access.author if access else None,
        "token": access.token if access else "",
        "nonce": secrets.token_hex(8),
        "working": working_flow(viewed.root) if access else None,
        "label": _label_form(viewed.store, item, frame_id) if access and is_read else None,
    }


def read_annotation(store: Store, form: Mapping[str, Sequence[str]], author: str) -> Annotation:
    """The annotation of a sent form.

    Raises BadInput: a field is missing, stands twice, or does not fit.
    """
    verdict = _one(form, "verdict")
    if verdict not in VERDICTS:
        raise BadInput(f"{verdict!r} is no verdict by hand; verdicts are {', '.join(VERDICTS)}")
    label = _label(store, _one(form, "label"), _one(form, "slots")) if verdict == "relabel" else None
    items = tuple(item.strip() for item in form.get("item", ()))
    comment = _one(form, "comment").replace("\r\n", "\n").strip()
    return Annotation(items=items, author=author, verdict=verdict, comment=comment, label=label, nonce=_one(form, "nonce"))


def _one(form: Mapping[str, Sequence[str]], name: str) -> str:
    values = form.get(name, ())
    if len(values) > 1:
        raise BadInput(f"the form has {name} more than once")
    return values[0] if values else ""


def _label(store: Store, chosen: str, slots: str) -> Frame:
    register_stored(store)
    world, _, intent = chosen.rpartition("/")
    try:
        values = json.loads(slots or "{}")
    except ValueError as error:
        raise BadInput(f"the slots are no JSON: {error}") from None
    if not isinstance(values, dict):
        raise BadInput('slots are a JSON object, such as {"order_id": "o17"}')
    return check_label(world, intent, values)


def _label_form(store: Store, item: str, frame_id: str | None) -> LabelForm:
    register_stored(store)
    key, value = ("frame_id", frame_id or item) if frame_id or item.startswith("frame-") else ("query_id", item)
    frames = store.query(f"SELECT world, intent, slots FROM frames WHERE {key} = ? AND frame_id IS NOT NULL LIMIT 1", [value]).rows()
    known = store.query("SELECT world FROM frames WHERE world IS NOT NULL UNION SELECT world FROM tasks ORDER BY world")["world"]
    worlds = [world for world in dict.fromkeys([*(world for world, *_ in frames), *known, "city", "retail"]) if world in WORLDS]
    return LabelForm(
        intents={world: sorted(WORLDS[world].intents) for world in worlds[:_MOST_WORLDS]},
        chosen=f"{frames[0][0]}/{frames[0][1]}" if frames else "",
        slots=frames[0][2] if frames and frames[0][2] else "{}",
    )


def working_flow(root: Path) -> str | None:
    """The flow that works on the store in this folder, with its process; None if none does."""
    path = notes_folder(root) / "flow.lock"
    try:
        return path.read_text(errors="replace").strip() or "a flow" if is_held(path) else None
    except OSError:
        return None

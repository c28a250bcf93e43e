"""One raw request: its verdicts, how it is read, word by word, and beside it the row that it repeats and those that repeat it."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, PlainTextResponse

from flows.viewer.by_hand.hand_form import hand_form
from flows.viewer.differing_words import differing_words
from flows.viewer.read_request import read_request
from flows.viewer.rendering import render
from flows.viewer.viewed_store import ViewedStore
from storage.errors import BadInput
from storage.explanations.explain import explain
from storage.releases.node_ids import Node, find_node
from storage.store import Store

MOST_READ = 4_000
"""Characters of a text that is read again: a reader's time and memory grow with it."""
_REPEATS = 20
"""Most rows shown that repeat a request."""
_FRAME_SQL = "SELECT * FROM frames WHERE query_id = ? ORDER BY frame_id IS NULL, run LIMIT 1"

router = APIRouter()


@router.get("/requests/{id:path}/text")
def show_text(request: Request, id: str) -> PlainTextResponse:
    """The whole text, of which a page shows the beginning."""
    store = _store(request)
    text = store.query("SELECT text FROM queries WHERE query_id = ? ORDER BY run LIMIT 1", [_query_id(store, id)]).item() or ""
    return PlainTextResponse(text.encode("utf-8", errors="replace"))


@router.get("/requests/{id:path}/reading")
def show_reading(request: Request, id: str) -> HTMLResponse:
    """Which words give which slot, by a reading of today."""
    store = _store(request)
    node = _query_id(store, id)
    text = store.query("SELECT text FROM queries WHERE query_id = ? ORDER BY run LIMIT 1", [node]).item() or ""
    frames = store.query(_FRAME_SQL, [node]).to_dicts()
    if not frames or frames[0]["frame_id"] is None:
        raise BadInput(f"{node} has no frame: no world read it as one of its requests")
    if len(text) > MOST_READ:
        raise BadInput(f"{node} has {len(text):,} characters, and a page reads no text of more than {MOST_READ:,} again")
    return render(request, "reading.html.j2", id=node, frame=frames[0], reading=read_request(store, text, frames[0]))


@router.get("/requests/{id:path}/repeats")
def show_repeats(request: Request, id: str) -> HTMLResponse:
    """The row that this one repeats, and rows that repeat it, side by side."""
    viewed: ViewedStore = request.app.state.viewed
    node = _query_id(viewed.store, id)
    return render(request, "repeats.html.j2", id=node, **_repeats(viewed, node))


@router.get("/requests/{id:path}")
def show_request(request: Request, id: str) -> HTMLResponse:
    store = _store(request)
    found = explain(store, Node("query", _query_id(store, id)), full=True, with_lineage=False)
    row = store.query("SELECT text, language FROM queries WHERE query_id = ? ORDER BY run LIMIT 1", [found.id]).row(0, named=True)
    frame = store.query(_FRAME_SQL, [found.id]).to_dicts()
    return render(
        request,
        "request.html.j2",
        item=found,
        text=row["text"] or "",
        facts=[(label, text) for label, text in found.facts if label != "text"],
        has_frame=bool(frame) and frame[0]["frame_id"] is not None and bool(row["text"]),
        by_hand=hand_form(request, found.id, frame_id=frame[0]["frame_id"] if frame else None),
    )


def _repeats(viewed: ViewedStore, node: str) -> dict[str, Any]:
    """original: the row that this one repeats, or None. copies: rows that repeat this one; more: how many are left out."""
    store = viewed.store
    columns = "q.query_id, q.text, v.similarity"
    text = store.query("SELECT text FROM queries WHERE query_id = ? ORDER BY run LIMIT 1", [node]).item() or ""
    original = store.query(
        f"SELECT {columns} FROM verdicts v JOIN queries q ON q.query_id = v.duplicate_of WHERE v.query_id = ? LIMIT 1",
        [node],
    ).to_dicts()
    copies = store.query(
        f"""SELECT {columns} FROM verdicts v JOIN queries q USING (query_id, run) WHERE v.duplicate_of = ?
            ORDER BY v.similarity, q.query_id LIMIT ?""",
        [node, _REPEATS],
    ).to_dicts()
    count = store.query("SELECT count(*) FROM verdicts WHERE duplicate_of = ?", [node]).item() if len(copies) == _REPEATS else len(copies)
    for row in (*original, *copies):
        row["here"], row["there"] = differing_words(text, row["text"] or "")
    return {"text": text, "original": original[0] if original else None, "copies": copies, "more": count - len(copies)}


def _query_id(store: Store, id: str) -> str:
    kind, node = find_node(store, id)
    if kind != "query":
        raise BadInput(f"{node} is a {kind}, and no request")
    return node


def _store(request: Request) -> Store:
    viewed: ViewedStore = request.app.state.viewed
    return viewed.store

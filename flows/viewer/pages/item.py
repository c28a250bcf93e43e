"""One thing of the store by its id: what it is, its conversation, what it was made from and what it went into."""

from __future__ import annotations

import json
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from flows.viewer.rendering import item_url, render
from flows.viewer.viewed_store import ViewedStore
from storage.explanations.explain import explain
from storage.report.sections import chat
from storage.store import Store

_CONVERSATIONS = {"trajectory": ("trajectories", "trajectory_id"), "rollout": ("rollouts", "rollout_id")}
"""Kind -> table and key of its messages."""

router = APIRouter()


@router.get("/item")
def find(id: str = "") -> RedirectResponse:
    """From the search field of every page, to the page of an id."""
    return RedirectResponse(item_url(id.strip()))


@router.get("/requests/{id}")
@router.get("/trajectories/{id}")
@router.get("/item/{id:path}")
def show(request: Request, id: str) -> HTMLResponse:
    viewed: ViewedStore = request.app.state.viewed
    found = explain(viewed.store, id, full=True)
    messages = _messages(viewed.store, found.kind, found.id)
    return render(
        request,
        "item.html.j2",
        item=found,
        messages=messages,
        sections=[section for section in found.sections if not (messages and section.title == "conversation")],
    )


def _messages(store: Store, kind: str, id: str) -> list[dict[str, Any]]:
    """The conversation of a trajectory or rollout as the chat view shows it; empty for other kinds."""
    if kind not in _CONVERSATIONS:
        return []
    table, key = _CONVERSATIONS[kind]
    row = store.query(f"SELECT messages FROM {table} WHERE {key} = ? LIMIT 1", [id])
    return chat(json.loads(row["messages"][0])) if row.height else []

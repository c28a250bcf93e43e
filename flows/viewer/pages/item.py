"""Anything of the store by its id: what it is, what it was made from, what it went into. Some kinds have pages of their own."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from flows.viewer.by_hand.hand_form import hand_form
from flows.viewer.rendering import item_url, render
from flows.viewer.viewed_store import ViewedStore
from storage.explanations.explain import explain
from storage.releases.node_ids import find_node
from storage.tombstones.withdrawn_rows import tombstone_of

router = APIRouter()


@router.get("/item")
def find(id: str = "") -> RedirectResponse:
    """From the search field of every page, to the page of an id."""
    return RedirectResponse(item_url(id.strip()))


@router.get("/item/{id:path}")
def show(request: Request, id: str) -> Response:
    """id: also a unique beginning of one, or a name that tables print."""
    viewed: ViewedStore = request.app.state.viewed
    _, node = find_node(viewed.store, id)
    if not item_url(node).startswith("/item/") and not tombstone_of(viewed.store, node):
        return RedirectResponse(item_url(node))
    by_hand = hand_form(request, node) if node.startswith("frame-") else None
    return render(request, "item.html.j2", item=explain(viewed.store, node, full=True), by_hand=by_hand)

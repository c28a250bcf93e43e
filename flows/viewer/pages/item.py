"""Anything of the store by its id: what it is, what it was made from, what it went into. Some kinds have pages of their own."""

from __future__ import annotations

from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from flows.viewer.by_hand.hand_form import hand_form
from flows.viewer.rendering import item_url, render
from flows.viewer.viewed_store import ViewedStore
from storage.explanations.explain import explain, explain_lineage
from storage.releases.node_ids import find_node
from storage.tombstones.withdrawn_rows import tombstone_of

router = APIRouter()


@router.get("/item")
def find(id: str = "") -> RedirectResponse:
    """From the search field of every page, to the page of an id."""
    return RedirectResponse(item_url(id.strip()) if id.strip() else "/")


@router.get("/item/{id:path}")
def show(request: Request, id: str) -> Response:
    """id: also a unique beginning of one, or a name that tables print."""
    viewed: ViewedStore = request.app.state.viewed
    kind, node = find_node(viewed.store, id)
    address = f"/worlds/{quote(node)}" if kind == "world" else item_url(node)
    if not address.startswith("/item/") and not tombstone_of(viewed.store, node):
        return RedirectResponse(address)
    by_hand = hand_form(request, node) if node.startswith("frame-") else None
    return render(request, "item.html.j2", item=explain(viewed.store, node, full=True), by_hand=by_hand)


@router.get("/relations/{id:path}")
def show_relations(request: Request, id: str) -> HTMLResponse:
    """What an item was made from and went into, in lists: a part of its page."""
    viewed: ViewedStore = request.app.state.viewed
    return render(request, "relations.html.j2", item=explain_lineage(viewed.store, id))

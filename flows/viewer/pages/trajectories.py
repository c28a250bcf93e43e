"""Trajectories: synthesised conversations, and draws of policies, searched by what was said and narrowed by what is known of them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from flows.viewer.indexes.conversation_index import FACETS, ConversationSearch
from flows.viewer.rendering import FIRST_BUILD_WAIT_S, MOST_ROWS, ROWS_A_PAGE, building_page, chosen_facets, page_links, render
from flows.viewer.viewed_store import ViewedStore
from storage.errors import BadInput

router = APIRouter()


@router.get("/trajectories")
def search_trajectories(
    request: Request,
    text: str = "",
    of: str = "trajectories",
    accepted: str = "",
    first: Annotated[int, Query(ge=0, le=MOST_ROWS)] = 0,
    part: bool = False,
) -> HTMLResponse:
    """of: trajectories, or draws of policies. accepted: yes, no, or empty for both. part: only the rows and facets, for a search as one
    types."""
    if of not in FACETS:
        raise BadInput(f"there is no list of {of}; there are lists of {' and '.join(FACETS)}")
    viewed: ViewedStore = request.app.state.viewed
    index = viewed.conversations
    if not index.refresh(FIRST_BUILD_WAIT_S):
        return building_page(request, "Trajectories", "conversations", index.failure, part=part)
    is_current = index.is_current()
    search = ConversationSearch(of, text.strip(), accepted, chosen_facets(request, FACETS[of]))
    rows, count, facets = index.find(search, first=first, count=ROWS_A_PAGE + 1)
    return render(
        request,
        "trajectory_rows.html.j2" if part else "trajectories.html.j2",
        of=of,
        rows=rows[:ROWS_A_PAGE],
        count=count,
        facets=facets,
        chosen=search.chosen,
        text=search.text,
        accepted=accepted,
        first=first,
        is_current=is_current,
        failure=index.failure,
        **page_links(request, first, has_more=len(rows) > ROWS_A_PAGE),
    )

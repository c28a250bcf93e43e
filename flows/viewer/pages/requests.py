"""Raw requests: a search over all rows as one types, narrowed by verdict, run, step, reason, world, leaf, language and confidence."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from flows.viewer.indexes.request_index import FACETS, Search
from flows.viewer.rendering import FIRST_BUILD_WAIT_S, MOST_ROWS, ROWS_A_PAGE, building_page, chosen_facets, page_links, render
from flows.viewer.viewed_store import ViewedStore

router = APIRouter()


@router.get("/requests")
def search_requests(
    request: Request,
    text: str = "",
    verdict: str = "",
    confidence: str = "",
    first: Annotated[int, Query(ge=0, le=MOST_ROWS)] = 0,
    part: bool = False,
) -> HTMLResponse:
    """confidence: the least, 0 to 1. part: only the rows and facets, for a search as one types."""
    viewed: ViewedStore = request.app.state.viewed
    index = viewed.index
    if not index.refresh(FIRST_BUILD_WAIT_S):
        return building_page(request, "Requests", "requests", index.failure, part=part)
    is_current = index.is_current()
    search = Search(text.strip(), verdict, chosen_facets(request, FACETS), _share(confidence))
    rows, count, facets = index.find(search, first=first, count=ROWS_A_PAGE + 1)
    return render(
        request,
        "request_rows.html.j2" if part else "requests.html.j2",
        rows=rows[:ROWS_A_PAGE],
        count=count,
        facets=facets,
        chosen=search.chosen,
        text=search.text,
        verdict=verdict,
        confidence=confidence,
        first=first,
        is_current=is_current,
        failure=index.failure,
        **page_links(request, first, has_more=len(rows) > ROWS_A_PAGE),
    )


def _share(text: str) -> float | None:
    try:
        return min(1.0, max(0.0, float(text)))
    except ValueError:
        return None

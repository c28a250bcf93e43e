"""Raw requests: a search over all rows as one types, narrowed by verdict, step, reason, world, leaf, language and confidence."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from flows.viewer.rendering import render
from flows.viewer.request_index import FACETS, Search
from flows.viewer.viewed_store import ViewedStore

SHOWN = 50
BUILD_WAIT_S = 0.3
VERDICTS = {"": None, "kept": True, "dropped": False}

router = APIRouter()


@router.get("/requests")
def search_requests(
    request: Request,
    text: str = "",
    verdict: str = "",
    confidence: Annotated[str, Query(description="least confidence, 0 to 1")] = "",
    first: Annotated[int, Query(ge=0)] = 0,
    part: bool = False,
) -> HTMLResponse:
    """part: only the rows and facets, for a search as one types."""
    viewed: ViewedStore = request.app.state.viewed
    _ = viewed.store
    if not viewed.index.wait(BUILD_WAIT_S):
        return render(request, "index_building.html.j2", failure=viewed.index.failure)
    chosen = {column: value for column in FACETS if (value := request.query_params.get(column))}
    search = Search(text.strip(), VERDICTS.get(verdict), chosen, _share(confidence))
    rows = viewed.index.rows(search, first=first, count=SHOWN + 1)
    query = {key: value for key, value in request.query_params.items() if key not in ("part", "first") and value}
    return render(
        request,
        "request_rows.html.j2" if part else "requests.html.j2",
        rows=rows[:SHOWN],
        count=viewed.index.count(search),
        facets={column: viewed.index.facet(column, search) for column in FACETS},
        chosen=chosen,
        text=search.text,
        verdict=verdict,
        confidence=confidence,
        first=first,
        earlier=_page_url(query, first - SHOWN) if first else None,
        later=_page_url(query, first + SHOWN) if len(rows) > SHOWN else None,
    )


def _page_url(query: dict[str, str], first: int) -> str:
    return f"/requests?{urlencode(query | {'first': str(max(0, first))})}"


def _share(text: str) -> float | None:
    try:
        return min(1.0, max(0.0, float(text)))
    except ValueError:
        return None

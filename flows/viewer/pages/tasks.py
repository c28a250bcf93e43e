"""Tasks: searched by what the user says, narrowed by world, kind, division, use, difficulty, certainty, language and origin."""

from __future__ import annotations

from typing import Annotated

import polars as pl
from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from flows.viewer.indexes.facets import count_facets
from flows.viewer.rendering import MOST_ROWS, ROWS_A_PAGE, chosen_facets, page_links, render
from flows.viewer.task_list import list_tasks
from flows.viewer.viewed_store import ViewedStore

FACETS = ("world", "kind", "division", "use", "difficulty", "certainty", "language", "origin", "intent")

router = APIRouter()


@router.get("/tasks")
def search_tasks(
    request: Request, text: str = "", first: Annotated[int, Query(ge=0, le=MOST_ROWS)] = 0, part: bool = False
) -> HTMLResponse:
    """part: only the rows and facets, for a search as one types."""
    viewed: ViewedStore = request.app.state.viewed
    text, chosen = text.strip(), chosen_facets(request, FACETS)
    found = list_tasks(viewed.store)
    if text:
        found = found.filter(pl.col("lowered").str.contains(text.lower(), literal=True))
    count, facets = count_facets(found.group_by(FACETS).agg(n=pl.len()), FACETS, chosen)
    fits = found.filter(*(pl.col(column) == value for column, value in chosen.items()))
    return render(
        request,
        "task_rows.html.j2" if part else "tasks.html.j2",
        rows=fits.slice(first, ROWS_A_PAGE).to_dicts(),
        count=count,
        facets=facets,
        chosen=chosen,
        text=text,
        first=first,
        **page_links(request, first, has_more=fits.height > first + ROWS_A_PAGE),
    )

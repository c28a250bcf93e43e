"""Trajectories: conversations that were executed, searched by what was said and narrowed by world, mode, band, outcome and teacher."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from flows.viewer.facets import count_facets
from flows.viewer.rendering import MOST_ROWS, ROWS_A_PAGE, chosen_facets, page_links, render
from flows.viewer.viewed_store import ViewedStore

FACETS = {
    "world": "world",
    "mode": "mode_coarse",
    "band": "complexity_band",
    "outcome": "outcome",
    "reason": "reason",
    "language": "language",
    "teacher": "teacher",
    "cluster": "cluster_id",
}
"""Name in the address -> column."""
_ACCEPTED = {"yes": "accepted", "no": "NOT accepted"}
_SAID = "lower(array_to_string(json_extract_string(messages, '$[*].content'), chr(10)))"
FIRST_REQUEST = """json_extract_string(
    list_filter(json_extract(messages, '$[*]'), lambda one: json_extract_string(one, '$.role') = 'user')[1], '$.content')"""

router = APIRouter()


@router.get("/trajectories")
def search_trajectories(
    request: Request, text: str = "", accepted: str = "", first: Annotated[int, Query(ge=0, le=MOST_ROWS)] = 0, part: bool = False
) -> HTMLResponse:
    """accepted: yes, no, or empty for both. part: only the rows and facets, for a search as one types."""
    viewed: ViewedStore = request.app.state.viewed
    store, chosen, text = viewed.store, chosen_facets(request, FACETS), text.strip()
    where, values = _ACCEPTED.get(accepted, "true"), list[Any]()
    if text:
        where, values = f"{where} AND contains({_SAID}, lower(?))", [text]
    columns = ", ".join(f"{column} AS {name}" for name, column in FACETS.items())
    cube = store.query(f"SELECT {columns}, count(*) AS n FROM trajectories WHERE {where} GROUP BY ALL", values)
    count, facets = count_facets(cube, list(FACETS), chosen)
    where = " AND ".join([where, *(f"{FACETS[name]} = ?" for name in chosen)])
    rows = store.query(
        f"""SELECT trajectory_id, world, domain, mode_coarse, complexity, complexity_band, language, teacher, outcome, accepted, reason,
              {FIRST_REQUEST} AS request
            FROM (SELECT * FROM trajectories WHERE {where} ORDER BY complexity DESC NULLS LAST, trajectory_id LIMIT ? OFFSET ?)""",
        [*values, *chosen.values(), ROWS_A_PAGE + 1, first],
    ).to_dicts()
    return render(
        request,
        "trajectory_rows.html.j2" if part else "trajectories.html.j2",
        rows=rows[:ROWS_A_PAGE],
        count=count,
        facets=facets,
        chosen=chosen,
        text=text,
        accepted=accepted,
        first=first,
        **page_links(request, first, has_more=len(rows) > ROWS_A_PAGE),
    )

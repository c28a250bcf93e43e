"""Trajectories: conversations that were executed, searched by text and narrowed by world, mode, band, outcome and teacher."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from flows.viewer.rendering import render
from flows.viewer.viewed_store import ViewedStore
from storage.store import Store

SHOWN = 50
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

router = APIRouter()


@router.get("/trajectories")
def search_trajectories(
    request: Request, text: str = "", accepted: str = "", first: Annotated[int, Query(ge=0)] = 0, part: bool = False
) -> HTMLResponse:
    """part: only the rows and facets, for a search as one types."""
    viewed: ViewedStore = request.app.state.viewed
    store = viewed.store
    chosen = {name: value for name in FACETS if (value := request.query_params.get(name))}
    where, values = _where(text.strip(), accepted, chosen)
    rows = store.query(
        f"""SELECT trajectory_id, world, domain, mode_coarse, complexity, complexity_band, language, teacher, outcome, accepted, reason,
              json_extract_string(list_filter(json_extract(messages, '$[*]'), lambda one: json_extract_string(one, '$.role') = 'user')[1],
                '$.content') AS request
            FROM (SELECT * FROM trajectories WHERE {where} ORDER BY complexity DESC NULLS LAST, trajectory_id LIMIT ? OFFSET ?)""",
        [*values, SHOWN + 1, first],
    ).to_dicts()
    query = {key: value for key, value in request.query_params.items() if key not in ("part", "first") and value}
    return render(
        request,
        "trajectory_rows.html.j2" if part else "trajectories.html.j2",
        rows=rows[:SHOWN],
        count=store.query(f"SELECT count(*) AS n FROM trajectories WHERE {where}", values)["n"][0],
        facets={name: _facet(store, name, text.strip(), accepted, chosen) for name in FACETS},
        chosen=chosen,
        text=text.strip(),
        accepted=accepted,
        first=first,
        earlier=_page_url(query, first - SHOWN) if first else None,
        later=_page_url(query, first + SHOWN) if len(rows) > SHOWN else None,
    )


def _where(text: str, accepted: str, chosen: dict[str, str]) -> tuple[str, list[Any]]:
    conditions, values = ["true"], list[Any]()
    if text:
        conditions.append("contains(lower(messages), ?)")
        values.append(text.lower())
    if accepted in ("yes", "no"):
        conditions.append("accepted" if accepted == "yes" else "NOT accepted")
    for name, value in chosen.items():
        conditions.append(f"{FACETS[name]} = ?")
        values.append(value)
    return " AND ".join(conditions), values


def _facet(store: Store, name: str, text: str, accepted: str, chosen: dict[str, str]) -> list[tuple[str, int]]:
    """Values of a column with their numbers of trajectories, whatever was chosen in this column."""
    where, values = _where(text, accepted, {other: value for other, value in chosen.items() if other != name})
    column = FACETS[name]
    found = store.query(
        f"""SELECT {column} AS value, count(*) AS n FROM trajectories WHERE {where} AND {column} IS NOT NULL
            GROUP BY 1 ORDER BY n DESC, 1 LIMIT 40""",
        values,
    )
    return list(found.iter_rows())


def _page_url(query: dict[str, str], first: int) -> str:
    return f"/trajectories?{urlencode(query | {'first': str(max(0, first))})}"

"""Trajectories: synthesised conversations, and draws of policies, searched by what was said and narrowed by what is known of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from flows.viewer.facets import count_facets
from flows.viewer.rendering import MOST_ROWS, ROWS_A_PAGE, chosen_facets, page_links, render
from flows.viewer.task_history import FAULTS
from flows.viewer.viewed_store import ViewedStore
from storage.errors import BadInput
from storage.releases.lineage_graph import POLICY_NAME
from storage.tables import CERTAINTY

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
"""Of synthesised conversations: name in the address -> column."""
DRAW_FACETS = {
    "policy": "policy",
    "purpose": "purpose",
    "outcome": "outcome",
    "fault": "fault",
    "region": "region",
    "world": "world",
    "intent": "intent",
    "difficulty": "difficulty",
    "language": "language",
    "division": "division",
}
"""Of draws: name in the address -> column."""
_QUOTED = {outcome: fault.replace("'", "''") for outcome, fault in FAULTS.items()}
_WHEN = " ".join(f"WHEN '{outcome}' THEN '{fault}'" for outcome, fault in _QUOTED.items())
_FAULT = f"CASE r.outcome {_WHEN} END"
_DRAWS = f"""(SELECT r.rollout_id, r.task_id, r.messages, r.outcome, {_FAULT} AS fault, r.failure, r.purpose, r.draw,
    t.world, t.intent, t.language, t.difficulty::VARCHAR AS difficulty, t.division, {POLICY_NAME} AS policy, c.region
  FROM rollouts r LEFT JOIN tasks t USING (task_id) LEFT JOIN policies p ON p.policy_id = r.policy_id
    LEFT JOIN stages s ON s.stage_id = p.stage_id
    LEFT JOIN {CERTAINTY} c ON c.task_id = r.task_id AND c.policy_id = r.policy_id AND c.purpose = r.purpose)"""
_ACCEPTED = {"yes": "accepted", "no": "NOT accepted"}
_SAID = "lower(coalesce(TRY(array_to_string(json_extract_string(messages, '$[*].content'), chr(10))), messages))"
"""What was said. The JSON of a policy may hold half a surrogate pair, which DuckDB does not read: there it is the whole JSON."""
FIRST_REQUEST = """coalesce(TRY(json_extract_string(
    list_filter(json_extract(messages, '$[*]'), lambda one: json_extract_string(one, '$.role') = 'user')[1], '$.content')),
  left(messages, 400))"""


@dataclass(frozen=True)
class _Listed:
    """What a list has. source: a table, or a query in brackets. order: of its rows."""

    source: str
    facets: Mapping[str, str]
    columns: str
    order: str


_LISTED = {
    "trajectories": _Listed(
        "trajectories",
        FACETS,
        "trajectory_id AS id, world, domain, mode_coarse, complexity, complexity_band, language, teacher, outcome, accepted, reason",
        "complexity DESC NULLS LAST, trajectory_id",
    ),
    "draws": _Listed(
        _DRAWS,
        DRAW_FACETS,
        "rollout_id AS id, task_id, world, intent, language, difficulty, division, policy, purpose, draw, outcome, fault, failure, region",
        "policy, purpose, task_id, draw, rollout_id",
    ),
}

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
    if of not in _LISTED:
        raise BadInput(f"there is no list of {of}; there are lists of {' and '.join(_LISTED)}")
    viewed: ViewedStore = request.app.state.viewed
    store, listed, text = viewed.store, _LISTED[of], text.strip()
    chosen = chosen_facets(request, listed.facets)
    where, values = _ACCEPTED.get(accepted, "true") if of == "trajectories" else "true", list[Any]()
    if text:
        where, values = f"{where} AND contains({_SAID}, lower(?))", [text]
    columns = ", ".join(f"{column} AS {name}" for name, column in listed.facets.items())
    cube = store.query(f"SELECT {columns}, count(*) AS n FROM {listed.source} WHERE {where} GROUP BY ALL", values)
    count, facets = count_facets(cube, list(listed.facets), chosen)
    where = " AND ".join([where, *(f"{listed.facets[name]} = ?" for name in chosen)])
    rows = store.query(
        f"""SELECT {listed.columns}, {FIRST_REQUEST} AS request
            FROM (SELECT * FROM {listed.source} WHERE {where} ORDER BY {listed.order} LIMIT ? OFFSET ?) ORDER BY {listed.order}""",
        [*values, *chosen.values(), ROWS_A_PAGE + 1, first],
    ).to_dicts()
    return render(
        request,
        "trajectory_rows.html.j2" if part else "trajectories.html.j2",
        of=of,
        rows=rows[:ROWS_A_PAGE],
        count=count,
        facets=facets,
        chosen=chosen,
        text=text,
        accepted=accepted,
        first=first,
        **page_links(request, first, has_more=len(rows) > ROWS_A_PAGE),
    )

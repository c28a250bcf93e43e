"""Business clusters: all of the last build, and of one its tools, their graph, and what was planned and played with it."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from flows.viewer.indexes.facets import count_facets
from flows.viewer.rendering import MOST_ROWS, ROWS_A_PAGE, chosen_facets, item_url, page_links, render
from flows.viewer.tool_graph_drawing import draw_tools
from flows.viewer.viewed_store import ViewedStore
from storage.records import Tool
from storage.store import Store
from storage.tables import LAST_BUILD

_FACETS = {"world": "world", "domain": "domain"}
_NO_WORLD = "of no world"
_LISTED = f"""(SELECT cluster_id, coalesce(world, '{_NO_WORLD}') AS world, domain, tool_ids, rank, json_array_length(edges) AS edges,
  part_id = {LAST_BUILD} AS is_last FROM clusters)"""
_BLUEPRINTS = 30

router = APIRouter()


@router.get("/clusters")
def list_clusters(
    request: Request, text: str = "", first: Annotated[int, Query(ge=0, le=MOST_ROWS)] = 0, part: bool = False
) -> HTMLResponse:
    """text: of the name of a tool. part: only the rows and facets, for a search as one types."""
    viewed: ViewedStore = request.app.state.viewed
    store, chosen, text = viewed.store, chosen_facets(request, _FACETS), text.strip()
    where, values = "is_last", list[Any]()
    if text:
        where, values = f"{where} AND contains(lower(array_to_string(tool_ids, ' ')), lower(?))", [text]
    cube = store.query(f"SELECT world, domain, count(*) AS n FROM {_LISTED} WHERE {where} GROUP BY ALL", values)
    count, facets = count_facets(cube, list(_FACETS), chosen)
    where = " AND ".join([where, *(f"{_FACETS[name]} = ?" for name in chosen)])
    rows = store.query(
        f"""SELECT listed.*, coalesce(played.n, 0) AS played FROM
              (SELECT * FROM {_LISTED} WHERE {where} ORDER BY rank, cluster_id LIMIT ? OFFSET ?) AS listed
            LEFT JOIN (SELECT cluster_id, count(*) AS n FROM trajectories GROUP BY 1) AS played USING (cluster_id)
            ORDER BY rank, cluster_id""",
        [*values, *chosen.values(), ROWS_A_PAGE + 1, first],
    ).to_dicts()
    return render(
        request,
        "cluster_rows.html.j2" if part else "clusters.html.j2",
        rows=rows[:ROWS_A_PAGE],
        count=count,
        facets=facets,
        chosen=chosen,
        text=text,
        first=first,
        no_world=_NO_WORLD,
        **page_links(request, first, has_more=len(rows) > ROWS_A_PAGE),
    )


@router.get("/clusters/{id}")
def show_cluster(request: Request, id: str, tool: str = "") -> HTMLResponse:
    """tool: id of the one whose edges stand out in the drawing."""
    from synth.clusters.cluster_store import read_cluster

    viewed: ViewedStore = request.app.state.viewed
    cluster, tools = read_cluster(viewed.store, id)
    here = f"{item_url(cluster.id)}?tool="
    return render(
        request,
        "cluster.html.j2",
        cluster=cluster,
        tools=tools,
        drawing=draw_tools(tools, cluster.edges, {each.id: f"{here}{quote(each.id, safe='')}#graph" for each in tools}),
        chosen_tool=tool,
        tool_urls={each.id: _tool_url(each) for each in tools},
        servers=sorted({each.server for each in tools}),
        **_made_with(viewed.store, cluster.id),
    )


def _tool_url(tool: Tool) -> str:
    return f"/worlds/{quote(tool.world)}#tool-{quote(tool.name)}" if tool.world else item_url(tool.id)


def _made_with(store: Store, cluster: str) -> dict[str, Any]:
    """The blueprints of a cluster, and its conversations by kind."""
    statuses = store.query("SELECT status, count(*) AS n FROM blueprints WHERE cluster_id = ? GROUP BY 1 ORDER BY n DESC, 1", [cluster])
    blueprints = store.query(
        f"""SELECT blueprint_id, mode_family, complexity_band, round, status, reason FROM blueprints WHERE cluster_id = ?
            ORDER BY status = 'accepted' DESC, round, blueprint_id LIMIT {_BLUEPRINTS}""",
        [cluster],
    )
    played = store.query(
        """SELECT mode_coarse AS mode, count(*) AS n, count(*) FILTER (accepted) AS accepted FROM trajectories WHERE cluster_id = ?
           GROUP BY 1 ORDER BY n DESC, 1""",
        [cluster],
    )
    return {
        "statuses": statuses.to_dicts(),
        "blueprints": blueprints.to_dicts(),
        "blueprint_count": int(statuses["n"].sum()),
        "played": played.to_dicts(),
        "played_count": int(played["n"].sum()),
        "accepted_count": int(played["accepted"].sum()),
    }

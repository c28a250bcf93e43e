"""Lineage of any item, both ways: a drawing, lists, and what would go if a source of it were withdrawn, with the command that does it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any, cast, get_args
from urllib.parse import quote

import polars as pl
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from flows.viewer.drawings.lineage_drawing import draw_lineage, plural
from flows.viewer.rendering import render
from flows.viewer.viewed_store import ViewedStore
from storage.releases.headlines import headline
from storage.releases.lineage import Lineage, lineage
from storage.releases.lineage_graph import ORDER, POLICY_NAME, edges_between
from storage.store import Store
from storage.tombstones.withdrawn_rows import SOURCE_KINDS, Withdrawal, list_withdrawals, marked_policies
from storage.withdrawals.withdrawal_plan import Kind, find_source, plan_withdrawal

LISTED, LOOKED_UP = 12, 3
"""Items of a kind that are listed; those of `_IN_LAKE` that are shown with their content, which takes a look into the lake for each."""
_IN_LAKE = ("query", "frame", "trajectory", "rollout")
_NAMED = ("policy", "stage", "split")
"""Kinds that a name tells more of than an id."""
_SOURCES_SQL = """WITH nodes AS MATERIALIZED (SELECT unnest(?::VARCHAR[]) AS kind, unnest(?::VARCHAR[]) AS id)
SELECT 'file' AS kind, source AS name, count(DISTINCT query_id) AS n FROM queries
    WHERE query_id IN (SELECT id FROM nodes WHERE kind = 'query') GROUP BY ALL
UNION ALL SELECT 'world', world, count(*) FROM (
    SELECT world FROM tasks WHERE task_id IN (SELECT id FROM nodes WHERE kind = 'task')
    UNION ALL SELECT world FROM blueprints WHERE blueprint_id IN (SELECT id FROM nodes WHERE kind = 'blueprint')
    UNION ALL SELECT world FROM tools WHERE tool_id IN (SELECT id FROM nodes WHERE kind = 'tool'))
    WHERE world IS NOT NULL AND world <> 'general' GROUP BY ALL
UNION ALL SELECT 'teacher', teacher, count(*) FROM trajectories
    WHERE trajectory_id IN (SELECT id FROM nodes WHERE kind = 'trajectory') AND teacher <> 'scripted' GROUP BY ALL
ORDER BY kind, n DESC, name"""
"""What an item comes from that can be withdrawn; parameters: kinds and ids of the item and all that it was made from."""
_ALL_SOURCES_SQL = """SELECT 'file' AS kind, source AS name, count(*) AS n FROM queries WHERE source IS NOT NULL GROUP BY ALL
UNION ALL SELECT 'world', world, sum(n)::BIGINT FROM (
    SELECT world, count(*) AS n FROM tasks GROUP BY ALL UNION ALL SELECT world, count(*) FROM trajectories GROUP BY ALL)
    WHERE world IS NOT NULL AND world <> 'general' GROUP BY ALL
UNION ALL SELECT 'teacher', teacher, count(*) FROM trajectories WHERE teacher <> 'scripted' GROUP BY ALL
QUALIFY row_number() OVER (PARTITION BY kind ORDER BY n DESC, name) <= 50 ORDER BY kind, n DESC, name"""
"""Sources that can be withdrawn, the 50 with most rows of each kind."""
_POLICIES_SQL = f"""SELECT p.policy_id AS id, {POLICY_NAME} AS name FROM policies p LEFT JOIN stages s USING (stage_id)
    JOIN parts ON parts.part_id = p.part_id ORDER BY parts.rowid DESC LIMIT 12"""

router = APIRouter()


@router.get("/lineage")
def list_sources(request: Request, kind: str = "", source: str = "") -> HTMLResponse:
    """kind, source: the source whose withdrawal is counted."""
    viewed: ViewedStore = request.app.state.viewed
    store = viewed.store
    return render(
        request,
        "lineage_index.html.j2",
        sources=[row | {"words": SOURCE_KINDS[row["kind"]]} for row in store.query(_ALL_SOURCES_SQL).to_dicts()],
        policies=store.query(_POLICIES_SQL).to_dicts(),
        withdrawals=list_withdrawals(store),
        impact=_impact(store, kind, source) if kind in get_args(Kind) and source else None,
    )


@router.get("/lineage/")
def find_lineage(id: str) -> RedirectResponse:
    """The address of the form."""
    return RedirectResponse(f"/lineage/{quote(id.strip())}" if id.strip() else "/lineage", 303)


@router.get("/lineage/{id:path}")
def show_lineage(request: Request, id: str, kind: str = "", source: str = "") -> HTMLResponse:
    """id: also a unique beginning of one, or a name that tables print. kind, source: the source whose withdrawal is counted."""
    viewed: ViewedStore = request.app.state.viewed
    store = viewed.store
    found = lineage(store, id)
    itself = pl.DataFrame({"kind": [found.kind], "id": [found.id]})
    nodes = pl.concat([found.origins, found.uses]).unique(maintain_order=True)
    behind = pl.concat([itself, found.origins])
    drawing = draw_lineage((found.kind, found.id), nodes, edges_between(store, pl.concat([itself, nodes])), lambda *key: _name(store, *key))
    sources = store.query(_SOURCES_SQL, [behind["kind"].to_list(), behind["id"].to_list()]).to_dicts()
    return render(
        request,
        "lineage.html.j2",
        found=found,
        drawing=drawing,
        made_from=_lists(store, found.origins, reverse=True),
        went_into=_lists(store, found.uses),
        marks=_marks(store, found),
        sources=[row | {"words": SOURCE_KINDS[row["kind"]]} for row in sources],
        impact=_impact(store, kind, source) if kind in get_args(Kind) and source else None,
    )


def _name(store: Store, kind: str, id: str) -> str:
    if kind == "split":
        return id.rpartition("/")[2]
    name = headline(store, kind, id) if kind in _NAMED else ""
    return name or id.removeprefix("q-").removeprefix(f"{kind}-")


def _lists(store: Store, nodes: pl.DataFrame, *, reverse: bool = False) -> list[dict[str, Any]]:
    """The items by kind: name, count, and the first ones with their content."""
    lists = []
    for kind in reversed(ORDER) if reverse else ORDER:
        ids: Sequence[str] = nodes.filter(kind=kind)["id"].to_list()
        if ids:
            shown = [
                (id, headline(store, kind, id) if place < LOOKED_UP or kind not in _IN_LAKE else "")
                for place, id in enumerate(ids[:LISTED])
            ]
            lists.append({"kind": kind, "name": kind if len(ids) == 1 else plural(kind), "count": len(ids), "shown": shown})
    return lists


def _marks(store: Store, found: Lineage) -> list[tuple[str, list[Withdrawal]]]:
    """The policies of this lineage, and the item itself if it is one, that learned from withdrawn rows."""
    marked = marked_policies(store)
    policies = [found.id, *found.origins.filter(kind="policy")["id"], *found.uses.filter(kind="policy")["id"]]
    return [(policy, marked[policy]) for policy in dict.fromkeys(policies) if policy in marked]


def _impact(store: Store, kind: str, source: str) -> dict[str, Any]:
    """Raises BadInput: there is no such source."""
    planned = plan_withdrawal(store, find_source(store, source, cast("Kind", kind)))
    command = f"headrace withdraw {shlex.quote(source)} --kind {kind} --reason 'why' --store {shlex.quote(str(store.root))}"
    return {"planned": planned, "releases": planned.releases.to_dicts(), "command": command}

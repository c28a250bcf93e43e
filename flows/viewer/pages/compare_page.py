"""Compare: two releases, by what is in them, or two policies, by where one wins and loses against the other, with examples."""

from __future__ import annotations

from typing import Any

import polars as pl
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from flows.viewer.rendering import render
from flows.viewer.viewed_store import ViewedStore
from storage.errors import BadInput
from storage.releases.headlines import headline
from storage.releases.lineage_graph import POLICY_NAME
from storage.store import Store

EXAMPLES = 10
_VALUES = 10
"""Values of a column that are listed, those whose shares differ most."""
_COLUMNS = {
    "kind": "kind of item",
    "world": "world",
    "language": "language",
    "difficulty": "difficulty",
    "mode": "what the assistant does",
    "teacher": "teacher",
}
_RELEASES_SQL = """SELECT release_id AS id, name || ', ' || strftime(committed_at, '%Y-%m-%d %H:%M') AS name FROM releases
  JOIN parts USING (part_id) ORDER BY parts.rowid DESC"""
_POLICIES_SQL = f"""SELECT p.policy_id AS id, {POLICY_NAME} AS name FROM policies p LEFT JOIN stages s USING (stage_id)
  JOIN parts ON parts.part_id = p.part_id ORDER BY parts.rowid DESC"""
_ITEMS_SQL = """SELECT i.*, coalesce(t.world, x.world) AS world, coalesce(t.language, x.language) AS language,
    t.difficulty::VARCHAR AS difficulty, x.mode_coarse AS mode, x.teacher
  FROM (SELECT DISTINCT split, kind, item_id, task_id FROM release_items WHERE release_id = ?) i
  LEFT JOIN tasks t USING (task_id) LEFT JOIN trajectories x ON x.trajectory_id = i.item_id ORDER BY split, kind, item_id"""
_TASKS_SQL = """WITH rated AS (
    SELECT policy_id, task_id, avg((outcome = 'success')::INTEGER) AS rate, count(*) AS draws,
      arg_max(rollout_id, (outcome = 'success')::INTEGER) AS best, arg_min(rollout_id, (outcome = 'success')::INTEGER) AS worst
    FROM rollouts WHERE policy_id IN (?, ?) AND starts_with(purpose, 'eval') AND outcome IN ('success', 'policy_failure') GROUP BY ALL)
  SELECT task_id, one.rate AS first, other.rate AS second, one.best AS first_best, one.worst AS first_worst, other.best AS second_best,
    other.worst AS second_worst FROM rated one JOIN rated other USING (task_id)
  WHERE one.policy_id = ? AND other.policy_id = ? ORDER BY second - first DESC, task_id"""

router = APIRouter()


@router.get("/compare")
def choose(request: Request, of: str = "", first: str = "", second: str = "") -> HTMLResponse:
    """of: releases or policies; first, second: ids of two. The result is fetched as a part."""
    store = _store(request)
    choices = {"releases": store.query(_RELEASES_SQL).to_dicts(), "policies": store.query(_POLICIES_SQL).to_dicts()}
    return render(request, "compare.html.j2", of=of, first=first, second=second, choices=choices)


@router.get("/compare/releases")
def compare_releases(request: Request, first: str, second: str) -> HTMLResponse:
    """first, second: ids of releases."""
    store = _store(request)
    names = _names(store, _RELEASES_SQL, first, second)
    one, other = (store.query(_ITEMS_SQL, [id]) for id in (first, second))
    key = ["split", "kind", "item_id"]
    lost, gained = one.join(other, on=key, how="anti"), other.join(one, on=key, how="anti")
    return render(
        request,
        "compare_releases.html.j2",
        ids=(first, second),
        names=names,
        splits=_by_split(one, other, lost, gained),
        columns=_by_column(one, other),
        examples=[
            (
                title,
                rows.height,
                [(id, headline(store, kind, id)) for kind, id in rows.select("kind", "item_id").head(EXAMPLES).iter_rows()],
            )
            for title, rows in (("Only in the first", lost), ("Only in the second", gained))
        ],
    )


def _by_split(one: pl.DataFrame, other: pl.DataFrame, lost: pl.DataFrame, gained: pl.DataFrame) -> list[dict[str, Any]]:
    counted = [
        rows.group_by("split").agg(pl.len().alias(name))
        for name, rows in (("first", one), ("second", other), ("lost", lost), ("gained", gained))
    ]
    splits = pl.concat([each.select("split") for each in counted]).unique().sort("split")
    for each in counted:
        splits = splits.join(each, on="split", how="left")
    return splits.fill_null(0).to_dicts()


def _by_column(one: pl.DataFrame, other: pl.DataFrame) -> list[dict[str, Any]]:
    """Of each column in which they differ: its values with the share of each, those that differ most first."""
    tables = []
    for column, title in _COLUMNS.items():
        shares = [
            rows.filter(pl.col(column).is_not_null()).group_by(column).agg((pl.len() / max(rows.height, 1)).alias(name))
            for name, rows in (("first", one), ("second", other))
        ]
        values = shares[0].join(shares[1], on=column, how="full", coalesce=True).fill_null(0.0)
        differs = values.sort((pl.col("second") - pl.col("first")).abs(), column, descending=[True, False])
        if differs.height > 1:
            tables.append({"name": column, "title": title, "rows": differs.head(_VALUES).rename({column: "value"}).to_dicts()})
    return tables


@router.get("/compare/policies")
def compare_policies(request: Request, first: str, second: str) -> HTMLResponse:
    """first, second: ids of policies that drew on the same held-out tasks."""
    from train.measure.compare import compare

    store = _store(request)
    names = _names(store, _POLICIES_SQL, first, second)
    try:
        differences = compare([store], first, second).differences
    except KeyError as unknown:
        raise BadInput(f"the tasks of these policies cannot be compared: this Headrace does not know {unknown}") from None
    tasks = store.query(_TASKS_SQL, [first, second, first, second])
    won, lost = tasks.filter(pl.col("second") > pl.col("first")), tasks.filter(pl.col("second") < pl.col("first")).reverse()
    return render(
        request,
        "compare_policies.html.j2",
        ids=(first, second),
        names=names,
        overall=[one for one in differences if one.facet == "all"],
        clear=sorted((one for one in differences if one.facet != "all" and one.is_clear), key=lambda one: one.first - one.second),
        unclear=sum(one.facet != "all" and not one.is_clear for one in differences),
        count=tasks.height,
        examples=[
            (title, rows.height, [row | {"text": headline(store, "task", row["task_id"])} for row in rows.head(EXAMPLES).to_dicts()])
            for title, rows in (("Where the second wins", won), ("Where the second loses", lost))
        ],
    )


def _names(store: Store, sql: str, first: str, second: str) -> tuple[str, str]:
    """Raises BadInput: one is not there, or both are the same."""
    names = dict(store.query(sql).select("id", "name").iter_rows())
    for id in (first, second):
        if id not in names:
            raise BadInput(f"the store has no {id}")
    if first == second:
        raise BadInput(f"{first} is compared with itself; choose another")
    return names[first], names[second]


def _store(request: Request) -> Store:
    viewed: ViewedStore = request.app.state.viewed
    return viewed.store

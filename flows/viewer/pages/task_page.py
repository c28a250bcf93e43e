"""One task: what it asks, when it is solved, every draw of every policy, its certainty, its siblings, and why it is in its split."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import plotly.io
import polars as pl
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from flows.viewer.rendering import item_url, render
from flows.viewer.task_history import draws, experts, measurements, success_chart
from flows.viewer.task_list import list_tasks
from flows.viewer.viewed_store import ViewedStore
from storage.explanations.explain_conversation import explain_task, list_names
from storage.releases.node_ids import find_node
from storage.store import Store

SIBLINGS_SHOWN = 50
_SHOWN_ELSEWHERE = ("asks", "certainty", "prior", "in split", "division", "draws of policies")
"""Facts and sections of the explanation that this page shows in another form."""
DIVISION_RULE = (
    "A hash of a frame's id decides its division, so that every command comes to the same answer, and all tasks of a frame are in one "
    "division. By default 40 of 100 frames are seed (trained on), 40 probe (certainty is measured on them) and 20 held out. A frame with "
    "a name that no list has is held out if that name is, so that held-out names are never trained on."
)
USE_RULES = {
    ("seed", "train"): "Its frame is a seed frame, and the task may be trained on.",
    ("probe", "train"): "Its frame is a probe frame: policies are probed on the task, and the result routes it into the later stages.",
    (
        "held_out",
        "eval_out",
    ): "Its frame is held out. No seed or probe frame has its need, so the task measures what training never showed.",
}
_EVAL_IN = (
    "It is a sibling of a {division} frame in a world seed, and with individuals, that a hash sets aside for evaluation. So its need is "
    "known from training, and its answer is not."
)

router = APIRouter()


@router.get("/tasks/{id}")
def show_task(request: Request, id: str) -> Response:
    """id: also a unique beginning of one."""
    viewed: ViewedStore = request.app.state.viewed
    store = viewed.store
    kind, node = find_node(store, id)
    if kind != "task" or node != id:
        return RedirectResponse(item_url(node))
    return _page(request, store, node)


def _page(request: Request, store: Store, node: str) -> HTMLResponse:
    row = store.query("SELECT * FROM tasks WHERE task_id = ?", [node]).row(0, named=True)
    explained, drawn = explain_task(store, node, True, list_names), draws(store, node)
    measured = measurements(store, node, drawn)
    chart = success_chart(measured) if measured else None
    siblings = _siblings(store, row)
    return render(
        request,
        "task.html.j2",
        task=row,
        messages=_said(json.loads(row["spec"])),
        facts=[(label, text) for label, text in explained.facts if text and label not in _SHOWN_ELSEWHERE],
        sections=[section for section in explained.sections if section.title not in _SHOWN_ELSEWHERE],
        draws=drawn,
        experts=experts(store, node),
        measured=measured,
        chart={"number": 0, "height": int(chart.layout.height)} if chart else None,
        charts=f"[{plotly.io.to_json(chart, validate=False) if chart else ''}]",
        regions=[text for label, text in explained.facts if text and label in ("certainty", "prior")],
        siblings=siblings.head(SIBLINGS_SHOWN).to_dicts(),
        sibling_count=siblings.height,
        division_rule=DIVISION_RULE,
        use_rule=USE_RULES.get((row["division"], row["use"])) or _EVAL_IN.format(division=row["division"]),
        splits=_splits(store, node),
    )


def _said(spec: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Who says what: the opening, and what the user goes on to say if the task is a conversation."""
    opening = [(message["role"], message["content"]) for message in spec["messages"] if message["content"]]
    later = (spec.get("conversation") or {}).get("turns", ())[1:]
    return [*opening, *(("user", turn["text"]) for turn in later)]


def _siblings(store: Store, task: Mapping[str, Any]) -> pl.DataFrame:
    """Other tasks of its frame, raw query or blueprint: the columns of `list_tasks`, and relation."""
    shared = {"frame_id": "the same frame", "query_id": "the same raw query", "blueprint_id": "the same blueprint"}
    relations = [pl.when(pl.col(column) == task[column]).then(pl.lit(name)) for column, name in shared.items() if task[column]]
    every = list_tasks(store).filter(pl.col("task_id") != task["task_id"])
    return every.with_columns(relation=pl.coalesce(relations)).drop_nulls("relation").sort("relation", "use", "task_id")


def _splits(store: Store, node: str) -> list[dict[str, Any]]:
    """Where it stands in releases, and the stage that read it there."""
    return store.query(
        """SELECT DISTINCT r.name, i.release_id, i.split, i.kind, i.item_id, i.weight, s.name AS stage, s.output_policy_id
           FROM release_items i JOIN releases r USING (release_id) LEFT JOIN stages s ON s.release_id = i.release_id AND s.split = i.split
           WHERE i.task_id = ? ORDER BY ALL""",
        [node],
    ).to_dicts()

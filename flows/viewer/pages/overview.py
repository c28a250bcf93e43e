"""The overview: what works on the store now, and what the store holds, in the charts of the report. Its parts are fetched one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import plotly.graph_objects as go
import plotly.io
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from flows.runtime.notes.run_records import notes_folder
from flows.runtime.notes.work_notes import read_runs, read_work
from flows.viewer.rendering import render
from flows.viewer.viewed_store import ViewedStore
from storage.errors import BadInput
from storage.report import sections
from storage.report.charts import Chart
from storage.report.funnel_section import funnel_steps
from storage.report.learning_curves import open_curves
from storage.store import Store

MOST_RUNS = 8

PARTS: Mapping[str, tuple[str, Callable[[Store, Chart], Any]]] = {
    "funnel": ("Funnel", funnel_steps),
    "diversity": ("Diversity", sections.diversity),
    "tags": ("Difficulty and certainty", lambda store, _: sections.tags(store)),
    "ladder": ("Success ladder", sections.ladder),
    "spending": ("Tokens and cost", lambda store, _: sections.spending(store)),
    "checkpoint": ("Lineage of the last checkpoint", sections.lineage),
}
"""Part -> its title, and what it shows."""

router = APIRouter()


@router.get("/")
def overview(request: Request) -> HTMLResponse:
    viewed: ViewedStore = request.app.state.viewed
    parts = {part: title for part, (title, _) in PARTS.items()}
    return render(request, "overview.html.j2", summary=sections.summary(viewed.store), parts=parts, **_work(viewed))


@router.get("/overview/work")
def show_work(request: Request) -> HTMLResponse:
    """What works on the store now, and the last runs; asked again every two seconds."""
    viewed: ViewedStore = request.app.state.viewed
    return render(request, "overview_work.html.j2", **_work(viewed))


@router.get("/overview/{part}")
def show_part(request: Request, part: str) -> HTMLResponse:
    viewed: ViewedStore = request.app.state.viewed
    if part not in PARTS:
        raise BadInput(f"the overview has no part {part}; its parts are {', '.join(PARTS)}")
    charts = _Charts()
    title, section = PARTS[part]
    return render(request, "overview_part.html.j2", part=part, title=title, shown=section(viewed.store, charts.add), charts=charts)


class _Charts:
    """The charts of one part of a page."""

    def __init__(self) -> None:
        self._figures: list[go.Figure] = []

    def add(self, figure: go.Figure) -> dict[str, int]:
        self._figures.append(figure)
        return {"number": len(self._figures) - 1, "height": int(figure.layout.height)}

    @property
    def json(self) -> str:
        return f"[{','.join(plotly.io.to_json(figure, validate=False) for figure in self._figures)}]"


def _work(viewed: ViewedStore) -> dict[str, Any]:
    folder, charts = notes_folder(viewed.root), _Charts()
    work = read_work(folder)
    return {
        "work": work,
        "curves": open_curves(viewed.store, charts.add, work.started) if work is not None else [],
        "runs": read_runs(folder, MOST_RUNS),
        "version": viewed.store.query("SELECT count(*) AS n FROM parts")["n"][0],
        "charts": charts,
    }

"""The overview: what the store holds, in the charts of the report."""

from __future__ import annotations

import plotly.graph_objects as go
import plotly.io
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from flows.viewer.rendering import render
from flows.viewer.viewed_store import ViewedStore
from storage.report import sections
from storage.report.funnel_section import funnel_steps

router = APIRouter()


@router.get("/")
def overview(request: Request) -> HTMLResponse:
    viewed: ViewedStore = request.app.state.viewed
    store, figures = viewed.store, list[go.Figure]()

    def chart(figure: go.Figure) -> dict[str, int]:
        figures.append(figure)
        return {"number": len(figures) - 1, "height": int(figure.layout.height)}

    filled = {
        "summary": sections.summary(store),
        "funnel": funnel_steps(store, chart),
        "diversity": sections.diversity(store, chart),
        "tags": sections.tags(store),
        "ladder": sections.ladder(store, chart),
        "lineage": sections.lineage(store, chart),
    }
    charts = f"[{','.join(plotly.io.to_json(figure, validate=False) for figure in figures)}]"
    return render(request, "overview.html.j2", charts=charts, **filled)

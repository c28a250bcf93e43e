"""The charts of the report: each takes one table from the store and returns one Plotly figure.

Colours are chosen to read on light and dark ground alike; backgrounds are transparent. Nothing here asks the store.
"""

from __future__ import annotations

import plotly.graph_objects as go
import polars as pl

_INK, _GRID, _ACCENT, _SOFT = "#7a8594", "rgba(128,138,150,.22)", "#2f81c7", "#9aa5b1"
_SERIES = ("#2f81c7", "#d9822b", "#3d9970", "#a05fb5", "#c94f4f")
REGIONS = ("out_of_reach", "uncertain", "certain", "mastered")


def _styled(figure: go.Figure, height: int) -> go.Figure:
    figure.update_layout(
        height=height,
        margin={"l": 8, "r": 8, "t": 8, "b": 8},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"color": _INK, "size": 13},
        legend={"orientation": "h", "y": 1.12},
        bargap=0.35,
    )
    figure.update_xaxes(gridcolor=_GRID, zerolinecolor=_GRID, automargin=True)
    figure.update_yaxes(gridcolor=_GRID, zerolinecolor=_GRID, automargin=True)
    return figure


def funnel_chart(funnel: pl.DataFrame) -> go.Figure:
    """Rows left after every step, on a logarithmic axis. Columns: step, kept, dropped; in order."""
    figure = go.Figure(
        go.Bar(
            x=[max(1, kept) for kept in funnel["kept"]],
            y=funnel["step"].to_list(),
            orientation="h",
            marker_color=_ACCENT,
            text=[f"{kept:,}" for kept in funnel["kept"]],
            textposition="auto",
            hovertext=[f"{dropped:,} dropped" for dropped in funnel["dropped"]],
        )
    )
    figure.update_yaxes(autorange="reversed")
    figure.update_xaxes(type="log", title="rows kept")
    return _styled(figure, 90 + 30 * funnel.height)


def entropy_chart(diversity: pl.DataFrame) -> go.Figure:
    """Entropies in bits by round. Columns: round, metric, value, sd (null where there is none)."""
    figure = go.Figure()
    for colour, (metric, rows) in zip(_SERIES * 3, sorted((str(key[0]), rows) for key, rows in diversity.group_by("metric")), strict=False):
        ordered = rows.sort("round")
        figure.add_scatter(
            x=ordered["round"].to_list(),
            y=ordered["value"].to_list(),
            name=metric,
            mode="lines+markers",
            line={"color": colour},
            error_y={"type": "data", "array": ordered["sd"].fill_null(0).to_list(), "thickness": 1},
        )
    figure.update_xaxes(title="round", dtick=1)
    figure.update_yaxes(title="bits", rangemode="tozero")
    return _styled(figure, 340)


def difficulty_certainty_chart(tags: pl.DataFrame) -> go.Figure:
    """Number of tasks by static difficulty and measured region. Columns: difficulty, region."""
    levels = sorted(tags["difficulty"].unique().to_list())
    counts = {(level, region): count for level, region, count in tags.group_by("difficulty", "region").len().iter_rows()}
    cells = [[counts.get((level, region), 0) for level in levels] for region in REGIONS]
    figure = go.Figure(
        go.Heatmap(
            z=cells,
            x=[str(level) for level in levels],
            y=[region.replace("_", " ") for region in REGIONS],
            colorscale=[[0, "rgba(47,129,199,.04)"], [1, _ACCENT]],
            text=[[str(count) if count else "" for count in row] for row in cells],
            texttemplate="%{text}",
            showscale=False,
        )
    )
    figure.update_xaxes(title="static difficulty", type="category")
    return _styled(figure, 300)


def ladder_chart(ladder: pl.DataFrame) -> go.Figure:
    """Success rate of every policy with its 95 % interval, a series for each held-out set and decoding.

    Columns: policy (label), use, decoding, rate, low, high; policies in the order in which they were trained.
    """
    figure = go.Figure()
    policies = ladder["policy"].unique(maintain_order=True).to_list()
    series = sorted(ladder.select("use", "decoding").unique().rows(), key=lambda pair: (pair[0], pair[1] != "sampled"))
    for colour, (use, decoding) in zip(_SERIES * 2, series, strict=False):
        rows = {row["policy"]: row for row in ladder.filter(use=use, decoding=decoding).to_dicts()}
        shown = [policy for policy in policies if policy in rows]
        rates = [rows[policy]["rate"] for policy in shown]
        figure.add_bar(
            x=shown,
            y=rates,
            name=f"{use}, {decoding}",
            marker_color=colour,
            error_y={
                "type": "data",
                "symmetric": False,
                "array": [rows[policy]["high"] - rate for policy, rate in zip(shown, rates, strict=True)],
                "arrayminus": [rate - rows[policy]["low"] for policy, rate in zip(shown, rates, strict=True)],
                "color": _SOFT,
            },
        )
    figure.update_layout(barmode="group")
    figure.update_yaxes(range=[0, 1], title="success rate", tickformat=".0%")
    return _styled(figure, 380)


def complexity_chart(trajectories: pl.DataFrame) -> go.Figure:
    """Distribution of the cumulative action complexity of accepted trajectories. Column: complexity."""
    figure = go.Figure(go.Histogram(x=trajectories["complexity"].to_list(), nbinsx=40, marker_color=_ACCENT))
    figure.update_xaxes(title="cumulative action complexity")
    figure.update_yaxes(title="trajectories")
    return _styled(figure, 300)

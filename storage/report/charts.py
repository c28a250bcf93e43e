"""The charts of the report: each takes one table from the store and returns one Plotly figure.

Backgrounds are transparent, and the series colours work on light and dark pages; the page sets text and grid colours by its theme.
Labels from the data are shown as they are, never as markup. Nothing here asks the store.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import plotly.graph_objects as go
import polars as pl

_INK, _GRID, _ACCENT = "#6b7786", "rgba(128,138,150,.22)", "#3b82c4"
SERIES = ("#3b82c4", "#d9822b", "#3d9970", "#a05fb5", "#c94f4f", "#8a7a3c")
_STEPS_SHOWN = 1000
_CLUSTERS_SHOWN = 8
_CLUSTERS_A_ROW = 2
_CLUSTER_WIDTH, _CLUSTER_HEIGHT = 3.6, 3.4
_NAME_LENGTH = 16
_RADIUS = 0.85

Chart = Callable[[go.Figure], dict[str, int]]
"""Adds a figure to the page. Returns its number and its height in pixels."""


def apply_style(figure: go.Figure, height: int) -> go.Figure:
    figure.update_layout(
        template="none",
        height=height,
        margin={"l": 8, "r": 8, "t": 12, "b": 8},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"color": _INK, "size": 13, "family": "system-ui, sans-serif"},
        legend={"orientation": "h", "y": 1.12, "x": 0},
        hoverlabel={"font": {"family": "system-ui, sans-serif"}},
        bargap=0.35,
    )
    figure.update_xaxes(gridcolor=_GRID, zerolinecolor=_GRID, automargin=True)
    figure.update_yaxes(gridcolor=_GRID, zerolinecolor=_GRID, automargin=True)
    return figure


def plain(text: str) -> str:
    """Escapes a label, because Plotly reads some HTML in labels."""
    return text.replace("&", "&amp;").replace("<", "&lt;")


def funnel_chart(funnel: pl.DataFrame) -> go.Figure:
    """Rows left after every step, on a logarithmic axis from 1. Columns: step, rows_in, kept, dropped; in order."""
    labels = ["read", *map(plain, funnel["step"])]
    counts = [int(funnel["rows_in"][0]), *funnel["kept"].to_list()]
    figure = go.Figure(
        go.Bar(
            x=[max(1, count) for count in counts],
            y=labels,
            orientation="h",
            marker={"color": [SERIES[0]] * funnel.height + [SERIES[2]], "line": {"width": 0}},
            text=[f"{count:,}" for count in counts],
            textposition="outside",
            cliponaxis=False,
            hovertext=["", *(f"{dropped:,} dropped" for dropped in funnel["dropped"])],
            hoverinfo="text",
        )
    )
    figure.update_yaxes(autorange="reversed", ticklen=6, tickcolor="rgba(0,0,0,0)", showgrid=False)
    figure.update_xaxes(type="log", range=[0, math.log10(max(10, counts[0])) * 1.2], dtick=1, title="rows left")
    return apply_style(figure, 70 + 29 * len(labels))


def nearness_chart(nearness: pl.DataFrame) -> go.Figure:
    """Rows of the pool by their similarity to the nearest held-out question. Columns: held_out, found_by, bin_from, rows; in order."""
    figure = go.Figure()
    kinds = nearness.group_by("held_out", "found_by", maintain_order=True)
    for number, ((name, found_by), bins) in enumerate(kinds):
        label = f"{plain(str(name))}, {'wording' if found_by == 'near' else 'meaning'}"
        figure.add_bar(x=bins["bin_from"] + 0.025, y=bins["rows"], name=label, marker={"color": SERIES[number % len(SERIES)]})
    figure.update_xaxes(title="similarity with the nearest held-out question", range=[0, 1])
    figure.update_yaxes(title="rows of the pool")
    return apply_style(figure, 280)


def entropy_chart(diversity: pl.DataFrame) -> go.Figure:
    """Entropies in bits by round. Columns: round, metric, value, sd (null where there is none)."""
    figure = go.Figure()
    by_metric = sorted((str(key[0]), rows) for key, rows in diversity.group_by("metric"))
    for number, (metric, rows) in enumerate(by_metric):
        ordered = rows.sort("round")
        figure.add_scatter(
            x=ordered["round"].to_list(),
            y=ordered["value"].to_list(),
            name=plain(metric.removesuffix("_bits").replace("_", " ")),
            mode="lines+markers",
            line={"color": SERIES[number % len(SERIES)], "width": 2.5},
            marker={"size": 8},
            error_y={"type": "data", "array": ordered["sd"].fill_null(0).to_list(), "thickness": 1},
        )
    figure.update_xaxes(title="round", dtick=1)
    figure.update_yaxes(title="bits", rangemode="tozero")
    return apply_style(figure, 340)


def complexity_chart(trajectories: pl.DataFrame) -> go.Figure:
    """Distribution of the cumulative action complexity of accepted trajectories. Column: complexity."""
    figure = go.Figure(go.Histogram(x=trajectories["complexity"].to_list(), nbinsx=40, marker={"color": _ACCENT, "line": {"width": 0}}))
    figure.update_xaxes(title="cumulative action complexity")
    figure.update_yaxes(title="trajectories")
    return apply_style(figure, 260).update_layout(bargap=0.06)


def ladder_chart(ladder: pl.DataFrame) -> go.Figure:
    """Success rate of every policy with its 95 % interval, a line for each held-out set and decoding.

    Columns: policy_id, policy (label), use, decoding, rate, low, high (null without an interval); one row a policy, use and decoding,
    policies in the order in which they were trained.
    """
    figure = go.Figure()
    labels = {policy: plain(label) for policy, label in ladder.select("policy_id", "policy").iter_rows()}
    places = {policy: place for place, policy in enumerate(labels)}
    uses = sorted(set(ladder["use"]))
    for use, decoding in sorted(ladder.select("use", "decoding").unique().rows(), key=lambda pair: (pair[0], pair[1] != "sampled")):
        rows = ladder.filter(use=use, decoding=decoding).to_dicts()
        colour = SERIES[uses.index(use) % len(SERIES)]
        figure.add_scatter(
            x=[places[row["policy_id"]] for row in rows],
            y=[row["rate"] for row in rows],
            name=plain(f"{use}, {decoding}"),
            mode="lines+markers",
            line={"color": colour, "width": 2.5, "dash": "solid" if decoding == "sampled" else "dot"},
            marker={"size": 10, "symbol": "circle" if decoding == "sampled" else "circle-open"},
            error_y={
                "type": "data",
                "symmetric": False,
                "array": [_distance(row["high"], row["rate"]) for row in rows],
                "arrayminus": [_distance(row["rate"], row["low"]) for row in rows],
                "thickness": 1.4,
            },
        )
    figure.update_xaxes(tickvals=list(places.values()), ticktext=list(labels.values()), range=[-0.5, len(places) - 0.5])
    figure.update_yaxes(range=[0, 1.02], title="success rate", tickformat=".0%")
    return apply_style(figure, 380)


def gain_chart(rows: Sequence[tuple[str, float, float, float]], unit: str) -> go.Figure:
    """Gains with 95 % intervals, the largest on top. rows: name, gain, low, high. unit: title of the axis."""
    ordered = sorted(rows, key=lambda row: row[1])
    figure = go.Figure(
        go.Scatter(
            x=[gain for _, gain, _, _ in ordered],
            y=[plain(name) for name, *_ in ordered],
            mode="markers",
            marker={"color": _ACCENT, "size": 9},
            error_x={
                "type": "data",
                "array": [high - gain for _, gain, _, high in ordered],
                "arrayminus": [gain - low for _, gain, low, _ in ordered],
                "color": _ACCENT,
            },
        )
    )
    figure.add_vline(x=0, line={"color": _INK, "dash": "dot"})
    figure.update_xaxes(title=unit)
    return apply_style(figure, 120 + 28 * len(ordered))


def learning_chart(metrics: pl.DataFrame, names: Sequence[str]) -> go.Figure:
    """Metrics of a training stage step by step: the values, pale, and their moving mean over a twenty-fifth of all steps. Columns: step,
    and `names`; rows in order. Of many steps, evenly spaced ones are drawn."""
    figure = go.Figure()
    points = metrics.with_columns(
        pl.col(name).rolling_mean(max(1, metrics.height // 25), min_samples=1).alias(f"{name} mean") for name in names
    ).gather_every(math.ceil(metrics.height / _STEPS_SHOWN))
    for place, name in enumerate(names):
        colour = SERIES[place % len(SERIES)]
        figure.add_scatter(
            x=points["step"].to_list(),
            y=points[name].to_list(),
            mode="lines",
            line={"color": colour, "width": 1},
            opacity=0.3,
            showlegend=False,
        )
        figure.add_scatter(
            x=points["step"].to_list(),
            y=points[f"{name} mean"].to_list(),
            name=plain(name),
            mode="lines",
            line={"color": colour, "width": 2.5},
        )
    figure.update_xaxes(title="step")
    figure.update_yaxes(rangemode="tozero")
    return apply_style(figure, 260)


def _distance(high: float | None, low: float | None) -> float:
    return 0.0 if high is None or low is None else max(0.0, high - low)


def lineage_chart(flows: Sequence[tuple[str, str, int]]) -> go.Figure:
    """How tasks flow from their origins through splits into policies: (from, to, number of tasks), names unique."""
    names = list(dict.fromkeys(name for source, target, _ in flows for name in (source, target)))
    figure = go.Figure(
        go.Sankey(
            arrangement="snap",
            node={
                "label": [plain(name) for name in names],
                "color": [SERIES[(2 if name.startswith("policy") else 1 if name.startswith("split") else 0)] for name in names],
                "pad": 22,
                "thickness": 16,
                "line": {"width": 0},
            },
            link={
                "source": [names.index(source) for source, _, _ in flows],
                "target": [names.index(target) for _, target, _ in flows],
                "value": [max(1, count) for _, _, count in flows],
                "color": "rgba(128,138,150,.28)",
            },
        )
    )
    return apply_style(figure, 300)


def clusters_chart(clusters: Sequence[dict[str, Any]]) -> go.Figure:
    """The first clusters as small graphs: tools on a circle, an arrow from each tool to the one it feeds, and whether they can be executed.

    Rows have domain, world, tool_ids and edges (JSON: objects with source and target, or pairs).
    """
    figure = go.Figure()
    shown = clusters[:_CLUSTERS_SHOWN]
    domains = sorted({row["domain"] or "" for row in shown})
    titles = []
    for number, row in enumerate(shown):
        centre = (number % _CLUSTERS_A_ROW * _CLUSTER_WIDTH, -(number // _CLUSTERS_A_ROW) * _CLUSTER_HEIGHT)
        places = _circle(row["tool_ids"], centre)
        colour = SERIES[domains.index(row["domain"] or "") % len(SERIES)]
        arrows = [_arrow(places[source], places[target]) for source, target in _pairs(row["edges"]) if {source, target} <= places.keys()]
        figure.add_scatter(
            x=[x for (x0, _), (x1, _) in arrows for x in (x0, x1, None)],
            y=[y for (_, y0), (_, y1) in arrows for y in (y0, y1, None)],
            mode="lines+markers",
            line={"color": "rgba(128,138,150,.5)", "width": 1.3},
            marker={"symbol": "arrow", "size": [0, 9, 0] * len(arrows), "angleref": "previous", "color": "rgb(128,138,150)"},
            hoverinfo="skip",
        )
        figure.add_scatter(
            x=[x for x, _ in places.values()],
            y=[y for _, y in places.values()],
            mode="markers+text",
            marker={"size": 12, "color": colour},
            text=[plain(_short(tool.partition(".")[2])) for tool in places],
            textposition=[_beside(x - centre[0], y - centre[1]) for x, y in places.values()],
            textfont={"size": 11},
            hovertext=[plain(tool) for tool in places],
            hoverinfo="text",
        )
        kind = f"executable in {row['world']}" if row["world"] else "of no world"
        title = f"<b>{plain(row['domain'] or '')}</b><br><span style='font-size:11px'>{plain(kind)}</span>"
        titles.append({"x": centre[0], "y": centre[1] + 1.5, "text": title, "showarrow": False, "yshift": 6})
    rows = math.ceil(len(shown) / _CLUSTERS_A_ROW)
    figure.update_layout(showlegend=False, annotations=titles)
    apply_style(figure, 40 + 290 * rows)
    figure.update_xaxes(visible=False, range=[-_CLUSTER_WIDTH / 2, (_CLUSTERS_A_ROW - 0.5) * _CLUSTER_WIDTH])
    return figure.update_yaxes(visible=False, range=[-(rows - 1) * _CLUSTER_HEIGHT - 1.4, 2.0])


def _short(name: str) -> str:
    return name if len(name) <= _NAME_LENGTH else name[: _NAME_LENGTH - 1] + "…"


def _circle(tools: Sequence[str], centre: tuple[float, float]) -> dict[str, tuple[float, float]]:
    turn = 2 * math.pi / max(1, len(tools))
    return {tool: (centre[0] + _RADIUS * math.sin(n * turn), centre[1] + _RADIUS * math.cos(n * turn)) for n, tool in enumerate(tools)}


def _beside(right: float, up: float) -> str:
    """Position of a node's label on the outer side of the circle, away from the arrows."""
    if abs(right) > 0.25:
        return "middle right" if right > 0 else "middle left"
    return "top center" if up > 0 else "bottom center"


def _arrow(start: tuple[float, float], end: tuple[float, float]) -> tuple[tuple[float, float], tuple[float, float]]:
    """The line between two nodes, which ends before the second so that the arrowhead is visible."""
    length = math.dist(start, end) or 1.0
    share = max(0.0, 1 - 0.12 / length)
    return start, (start[0] + (end[0] - start[0]) * share, start[1] + (end[1] - start[1]) * share)


def _pairs(edges: str | None) -> list[tuple[str, str]]:
    return [(edge["source"], edge["target"]) if isinstance(edge, dict) else (edge[0], edge[1]) for edge in json.loads(edges or "[]")]

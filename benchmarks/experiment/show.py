"""The experiment's table as Markdown, and its curves as one page that needs no network."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go
import polars as pl

from benchmarks.experiment.config import ABOUT
from benchmarks.experiment.result import ExperimentResult
from storage.report.charts import SERIES, apply_style, plain
from train.measure.evaluate import Estimate

HEAD = (
    "arm",
    "conversations' worth",
    "seeds",
    "held-out success",
    "code pass@1",
    "H_dom",
    "H_mode",
    "CAC",
    "conversations",
    "tokens",
    "proposals per kept",
)


def lines(result: ExperimentResult) -> list[tuple[str, ...]]:
    """The table's cells as text, in the order of `HEAD`."""
    return [
        (
            row.arm,
            f"{row.size:,}",
            str(row.seeds),
            _interval(row.success),
            f"{row.code.mean:.2f}",
            f"{row.domain_bits:.2f}",
            f"{row.mode_bits:.2f}",
            f"{row.complexity:.1f}",
            f"{row.conversations:,.0f}",
            f"{row.tokens:,.0f}",
            f"{row.proposals_per_kept:.2f}",
        )
        for row in result.rows
    ]


def table(result: ExperimentResult) -> str:
    """The table, the gains over random and the ceilings."""
    about: Mapping[str, str] = {str(arm): told for arm, told in ABOUT.items()}
    head = f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}\n"
    body = "".join(f"| {' | '.join(line)} |\n" for line in lines(result))
    gains = "".join(f"| {arm} ({about[arm]}) | {_interval(each, signed=True)} |\n" for arm, each in result.gains.items())
    even = f"| controller over random_even ({about['random_even']}) | {_interval(result.over_even, signed=True)} |\n"
    tops = "".join(f"| {arm} | {_interval(each)} |\n" for arm, each in result.ceilings.items())
    checks = (
        f"Power check: {_interval(result.power)} (trained on the held-out domains). "
        f"Base policy: {result.base_success.mean:.3f} of the held-out tasks, {result.base_code.mean:.2f} of the code tasks. "
        f"Control over the base policy: {_interval(result.control, signed=True)}. "
        f"{result.missing} trainings missing, {result.minutes:.0f} minutes."
    )
    return (
        f"{result.says}\n\n{checks}\n\n{head}{body}\n| over random, at the largest common size | gain |\n|---|---|\n{gains}{even}\n"
        f"| ceiling (a of a - b N^-c) | |\n|---|---|\n{tops}"
    )


def curves_page(result: ExperimentResult) -> str:
    """Success by size and arm, with intervals, and the fitted curves."""
    rows = pl.DataFrame(
        [
            {"arm": row.arm, "size": row.size, "rate": row.success.mean, "low": row.success.low, "high": row.success.high}
            for row in result.rows
        ],
        schema={"arm": pl.String, "size": pl.Int64, "rate": pl.Float64, "low": pl.Float64, "high": pl.Float64},
    )
    page: str = _quantity_chart(rows, result.curves).to_html(include_plotlyjs=True, full_html=True)
    return page


def _quantity_chart(rows: pl.DataFrame, curves: Mapping[str, tuple[float, float, float] | None]) -> go.Figure:
    """Success by the size of what was trained on, on a logarithmic axis: a series an arm, with 95 % intervals; fitted curves are dotted.

    Columns: arm, size, rate, low, high. curves: by arm, a, b and c of `a - b N^(-c)`, or None.
    """
    figure = go.Figure()
    for number, arm in enumerate(dict.fromkeys(rows["arm"])):
        found = rows.filter(arm=arm).sort("size").to_dicts()
        colour = SERIES[number % len(SERIES)]
        figure.add_scatter(
            x=[row["size"] for row in found],
            y=[row["rate"] for row in found],
            name=plain(arm),
            mode="lines+markers" if len(found) > 1 else "markers",
            line={"color": colour, "width": 2.5},
            marker={"size": 9, "symbol": "circle" if number < len(SERIES) else "diamond"},
            error_y={
                "type": "data",
                "symmetric": False,
                "array": [max(0.0, row["high"] - row["rate"]) for row in found],
                "arrayminus": [max(0.0, row["rate"] - row["low"]) for row in found],
                "thickness": 1.4,
            },
        )
        if (curve := curves.get(arm)) is not None:
            a, b, c = curve
            sizes = [found[0]["size"] * 1.1**step for step in range(60)]
            fitted = [a - b * size**-c for size in sizes]
            label = plain(f"{arm}: ceiling {a:.2f}")
            figure.add_scatter(x=sizes, y=fitted, name=label, mode="lines", line={"color": colour, "width": 1.2, "dash": "dot"})
    figure.update_xaxes(type="log", title="conversations' worth of tokens")
    figure.update_yaxes(title="success on held-out domains", tickformat=".0%", rangemode="tozero")
    return apply_style(figure, 460)


def _interval(estimate: Estimate, *, signed: bool = False) -> str:
    form = "+.3f" if signed else ".3f"
    return f"{estimate.mean:{form}} [{estimate.low:{form}}, {estimate.high:{form}}]"

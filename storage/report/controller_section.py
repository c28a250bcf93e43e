"""The section of the report on the evolution controller: the drawn cells, why they were drawn, and the results.

Three views of table `decisions` for the run committed last: a row per round; maps of drawn and accepted cells, family by band and domain by
family; and single decisions with the terms of their scores.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import polars as pl

from storage.store import Store

_LISTED, _DOMAINS_SHOWN = 40, 40
_BANDS = ("low", "mid", "high")
_LATEST = "(SELECT run FROM decisions JOIN parts USING (part_id) ORDER BY committed_at DESC, run LIMIT 1)"
_HIT = "got_domain = domain AND got_mode_family = mode_family AND got_complexity_band = complexity_band"


def evolution(store: Store) -> dict[str, Any] | None:
    rows = store.query(
        f"SELECT * EXCLUDE (part_id, run), coalesce({_HIT}, false) AS is_hit FROM decisions WHERE run = {_LATEST} ORDER BY round, position"
    )
    if rows.is_empty():
        return None
    return {
        "rounds": _rounds(rows),
        "maps": [
            _heat_map(rows, "mode family by complexity band", "mode_family", "complexity_band", _BANDS),
            _heat_map(rows, "domain by mode family", "domain", "mode_family", sorted(set(rows["mode_family"]))),
        ],
        "operators": rows.select(pl.col("operators").explode().drop_nulls().value_counts(sort=True, name="n")).unnest("operators").rows(),
        "decisions": rows.tail(_LISTED).reverse().to_dicts(),
    }


def _rounds(rows: pl.DataFrame) -> list[dict[str, Any]]:
    is_accepted = pl.col("status") == "accepted"
    totals = rows.group_by("round", maintain_order=True).agg(
        pl.len().alias("asked"),
        is_accepted.sum().alias("accepted"),
        pl.col("is_hit").sum().alias("hits"),
        (pl.col("status") == "rejected").sum().alias("rejected"),
        (pl.col("status") == "unplanned").sum().alias("unplanned"),
        pl.col("domain").n_unique().alias("domains"),
        pl.col("feasibility").mean().alias("feasibility"),
        *(((pl.col("got_complexity_band") == band).sum() / is_accepted.sum()).alias(band) for band in _BANDS),
        pl.col("reason").drop_nulls().mode().sort().first().alias("reason"),
    )
    return totals.to_dicts()


def _heat_map(rows: pl.DataFrame, title: str, down: str, across: str, columns: Sequence[str]) -> dict[str, Any]:
    """Accepted conversations and draws by cell; rows with most accepted conversations first."""
    counts = {(a, b): n for a, b, n in rows.group_by(down, across).len().iter_rows()}
    accepted = rows.filter(pl.col("status") == "accepted").group_by(f"got_{down}", f"got_{across}").len()
    got = {(a, b): n for a, b, n in accepted.iter_rows()}
    total: Counter[str] = Counter()
    for (label, _), n in got.items():
        total[label] += n
    labels = sorted({label for label, _ in (*counts, *got)}, key=lambda label: (-total[label], label))
    most = max(got.values(), default=1)
    lines = [
        (
            label,
            [
                (got.get((label, column), 0), counts.get((label, column), 0), round(100 * (got.get((label, column), 0) / most) ** 0.7))
                for column in columns
            ],
        )
        for label in labels[:_DOMAINS_SHOWN]
    ]
    return {"title": title, "columns": list(columns), "lines": lines, "left_out": len(labels) - len(lines)}

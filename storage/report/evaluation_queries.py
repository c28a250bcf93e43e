"""Measurements of the policies of the latest training: rows of table `evaluations`, for the report and the summary tables.

One idea: for each policy, held-out set and decoding the last measurement counts, with its total and its facets.

It does not measure (`train/measure/evaluate.py`) or compare (`train/measure/compare.py`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import polars as pl

from storage.conversation import KINDS
from storage.releases.lineage_graph import LATEST_POLICY_SQL, POLICY_NAME, chain_sql
from storage.store import Store


def read_measurements(store: Store) -> pl.DataFrame:
    """Columns policy_id, policy (name of its stage or engine; with its id if the name is not unique), use, decoding, facet,
    facet_value, tasks, samples, rate, low, high, pass_k; engines first, by id, then policies in the order of their training."""
    rows = store.query(
        f"""{chain_sql(LATEST_POLICY_SQL)}
            SELECT c.policy_id, {POLICY_NAME} AS policy, e.use, e.decoding, e.facet, e.facet_value, e.tasks, e.samples,
              e.rate, e.low, e.high, e.pass_k
            FROM chain c JOIN evaluations e USING (policy_id) JOIN parts ON parts.part_id = e.part_id
              JOIN policies p ON p.policy_id = c.policy_id LEFT JOIN stages s ON s.stage_id = p.stage_id
            QUALIFY rank() OVER (PARTITION BY e.policy_id, e.use, e.decoding ORDER BY parts.committed_at DESC, e.evaluation_id) = 1
            ORDER BY c.depth DESC, c.policy_id, e.use, e.decoding DESC, e.facet = 'intent', e.facet,
              try_cast(e.facet_value AS INTEGER), e.facet_value"""
    )
    is_shared = pl.col("policy_id").n_unique().over("policy") > 1
    return rows.with_columns(policy=pl.when(is_shared).then(pl.format("{} {}", "policy", "policy_id")).otherwise("policy"))


@dataclass(frozen=True)
class FacetLine:
    """One value of a facet on a held-out set; `cells`: one row of `read_measurements` per policy, None if the policy has none."""

    use: str
    facet: str
    value: str
    cells: list[dict[str, Any] | None]

    @property
    def last(self) -> dict[str, Any]:
        """The value of the last policy that has one."""
        return next(cell for cell in reversed(self.cells) if cell is not None)


def rates_by_kind(rows: pl.DataFrame) -> dict[tuple[str, str, str], dict[str, str]]:
    """(policy_id, use, decoding) -> plural of a kind of task -> `0.21 of 60`: success, number of tasks."""
    rates: dict[tuple[str, str, str], dict[str, str]] = {}
    for row in rows.filter(facet="kind").to_dicts():
        of = rates.setdefault((row["policy_id"], row["use"], row["decoding"]), dict.fromkeys(KINDS.values(), ""))
        of[KINDS[row["facet_value"]]] = f"{row['rate']:.2f} of {row['tasks']}"
    return rates


def by_facet(rows: pl.DataFrame) -> list[FacetLine]:
    """Measurements by facet: of sampled rollouts, or of greedy ones if a held-out set has no others. A facet with one value is
    omitted, because it equals the total."""
    policies = rows["policy_id"].unique(maintain_order=True).to_list()
    has_sampled = (pl.col("decoding") == "sampled").any().over("use")
    facet_rows = rows.filter((pl.col("facet") != "all") & ((pl.col("decoding") == "sampled") | ~has_sampled))
    several = facet_rows.filter(pl.col("facet_value").n_unique().over("use", "facet") > 1)
    lines = []
    for (use, facet, value), group in several.group_by("use", "facet", "facet_value", maintain_order=True):
        of = {row["policy_id"]: row for row in group.to_dicts()}
        lines.append(FacetLine(str(use), str(facet), str(value), [of.get(policy) for policy in policies]))
    return sorted(lines, key=lambda line: (line.use, line.facet == "intent", line.facet))


def parse_pass_k(pass_k: str | None) -> dict[int, tuple[float, float | None, float | None]]:
    """k -> pass^k of a row, with its 95 % interval if it has one."""
    by_k = {int(k): value for k, value in json.loads(pass_k or "{}").items()}
    return {k: tuple(value) if isinstance(value, list) else (value, None, None) for k, value in sorted(by_k.items())}


def format_rate(rate: float, low: float | None, high: float | None) -> str:
    """`0.250 (0.200 to 0.300)`."""
    return f"{rate:.3f}" if low is None or high is None else f"{rate:.3f} ({low:.3f} to {high:.3f})"

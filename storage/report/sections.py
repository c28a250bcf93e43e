"""The sections of the report: each function queries the store and returns the values of its part, or None if that step has not run.

The values are plain values and charts; the page is `report.html.j2`. If a table holds several runs, the last committed one is shown.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import polars as pl

from storage.records import is_error
from storage.releases.lineage_graph import IS_ENGINE, LATEST_POLICY_SQL, POLICY_NAME, chain_sql
from storage.report import charts
from storage.report.charts import Chart
from storage.report.controller_section import evolution
from storage.report.evaluation_queries import by_facet, format_rate, parse_pass_k, rates_by_kind, read_measurements
from storage.report.funnel_section import funnel
from storage.report.learning_curves import curves
from storage.report.prior_queries import hardest_needs, prior_fits, read_priors
from storage.store import Store
from storage.tables import CERTAINTY, LAST_BUILD, LATEST_RUN

SAMPLES = 10
REGIONS = ("mastered", "certain", "uncertain", "out_of_reach")
_CLUSTERS_LISTED = 40
_NEEDS_LISTED = 12
_SUMMARY_LENGTH = 90

Section = dict[str, Any] | None


def all_sections(store: Store, chart: Chart) -> dict[str, Any]:
    return {
        "summary": summary(store),
        "funnel": funnel(store, chart),
        "diversity": diversity(store, chart),
        "evolution": evolution(store),
        "tags": tags(store),
        "ladder": ladder(store, chart),
        "lineage": lineage(store, chart),
        "clusters": clusters(store, chart),
        "samples": samples(store),
    }


def summary(store: Store) -> dict[str, int]:
    row = store.query(
        """SELECT (SELECT count(*) FROM queries) AS "queries read", (SELECT count(*) FROM verdicts WHERE kept) AS "queries kept",
             (SELECT count(*) FROM trajectories WHERE accepted) AS "trajectories accepted", (SELECT count(*) FROM tasks) AS tasks,
             (SELECT count(*) FROM rollouts) AS rollouts, (SELECT count(*) FROM policies) AS policies"""
    )
    return row.row(0, named=True)


def diversity(store: Store, chart: Chart) -> Section:
    rows = store.query(
        f"""SELECT round, metric, value, sd, n FROM diversity WHERE run = {LATEST_RUN.format(table="diversity")} AND round >= 0
           ORDER BY round, metric"""
    )
    accepted = store.query("SELECT complexity FROM trajectories WHERE accepted AND complexity IS NOT NULL ORDER BY trajectory_id")
    if rows.is_empty() and accepted.is_empty():
        return None
    modes = store.query("SELECT mode_coarse AS mode, count(*) AS n FROM trajectories WHERE accepted GROUP BY 1 ORDER BY n DESC, 1 LIMIT 12")
    rejected = store.query(
        """SELECT coalesce(reason, 'without a reason') AS reason, count(*) AS n FROM blueprints
           WHERE status NOT IN ('accepted', 'calibration')
           GROUP BY 1 ORDER BY n DESC, 1"""
    )
    entropies = rows.filter(pl.col("metric").str.ends_with("_bits"))
    return {
        "entropy": chart(charts.entropy_chart(entropies)) if entropies.height else None,
        "complexity": chart(charts.complexity_chart(accepted)) if accepted.height else None,
        "last": rows.filter(pl.col("round") == pl.col("round").max()).to_dicts(),
        "modes": _with_shares(modes.to_dicts()),
        "rejected": rejected.to_dicts(),
        "calibrated": store.query("SELECT count(*) FROM blueprints WHERE status = 'calibration'").item(),
    }


def _with_shares(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    most = max((row["n"] for row in rows), default=1)
    return [row | {"percent": round(100 * row["n"] / most)} for row in rows]


def spending(store: Store) -> Section:
    """What language models were asked and what conversations cost, by engine; None if no engine was asked."""
    asked = store.query(
        """SELECT engine, count(*) AS answers, sum(prompt_tokens)::BIGINT AS read, sum(completion_tokens)::BIGINT AS written
           FROM answers GROUP BY 1 ORDER BY read + written DESC NULLS LAST, 1"""
    )
    played = store.query(
        """SELECT teacher, count(*) AS conversations, count(*) FILTER (accepted) AS accepted, sum(prompt_tokens)::BIGINT AS read,
             sum(completion_tokens)::BIGINT AS written, sum(cost_usd) AS usd
           FROM trajectories GROUP BY 1 ORDER BY usd DESC NULLS LAST, conversations DESC, 1"""
    )
    return {"asked": asked.to_dicts(), "played": played.to_dicts()} if asked.height or played.height else None


_EIGHTHS_SQL = """(CASE t.successes WHEN 0 THEN 0 WHEN t.k THEN 8
    ELSE greatest(1, least(7, floor(8.0 * t.successes / t.k))) END)::INTEGER"""
"""Successes of k draws, scaled to eight draws; 0 only for none, 8 only for all."""


def tags(store: Store) -> Section:
    """One heat map per probed policy, in the order of training: tasks by static difficulty and by successes, in eighths of their draws.
    Below them, what static difficulty and the prior say of the tasks, and the hardest needs of the last policy."""
    rows = store.query(
        f"""SELECT t.policy_id, t.purpose, coalesce({POLICY_NAME}, t.policy_id) AS policy, t.difficulty,
             {_EIGHTHS_SQL} AS successes, t.region, count(*) AS n
           FROM {CERTAINTY} t LEFT JOIN policies p USING (policy_id) LEFT JOIN stages s USING (stage_id)
             LEFT JOIN parts ON parts.part_id = s.part_id
           WHERE t.purpose IN ('probe', 'probe_again')
           GROUP BY ALL ORDER BY min(parts.committed_at), t.policy_id, t.purpose"""
    )
    if rows.is_empty():
        return None
    maps = [_heat_map(group) for _, group in rows.group_by("policy_id", "purpose", maintain_order=True)]
    priors = read_priors(store)
    return {
        "maps": maps,
        "levels": sorted(rows["difficulty"].unique().to_list()),
        "fits": prior_fits(priors),
        "hardest": hardest_needs(priors, _NEEDS_LISTED) if priors.height else [],
    }


def _heat_map(rows: pl.DataFrame) -> dict[str, Any]:
    levels = sorted(rows["difficulty"].unique().to_list())
    counts: dict[tuple[int, int], int] = {}
    for row in rows.iter_rows(named=True):
        counts[row["successes"], row["difficulty"]] = counts.get((row["successes"], row["difficulty"]), 0) + row["n"]
    regions = {row["successes"]: row["region"].replace("_", " ") for row in rows.iter_rows(named=True)}
    most = max(counts.values())
    lines: list[dict[str, Any]] = []
    region = ""
    for successes in range(8, -1, -1):
        cells = [counts.get((successes, level), 0) for level in levels]
        shades = [round(100 * (count / most) ** 0.7) if count else 0 for count in cells]
        here = regions.get(successes, region)
        lines.append(
            {
                "successes": successes,
                "region": here,
                "is_next_region": bool(lines) and here != region,
                "cells": list(zip(cells, shades, strict=True)),
            }
        )
        region = here
    totals = rows.group_by("region").agg(pl.col("n").sum())
    by_region = dict(totals.iter_rows())
    return {
        "policy": rows["policy"][0],
        "purpose": rows["purpose"][0],
        "levels": levels,
        "lines": lines,
        "regions": [(region.replace("_", " "), by_region.get(region, 0)) for region in REGIONS],
        "tasks": rows["n"].sum(),
    }


def ladder(store: Store, chart: Chart) -> Section:
    """The policies of the latest training in order, each with its last measurements and gate decision."""
    chain = chain_sql(LATEST_POLICY_SQL)
    every = read_measurements(store)
    rows, kinds = every.filter(facet="all"), rates_by_kind(every)
    if rows.is_empty():
        return None
    gates = store.query(
        f"""{chain}
            SELECT g.policy_id, coalesce(s.name, g.policy_id) AS policy, g.passed, g.checks
            FROM chain c JOIN promotions g USING (policy_id) JOIN parts ON parts.part_id = g.part_id
              JOIN policies p ON p.policy_id = c.policy_id LEFT JOIN stages s ON s.stage_id = p.stage_id
            QUALIFY row_number() OVER (PARTITION BY g.policy_id ORDER BY parts.committed_at DESC, g.position) = 1 ORDER BY c.depth DESC"""
    )
    return {
        "chart": chart(charts.ladder_chart(rows)),
        "rows": [_format_row(row) | {"kinds": kinds.get((row["policy_id"], row["use"], row["decoding"]), {})} for row in rows.to_dicts()],
        "has_kinds": bool(kinds),
        "curves": curves(store, chart),
        "facets": _facet_tables(every),
        "gates": [row | {"checks": list(json.loads(row["checks"] or "{}").items())} for row in gates.to_dicts()],
    }


def _format_row(row: dict[str, Any]) -> dict[str, Any]:
    return row | {
        "interval": format_rate(row["rate"], row["low"], row["high"]),
        "pass_k": [(k, format_rate(*power)) for k, power in parse_pass_k(row["pass_k"]).items()],
        "shade": round(100 * row["rate"]),
    }


def _facet_tables(rows: pl.DataFrame) -> list[dict[str, Any]]:
    """One table per held-out set: one row per value of a facet, one cell per policy."""
    names = rows.select("policy_id", "policy").unique(maintain_order=True)["policy"].to_list()
    return [
        {
            "use": use,
            "policies": names,
            "facets": [
                (facet, [(line, [cell and _format_row(cell) for cell in line.cells]) for line in lines])
                for facet, lines in itertools.groupby(of_use, key=lambda line: line.facet)
            ],
        }
        for use, of_use in itertools.groupby(by_facet(rows), key=lambda line: line.use)
    ]


def lineage(store: Store, chart: Chart) -> Section:
    """The policy promoted last (else the last one): the stages before it, and the path of one raw query to it."""
    last = f"""SELECT p.policy_id FROM policies p JOIN parts ON parts.part_id = p.part_id
        LEFT JOIN (SELECT policy_id, max(committed_at) AS promoted_at FROM promotions JOIN parts USING (part_id) WHERE passed GROUP BY 1) g
          ON g.policy_id = p.policy_id
        WHERE NOT {IS_ENGINE}
        ORDER BY g.promoted_at DESC NULLS LAST, parts.committed_at DESC, p.policy_id DESC LIMIT 1"""
    stages = store.query(
        f"""{chain_sql(last)}
            SELECT c.depth, c.policy_id, p.weights_hash, s.name, s.algorithm, s.release_id, s.split, s.input_policy_id,
              count(i.item_id) AS items, count(DISTINCT i.task_id) AS tasks,
              count(DISTINCT i.task_id) FILTER (t.query_id IS NOT NULL) AS query_tasks,
              count(DISTINCT i.task_id) FILTER (t.query_id IS NULL AND t.blueprint_id IS NOT NULL) AS blueprint_tasks,
              count(DISTINCT t.query_id) AS queries, count(DISTINCT t.blueprint_id) AS blueprints
            FROM trained c JOIN policies p USING (policy_id) LEFT JOIN stages s USING (stage_id)
            LEFT JOIN release_items i ON i.release_id = s.release_id AND i.split = s.split LEFT JOIN tasks t ON t.task_id = i.task_id
            GROUP BY ALL ORDER BY c.depth"""
    ).to_dicts()
    if not stages:
        return None
    flows = _flows(stages)
    return {
        "policy": stages[0]["policy_id"],
        "chart": chart(charts.lineage_chart(flows)) if flows else None,
        "stages": stages,
        "examples": _paths(store, [stage["policy_id"] for stage in stages]),
    }


def _flows(stages: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, int]]:
    names = {stage["policy_id"]: f"policy {stage['name'] or stage['policy_id']}" for stage in stages}
    flows: list[tuple[str, str, int]] = []
    for stage in reversed(stages):
        split, policy = f"split {stage['split']} for {stage['name']}", names[stage["policy_id"]]
        if stage["query_tasks"]:
            flows.append(("raw queries", split, stage["query_tasks"]))
        if stage["blueprint_tasks"]:
            flows.append(("blueprints", split, stage["blueprint_tasks"]))
        if stage["tasks"]:
            flows.append((split, policy, stage["tasks"]))
        if stage["input_policy_id"] in names:
            flows.append((names[stage["input_policy_id"]], policy, stage["tasks"]))
    return flows


def _paths(store: Store, policies: Sequence[str]) -> list[dict[str, Any]]:
    """Raw queries, one per frame, each with one of its tasks and the stage that trained on it."""
    rows = store.query(
        """SELECT q.text, t.query_id, t.frame_id, t.task_id, t.intent, t.difficulty, i.kind, i.item_id, s.name AS stage, i.split
           FROM stages s JOIN release_items i ON i.release_id = s.release_id AND i.split = s.split JOIN tasks t USING (task_id)
           JOIN queries q ON q.query_id = t.query_id WHERE s.output_policy_id IN (SELECT unnest(?))
           QUALIFY row_number() OVER (PARTITION BY t.query_id ORDER BY s.name, t.task_id, i.item_id) = 1
           ORDER BY t.difficulty DESC, t.query_id LIMIT 10""",
        [list(policies)],
    )
    return rows.to_dicts()


def clusters(store: Store, chart: Chart) -> Section:
    """Clusters of the last build: the best of each domain, executable ones first; then the second of each domain, and so on."""
    rows = store.query(
        f"""SELECT cluster_id, domain, world, tool_ids, edges FROM clusters WHERE part_id = {LAST_BUILD}
           ORDER BY row_number() OVER (PARTITION BY domain ORDER BY world IS NULL, rank, cluster_id), world IS NULL, rank, cluster_id"""
    ).to_dicts()
    if not rows:
        return None
    return {
        "chart": chart(charts.clusters_chart(rows)),
        "count": len(rows),
        "worldless": sum(row["world"] is None for row in rows),
        "rows": [row | {"edges": len(json.loads(row["edges"] or "[]"))} for row in rows[:_CLUSTERS_LISTED]],
    }


# ---- conversations -----------------------------------------------------------------------------------------------------


def samples(store: Store) -> list[dict[str, Any]]:
    """A diverse choice of accepted trajectories: the most complex of each domain and mode, domains and languages in turn."""
    rows = store.query(
        """SELECT trajectory_id, task_id, blueprint_id, domain, language, teacher, mode_coarse, complexity, messages
           FROM trajectories WHERE accepted
           QUALIFY row_number() OVER (PARTITION BY domain, mode_coarse ORDER BY complexity DESC, trajectory_id) = 1
           ORDER BY row_number() OVER (PARTITION BY domain, language ORDER BY complexity DESC, trajectory_id), trajectory_id LIMIT ?""",
        [SAMPLES],
    )
    return [row | {"messages": chat(json.loads(row["messages"]))} for row in rows.to_dicts()]


def chat(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The conversation as shown: the text of each message, and each call with the result that follows it (call ids may repeat)."""
    shown = []
    for index, message in enumerate(messages):
        if message["role"] != "tool":
            answers = itertools.takewhile(lambda later: later["role"] == "tool", messages[index + 1 :])
            results = {answer.get("tool_call_id"): answer.get("content") or "" for answer in answers}
            calls = [_call(call, results.get(call["id"])) for call in message.get("tool_calls") or ()]
            shown.append({"role": message["role"], "content": (message.get("content") or "").strip(), "calls": calls})
    return shown


def _call(call: Mapping[str, Any], result: str | None) -> dict[str, Any]:
    name, arguments = call["function"]["name"], call["function"]["arguments"]
    return {
        "name": name,
        "summary": _one_line(arguments),
        "arguments": _pretty(arguments),
        "result": "no result" if result is None else _pretty(result),
        "result_summary": "no result" if result is None else _one_line(result),
        "failed": result is None or is_error(result),
    }


def _one_line(text: str) -> str:
    with suppress(ValueError, RecursionError):
        value = json.loads(text)
        if isinstance(value, dict):
            text = ", ".join(f"{key}: {_short(item)}" for key, item in value.items())
    return text if len(text) <= _SUMMARY_LENGTH else text[: _SUMMARY_LENGTH - 1] + "…"


def _short(value: Any) -> str:
    if isinstance(value, list) and len(value) > 1 and isinstance(value[0], (dict, list)):
        return f"{len(value)} rows"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _pretty(text: str) -> str:
    try:
        return json.dumps(json.loads(text), ensure_ascii=False, indent=2)
    except (ValueError, RecursionError):
        return text

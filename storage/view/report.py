"""report.html: one self-contained file that shows what a store holds, made from the store alone.

One idea: each section is a query and a chart or a table; a section whose tables are empty says that it has not been run.
The page needs no network (the plotting library is inlined once), and every text from the data is escaped by the template engine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
import plotly.graph_objects as go
import plotly.offline
import polars as pl

from storage.files import disk_errors, replace_atomically
from storage.records import JSON
from storage.store import Store
from storage.view import charts

SAMPLES = 10
_LATEST_RUN = "(SELECT run FROM {table} JOIN parts USING (part_id) ORDER BY committed_at DESC, run LIMIT 1)"
_ENTROPIES = ("h_dom", "h_mode_1", "h_mode_2", "h_tool_bigram")


def write_report(store: Store, path: Path | None = None) -> Path:
    """Writes the report of a store (default: `report.html` beside the store's folder) and returns its path.

    Raises:
        HeadraceError: the disk is full.
    """
    target = path or store.root.parent / "report.html"
    html = _html(store)
    target.parent.mkdir(parents=True, exist_ok=True)
    with disk_errors("writing the report", target):
        replace_atomically(target, lambda draft: draft.write_text(html, encoding="utf-8"))
    return target


def _html(store: Store) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["count"] = lambda value: f"{value:,}"
    environment.filters["rate"] = lambda value: "" if value is None else f"{value:.3f}"
    return environment.get_template("report.html.j2").render(
        plotly_js=plotly.offline.get_plotlyjs(),
        name=store.root.parent.name or store.root.name,
        content_hash=store.content_hash(),
        summary=_summary(store),
        funnel=_funnel(store),
        diversity=_diversity(store),
        tags=_tags(store),
        ladder=_ladder(store),
        lineage=_lineage(store),
        clusters=_clusters(store),
        samples=_samples(store),
    )


def _chart(figure: go.Figure) -> str:
    return str(figure.to_html(full_html=False, include_plotlyjs=False, config={"displayModeBar": False, "responsive": True}))


def _scalar(store: Store, sql: str) -> Any:
    return store.query(sql).item()


def _summary(store: Store) -> dict[str, JSON]:
    return {
        "queries read": _scalar(store, "SELECT count(*) FROM queries"),
        "queries kept": _scalar(store, "SELECT count(*) FROM verdicts WHERE kept"),
        "trajectories accepted": _scalar(store, "SELECT count(*) FROM trajectories WHERE accepted"),
        "tasks": _scalar(store, "SELECT count(*) FROM tasks"),
        "rollouts": _scalar(store, "SELECT count(*) FROM rollouts"),
        "policies": _scalar(store, "SELECT count(*) FROM policies"),
    }


def _funnel(store: Store) -> dict[str, Any] | None:
    rows = store.query(
        f"""SELECT step, rows_in, kept, dropped, reasons, seconds FROM funnel
            WHERE run = {_LATEST_RUN.format(table="funnel")} ORDER BY position"""
    )
    if rows.is_empty():
        return None
    steps = [row | {"reasons": sorted(json.loads(row["reasons"] or "{}").items(), key=lambda item: -item[1])} for row in rows.to_dicts()]
    first, last = rows["rows_in"][0], rows["kept"][-1]
    return {
        "chart": _chart(charts.funnel_chart(rows)),
        "steps": steps,
        "ratio": f"1 in {round(first / last):,}" if last else "nothing was kept",
    }


def _diversity(store: Store) -> dict[str, Any] | None:
    rows = store.query(
        f"SELECT round, metric, value, sd, n FROM diversity WHERE run = {_LATEST_RUN.format(table='diversity')} ORDER BY round, metric"
    )
    accepted = store.query("SELECT complexity FROM trajectories WHERE accepted AND complexity IS NOT NULL ORDER BY trajectory_id")
    if rows.is_empty() or accepted.is_empty():
        return None
    modes = store.query("SELECT mode_coarse, count(*) AS n FROM trajectories WHERE accepted GROUP BY 1 ORDER BY n DESC, 1 LIMIT 12")
    rejected = store.query(
        "SELECT coalesce(reason, '') AS reason, count(*) AS n FROM blueprints WHERE status <> 'accepted' GROUP BY 1 ORDER BY n DESC, 1"
    )
    entropies = rows.filter(pl.col("metric").is_in(_ENTROPIES))
    return {
        "entropy": _chart(charts.entropy_chart(entropies)) if entropies.height else "",
        "complexity": _chart(charts.complexity_chart(accepted)),
        "last": rows.filter(pl.col("round") == rows["round"].max()).to_dicts(),
        "modes": modes.to_dicts(),
        "rejected": rejected.to_dicts(),
    }


def _tags(store: Store) -> dict[str, Any] | None:
    rows = store.query(
        """SELECT t.task_id, t.policy_id, t.purpose, t.difficulty, t.region, t.k FROM tags t JOIN parts p USING (part_id)
           WHERE t.policy_id IS NOT NULL AND t.region IS NOT NULL
           QUALIFY dense_rank() OVER (ORDER BY p.committed_at DESC, t.purpose DESC, t.policy_id) = 1 ORDER BY task_id"""
    )
    if rows.is_empty():
        return None
    return {
        "chart": _chart(charts.difficulty_certainty_chart(rows)),
        "policy": rows["policy_id"][0],
        "purpose": rows["purpose"][0],
        "k": rows["k"].max(),
        "tasks": rows.height,
    }


def _ladder(store: Store) -> dict[str, Any] | None:
    rows = store.query(
        """SELECT coalesce(s.name, e.policy_id) AS policy, e.policy_id, e.use, e.decoding, e.tasks, e.samples, e.rate, e.low, e.high,
             e.pass_k
           FROM evaluations e LEFT JOIN policies p USING (policy_id) LEFT JOIN stages s USING (stage_id)
           LEFT JOIN parts ON parts.part_id = s.part_id
           WHERE e.facet = 'all' ORDER BY parts.committed_at, policy, e.use, e.decoding DESC"""
    )
    if rows.is_empty():
        return None
    promotions = store.query("SELECT policy_id, passed, checks FROM promotions ORDER BY position")
    return {"chart": _chart(charts.ladder_chart(rows)), "rows": rows.to_dicts(), "promotions": promotions.to_dicts()}


def _lineage(store: Store) -> dict[str, Any] | None:
    stages = store.query(
        """WITH RECURSIVE chain AS (
             SELECT policy_id, 0 AS depth FROM (
               SELECT p.policy_id FROM policies p LEFT JOIN promotions g ON g.policy_id = p.policy_id AND g.passed
               JOIN parts ON parts.part_id = p.part_id ORDER BY g.position DESC NULLS LAST, parts.committed_at DESC LIMIT 1)
             UNION ALL
             SELECT s.input_policy_id, depth + 1 FROM chain JOIN policies p USING (policy_id) JOIN stages s USING (stage_id)
             WHERE s.input_policy_id IS NOT NULL)
           SELECT c.depth, c.policy_id, p.weights_hash, s.name, s.algorithm, s.release_id, s.split,
             count(i.item_id) AS items, count(DISTINCT t.query_id) AS queries, count(DISTINCT t.blueprint_id) AS blueprints
           FROM chain c JOIN policies p USING (policy_id) LEFT JOIN stages s USING (stage_id)
           LEFT JOIN release_items i ON i.release_id = s.release_id AND i.split = s.split LEFT JOIN tasks t ON t.task_id = i.task_id
           GROUP BY ALL ORDER BY c.depth"""
    )
    if stages.is_empty():
        return None
    examples = store.query(
        """SELECT DISTINCT ON (t.query_id) q.text, t.query_id, t.task_id, t.intent, t.difficulty, s.name AS stage
           FROM stages s JOIN release_items i ON i.release_id = s.release_id AND i.split = s.split JOIN tasks t USING (task_id)
           JOIN queries q ON q.query_id = t.query_id ORDER BY t.query_id, t.task_id LIMIT 10"""
    )
    return {"stages": stages.to_dicts(), "examples": examples.to_dicts()}


def _clusters(store: Store) -> list[dict[str, JSON]]:
    rows = store.query("SELECT cluster_id, domain, tool_ids, edges FROM clusters ORDER BY rank LIMIT 40").to_dicts()
    return [row | {"edges": len(json.loads(row["edges"] or "[]"))} for row in rows]


def _samples(store: Store) -> list[dict[str, Any]]:
    """Accepted trajectories that differ most plainly: the most complex of each domain and mode, languages in turn."""
    rows = store.query(
        """SELECT trajectory_id, domain, language, teacher, mode_coarse, complexity, messages FROM trajectories WHERE accepted
           QUALIFY row_number() OVER (PARTITION BY domain, mode_coarse ORDER BY complexity DESC, trajectory_id) = 1
           ORDER BY row_number() OVER (PARTITION BY domain, language ORDER BY complexity DESC, trajectory_id), trajectory_id LIMIT ?""",
        (SAMPLES,),
    )
    return [row | {"messages": [_shown(message) for message in json.loads(row["messages"])]} for row in rows.to_dicts()]


def _shown(message: Mapping[str, Any]) -> dict[str, Any]:
    calls = [
        {"name": call["function"]["name"], "arguments": _pretty(call["function"]["arguments"])} for call in message.get("tool_calls") or ()
    ]
    content = message.get("content") or ""
    return {"role": message["role"], "content": _pretty(content) if message["role"] == "tool" else content, "calls": calls}


def _pretty(text: str) -> str:
    try:
        return json.dumps(json.loads(text), ensure_ascii=False, indent=1)
    except ValueError:
        return text

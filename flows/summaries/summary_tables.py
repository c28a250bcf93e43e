"""Summary tables of a run. Each is one query on the store.

The `headrace` command prints them, and the flows publish them as artifacts. The report (`storage/report`) shows more.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from storage.conversation import KINDS, mode_in_words
from storage.explanations.store_rows import HELD_OUT_IN_TABLES
from storage.releases.lineage_graph import LATEST_POLICY_SQL, POLICY_NAME, chain_sql
from storage.report.evaluation_queries import by_facet, format_rate, parse_pass_k, rates_by_kind, read_measurements
from storage.report.prior_queries import prior_fits, read_priors
from storage.store import Store
from storage.tables import CERTAINTY, LATEST_RUN
from synth.intervals import wilson
from synth.run.outcomes import count_outcomes, reason_in_words

if TYPE_CHECKING:
    from rich.console import Console

_TAGS_SQL = f"""SELECT policy_id, difficulty, region, count(*) AS tasks, round(avg(rate), 2) AS mean_rate
FROM {CERTAINTY} WHERE purpose = 'probe' GROUP BY ALL ORDER BY ALL"""
_REASONS_SHOWN = 4


@dataclass(frozen=True)
class Table:
    """A table for the terminal or a Prefect artifact.

    key: key of the artifact, and name for selection.
    title: title for the user.
    rows: dicts with equal keys; column name -> value.
    legend: what its codes mean; empty if it has none.
    """

    key: str
    title: str
    rows: list[dict[str, Any]]
    legend: str = ""


def tables(store: Store) -> list[Table]:
    """All tables of a store that have rows, in the order of the pipeline."""
    builders = (funnel, rounds, outcomes, diversity, difficulty, certainty, priors, flips, ladder, forgetting, facets)
    return [table for build in builders if (table := build(store)).rows]


def funnel(store: Store) -> Table:
    """The last funnel run, one row per step."""
    rows = store.query(
        """SELECT step, rows_in, kept, dropped, reasons, seconds FROM funnel
           WHERE run = (SELECT run FROM funnel JOIN parts USING (part_id) ORDER BY committed_at DESC, run LIMIT 1) ORDER BY position"""
    )
    table_rows = [
        {
            "step": row["step"],
            "rows in": f"{row['rows_in']:,}",
            "kept": f"{row['kept']:,}",
            "dropped": f"{row['dropped']:,}",
            "why": _reasons(json.loads(row["reasons"] or "{}")),
            "seconds": f"{row['seconds']:.1f}",
        }
        for row in rows.to_dicts()
    ]
    ratio = f": 1 in {rows['rows_in'][0] / rows['kept'][-1]:,.0f} kept" if rows.height and rows["kept"][-1] else ""
    return Table("funnel", f"Funnel{ratio}", table_rows, "`headrace explain RUN` says every reason in words" if table_rows else "")


def _reasons(counts: dict[str, int]) -> str:
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    texts = [f"{reason.replace('_', ' ')} {count:,}" for reason, count in ordered[:_REASONS_SHOWN]]
    return ", ".join(texts + ([f"{len(ordered) - _REASONS_SHOWN} more"] if len(ordered) > _REASONS_SHOWN else []))


_DIVERSITY_LEGEND = """Entropies are in bits, over domains or reasoning modes; complexity is CAC. sd: standard deviation over subsamples.
over: conversations that the figure is computed from. docs/definitions.md defines each figure."""


def diversity(store: Store) -> Table:
    """The diversity figures of the last synthesis round."""
    rows = store.query(
        """WITH latest AS (SELECT run FROM diversity JOIN parts USING (part_id) ORDER BY committed_at DESC, run LIMIT 1)
           SELECT metric, value, sd, n FROM diversity JOIN latest USING (run)
           QUALIFY round = max(round) OVER () ORDER BY metric"""
    )
    shown = [
        {
            "figure": row["metric"],
            "value": "" if row["value"] is None else f"{row['value']:.3f}",
            "sd": "" if row["sd"] is None else f"{row['sd']:.3f}",
            "over": f"{row['n']:,}",
        }
        for row in rows.to_dicts()
    ]
    return Table("diversity", "Diversity of the accepted trajectories", shown, _DIVERSITY_LEGEND if shown else "")


_ROUND_FIGURES = {
    "domain_entropy_bits": "H_dom",
    "mode_entropy_coarse_bits": "H_mode",
    "complexity_mean": "CAC",
    "band_share_low": "low",
    "band_share_mid": "mid",
    "band_share_high": "high",
    "user_adherence": "user adheres",
}


_ROUNDS_LEGEND = """H_dom, H_mode: entropy of the conversations over domains and over reasoning modes, in bits. CAC: mean complexity.
low, mid, high: share of the conversations in each third of the complexity that was calibrated."""


def rounds(store: Store) -> Table:
    """The rounds of the last synthesis run: requested and accepted conversations, and figures of all conversations accepted so far."""
    counts = store.query(
        f"""SELECT round, count(*) AS asked, count(*) FILTER (status = 'accepted') AS accepted FROM decisions
            WHERE run = {LATEST_RUN.format(table="decisions")} GROUP BY round ORDER BY round"""
    )
    figures = store.query(
        f"""SELECT round, metric, value FROM diversity
            WHERE run = {LATEST_RUN.format(table="decisions")} AND round >= 0 AND value IS NOT NULL"""
    )
    by_round: dict[int, dict[str, float]] = {}
    for number, metric, value in figures.iter_rows():
        by_round.setdefault(number, {})[metric] = value
    shown = [
        {
            "round": number,
            "asked": f"{proposed:,}",
            "accepted": f"{accepted:,}",
            **{
                title: f"{by_round[number][metric]:.2f}" if metric in by_round.get(number, {}) else ""
                for metric, title in _ROUND_FIGURES.items()
                if any(metric in metrics for metrics in by_round.values())
            },
        }
        for number, proposed, accepted in counts.iter_rows()
    ]
    return Table("rounds", "Rounds of the controller", shown, _ROUNDS_LEGEND if shown else "")


def outcomes(store: Store) -> Table:
    """Outcomes of the last run's proposals, and the reasons of those that were not accepted, each with an example."""
    counts = count_outcomes(store)
    has_cost = any(one.tokens for one in counts)
    shown = [
        {
            "outcome": one.outcome,
            "why": reason_in_words(one.reason) if one.reason else "",
            "conversations": one.proposals,
            **({"tokens": one.tokens, "usd": one.usd} if has_cost else {}),
            "for example": one.example.id,
            "which says": one.example.text,
        }
        for one in counts
    ]
    return Table("outcomes", "Conversations by outcome", shown, "`headrace explain ID` shows an example" if shown else "")


def difficulty(store: Store) -> Table:
    """Survivors of the funnel and tasks, by static difficulty."""
    rows = store.query(
        """SELECT difficulty, count(DISTINCT query_id) AS queries, count(DISTINCT frame_id) AS frames, count(*) AS tasks,
             string_agg(DISTINCT world, ', ' ORDER BY world) AS worlds
           FROM tasks GROUP BY difficulty ORDER BY difficulty"""
    )
    shown = [
        {key.replace("_", " "): f"{value:,}" if isinstance(value, int) else value for key, value in row.items()} for row in rows.to_dicts()
    ]
    return Table("difficulty", "Static difficulty (-1 refusal, 0 no tool, 1 to 5)", shown)


def certainty(store: Store) -> Table:
    """Probed tasks by region, one row per policy of the last training and difficulty."""
    rows = store.query(
        f"""{chain_sql(LATEST_POLICY_SQL)}
           SELECT {POLICY_NAME} AS policy, t.difficulty, count(*) AS tasks,
             count(*) FILTER (region = 'mastered') AS mastered, count(*) FILTER (region = 'certain') AS certain,
             count(*) FILTER (region = 'uncertain') AS uncertain, count(*) FILTER (region = 'out_of_reach') AS "out of reach",
             printf('%.2f', avg(rate)) AS "mean rate"
           FROM chain c JOIN {CERTAINTY} t USING (policy_id) JOIN policies p ON p.policy_id = c.policy_id
             LEFT JOIN stages s ON s.stage_id = p.stage_id
           WHERE t.purpose = 'probe'
           GROUP BY c.depth, c.policy_id, policy, t.difficulty ORDER BY c.depth DESC, c.policy_id, t.difficulty"""
    )
    legend = "of 8 rollouts a mastered task succeeds in 8, a certain one in 6 or 7, an uncertain one in 1 to 5, one out of reach in none"
    return Table("certainty", "Certainty: probed tasks by region", rows.to_dicts(), legend)


_PRIORS_LEGEND = """by NAME: tasks whose prior comes from other tasks of that group.
Spearman: rank correlation with the failure rate, of static difficulty and of the prior; 1 is perfect, 0 is chance."""


def priors(store: Store) -> Table:
    """What static difficulty and the measured prior say of the probed tasks, one row per policy of the last training."""
    shown = [
        {
            "policy": fit["policy"],
            "tasks": f"{fit['tasks']:,}",
            **{f"by {basis}": f"{count:,}" for basis, count in fit["bases"].items()},
            **{f"Spearman, {name}": "" if fit[name] is None else f"{fit[name]:.2f}" for name in ("static", "prior")},
        }
        for fit in prior_fits(read_priors(store))
    ]
    title = "Prior of difficulty by other probed tasks, and its rank correlation with failure"
    return Table("priors", title, shown, _PRIORS_LEGEND if shown else "")


def flips(store: Store) -> Table:
    """By policy, how many tasks change their region on a second, independent draw; empty without a second draw."""
    rows = store.query(
        f"""SELECT any_value(coalesce({POLICY_NAME}, t.policy_id)) AS policy, count(*) AS tasks,
             count(*) FILTER (t.region <> u.region) AS other
           FROM {CERTAINTY} t JOIN {CERTAINTY} u USING (policy_id, task_id)
             LEFT JOIN policies p ON p.policy_id = t.policy_id LEFT JOIN stages s ON s.stage_id = p.stage_id
           WHERE t.purpose = 'probe' AND u.purpose = 'probe_again'
           GROUP BY t.policy_id ORDER BY policy, t.policy_id"""
    )
    shown = []
    for policy, tasks, changed in rows.iter_rows():
        low, high = wilson(changed, tasks)
        share = {"share": f"{changed / tasks:.2f}", "95 %": f"{low:.2f} to {high:.2f}"}
        shown.append({"policy": policy, "tasks": tasks, "another region": changed, **share})
    legend = "share: of the tasks, how many are in another region when their rollouts are drawn again; the more, the less a region means"
    return Table("flips", "Regions on a second draw", shown, legend if shown else "")


_HELD_OUT_LEGEND = """\
known needs: siblings of training tasks, with data that is set aside. new needs: tasks with needs that training does not have.
pass^k: chance that k samples of a task all succeed."""
_LADDER_LEGEND = f"""{_HELD_OUT_LEGEND}
Acts change the state of a world, look-ups answer from it, refusals decline."""


def ladder(store: Store) -> Table:
    """Success of every policy of the last training on the held-out tasks, with 95 % intervals and the gate's last decision."""
    every = read_measurements(store)
    measurements = every.filter(facet="all").sort("use", "decoding", descending=[False, True], maintain_order=True)
    kinds = rates_by_kind(every)
    no_kinds = dict.fromkeys(KINDS.values(), "") if kinds else {}
    gates = store.query(
        "SELECT policy_id, arg_max(passed, committed_at) AS passed FROM promotions JOIN parts USING (part_id) GROUP BY policy_id"
    )
    passed = dict(gates.iter_rows())
    largest_k = max((k for text in measurements["pass_k"] for k in parse_pass_k(text)), default=None)
    shown = []
    for row in measurements.to_dicts():
        power = parse_pass_k(row["pass_k"]).get(largest_k) if largest_k is not None else None
        shown.append(
            {
                "policy": row["policy"],
                "held out": HELD_OUT_IN_TABLES.get(row["use"], row["use"]),
                "decoding": row["decoding"],
                "tasks": row["tasks"],
                "success": format_rate(row["rate"], row["low"], row["high"]),
                **kinds.get((row["policy_id"], row["use"], row["decoding"]), no_kinds),
                **({f"pass^{largest_k}": format_rate(*power) if power is not None else ""} if largest_k is not None else {}),
                "promoted": {True: "yes", False: "no", None: ""}[passed.get(row["policy_id"])],
            }
        )
    return Table("ladder", "Success on held-out tasks (95 % intervals)", shown, _LADDER_LEGEND if shown else "")


def forgetting(store: Store) -> Table:
    """Stages whose release keeps general conversations aside, in the order of training."""
    rows = store.query(
        """SELECT name, metrics FROM stages JOIN parts USING (part_id) WHERE json_exists(metrics, '$.general_loss') ORDER BY parts.rowid"""
    )
    losses = [(name, json.loads(metrics)) for name, metrics in rows.iter_rows()]
    shown = [{"stage": name, "before": f"{one['general_loss_before']:.3f}", "after": f"{one['general_loss']:.3f}"} for name, one in losses]
    return Table("forgetting", "Loss on general conversations that were not trained on (nats a token; higher after: forgotten)", shown)


def facets(store: Store) -> Table:
    """Success on held-out tasks by world, language, difficulty and reasoning mode. The report has it by intent too."""
    rows = read_measurements(store)
    names = rows.select("policy_id", "policy").unique(maintain_order=True)["policy"].to_list()
    shown = []
    for line in by_facet(rows):
        if line.facet == "intent":
            continue
        earlier = {name: "" if cell is None else f"{cell['rate']:.3f}" for name, cell in zip(names[:-1], line.cells[:-1], strict=True)}
        last = line.cells[-1]
        power = parse_pass_k(last["pass_k"]) if last is not None else {}
        shown.append(
            {
                "held out": HELD_OUT_IN_TABLES.get(line.use, line.use),
                "by": line.facet,
                "value": mode_in_words(line.value) if line.facet == "mode" else line.value,
                "tasks": line.last["tasks"],
                **earlier,
                names[-1]: "" if last is None else format_rate(last["rate"], last["low"], last["high"]),
                "pass^k": f"{max(power)}: {format_rate(*power[max(power)])}" if power else "",
            }
        )
    return Table("facets", "Success on held-out tasks by facet", shown, _HELD_OUT_LEGEND if shown else "")


def tags_command(store: Path) -> str:
    """A shell command that prints the tags of a store by policy, difficulty and region."""
    query = f"import duckdb; print(duckdb.connect('catalog.read.duckdb', read_only=True).sql('''{' '.join(_TAGS_SQL.split())}'''))"
    return f'cd {shlex.quote(str(store))} && {shlex.quote(sys.executable)} -c "{query}"'


def print_table(table: Table, console: Console) -> None:
    """Print the table. Columns of numbers are aligned right."""
    from rich.table import Table as RichTable
    from rich.text import Text

    rich_table = RichTable(header_style="dim", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in table.rows[0]:
        rich_table.add_column(name, justify="right" if _is_number([row[name] for row in table.rows]) else "left", overflow="fold")
    for row in table.rows:
        rich_table.add_row(*(Text("" if value is None else str(value)) for value in row.values()))
    console.print(Text(f"\n{table.title}", style="bold"))
    console.print(rich_table)
    if table.legend:
        console.print(Text(table.legend, style="dim"))


def _is_number(values: Sequence[Any]) -> bool:
    return all(str(value).replace(",", "").replace(".", "").replace("-", "").isdigit() or value in ("", None) for value in values)

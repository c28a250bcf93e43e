"""The lineage graph of a store: the tables as one graph, walked in either direction by one SQL query.

One idea: every "made from" relation is an edge (child, parent) that some table already holds. One recursive query over their union finds
all ancestors of a policy, or all descendants of a tool.

    policy -> stage -> split of a release -> trajectory or rollout -> task -> query, frame, or blueprint -> cluster -> tools
              stage -> the policy it started from;  rollout -> the policy that made it;  evaluation -> the policy that it measured

A split is a node of its own, `<release id>/<split>`, because a stage reads one split and not its neighbours; a release stands for all
of its splits. Towards uses, a policy leads only to those of its rollouts that a later stage may read, and to its
evaluations, not to every rollout.
"""

from __future__ import annotations

import polars as pl

from storage.store import Store

ORDER = (
    "withdrawal",
    "tool",
    "cluster",
    "blueprint",
    "query",
    "frame",
    "task",
    "trajectory",
    "rollout",
    "split",
    "release",
    "stage",
    "policy",
    "evaluation",
)
"""Kinds from the ground up."""

_BURIED = ("blueprint", "task", "trajectory", "rollout")
"""Kinds whose rows may have been withdrawn while releases still name them; of such a row only the withdrawal is known."""
_EDGES: tuple[tuple[str, str, str], ...] = (
    ("evaluation", "policy", "SELECT DISTINCT evaluation_id, policy_id FROM evaluations"),
    ("policy", "stage", "SELECT policy_id, stage_id FROM policies"),
    ("stage", "policy", "SELECT stage_id, input_policy_id FROM stages"),
    ("stage", "split", "SELECT stage_id, release_id || '/' || split FROM stages"),
    ("split", "task", "SELECT release_id || '/' || split, task_id FROM release_items"),
    ("split", "trajectory", "SELECT release_id || '/' || split, item_id FROM release_items WHERE kind = 'trajectory'"),
    ("split", "rollout", "SELECT release_id || '/' || split, item_id FROM release_items WHERE kind = 'rollout'"),
    ("rollout", "task", "SELECT rollout_id, task_id FROM rollouts"),
    ("trajectory", "task", "SELECT trajectory_id, task_id FROM trajectories"),
    ("trajectory", "blueprint", "SELECT trajectory_id, blueprint_id FROM trajectories"),
    ("trajectory", "query", "SELECT trajectory_id, query_id FROM trajectories"),
    ("task", "frame", "SELECT task_id, frame_id FROM tasks"),
    ("task", "query", "SELECT task_id, query_id FROM tasks"),
    ("task", "blueprint", "SELECT task_id, blueprint_id FROM tasks"),
    ("blueprint", "cluster", "SELECT blueprint_id, cluster_id FROM blueprints"),
    ("cluster", "tool", "SELECT cluster_id, unnest(tool_ids) FROM clusters"),
    *((kind, "withdrawal", f"SELECT id, withdrawal_id FROM withdrawn WHERE kind = '{kind}'") for kind in _BURIED),
)
"""(kind of the child, kind of the parent, pairs of ids); the child was made from the parent."""


_ALL_ROLLOUTS = "SELECT rollout_id, policy_id FROM rollouts"
_RELEASED_ROLLOUTS = f"{_ALL_ROLLOUTS} WHERE rollout_id IN (SELECT item_id FROM release_items WHERE kind = 'rollout')"


def _edges_sql(rollouts: str) -> str:
    return " UNION ALL ".join(
        f"SELECT '{child}' AS child_kind, pair.a AS child, '{parent}' AS parent_kind, pair.b AS parent FROM ({sql}) AS pair(a, b) "
        "WHERE pair.b IS NOT NULL"
        for child, parent, sql in (*_EDGES, ("rollout", "policy", rollouts))
    )


def _walk_sql(start: str, end: str, rollouts: str) -> str:
    return f"""WITH RECURSIVE edges AS MATERIALIZED ({_edges_sql(rollouts)}),
        walked(kind, id) AS (
            (SELECT ?::VARCHAR, ?::VARCHAR
             UNION SELECT 'split', release_id || '/' || split FROM release_items WHERE 'release' = ? AND release_id = ?)
            UNION SELECT {end}_kind, {end} FROM walked JOIN edges ON {start}_kind = walked.kind AND {start} = walked.id)
        SELECT kind, id FROM (
            SELECT kind, id FROM walked
            UNION SELECT 'release', regexp_extract(id, '(.*)/', 1) FROM walked WHERE kind = 'split')
        WHERE (kind, id) <> (?, ?) ORDER BY kind, id"""


ORIGINS_SQL = _walk_sql("child", "parent", _ALL_ROLLOUTS)
"""Everything that a node was made from; parameters: kind and id, three times."""
USES_SQL = _walk_sql("parent", "child", _RELEASED_ROLLOUTS)
"""Everything that was made from a node; parameters as above."""


IS_ENGINE = "contains(coalesce(p.path, ''), ':')"
"""Whether a policy is an engine by its name (`openai:MODEL`): the path of a model folder in a store has no colon."""

POLICY_NAME = f"coalesce(s.name, CASE WHEN {IS_ENGINE} THEN p.path END, p.policy_id)"
"""Name of a policy, in `policies p LEFT JOIN stages s`: its stage, or its engine."""


_BEYOND = 1_000
"""A depth that no training reaches."""


def chain_sql(last: str) -> str:
    """Start of a query: `chain(policy_id, depth)`, the policy that the SELECT `last` gives (depth 0) and those that it was trained from;
    and beyond, the engines that were measured beside them. `trained` is the same without engines."""
    return f"""WITH RECURSIVE trained AS (
        SELECT policy_id, 0 AS depth FROM ({last})
        UNION ALL
        SELECT s.input_policy_id, depth + 1 FROM trained JOIN policies p USING (policy_id) JOIN stages s USING (stage_id)
        WHERE s.input_policy_id IS NOT NULL),
        chain AS (SELECT * FROM trained UNION ALL SELECT policy_id, {_BEYOND} FROM policies p WHERE {IS_ENGINE})"""


LATEST_POLICY_SQL = f"""SELECT policy_id FROM policies p JOIN parts USING (part_id) WHERE NOT {IS_ENGINE}
ORDER BY committed_at DESC, policy_id DESC LIMIT 1"""
"""The policy that was trained last, promoted or not."""

PROMOTED_POLICY_SQL = """SELECT policy_id FROM promotions JOIN parts USING (part_id)
WHERE passed ORDER BY committed_at DESC, position DESC LIMIT 1"""
"""The policy that passed the gate last."""


def origins(store: Store, kind: str, node: str) -> pl.DataFrame:
    """Columns kind, id: all that this node was made from, directly or not."""
    return store.query(ORIGINS_SQL, [kind, node] * 3)


def uses(store: Store, kind: str, node: str) -> pl.DataFrame:
    """Columns kind, id: all that was made from this node, directly or not."""
    return store.query(USES_SQL, [kind, node] * 3)


def edges_between(store: Store, nodes: pl.DataFrame) -> pl.DataFrame:
    """The edges with both ends among these nodes. nodes: columns kind, id.

    Columns: child_kind, child, parent_kind, parent.
    """
    return store.query(
        f"""WITH nodes AS MATERIALIZED (SELECT unnest(?::VARCHAR[]) AS kind, unnest(?::VARCHAR[]) AS id)
            SELECT DISTINCT e.child_kind, e.child, e.parent_kind, e.parent FROM ({_edges_sql(_ALL_ROLLOUTS)}) e
            JOIN nodes a ON a.kind = e.child_kind AND a.id = e.child JOIN nodes b ON b.kind = e.parent_kind AND b.id = e.parent
            ORDER BY ALL""",
        [nodes["kind"].to_list(), nodes["id"].to_list()],
    )

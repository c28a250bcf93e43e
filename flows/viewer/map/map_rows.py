"""What is on a map: requests, trajectories, or draws of policies; the text of each, by which it is placed, and the columns to colour by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_JSON = "CASE WHEN json_valid(messages) THEN messages END"
"""The messages, where DuckDB reads them: the JSON of a policy may hold half a surrogate pair, which it does not."""
_SPOKEN = f"""coalesce(array_to_string(list_transform(list_filter(json_extract({_JSON}, '$[*]'),
  lambda one: json_extract_string(one, '$.role') = 'user'), lambda one: json_extract_string(one, '$.content')), chr(10)), messages)"""
_TOOLS = f"coalesce(array_to_string(json_extract_string({_JSON}, '$[*].tool_calls[*].function.name'), ' '), '')"
_CONVERSATIONS = f"SELECT hash({{id}}) AS key, {{id}} AS id, {_SPOKEN} AS text, text || ' ' || {_TOOLS} AS said FROM {{table}}"
_QUERY_KEY = "hash(run, query_id)"
_OF_RELEASES = "SELECT DISTINCT i.release_id AS release, {key} AS key FROM release_items i {join}"


@dataclass(frozen=True)
class RowKind:
    """A kind of rows.

    title: its name on the page; noun: what one row is called, in the plural.
    text_tables, tables: those that texts come from, and all that the map reads.
    texts_sql: key, id, text (shown) and said (by which it is placed).
    columns_sql: each gives key and some of the columns, all of them texts; a row that it lacks has no value in these.
    columns: name -> its name on the page; the first is the colour at first.
    releases_sql: release and key of the rows that are in a release.
    sets: pairs of "column:value" that are worth a comparison, the first of which is offered.
    """

    title: str
    noun: str
    text_tables: tuple[str, ...]
    tables: tuple[str, ...]
    texts_sql: str
    columns_sql: tuple[str, ...]
    columns: Mapping[str, str]
    releases_sql: str
    sets: tuple[tuple[str, str], ...]


KINDS = {
    "requests": RowKind(
        title="Requests",
        noun="requests",
        text_tables=("queries",),
        tables=("queries", "verdicts", "frames", "tasks", "rollouts", "release_items"),
        texts_sql=f"SELECT {_QUERY_KEY} AS key, query_id AS id, text, text AS said FROM queries",
        columns_sql=(
            f"SELECT {_QUERY_KEY} AS key, language, source, run FROM queries",
            f"SELECT {_QUERY_KEY} AS key, CASE WHEN kept THEN 'kept' ELSE 'dropped' END AS verdict, step, reason FROM verdicts",
            f"""SELECT {_QUERY_KEY} AS key, world, intent, leaf, difficulty::VARCHAR AS difficulty,
                  (floor(quality * 10) / 10)::DECIMAL(3, 1)::VARCHAR AS confidence FROM frames""",
            """SELECT hash(q.run, q.query_id) AS key, CASE WHEN avg((r.outcome = 'success')::INT) >= 0.5 THEN 'yes' ELSE 'no' END AS solved
                FROM rollouts r JOIN tasks t USING (task_id) JOIN queries q USING (query_id)
                WHERE r.outcome IN ('success', 'policy_failure') GROUP BY ALL""",
        ),
        columns={
            "step": "step that dropped it",
            "verdict": "verdict",
            "reason": "reason",
            "world": "world",
            "intent": "intent",
            "leaf": "leaf of the taxonomy",
            "language": "language",
            "difficulty": "difficulty",
            "confidence": "confidence of the frame",
            "solved": "solved in half of the draws",
            "source": "source",
            "run": "run",
        },
        releases_sql=_OF_RELEASES.format(
            key="hash(q.run, q.query_id)", join="JOIN tasks t USING (task_id) JOIN queries q USING (query_id)"
        ),
        sets=(("verdict:kept", "verdict:dropped"), ("solved:no", "solved:yes")),
    ),
    "trajectories": RowKind(
        title="Trajectories",
        noun="trajectories",
        text_tables=("trajectories",),
        tables=("trajectories", "release_items"),
        texts_sql=_CONVERSATIONS.format(table="trajectories", id="trajectory_id"),
        columns_sql=(
            """SELECT hash(trajectory_id) AS key, world, mode_coarse AS mode, complexity_band AS band, outcome,
                 CASE WHEN accepted THEN 'yes' ELSE 'no' END AS accepted, reason, language, teacher, domain, cluster_id AS cluster
               FROM trajectories""",
        ),
        columns={
            "world": "world",
            "mode": "what the assistant does",
            "band": "complexity band",
            "outcome": "outcome",
            "accepted": "accepted",
            "reason": "reason",
            "language": "language",
            "teacher": "teacher",
            "domain": "domain",
            "cluster": "cluster",
        },
        releases_sql=_OF_RELEASES.format(key="hash(x.trajectory_id)", join="JOIN trajectories x ON x.trajectory_id = i.item_id"),
        sets=(("accepted:no", "accepted:yes"), ("outcome:policy_failure", "outcome:success")),
    ),
    "rollouts": RowKind(
        title="Draws of policies",
        noun="draws",
        text_tables=("rollouts",),
        tables=("rollouts", "tasks", "release_items"),
        texts_sql=_CONVERSATIONS.format(table="rollouts", id="rollout_id"),
        columns_sql=(
            """SELECT hash(r.rollout_id) AS key, r.outcome, r.policy_id AS policy, r.purpose, t.world, t.intent, t.leaf, t.language,
                 t.difficulty::VARCHAR AS difficulty, t.division
               FROM rollouts r LEFT JOIN tasks t USING (task_id)""",
        ),
        columns={
            "outcome": "outcome",
            "policy": "policy",
            "purpose": "purpose",
            "world": "world",
            "intent": "intent",
            "leaf": "leaf of the taxonomy",
            "language": "language",
            "difficulty": "difficulty",
            "division": "division",
        },
        releases_sql=_OF_RELEASES.format(key="hash(x.rollout_id)", join="JOIN rollouts x ON x.rollout_id = i.item_id"),
        sets=(("outcome:policy_failure", "outcome:success"),),
    ),
}

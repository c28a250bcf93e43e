"""What a withdrawal would hide: the tombstones of a source, and what they mean for every table, release, stage and policy.

One idea: a tombstone names a source as a whole (a file, a world, a teacher), so that later rows of it are hidden too, and each task and
conversation that was made from it, because releases name those by their ids.

    file      its rows, all that was read of them; the tasks made of them, and every conversation and draw on such a task
    world     its tools, clusters, blueprints, tasks, conversations and draws; the raw queries that were read in it stay
    teacher   its conversations, and what a policy of its name drew; where it planned or played the user too, also the blueprint, the tasks
              that hold it, and the draws on these

What stays: the draws of a policy that learned from the source, on other tasks. The policy is marked, and so is each release of such draws.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Literal

import polars as pl

from storage.duckdb_catalog import hidden_sql
from storage.errors import BadInput
from storage.records import content_id
from storage.store import Store
from storage.tables import FILE_LENGTH, TABLES, hiding
from storage.tombstones.withdrawn_rows import SOURCE_KINDS

Kind = Literal["file", "world", "teacher"]
_NAMES: Mapping[Kind, str] = {
    "file": "SELECT DISTINCT source FROM queries",
    "world": "SELECT world FROM tools UNION SELECT world FROM worlds UNION SELECT world FROM tasks UNION SELECT world FROM trajectories",
    "teacher": "SELECT DISTINCT teacher FROM trajectories UNION SELECT path FROM policies WHERE contains(coalesce(path, ''), ':')",
}
_OURS = ("scripted", "general")
"""Names that stand for no source: what Headrace writes itself, and the world of all general conversations."""
_NAMED = 10


@dataclass(frozen=True)
class SourceName:
    """A source of rows. kind: what it is; name: as tables have it."""

    kind: Kind
    name: str

    @property
    def withdrawal_id(self) -> str:
        return content_id("withdrawal", self.kind, self.name)

    def __str__(self) -> str:
        return f"{SOURCE_KINDS[self.kind]} {self.name}"


@dataclass(frozen=True)
class Impact:
    """What a withdrawal would do.

    tombstones: columns kind and id.
    rows: table -> rows that are hidden, largest first.
    releases: columns release_id, name, items, left: releases with such items that no other release stands for yet, in the order of commits.
    stages, policies: ids of what trained on them; of a policy, also through the policy that it began as.
    orphans: rows of other files that were dropped as repeats of rows that go.
    """

    source: SourceName
    tombstones: pl.DataFrame
    rows: dict[str, int]
    releases: pl.DataFrame
    stages: list[str] = field(default_factory=list)
    policies: list[str] = field(default_factory=list)
    orphans: int = 0


def find_source(store: Store, text: str, kind: Kind | None = None) -> SourceName:
    """The source that a user means, withdrawn or not. text: its name; of a file also with its folder. kind: where several kinds have it.

    Raises:
        BadInput: the store has no row of it, or several kinds of sources have the name.
    """
    names = {one: text if one != "file" else PurePath(text).name for one in _NAMES if kind in (None, one)}
    fits = [SourceName(one, name) for one, name in names.items() if name not in _OURS and _has(store, one, name)]
    if len(fits) > 1:
        raise BadInput(f"{text} is a {' and a '.join(SOURCE_KINDS[one.kind] for one in fits)}; say which with --kind {fits[0].kind}")
    if not fits:
        own = " (what Headrace writes itself is no source)" if text in _OURS else ""
        raise BadInput(f"{store.root} has no rows of {text!r}{own}; it has rows of: {_list_names(store)}")
    return fits[0]


def _has(store: Store, kind: Kind, name: str) -> bool:
    sql = f"""SELECT 1 FROM ({_NAMES[kind]}) AS known(name) WHERE name = ?
        UNION ALL SELECT 1 FROM withdrawals WHERE kind = ? AND source = ? LIMIT 1"""
    return store.query(sql, [name, kind, name]).height > 0


def _list_names(store: Store) -> str:
    found = []
    for kind, sql in _NAMES.items():
        names = store.query(f"SELECT name FROM ({sql}) AS known(name) WHERE name IS NOT NULL ORDER BY 1")["name"].to_list()
        names = [name for name in names if name not in _OURS]
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        found += [f"{kind} {', '.join(names[:_NAMED])}{more}"] if names else []
    return "; ".join(found) or "nothing yet"


def plan_withdrawal(store: Store, source: SourceName) -> Impact:
    """What the withdrawal of a source would do to the store as it is."""
    tombstones = _tombstones(store, source)
    return Impact(
        source,
        tombstones,
        _count_rows(store, tombstones),
        _releases(store, tombstones),
        *_trained(store, tombstones),
        orphans=_orphans(store, source),
    )


_QUERIES_OF_FILE = "(SELECT DISTINCT query_id FROM queries WHERE source = ?)"
_MADE_SQL: Mapping[Kind, str] = {
    "file": f"""WITH files AS (SELECT DISTINCT left(query_id, {FILE_LENGTH}) AS id FROM queries WHERE source = ?),
        tasks_gone AS (SELECT task_id FROM tasks WHERE left(query_id, {FILE_LENGTH}) IN (SELECT id FROM files)),
        blueprints_gone AS (SELECT NULL::VARCHAR AS blueprint_id WHERE false),
        talks_gone AS (SELECT trajectory_id FROM trajectories WHERE left(query_id, {FILE_LENGTH}) IN (SELECT id FROM files)),
        draws_gone AS (SELECT NULL::VARCHAR AS rollout_id WHERE false),
        whole AS (SELECT 'file' AS kind, id FROM files UNION ALL SELECT DISTINCT 'unserved', run FROM queries
            WHERE left(query_id, {FILE_LENGTH}) IN (SELECT id FROM files) AND run IN (SELECT run FROM unserved))""",
    "world": """WITH named AS (SELECT ?::VARCHAR AS name),
        tasks_gone AS (SELECT task_id FROM tasks WHERE world IN (SELECT name FROM named)),
        blueprints_gone AS (SELECT blueprint_id FROM blueprints WHERE world IN (SELECT name FROM named)),
        talks_gone AS (SELECT trajectory_id FROM trajectories WHERE world IN (SELECT name FROM named)),
        draws_gone AS (SELECT NULL::VARCHAR AS rollout_id WHERE false),
        whole AS (SELECT 'world' AS kind, name AS id FROM named)""",
    "teacher": """WITH named AS (SELECT ?::VARCHAR AS name),
        played AS (SELECT trajectory_id, blueprint_id, teacher = name AS is_teacher,
            list_contains(json_extract_string(p.roles, ['$.planner', '$.user']), name) AS wrote
          FROM trajectories LEFT JOIN provenance p USING (trajectory_id), named),
        blueprints_gone AS (SELECT blueprint_id FROM played WHERE wrote AND blueprint_id IS NOT NULL),
        tasks_gone AS (SELECT task_id FROM tasks WHERE blueprint_id IN (SELECT blueprint_id FROM blueprints_gone)),
        talks_gone AS (SELECT trajectory_id FROM played WHERE is_teacher OR wrote),
        draws_gone AS (SELECT rollout_id FROM rollouts WHERE policy_id IN (
            SELECT policy_id FROM policies WHERE path IN (SELECT name FROM named))),
        whole AS (SELECT 'teacher' AS kind, name AS id FROM named)""",
}
"""Kind of a source -> what was made from it; parameter: its name."""
_TOMBSTONES_SQL = """
SELECT kind, id FROM whole
UNION SELECT 'task', task_id FROM tasks_gone
UNION SELECT 'blueprint', blueprint_id FROM blueprints_gone
UNION SELECT 'trajectory', trajectory_id FROM trajectories WHERE trajectory_id IN (SELECT trajectory_id FROM talks_gone)
    OR task_id IN (SELECT task_id FROM tasks_gone) OR blueprint_id IN (SELECT blueprint_id FROM blueprints_gone)
UNION SELECT 'rollout', rollout_id FROM rollouts WHERE task_id IN (SELECT task_id FROM tasks_gone)
    OR rollout_id IN (SELECT rollout_id FROM draws_gone)
ORDER BY kind, id"""


def _tombstones(store: Store, source: SourceName) -> pl.DataFrame:
    return store.query(_MADE_SQL[source.kind] + _TOMBSTONES_SQL, [source.name])


def _count_rows(store: Store, tombstones: pl.DataFrame) -> dict[str, int]:
    """Table -> rows that these tombstones hide."""
    kinds, counts = set(tombstones["kind"]), dict[str, int]()
    connection = store.connect()
    try:
        connection.register("planned", tombstones.to_arrow())
        for table in TABLES:
            condition = hidden_sql(table, kinds, "planned") if hiding(table) else ""
            if condition:
                row = connection.execute(f"SELECT count(*) FROM {table} WHERE {condition}").fetchone()
                counts[table] = int(row[0]) if row else 0
    finally:
        connection.close()
    return {table: n for table, n in sorted(counts.items(), key=lambda count: -count[1]) if n}


_HELD_SQL = """WITH gone AS (SELECT unnest(?::VARCHAR[]) AS kind, unnest(?::VARCHAR[]) AS id),
held AS (SELECT DISTINCT release_id, split, position FROM (
    SELECT i.* FROM release_items i JOIN gone g ON g.kind = 'task' AND g.id = i.task_id
    UNION ALL SELECT i.* FROM release_items i JOIN gone g ON g.kind = i.kind AND g.id = i.item_id))"""
"""Start of a query: `held`, the items of releases with these tombstones; parameters: their kinds and ids."""


def _columns(tombstones: pl.DataFrame) -> list[list[str]]:
    return [tombstones["kind"].to_list(), tombstones["id"].to_list()]


def _releases(store: Store, tombstones: pl.DataFrame) -> pl.DataFrame:
    return store.query(
        f"""{_HELD_SQL}, counted AS (SELECT release_id, count(*) AS items FROM held GROUP BY 1),
            sizes AS (SELECT release_id, count(*) AS size FROM release_items GROUP BY 1)
            SELECT release_id, r.name, items, size - items AS left
            FROM counted JOIN sizes USING (release_id) JOIN releases r USING (release_id)
            JOIN parts USING (part_id) WHERE release_id NOT IN (
                SELECT json_extract_string(manifest, '$.replaces') FROM releases WHERE json_exists(manifest, '$.replaces'))
            ORDER BY parts.rowid""",
        _columns(tombstones),
    )


def _trained(store: Store, tombstones: pl.DataFrame) -> tuple[list[str], list[str]]:
    rows = store.query(
        f"""WITH RECURSIVE {_HELD_SQL.removeprefix("WITH ")},
            read_it AS (SELECT DISTINCT stage_id, output_policy_id FROM stages JOIN held USING (release_id, split)),
            taught(stage_id, policy_id) AS (
                SELECT stage_id, output_policy_id FROM read_it
                UNION SELECT s.stage_id, s.output_policy_id FROM taught t JOIN stages s ON s.input_policy_id = t.policy_id)
            SELECT 'stage' AS kind, stage_id AS id FROM read_it UNION SELECT 'policy', policy_id FROM taught ORDER BY ALL""",
        _columns(tombstones),
    )
    return rows.filter(kind="stage")["id"].to_list(), rows.filter(kind="policy")["id"].to_list()


def _orphans(store: Store, source: SourceName) -> int:
    if source.kind != "file":
        return 0
    sql = f"""SELECT count(*) FROM verdicts v JOIN {_QUERIES_OF_FILE} gone ON gone.query_id = v.duplicate_of
        ANTI JOIN {_QUERIES_OF_FILE} own ON own.query_id = v.query_id"""
    return int(store.query(sql, [source.name] * 2).item())

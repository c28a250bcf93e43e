"""The tables of a store: columns, types, keys, and the columns left out of content hashes.

One idea: each table is declared once, here. The catalogue's SQL is generated from the declarations (`create_sql`), and the schema version
is their hash. A store of another version is refused until `storage/health/upgrade.py` has built its catalogue again from the parts. Rows of
catalogue tables lie in DuckDB. Lake tables are large: their rows stay in Parquet parts, and are read through views. A late table is in no
version: a store that lacks it reads as one that has no row of it, and gets it with the first row.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import polars as pl

from storage.records import content_id

_TEXT, _WHOLE, _SMALL, _REAL, _FLAG = pl.String(), pl.Int64(), pl.Int32(), pl.Float64(), pl.Boolean()
_TEXTS = pl.List(pl.String)

_SQL_TYPES: dict[pl.DataType, str] = {
    _TEXT: "VARCHAR",
    _WHOLE: "BIGINT",
    _SMALL: "INTEGER",
    _REAL: "DOUBLE",
    _FLAG: "BOOLEAN",
    _TEXTS: "VARCHAR[]",
}

_BY_CODE: dict[str, pl.DataType] = {"t": _TEXT, "w": _WHOLE, "s": _SMALL, "r": _REAL, "f": _FLAG, "l": _TEXTS}


@dataclass(frozen=True)
class TableSchema:
    """One table.

    columns: name -> type, in order.
    key: columns that identify a row (null counts as a value); of rows with equal keys one is kept.
    is_lake: rows stay in Parquet parts; False: they are inserted into the catalogue.
    unhashed: columns that may differ between two runs of the same work (timings, sizes, paths), and are left out of content hashes.
    unique_across_parts: of a lake table: hide a row whose key an earlier part has. Catalogue tables always do. `queries` and `verdicts`
        are too long to compare; their counts are checked per run instead.
    is_late: a catalogue table that was declared when there were stores already; they stay readable without it.
    """

    columns: dict[str, pl.DataType]
    key: tuple[str, ...]
    is_lake: bool = False
    unhashed: frozenset[str] = field(default_factory=frozenset)
    unique_across_parts: bool = True
    is_late: bool = False

    def sql_columns(self) -> dict[str, str]:
        """Column name -> DuckDB type."""
        return {name: _SQL_TYPES[dtype] for name, dtype in self.columns.items()}


def _table(
    columns: str,
    key: str,
    *,
    is_lake: bool = False,
    unhashed: tuple[str, ...] = (),
    unique_across_parts: bool = True,
    is_late: bool = False,
) -> TableSchema:
    """`columns` is a list of names, each with `:` and its type: t text, w 64-bit, s 32-bit, r real, f flag, l list of texts."""
    typed = dict(part.split(":") for part in columns.split())
    return TableSchema(
        columns={name: _BY_CODE[code] for name, code in typed.items()},
        key=tuple(key.split()),
        is_lake=is_lake,
        unhashed=frozenset(unhashed),
        unique_across_parts=unique_across_parts,
        is_late=is_late,
    )


TABLES: dict[str, TableSchema] = {
    "configurations": _table("position:s flow:t worlds:l languages:l section:t", "position", unhashed=("section",)),
    "tools": _table(
        "tool_id:t server:t name:t description:t domain:t world:t parameters:t output:t changes_state:f",
        "tool_id description parameters domain world output changes_state",
    ),
    "worlds": _table("world:t domain:t spec:t", "world"),
    "clusters": _table("cluster_id:t domain:t world:t tool_ids:l edges:t rank:s", "cluster_id"),
    "blueprints": _table(
        "blueprint_id:t cluster_id:t world:t world_seed:w domain:t mode_family:t complexity_band:t round:s status:t reason:t spec:t",
        "blueprint_id",
    ),
    "decisions": _table(
        "run:t round:s position:s blueprint_id:t cluster_id:t domain:t mode_family:t complexity_band:t domain_bits:r family_bits:r "
        "band_deficit:r feasibility:r measured_on:t probability:r operators:l status:t reason:t got_domain:t got_mode_family:t "
        "got_complexity_band:t focus:r gain:r tokens:w",
        "run round position",
    ),
    "focus": _table(
        "focus_id:t policy_id:t task_id:t world:t intent:t domain:t mode_family:t complexity:r k:s successes:s urgency:r",
        "focus_id task_id",
    ),
    "diversity": _table("run:t round:s metric:t value:r sd:r n:s", "run round metric"),
    "funnel": _table(
        "run:t position:s step:t rows_in:w kept:w dropped:w reasons:t seconds:r size_bytes:w",
        "run position",
        unhashed=("seconds", "size_bytes"),
    ),
    "frames": _table(
        "run:t query_id:t frame_id:t world:t intent:t leaf:t slots:t combination:t shape:t quality:r difficulty:s s_tool:s s_chain:s "
        "s_constraints:s difficulty_by:t level:s topic:t stratum_rank:s status:t reason:t cluster_id:t tool_id:t nearness:r",
        "run query_id",
    ),
    "query_fields": _table("run:t query_id:t fields:t", "run query_id"),
    "unserved": _table("run:t topic:t share:r rows:w requests:l", "run topic"),
    "contaminated": _table("run:t query_id:t held_out:t held_out_row:w found_by:t similarity:r", "run query_id"),
    "nearness": _table("run:t held_out:t found_by:t bin_from:r rows:w", "run held_out found_by bin_from"),
    "taxonomies": _table("position:s taxonomy_id:t parent_id:t origin:t tree:t statistics:t", "position"),
    "tasks": _table(
        "task_id:t query_id:t blueprint_id:t frame_id:t world:t world_seed:w intent:t leaf:t language:t division:t use:t difficulty:s "
        "spec:t",
        "task_id",
    ),
    "tags": _table(
        "task_id:t policy_id:t purpose:t difficulty:s k:s successes:s rate:r wilson_low:r wilson_high:r reward_mean:r reward_variance:r "
        "learnability:r region:t need:t difficulty_prior:r prior_basis:t prior_draws:s",
        "task_id policy_id purpose k",
    ),
    "releases": _table("release_id:t name:t manifest:t", "release_id"),
    "release_items": _table("release_id:t split:t position:s kind:t item_id:t task_id:t weight:r", "release_id split position"),
    "stages": _table(
        "stage_id:t name:t algorithm:t backend:t release_id:t split:t input_policy_id:t output_policy_id:t spec:t code_hash:t metrics:t "
        "seconds:r",
        "stage_id",
        unhashed=("backend", "seconds", "spec", "code_hash"),
    ),
    "policies": _table("policy_id:t stage_id:t path:t weights_hash:t", "policy_id", unhashed=("path",)),
    "evaluations": _table(
        "evaluation_id:t policy_id:t use:t decoding:t facet:t facet_value:t tasks:s samples:s rate:r low:r high:r pass_k:t",
        "evaluation_id policy_id use decoding facet facet_value",
    ),
    "promotions": _table("policy_id:t position:s passed:f checks:t", "policy_id position"),
    "by_hand": _table(
        "annotation_id:t item_id:t author:t annotated_at:t verdict:t world:t intent:t slots:t frame_id:t comment:t",
        "annotation_id item_id",
        is_late=True,
    ),
    "withdrawals": _table(
        "withdrawal_id:t kind:t source:t reason:t author:t at:t rows:t", "withdrawal_id", unhashed=("author", "at"), is_late=True
    ),
    "withdrawn": _table("withdrawal_id:t kind:t id:t", "withdrawal_id kind id", is_late=True),
    "queries": _table(
        "query_id:t run:t source:t row:w text:t language:t occurrences:w",
        "query_id run",
        is_lake=True,
        unhashed=("source",),
        unique_across_parts=False,
    ),
    "verdicts": _table(
        "query_id:t run:t step:t kept:f reason:t duplicate_of:t similarity:r",
        "query_id run",
        is_lake=True,
        unique_across_parts=False,
    ),
    "segments": _table("segment:t recipe:t position:s first_row:w files:t parts:t", "segment"),
    "seen": _table(
        "segment:t row:w key_high:w key_low:w kind:w keeper:w frame_high:w frame_low:w norm:t",
        "row segment",
        is_lake=True,
        unique_across_parts=False,
    ),
    "asked": _table("segment:t row:w combination:w", "row segment", is_lake=True, unique_across_parts=False),
    "bands": _table("segment:t band:s entry:w", "entry segment band", is_lake=True, unique_across_parts=False),
    "trajectories": _table(
        "trajectory_id:t task_id:t blueprint_id:t cluster_id:t query_id:t world:t world_seed:w domain:t language:t teacher:t outcome:t "
        "reward:r accepted:f reason:t mode_coarse:t mode_fine:t complexity:r complexity_band:t tools_used:l messages:t checks:t "
        "prompt_tokens:w completion_tokens:w cost_usd:r",
        "trajectory_id",
        is_lake=True,
    ),
    "provenance": _table(
        "trajectory_id:t roles:t prompts:t user_turns:s user_adhered:s planning:s fidelity:s presentation:s criteria:t "
        "judge_agreement:r judge_labelled:w failure:t",
        "trajectory_id",
        is_lake=True,
    ),
    "answers": _table(
        "answer_id:t engine:t request:t answer:t prompt_tokens:w completion_tokens:w latency_s:r",
        "answer_id",
        is_lake=True,
        unhashed=("latency_s", "answer"),
    ),
    "rollouts": _table(
        "rollout_id:t task_id:t policy_id:t purpose:t draw:s outcome:t reward:r checks:t messages:t turns:t attempts:s failure:t",
        "rollout_id",
        is_lake=True,
    ),
}

FILE_LENGTH = 10
"""Characters of a query's id that are those of its file: `q-` and eight digits of the hash of the file's content."""
_HIDING = {
    "query_id": ("file",),
    "world": ("world",),
    "teacher": ("teacher",),
    "task_id": ("task",),
    "trajectory_id": ("trajectory",),
    "rollout_id": ("rollout",),
    "blueprint_id": ("blueprint",),
    "item_id": ("file", "trajectory", "rollout"),
}
"""Column -> kinds of the tombstones in table `withdrawn` that hide a row by what it has there."""
_NEVER_HIDDEN = ("verdicts", "decisions", "release_items", "withdrawals", "withdrawn")
"""Tables of ids and figures without a text; the funnel and the marks of releases follow from them."""


def hiding(table: str) -> dict[str, tuple[str, ...]]:
    """Columns of a table by which tombstones hide its rows -> the kinds of these tombstones."""
    if table in _NEVER_HIDDEN:
        return {}
    if table == "unserved":  # texts of all files that a run read
        return {"run": ("unserved",)}
    return {column: kinds for column, kinds in _HIDING.items() if column in TABLES[table].columns}


EARLIER_VERSIONS = ("7ddf63c6d3e7ac3c",)
"""Schema versions of released stores that `storage/health/upgrade.py` brings to this one; any other is that of a newer Headrace."""

LAST_BUILD = "(SELECT part_id FROM parts WHERE table_name = 'clusters' ORDER BY committed_at DESC, rowid DESC LIMIT 1)"
"""SQL: the part of `clusters` that was committed last. A store may hold the clusters of several tool sets."""

CERTAINTY = """(SELECT * FROM tags WHERE region IS NOT NULL
QUALIFY row_number() OVER (PARTITION BY task_id, policy_id, purpose ORDER BY k DESC) = 1)"""
"""SQL: the certainty tag of every task, policy and purpose that was measured on the most rollouts."""

LATEST_RUN = "(SELECT run FROM {table} JOIN parts USING (part_id) ORDER BY committed_at DESC, run LIMIT 1)"
"""SQL: the run whose part of a table was committed last."""

_OWN_TABLES = (
    "parts (part_id VARCHAR PRIMARY KEY, table_name VARCHAR NOT NULL, path VARCHAR, rows BIGINT NOT NULL, content_hash VARCHAR NOT NULL, "
    "committed_at TIMESTAMPTZ NOT NULL)",
    "shadowed (table_name VARCHAR, part_id VARCHAR, key VARCHAR)",
    "schema_version (version VARCHAR NOT NULL)",
)
"""Tables of the store itself. parts: the committed parts. shadowed: rows of lake parts that the views hide, because an earlier part has
their key."""


def create_sql(*, with_late: bool = True) -> list[str]:
    """The statements that create the tables of an empty catalogue. Each row of a catalogue table has the id of its part."""
    names = [name for name, schema in TABLES.items() if not schema.is_lake and (with_late or not schema.is_late)]
    return [f"CREATE TABLE {table}" for table in (*_OWN_TABLES, *map(columns_sql, names))]


def columns_sql(table: str) -> str:
    """A catalogue table with its columns, as a CREATE TABLE names them."""
    columns = ", ".join(f'"{column}" {kind}' for column, kind in TABLES[table].sql_columns().items())
    return f"{table} (part_id VARCHAR, {columns})"


@cache
def schema_version() -> str:
    """Hash of all declared tables but the late ones: 16 hex digits."""
    lake = {name: schema.sql_columns() for name, schema in TABLES.items() if schema.is_lake}
    return content_id("schema", create_sql(with_late=False), lake).rpartition("-")[2]

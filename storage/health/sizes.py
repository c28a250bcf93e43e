"""How large a store is, table by table, and how old."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from storage.health.prune import size_of
from storage.store import Store

_OTHERS = {
    "catalogue": ("catalog.duckdb", "catalog.read.duckdb"),
    "models": ("models",),
    "journals": ("lake/_journal",),
    "ledger": ("lake/_ledger",),
    "intermediate rows": ("lake/_work",),
    "set aside": ("damaged",),
}


def sizes(store: Store) -> pl.DataFrame:
    """One row a table, then one for each other kind of file: what, parts, rows, size_bytes, oldest and newest commit (UTC, text; null)."""
    parts = store.query("SELECT table_name, path, rows, (committed_at AT TIME ZONE 'UTC')::VARCHAR AS at FROM parts")
    measured = parts.with_columns(pl.Series("size_bytes", [_size(store.root / path) for path in parts["path"]], dtype=pl.Int64))
    tables = (
        measured.group_by(what="table_name")
        .agg(parts=pl.len().cast(pl.Int64), rows=pl.sum("rows"), size_bytes=pl.sum("size_bytes"), oldest=pl.min("at"), newest=pl.max("at"))
        .sort("size_bytes", descending=True)
    )
    others: list[dict[str, Any]] = [
        {
            "what": what,
            "parts": None,
            "rows": None,
            "size_bytes": sum(_size(store.root / name) for name in names),
            "oldest": None,
            "newest": None,
        }
        for what, names in _OTHERS.items()
    ]
    return pl.concat([tables, pl.DataFrame([one for one in others if one["size_bytes"]], schema=tables.schema)])


def _size(path: Path) -> int:
    return size_of(path) if path.exists() else 0

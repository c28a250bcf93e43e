"""Annotations by hand as files: a row an annotation and item, as JSON Lines or CSV.

In CSV a text that a spreadsheet would take for a formula has an apostrophe before it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import polars as pl

COLUMNS: Mapping[str, str] = {
    "item_id": "id of the request, frame, trajectory or rollout",
    "kind": "request, frame, trajectory or rollout",
    "author": "name of the person",
    "annotated_at": "when, in UTC",
    "verdict": "keep, drop, relabel, comment, or withdraw (the author takes the verdict back)",
    "counts": "whether it is the author's last verdict about the item, or a comment",
    "world": "of a new label: the world",
    "intent": "of a new label: what is asked for",
    "slots": "of a new label: the values, as JSON",
    "comment": "comment of the author",
}
_FORMULA = r"^[=+\-@\t\r]"


def to_jsonl(rows: pl.DataFrame) -> str:
    """rows: as of `hand_rows.read_annotations`."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows.select(list(COLUMNS)).iter_rows(named=True))


def to_csv(rows: pl.DataFrame) -> str:
    """rows: as of `hand_rows.read_annotations`."""
    texts = [name for name in COLUMNS if rows.schema[name] == pl.String]
    safe = [pl.when(pl.col(name).str.contains(_FORMULA)).then(pl.format("'{}", name)).otherwise(name).alias(name) for name in texts]
    return rows.with_columns(safe).select(list(COLUMNS)).write_csv()


def write_files(rows: pl.DataFrame, folder: Path) -> list[str]:
    """Writes `by_hand.jsonl` and `by_hand.csv` and returns their names."""
    (folder / "by_hand.jsonl").write_text(to_jsonl(rows), encoding="utf-8")
    (folder / "by_hand.csv").write_text(to_csv(rows), encoding="utf-8")
    return ["by_hand.jsonl", "by_hand.csv"]


def describe_files(rows: pl.DataFrame, hashes: Mapping[str, str]) -> str:
    """The card of the files, as Markdown. hashes: SHA-256 of each."""
    columns = "\n".join(f"- `{name}`: {what}" for name, what in COLUMNS.items())
    files = "\n".join(f"- `{name}`: {digest}" for name, digest in hashes.items())
    people = rows["author"].n_unique()
    return f"# Annotations by hand\n\n{rows.height:,} rows by {people:,} authors.\n\n## Columns\n\n{columns}\n\n## SHA-256\n\n{files}\n"

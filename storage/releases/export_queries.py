"""Kept queries as files: a row for each with all columns of the user's file, and what the funnel found; with a card and checksums.

One idea: the user's columns keep their names and values, so the files join with what they came from. Ours stand behind them; one whose name
the user's file has already is called `headrace_<name>`, and if that is taken too, `headrace_<name>_2`. In Parquet a column of one plain
type has that type, any other is JSON (`arrow.json`).

What it does not do: conversations and tasks (`export.py`).
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from storage.errors import BadInput
from storage.releases.dataset_card import UNSTATED, markdown_table
from storage.releases.export_folder import write_export
from storage.store import Store

OWN_COLUMNS: Mapping[str, str] = {
    "query_id": "id of the query, for `headrace explain`",
    "topic": "words that the requests of its group share; the intent, if a world executes it",
    "difficulty": "-1 to be refused, 0 no tool needed, 1 to 5",
    "difficulty_by": "plan: from a plan that was executed; cues: from words of the text, and the tools in reach",
    "language": "language",
    "occurrences": "rows of the file with this text",
    "tool_id": "nearest tool of the store, if one could serve it",
    "task_id": "task that was made of it",
}
_NAME = "queries"

_KEPT_SQL = """
WITH kept AS (SELECT query_id, run FROM verdicts WHERE kept),
committed AS (SELECT run, max(parts.rowid) AS place FROM funnel JOIN parts USING (part_id) GROUP BY run),
read AS (SELECT DISTINCT left(query_id, length(query_id) - 9) AS file, run FROM verdicts),
last AS (SELECT file, max_by(run, place) AS run FROM read JOIN committed USING (run) GROUP BY file)
SELECT q.query_id, q.run, q.source, q.row, q.text, q.language, q.occurrences, f.difficulty, f.difficulty_by, f.tool_id, t.task_id, o.fields,
  CASE WHEN f.frame_id IS NULL THEN f.topic ELSE f.world || '/' || f.intent END AS topic
FROM kept JOIN queries q USING (query_id, run) LEFT JOIN frames f USING (query_id, run) LEFT JOIN query_fields o USING (query_id, run)
LEFT JOIN (SELECT query_id, min(task_id) AS task_id FROM tasks GROUP BY query_id) t ON t.query_id = q.query_id
WHERE (? IS NULL AND (left(q.query_id, length(q.query_id) - 9), q.run) IN (SELECT file, run FROM last)) OR q.run = ?
ORDER BY topic, q.source, q.query_id"""
"""Kept queries; parameter, twice: the run, or null for the last run of each file. An id ends in a dash and eight digits for the row."""


def export_queries(store: Store, out_dir: Path, run: str | None = None, *, licences: Mapping[str, str] | None = None) -> Path:
    """Writes the kept queries into folder `out_dir` as `queries.jsonl` and `queries.parquet`, and returns the folder.

    Args:
        run: id of the curation; None: the last one of every file.
        licences: licence of each source, by its name; shown in the card.

    Raises:
        BadInput: the store has no kept queries, or none of this run; a licence of another source; `out_dir` holds something else, or
            cannot be made.
        HeadraceError: the disk is full.
    """
    found = store.query(_KEPT_SQL, [run, run]).to_dicts()
    if not found:
        what = f"run {run} kept no query" if run else "no query was kept when the files were last curated"
        raise BadInput(f"{store.root}: {what}; `headrace curate FILES --store {store.root}` keeps some")
    sources = Counter(row["source"] for row in found)
    if unknown := next((source for source in licences or {} if source not in sources), None):
        raise BadInput(f"--licence {unknown}: no kept query came from {unknown}; they came from {', '.join(sorted(sources))}")
    rows, names = _rows(found)

    def write_files(folder: Path) -> list[str]:
        with (folder / f"{_NAME}.jsonl").open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        pq.write_table(_as_table(rows), folder / f"{_NAME}.parquet", compression="zstd")
        return [f"{_NAME}.jsonl", f"{_NAME}.parquet"]

    def write_card(hashes: Mapping[str, str]) -> str:
        return _card(store, found, names, hashes, {source: (licences or {}).get(source, UNSTATED) for source in sorted(sources)})

    manifest = {"queries": len(found), "runs": sorted({row["run"] for row in found})}
    return write_export(out_dir, "exporting queries", manifest, write_files, write_card)


def _rows(found: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The exported rows, which all have the same columns, and our columns: what they hold -> their name in the files."""
    fields = [json.loads(row["fields"]) if row["fields"] else {"text": row["text"]} for row in found]
    theirs = dict.fromkeys(name for row in fields for name in row)
    names = {name: _free_name(name, theirs) for name in OWN_COLUMNS}
    rows = [
        {**dict.fromkeys(theirs), **own, **{names[name]: row[name] for name in OWN_COLUMNS}} for row, own in zip(found, fields, strict=True)
    ]
    return rows, names


def _free_name(name: str, taken: Collection[str]) -> str:
    numbered = (f"headrace_{name}_{number}" for number in itertools.count(2))
    return next(free for free in itertools.chain((name, f"headrace_{name}"), numbered) if free not in taken)


def _as_table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    return pa.table({name: _column([row[name] for row in rows]) for name in rows[0]})


def _column(values: Sequence[Any]) -> pa.Array:
    """The values with their own type if they have one plain type, else as JSON."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {str} or (len(kinds) == 1 and kinds <= {int, float, bool}) or kinds == {int, float}:
        try:
            return pa.array(values, pa.string() if not kinds else None)
        except (pa.ArrowInvalid, OverflowError):
            pass
    return pa.array([None if value is None else json.dumps(value, ensure_ascii=False) for value in values], pa.string()).cast(pa.json_())


def _card(
    store: Store, found: Sequence[Mapping[str, Any]], names: Mapping[str, str], hashes: Mapping[str, str], licences: Mapping[str, str]
) -> str:
    """The card as Markdown with a YAML head, in the form of other exports' cards."""
    languages = sorted({str(row["language"]) for row in found})
    topics = Counter(str(row["topic"]) for row in found)
    levels = Counter((str(row["difficulty_by"]), row["difficulty"]) for row in found)
    runs = sorted({row["run"] for row in found})
    read = store.query("SELECT count(DISTINCT query_id) FROM verdicts WHERE list_contains(?, run)", [runs]).item()
    steps = store.query(
        "SELECT run, step, rows_in, kept, dropped, reasons FROM funnel WHERE list_contains(?, run) ORDER BY run, position",
        [runs],
    ).rows()
    head = ["---", "language:", *(f"- {language}" for language in languages), "tags:", "- tool-use", "- queries", "configs:"]
    head += [f"- config_name: {_NAME}", f"  data_files: {_NAME}.parquet", "---"]
    sections = [
        "\n".join(head),
        f"# Queries\n\n{len(found):,} queries of users, kept by Headrace of {read:,}, in {len(topics):,} topics.",
        "## How to use it\n\n```python\nfrom datasets import load_dataset\n\n"
        f'queries = load_dataset(".", "{_NAME}", split="train")  # "." is this folder\n```',
        "## Columns\n\nThe columns of the files that the queries came from, as they are there; in the query itself personal data are "
        "masked, in the other columns they are not. Behind them:\n\n"
        + markdown_table(("column", "what"), [(names[name], what) for name, what in OWN_COLUMNS.items()]),
        "## Difficulty\n\n"
        + markdown_table(("rated by", "difficulty", "queries"), [(by, level, n) for (by, level), n in sorted(levels.items(), key=str)]),
        "## Topics\n\n" + markdown_table(("topic", "queries"), sorted(topics.items(), key=lambda item: (-item[1], item[0]))),
        "## Funnel\n\nHow the raw queries were sifted.\n\n"
        + markdown_table(("run", "step", "rows in", "kept", "dropped", "reasons"), steps),
        "## Licences\n\n" + markdown_table(("source", "licence"), list(licences.items())),
        "## Hashes\n\n" + markdown_table(("what", "SHA-256"), list(hashes.items())) + "\n\n`sha256sum -c SHA256SUMS` checks the files.",
    ]
    return "\n\n".join(sections) + "\n"

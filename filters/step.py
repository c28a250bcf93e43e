"""What a step of the funnel is, so that every file of this room has the same form.

A step is a module with one function

    step(rows: pl.DataFrame, config) -> pl.DataFrame

that takes rows still alive and returns *the same rows in the same order*, with columns added or rewritten, and with
    reason: String        null = kept, else why the row is dropped (a short snake_case word)
    duplicate_of: UInt32  optional; the `row` that a dropped row duplicates
    similarity: Float64   optional; how like it (1.0 = equal)
The runner (`run.py`) moves rows with a reason to the verdicts, so a step never filters. `row` (UInt32) counts all rows that were ever
seen, those of earlier runs first (`dedup_index.py`).
A *batch* step looks at each row alone and is called with any batches in any order, on any thread (normalise, rules, ground, taxonomy,
quality, difficulty); a *joining* step (near, pool, semantic, contamination, coverage) is called once with the columns that it compares, all
rows, ascending by `row`; exact and equal are told of each row which was the first with its key (`hash_join.py`).
No randomness that is not drawn from a seed in the step's configuration, and no order that depends on threads.

Columns, and who adds them:
    ingest      row, text (null where the row could not be decoded)
    normalise   norm (normalised text), language (en | zh | other), key_high, key_low (exact hash); text and norm with personal data masked
    exact       occurrences (rows of the run with the same norm; null in all but the first)
    ground      world, intent, slots (canonical JSON), combination, shape, frame_id; null in rows that no world can execute, which
                have the reason why in `ungrounded` (String): with `ungrounded=True` they stay. residue: words that were not read;
                unexplained: values that have no place in the frame; read_by: which model read the frame, null where the parser did
    taxonomy    leaf (String; dotted, or `other`)
    quality     quality (Float64, 0..1)
    difficulty  difficulty (Int8, -1..5), s_tool, s_chain, s_constraints (Int8)
    pool        asked, tier, peers, leaf_rows (see `coverage.py`)
    reach       cluster_id, tool_id, nearness; `ungrounded` told anew (see `tool_match.py`)
    coverage    stratum_rank (Int32; the order in which admission tries a stratum's rows, null = not on the shortlist)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, TypeVar

import polars as pl

Result = TypeVar("Result")

Progress = Callable[[str, int, int], None]
"""Called with a label, how much is done, and how much there is."""


class Executor(Protocol):
    """Runs batches. `concurrent.futures` executors are of this form; `flows/` hands in others. Results come in the order of the items."""

    def map(self, fn: Callable[..., Result], *iterables: Iterable[Any]) -> Iterator[Result]: ...


def alive(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows that a step kept, without its verdict columns."""
    verdict = [name for name in ("reason", "duplicate_of", "similarity") if name in rows.columns]
    return rows.filter(pl.col("reason").is_null()).drop(verdict)

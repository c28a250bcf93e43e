"""How fast the gate of a log is, and how much of what the reader would keep passes it.

Logs of real English texts: all that SGD's dev part and BANKING77 have of other domains, and openings to the eight services that nothing
was fitted on which the reader trusts with at least .9, one in a hundred rows, drawn five times. One of the services is a bank, so most of
the log is near to what it can do, and asks for something else. The gate is taught on each log itself, as the funnel does it, with fewer
texts in each round, as the logs are short.

gate_recall: share of these openings among the twentieth of the rows that the gate scores highest; mean over the five logs.
gate_rows_per_cpu_s: rows that it scores in a second on one core (half a million rows, the log repeated; best of three).
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

import numpy as np
import polars as pl

from benchmarks.ground_sections.english import banking, real_requests
from benchmarks.harness import Deadline, Figures
from filters.reading.log.log_reader import LogReading, best_texts, gate_of, teach_gate
from filters.reading.log.student import Student
from filters.reading.reader import Reader
from storage.records import Frame

KEYS = ("gate_rows_per_cpu_s", "gate_recall")
MINUTES = 3
_ONE_IN, _PASSED, _LOGS, _TIMED_ROWS, _PER_ROUND = 100, 0.05, 5, 500_000, 400
_TRUSTED = 0.9
_SOME_FRAME = Frame(world="", intent="")


def measure(_: Deadline) -> Figures:
    requests = real_requests()
    reader = Reader(list(requests.worlds.values()))
    others = list(dict.fromkeys([*requests.out_of_scope(), *banking(requests.folder)]))
    openings = list(dict.fromkeys(example.text for example in requests.labelled("open")))
    trust = {text: reading.confidence for text, reading in zip(openings, reader.read(openings), strict=True)}

    def read(texts: Sequence[str]) -> list[LogReading]:
        return [LogReading(_SOME_FRAME, "", reading.confidence, 0) for reading in reader.read(texts)]

    recalls = []
    for number in range(_LOGS):
        rng = random.Random(number)
        wanted = set(rng.sample([text for text in openings if trust[text] >= _TRUSTED], len(others) // _ONE_IN))
        rows = _log([*others, *wanted])
        gate = gate_of(teach_gate([rows], read, requests_to(reader), _PER_ROUND))
        passed = best_texts([rows], gate, int(rows.height * _PASSED))["text"]
        recalls.append(len(wanted.intersection(passed)) / len(wanted))
    print(f"    {rows.height:,} rows, {len(wanted)} wanted; recall {' '.join(f'{recall:.2f}' for recall in recalls)}", flush=True)
    return {"gate_rows_per_cpu_s": _speed(gate, rows["norm"]), "gate_recall": float(np.mean(recalls))}


def requests_to(reader: Reader) -> list[str]:
    """What the intents of the reader's worlds say of themselves, as a beginning for the gate."""
    return list(dict.fromkeys(text.lower() for intent in reader.intents for text in intent.texts))


def _log(texts: Sequence[str]) -> pl.DataFrame:
    norm = pl.Series("norm", [" ".join(text.lower().split()) for text in texts])
    rows = pl.DataFrame({"text": texts}).with_columns(norm, language=pl.lit("en"), ungrounded=pl.lit("unknown"))
    return rows.unique("norm", keep="last", maintain_order=True)


def _speed(student: Student, texts: pl.Series) -> float:
    many = pl.concat([texts] * (_TIMED_ROWS // len(texts) + 1))[:_TIMED_ROWS]
    student.scores(many[:1000])
    seconds = []
    for _ in range(3):
        began = time.process_time()
        student.scores(many)
        seconds.append(time.process_time() - began)
    return len(many) / min(seconds)

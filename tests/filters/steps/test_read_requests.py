"""Rows that the reader gave a frame are judged by what the reader left unread, and not by what another world's parser did."""

from __future__ import annotations

import polars as pl

from filters.grounding import ground_model
from filters.reading.log.log_reader import read_chunk
from filters.steps import quality
from filters.steps.reading.read_requests import readings_table

REQUESTS = ["Please freeze account a012.", "Could you freeze account a012, my grandmother insists on penguins?"]


def test_what_the_reader_left_unread_is_the_residue() -> None:
    norms = [text.lower().rstrip(".?") for text in REQUESTS]
    read = read_chunk(REQUESTS, ("banking",))
    assert all(reading.frame is not None for reading in read)
    kept = [{"norm": norm, "text": "", "stands_for": 1.0, "reading": one, "is_kept": True} for norm, one in zip(norms, read, strict=True)]
    parsed = dict.fromkeys(("world", "intent", "slots", "combination", "shape", "frame_id", "read_by"), pl.lit(None, pl.String))
    rows = pl.DataFrame({"norm": norms, "text": REQUESTS, "language": "en", "residue": "freeze account"})
    rows = rows.with_columns(**parsed, ungrounded=pl.lit("unknown"), unexplained=pl.lit(None, pl.Int32))
    framed = ground_model.step(rows, read_again=readings_table(kept).drop("confidence", "stands_for"), ungrounded=True)
    assert framed["frame_id"].null_count() == 0
    assert framed["residue"][0] == "" and "penguins" in framed["residue"][1]
    scored = quality.step(framed.drop("reason"), quality.QualityConfig())
    assert scored["quality"][0] > scored["quality"][1]

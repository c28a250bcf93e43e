"""The reader on real requests to services that its weights were not fitted on; `make bench ground` measures all of it."""

from __future__ import annotations

from pathlib import Path

from benchmarks.ground_sections.english import Requests, read_all
from filters.reading.reader import Reader


def test_the_more_confident_half_of_real_openings_is_right(test_data: Path) -> None:
    requests = Requests(test_data / "real_queries", "dev")
    assert len(requests.worlds) == 8
    reader = Reader(list(requests.worlds.values()))
    openings = [label.alternatives(reader.twins) for label in requests.labelled("open")[::4]]
    measured = read_all(reader, openings)
    assert measured.exact_at(0.25) > 0.9 and measured.exact_at(0.5) > 0.85
    assert measured.exact_at(1.0) < measured.exact_at(0.5), "the confidence orders them"

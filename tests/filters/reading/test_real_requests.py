"""The reader on real requests to services that its weights were not fitted on; `make bench ground` measures all of it."""

from __future__ import annotations

from pathlib import Path

from benchmarks.ground_sections import crosswoz
from benchmarks.ground_sections.english import Measured, Requests, read_all
from filters.reading.chinese.chinese_reader import ChineseReader
from filters.reading.reader import Reader


def test_the_more_confident_half_of_real_openings_is_right(test_data: Path) -> None:
    requests = Requests(test_data / "real_queries", "dev")
    assert len(requests.worlds) == 8
    reader = Reader(list(requests.worlds.values()))
    openings = [label.alternatives(reader.twins) for label in requests.labelled("open")[::4]]
    measured = read_all(reader, openings)
    assert measured.exact_at(0.25) > 0.9 and measured.exact_at(0.5) > 0.85
    assert measured.exact_at(1.0) < measured.exact_at(0.5), "the confidence orders them"


def test_the_more_confident_half_of_real_chinese_requests_is_right(test_data: Path) -> None:
    folder = test_data / "real_queries"
    requests = crosswoz.unfitted(folder, "dev")[::3]
    readings = ChineseReader([crosswoz.world(folder)]).read([each.text for each in requests])
    is_exact = [each.is_right(reading) for each, reading in zip(requests, readings, strict=True)]
    measured = Measured([reading.confidence for reading in readings], is_exact)
    assert measured.exact_at(0.5) > 0.93 and measured.exact_at(1.0) < measured.exact_at(0.5)
    assert {each.domain for each in requests} == {"餐馆", "酒店", "景点", "地铁", "出租"}

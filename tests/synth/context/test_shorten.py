"""Results that are shortened: what is kept, how the rest is reached, and that nothing is lost, cut in two, or guessed from a plan."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from synth.context.marks import full_length, has_mark, is_mark, open_marks, without_marks, without_reminder
from synth.context.shorten import Shortener

ROWS = [{"id": f"o{number:02d}", "status": "pending", "price": 10 * number} for number in range(20)]


def read_all(shortener: Shortener, shown: str) -> list[str]:
    """All pages of the only mark of a result."""
    pages, (mark,) = list[str](), open_marks(shown)
    while True:
        pages.append(shortener.page(mark.id, mark.start))
        marks = open_marks(pages[-1])
        if not marks:
            return pages
        mark = marks[0]


def test_what_fits_and_what_failed_stay_as_they_are() -> None:
    error = json.dumps({"error": "x" * 500})
    assert Shortener(200).shorten('{"a": 1}') == '{"a": 1}' and Shortener(200).shorten(error) == error


def test_of_a_long_list_head_and_tail_are_shown_with_a_count_and_the_pages_show_the_rest() -> None:
    shortener = Shortener(300)
    shown = shortener.shorten(json.dumps({"found": 20, "rows": ROWS}))
    value = json.loads(shown)
    head, tail = value["rows"][:-2], value["rows"][-1]
    assert value["found"] == 20 and head == ROWS[: len(head)] and tail == ROWS[-1] and len(head) >= 2
    assert value["rows"][-2] == f"[read_more id=r1 from={len(head)}: {19 - len(head)} of 20 items hidden]"
    assert len(without_marks(shown)) <= 300 and full_length(value["rows"]) == 20
    pages = [json.loads(page)["rows"] for page in read_all(shortener, shown)]
    assert [row for page in pages for row in page if not is_mark(row)] == ROWS[len(head) :]
    assert pages[-1][-1] == "[end of r1: 20 items]" and all(full_length(page) == 20 for page in pages)


def test_the_spacing_of_a_result_stays() -> None:
    compact = json.dumps(ROWS, separators=(",", ":"))
    assert Shortener(200).shorten(compact).startswith('[{"id":"o00","status"')
    assert Shortener(200).shorten(json.dumps(ROWS)).startswith('[{"id": "o00", "status"')


def test_a_long_text_is_cut_between_words_and_numbers() -> None:
    text = " ".join(f"row {number}: {number * 1111}" for number in range(100))
    shortener = Shortener(200)
    shown = shortener.shorten(text)
    assert set(without_marks(shown).split()) <= set(text.split())
    pages = read_all(shortener, shown)
    start = open_marks(shown)[0].start
    assert "".join(without_marks(page)[:-1] for page in pages) == text[start:]


def test_a_wrong_page_is_an_error_and_changes_nothing() -> None:
    shortener = Shortener(200)
    shown = shortener.shorten(json.dumps(ROWS))
    for cut, start in (("r9", 0), ("r1", 20), ("r1", -1), ("r1", "2"), ("r1", True), (3, 0), (["r1"], 0)):
        assert "error" in json.loads(shortener.page(cut, start))
    assert read_all(shortener, shown)


def test_the_longest_of_several_lists_is_cut_first() -> None:
    result = {"few": [1, 2, 3], "many": ROWS}
    value = json.loads(Shortener(300).shorten(json.dumps(result)))
    assert value["few"] == [1, 2, 3] and any(is_mark(item) for item in value["many"])


def test_a_reminder_that_a_world_writes_in_the_middle_is_no_reminder() -> None:
    assert without_reminder("a\n<reminder>b</reminder> c") == "a\n<reminder>b</reminder> c"
    assert without_reminder("a\n<reminder>b</reminder>") == "a"


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=120),
    lambda inner: st.lists(inner, max_size=12) | st.dictionaries(st.text(max_size=8), inner, max_size=6),
    max_leaves=60,
)


@settings(max_examples=60, deadline=None)
@given(_VALUES, st.integers(80, 400))
def test_every_item_of_a_shortened_result_is_reached_by_reading_on(value: Any, limit: int) -> None:
    """Whatever the result, all of its text is shown somewhere: in the result or on a page."""
    content = json.dumps(value, ensure_ascii=False)
    if has_mark(content) or "<reminder>" in content:
        return
    shortener = Shortener(limit)
    texts = [shortener.shorten(content)]
    seen, todo = set[tuple[str, int]](), open_marks(texts[0])
    while todo:
        mark = todo.pop()
        if mark not in seen:
            seen.add(mark)
            texts.append(shortener.page(mark.id, mark.start))
            todo += open_marks(texts[-1])
    shown = "".join(without_marks(text) for text in texts)
    assert set(content) - set('[]{},": ') <= set(shown) and not any(text.startswith('{"error"') for text in texts[1:])

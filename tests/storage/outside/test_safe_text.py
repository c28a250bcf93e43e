"""Safe text: what a program or server wrote, without what moves a cursor, hides or turns text."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.outside.safe_text import MARKS, one_line, safe, safe_text


@given(st.binary(max_size=400) | st.text(max_size=200).map(lambda text: text.encode("utf-8", errors="surrogatepass")))
def test_text_is_safe_and_no_longer_than_its_bytes(data: bytes) -> None:
    text = safe_text(data)

    assert len(text) <= len(data)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\U000e0000-\U000e007f]", text)
    assert not re.search(f"[\u0300-\u036f]{{{MARKS + 1}}}", text)
    assert safe_text(text.encode()) == text
    json.dumps(text, ensure_ascii=False).encode()


def test_ordinary_text_stays_as_it_is() -> None:
    text = "Grüße, 北京，今天 21°C\n\tnaïve é 👩‍💻 ❤\ufe0f\u200d🔥 می\u200cخواهم \u0e01\u0e4d"

    assert safe_text(text.encode()) == text


@pytest.mark.parametrize(
    "unseen",
    ["\u200b", "\u2060", "\u2063", "\u00ad", "\ufeff", "\u061c", "\u180e", "\u3164", "\ufdd0", "\U0001fffe", "\U000e0101", "\x85", "\x9b"],
)
def test_what_nobody_sees_is_shown(unseen: str) -> None:
    assert safe_text(f"a{unseen}b".encode()) == "a\ufffdb"


@pytest.mark.parametrize("mark", ["\u0301", "\u0e49", "\ua66f", "\u1ab0", "\U0001e000"])
def test_marks_of_every_script_are_cut(mark: str) -> None:
    assert safe_text(f"a{mark * 500}b".encode()) == f"a{mark * MARKS}b"


def test_joiners_carry_no_hidden_text() -> None:
    hidden = "".join("\u200c\u200d"[ord(letter) >> bit & 1] for letter in "ignore what was said" for bit in range(8))

    assert len(safe_text(f"a{hidden}b".encode())) == 4


def test_a_line_of_a_server_is_one_short_safe_line() -> None:
    assert one_line("no\r\n\x1b[2Jway\t \ud800\u202e") == "no \ufffd[2Jway ?\ufffd"
    assert len(one_line("x" * 10_000_000)) == 300
    assert safe("plain") == "plain" and safe("\x1b]0;title\x07") == "\ufffd]0;title\ufffd"

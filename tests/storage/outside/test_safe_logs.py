"""Every log record of the process is safe to show, also one of a library and one with a traceback."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from storage.outside.safe_logs import make_logs_safe

KEY = "sk-planted-1234567890"


@pytest.fixture(autouse=True)
def factory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The factory of before, afterwards."""
    before = logging.getLogRecordFactory()
    logging.setLogRecordFactory(logging.LogRecord)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    make_logs_safe()
    yield
    logging.setLogRecordFactory(before)


def test_a_key_and_escapes_are_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("of.a.library").warning("the server said %s", f"\x1b[2J bad key {KEY}")
    assert caplog.messages[0].startswith("the server said ") and caplog.messages[0].isprintable()
    assert KEY not in caplog.text


def test_a_traceback_shows_no_key(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise ValueError(f"bad key {KEY}")
    except ValueError:
        logging.getLogger("of.a.library").exception("it failed")
    assert "ValueError: bad key" in caplog.text and KEY not in caplog.text


def test_arguments_that_do_not_fit_stop_nobody() -> None:
    logging.getLogger("of.a.library").makeRecord("x", logging.INFO, "f", 1, "%d", ("text",), None)


def test_calling_it_again_changes_nothing() -> None:
    before = logging.getLogRecordFactory()
    make_logs_safe()
    assert logging.getLogRecordFactory() is before

"""Ctrl-C ends the work as interrupted, whatever a library makes of it."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator

import pytest

from flows.runtime.interrupts import as_keyboard_interrupt, note_interrupts, raise_noted


@pytest.fixture(autouse=True)
def listens_to_ctrl_c() -> Iterator[None]:
    """A shell starts background jobs with Ctrl-C ignored; here the handler is Python's own all the same."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press_ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def turned_into_a_type_error() -> None:
    """As Polars does."""
    try:
        press_ctrl_c()
    except KeyboardInterrupt:
        raise TypeError("is not a Polars data type") from None


def test_an_error_that_a_library_made_of_ctrl_c_is_an_interrupt() -> None:
    with pytest.raises(KeyboardInterrupt), note_interrupts(), as_keyboard_interrupt():
        turned_into_a_type_error()


def test_a_swallowed_ctrl_c_ends_the_work_at_its_next_step() -> None:
    with pytest.raises(KeyboardInterrupt), note_interrupts():
        with contextlib.suppress(KeyboardInterrupt):
            press_ctrl_c()
        raise_noted()


def test_another_error_stays_itself_and_a_later_one_too() -> None:
    with pytest.raises(KeyboardInterrupt), note_interrupts():
        press_ctrl_c()
    raise_noted()
    with pytest.raises(TypeError), note_interrupts(), as_keyboard_interrupt():
        raise TypeError
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_another_thread_changes_no_handler() -> None:
    handlers = []

    def look() -> None:
        with note_interrupts():
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert handlers == [signal.default_int_handler]

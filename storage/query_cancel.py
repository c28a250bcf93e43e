"""Ctrl-C, and whatever else a signal raises, during a query.

DuckDB itself looks for signals only between pieces of work that the calling thread gets to do, and on a busy machine others do them all.
So a query is asked in a thread of its own, and the main thread, which alone is told of signals, waits, and interrupts it.
Statements that write are short, and left to DuckDB.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from typing import TypeVar

import duckdb

_Answer = TypeVar("_Answer")


def answered(connection: duckdb.DuckDBPyConnection, query: Callable[[], _Answer]) -> _Answer:
    """What a query on the connection answers; ended by whatever a signal raises meanwhile, which is raised."""
    if threading.current_thread() is not threading.main_thread():
        return query()
    answer: Future[_Answer] = Future()

    def ask() -> None:
        try:
            answer.set_result(query())
        except BaseException as error:
            answer.set_exception(error)

    thread = threading.Thread(target=ask, daemon=True)
    try:
        thread.start()
        return answer.result()
    finally:
        while thread.is_alive() and not answer.done():
            with suppress(KeyboardInterrupt):  # the first one is on its way already
                connection.interrupt()
                wait([answer], timeout=0.05)


@contextmanager
def told_as_interrupts() -> Iterator[None]:
    """Ctrl-C that DuckDB notices itself, and tells as a RuntimeError, as what it is."""
    try:
        yield
    except RuntimeError as error:
        if "Query interrupted" in str(error):
            raise KeyboardInterrupt from None
        raise

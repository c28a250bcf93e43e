"""Cancels a DuckDB query on Ctrl-C, or when another signal handler raises.

DuckDB checks for signals only in the calling thread, between units of work; on a busy machine other threads may do all of them. So the
query runs in another thread, while the main thread, the only one that receives signals, waits and interrupts it. Writing statements
are short, and run without this.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from typing import TypeVar

import duckdb

_Answer = TypeVar("_Answer")


def run_query(connection: duckdb.DuckDBPyConnection, query: Callable[[], _Answer]) -> _Answer:
    """The result of `query` on the connection. An exception raised by a signal handler interrupts the query, and is raised."""
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
            with suppress(KeyboardInterrupt):  # the first one is already being raised
                connection.interrupt()
                wait([answer], timeout=0.05)


@contextmanager
def as_keyboard_interrupt() -> Iterator[None]:
    """Inside the block, the RuntimeError that DuckDB raises when it notices Ctrl-C itself becomes a KeyboardInterrupt."""
    try:
        yield
    except RuntimeError as error:
        if "Query interrupted" in str(error):
            raise KeyboardInterrupt from None
        raise

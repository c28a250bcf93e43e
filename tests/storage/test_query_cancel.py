"""A query ends when a signal says so, however busy the machine is, and however deaf the query is at first."""

import os
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack

import duckdb
import pytest

from storage.errors import BadInput
from storage.query_cancel import as_keyboard_interrupt, run_query

INTERRUPTED = """
import os, signal, sys, threading
from storage.store import Store
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started the tests may have it ignored
store = Store(sys.argv[1])
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    store.query("SELECT sum(a.range * b.range) FROM range(1000000) a, range(1000000) b")
except KeyboardInterrupt:
    print("interrupted, then", store.query("SELECT 1 AS one").item())
"""
BUSY = "import time; end = time.time() + 60\nwhile time.time() < end: pass"


@pytest.mark.slow
def test_ctrl_c_ends_a_query_on_a_busy_machine(tmp_path):
    with ExitStack() as stack:
        for _ in range(1 + min(8, os.cpu_count() or 1)):
            stack.callback(stack.enter_context(subprocess.Popen([sys.executable, "-c", BUSY])).kill)
        command = [sys.executable, "-c", INTERRUPTED, str(tmp_path / "store")]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == "interrupted, then 1\n", done.stderr


class Ended(BaseException):
    pass


@pytest.mark.parametrize("raised", [KeyboardInterrupt, Ended])
@pytest.mark.parametrize("deaf", [0, 1])
def test_whatever_a_signal_raises_ends_a_query(raised, deaf):
    class Connection:
        asked = 0
        told = threading.Event()

        def interrupt(self):
            self.asked += 1
            if self.asked > deaf:
                self.told.set()

    def handler(*_):
        raise raised

    connection = Connection()
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        with pytest.raises(raised):
            run_query(connection, lambda: connection.told.wait(30))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert connection.asked >= 1 + deaf


def test_a_query_answers_or_fails_as_if_it_were_asked_here():
    assert run_query(duckdb.connect(), lambda: 5) == 5
    with pytest.raises(BadInput, match="no such"):
        run_query(duckdb.connect(), lambda: (_ for _ in ()).throw(BadInput("no such table")))


def test_ctrl_c_that_duckdb_notices_is_an_interrupt_and_other_errors_are_themselves():
    with pytest.raises(KeyboardInterrupt), as_keyboard_interrupt():
        raise RuntimeError("Query interrupted")
    with pytest.raises(RuntimeError, match="out of sorts"), as_keyboard_interrupt():
        raise RuntimeError("out of sorts")

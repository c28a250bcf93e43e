"""Garbage collection is as it was, whatever happens meanwhile."""

import gc
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from synth.gc_paused import pause_gc


@pytest.fixture(autouse=True)
def _on_again() -> Iterator[None]:
    yield
    gc.enable()


@pytest.mark.parametrize("is_on", [True, False])
def test_it_is_paused_and_then_as_it_was(is_on: bool) -> None:
    (gc.enable if is_on else gc.disable)()
    with pytest.raises(KeyError), pause_gc():
        assert not gc.isenabled()
        raise KeyError
    assert gc.isenabled() == is_on


def test_it_stays_paused_until_the_last_has_left() -> None:
    first, second = ExitStack(), ExitStack()
    for stack in (first, second):
        stack.enter_context(pause_gc())
    first.close()
    assert not gc.isenabled()
    second.close()
    assert gc.isenabled()


def test_it_is_as_it_was_where_one_leaves_while_another_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given one inside, when the first leaves between what a second sees and what it does, then it is on in the end."""
    came, first_left, off = threading.Event(), threading.Event(), gc.disable

    def disable_late() -> None:
        if threading.current_thread() is second:
            came.set()
            first_left.wait(5)
        off()

    def inside() -> None:
        with pause_gc():
            came.set()
            first_left.wait(5)

    monkeypatch.setattr(gc, "disable", disable_late)
    second = threading.Thread(target=inside)
    with pause_gc():
        second.start()
        assert came.wait(5)
    first_left.set()
    second.join()
    assert gc.isenabled()


def test_a_process_collects_seldom_until_it_has_started() -> None:
    program = """
import gc
from synth.gc_paused import collect_again, collect_seldom
collect_seldom()
print(gc.get_threshold()[0], gc.isenabled(), gc.get_freeze_count())
collect_again()
print(gc.get_threshold()[0], gc.isenabled(), gc.get_freeze_count() > 1000)
"""
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert shown == "50000 True 0\n700 True True\n"

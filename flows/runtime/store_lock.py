"""The lock of a store: one process at a time runs flows on it.

One idea: each store has one lock, `STORE/.headrace/flow.lock`, held by the working process. So a command and a deployment exclude each
other, and a killed process leaves nothing to clean up. Flows inside a flow share the lock of their process. A run of a deployment waits
for the lock; a command is refused with the name of the holder. Readers and the library below `flows/` need no lock.
Machines that share a store exclude each other by its lease (`storage/object_store/flow_lease.py`), which is taken with the lock.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from flows.config import Config, share_store
from flows.runtime import events
from flows.runtime.daemon import end_with_worker
from flows.runtime.deployed.budget_watch import watch_budgets
from flows.runtime.deployed.progress_artifact import show_progress
from flows.runtime.deployed.retries import try_again
from flows.runtime.interrupts import as_keyboard_interrupt
from flows.runtime.locks import Busy, lock, lock_soon
from flows.runtime.notes.run_records import notes_folder
from flows.runtime.notes.work_notes import note_work
from flows.runtime.progress import log_progress, report
from storage.errors import HeadraceError
from storage.execution import subtasks_run_by
from storage.health.damage import look
from storage.object_store.flow_lease import hold_lease
from storage.store import Store

_mutex = threading.Lock()
_users: dict[Path, int] = {}
"""Path of a lock -> number of flows of this process that work on its store."""
_locks: dict[Path, contextlib.ExitStack] = {}


@contextlib.contextmanager
def work_on_store(flow: str, config: Config) -> Iterator[None]:
    """Hold the configuration's store, register the worlds that it keeps, and log the flow's steps. Wraps the whole body of a flow.

    Raises HeadraceError: see `hold_store` and `share_store`.
    """
    end_with_worker()
    store = config.store
    with (
        _share_and_hold(flow, config),
        note_work(flow, notes_folder(store)),
        _log_steps(flow),
        watch_budgets(config),
        as_keyboard_interrupt(),
    ):
        from synth.worlds.stored_worlds import register_stored

        opened = Store(store)
        _refuse_damaged(opened)
        register_stored(opened)
        yield


@contextlib.contextmanager
def _share_and_hold(flow: str, config: Config) -> Iterator[None]:
    """`share_store` and `hold_store`. A run of a deployment tries again if the object store is out of reach."""

    def take() -> None:
        share_store(config)
        held.enter_context(hold_store(flow, config.store, wait=events.is_root_of_a_deployment()))

    with contextlib.ExitStack() as held:
        try_again(take)
        yield


def _refuse_damaged(store: Store) -> None:
    """Raises HeadraceError if a file of the store is missing, cut or altered, as far as sizes and times tell."""
    found = look(store, report)
    if found:
        others = f" and {len(found) - 1:,} more" if len(found) > 1 else ""
        raise HeadraceError(
            f"{store.root} is damaged: {found[0]}{others}. `headrace store repair --store {store.root}` sets that aside; the same command "
            "then makes it again"
        )


@contextlib.contextmanager
def _log_steps(flow: str) -> Iterator[None]:
    """Log finished steps in the current flow run, if there is one, and show its progress as an artifact."""
    from prefect.context import FlowRunContext
    from prefect.logging import get_run_logger

    context = FlowRunContext.get()
    if context is None or context.flow_run is None:
        yield
        return
    from flows.runtime.deployed.subtasks import run_as_task

    with log_progress(get_run_logger().info), show_progress(flow, context.flow_run.id), subtasks_run_by(run_as_task):
        yield


@contextlib.contextmanager
def hold_store(flow: str, store: Path, *, wait: bool = False, pulls: bool = True) -> Iterator[None]:
    """Hold the store's lock for `flow`; of a store that machines share also its lease, with what they committed. Flows of one process
    share the lock.

    pulls: whether to fetch what other machines committed; a damaged store, or one of another version, cannot be opened for that.

    Raises HeadraceError if another process or machine works on the store and `wait` is false, or the object store is out of reach.
    """
    path = notes_folder(store) / "flow.lock"
    with _mutex:
        if path not in _locks:
            _locks[path] = _acquire(flow, path, wait, pulls)
        _users[path] = _users.get(path, 0) + 1
    try:
        yield
    finally:
        with _mutex:
            _users[path] -= 1
            if not _users[path]:
                del _users[path]
                _locks.pop(path).close()


def _acquire(flow: str, path: Path, wait: bool, pulls: bool) -> contextlib.ExitStack:
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(lock_soon(path))
        except Busy:
            store, holder = path.parent.parent, path.read_text(errors="replace").strip() or "another process"
            if not wait:
                raise HeadraceError(f"{store} is being worked on by {holder}; wait until it ends, or give another --store") from None
            print(f"waiting for {holder}, which works on {store}")
            stack.enter_context(lock(path))
        path.write_text(f"{flow} (process {os.getpid()} on {os.uname().nodename})\n")
        stack.enter_context(hold_lease(path.parent.parent, flow, wait=wait, say=print))
        if pulls:
            Store(path.parent.parent).pull()
        return stack.pop_all()

"""Says in an event that a month's budget of an engine is near its end, while a run of a deployment spends it.

One idea: a thread asks the store's ledger now and then, so no call of an engine waits for it. The ledger remembers which limits were told,
so each is told once, also over runs and kills. Machines that share a store have a ledger each, and tell it once each.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections.abc import Iterator

from flows.config import Config
from flows.runtime import events
from flows.runtime.progress import warn
from storage.errors import HeadraceError
from synth.engines.spending.ledger import Ledger

EVERY_S, LAST_WITHIN_S = 30.0, 60.0


@contextlib.contextmanager
def watch_budgets(config: Config) -> Iterator[None]:
    """Emit `BUDGET_NEAR_END` for each limit that is passed inside the context, at most 30 s later or at the end.

    A ledger that cannot be used stops no flow; the user is warned of it once.
    """
    if not events.is_root_of_a_deployment():
        yield
        return
    done = threading.Event()

    def keep_looking() -> None:
        is_last = is_warned = False
        while not is_last:
            is_last = done.wait(EVERY_S)
            try:
                look(config)
            except HeadraceError as error:
                if not is_warned:
                    warn(f"cannot look at the budgets: {error}")
                is_warned = True

    context = contextvars.copy_context()  # has the flow run, which the event names
    thread = threading.Thread(target=lambda: context.run(keep_looking), name="watch the budgets", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(LAST_WITHIN_S)


def look(config: Config) -> None:
    """Emit an event for each limit that is near its end and was not told yet. Raises HeadraceError: the ledger cannot be used."""
    ledger = Ledger(config.store.absolute())
    try:
        for limit in ledger.limits_near_end():
            events.emit(events.BUDGET_NEAR_END, config, engine=limit.engine, month=limit.month, limit=limit.limit, unit=limit.unit)
            ledger.note_told(limit)
    finally:
        ledger.close()

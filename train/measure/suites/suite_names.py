"""The suites by name, and those of a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from storage.errors import BadInput
from synth.engines.base import Engine
from train.measure.suites.agentdojo import AgentDojoSuite
from train.measure.suites.bfcl import BFCLSuite
from train.measure.suites.suite import Suite
from train.measure.suites.task_file import TaskFileSuite
from train.measure.suites.tau2 import Tau2Suite

if TYPE_CHECKING:
    from collections.abc import Iterator

SUITES: dict[str, Callable[[Engine | None], Suite]] = {
    "bfcl": lambda _: BFCLSuite(),
    "tau2-retail": lambda user: Tau2Suite("retail", user),
    "tau2-airline": lambda user: Tau2Suite("airline", user),
    "agentdojo": lambda _: AgentDojoSuite(),
}
"""Suite -> how to make it; the argument is the engine that plays its user, if it has one."""


def check_names(names: Sequence[str]) -> None:
    """Raises BadInput: a name is neither a suite nor a file."""
    for name in names:
        if name not in SUITES and not Path(name).is_file():
            raise BadInput(f"no suite is called {name!r}, and no file; there are {', '.join(SUITES)}, and files of tasks (JSON Lines)")


@contextmanager
def open_suite(name: str, user: Engine | None = None) -> Iterator[Suite]:
    """A suite for the time of the context. user: the engine that plays a suite's user; None: the scripted one.

    Raises:
        BadInput: see `check_names`; its package is not installed.
    """
    check_names([name])
    suite = SUITES[name](user) if name in SUITES else TaskFileSuite(Path(name))
    try:
        yield suite
    finally:
        suite.close()

"""Pieces of long work as tasks of the flow run at work: a round of synthesis, a step over its batches, a probe, an evaluation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE


def run_as_task(name: str, work: Callable[[], Any]) -> Any:
    """Do a piece of work as a task of this name; what it has done is kept by the store, so Prefect keeps no result."""
    return _piece.with_options(task_run_name=name.replace("{", "(").replace("}", ")"))(_Work(work))


class _Work:
    """Hides the work from Prefect, which would look through what a function has closed over."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.do = work


@task(name="piece of work", cache_policy=NO_CACHE, persist_result=False)
def _piece(work: _Work) -> Any:
    return work.do()

"""Subtasks of long work as tasks of the current flow run: a round of synthesis, a step over its batches, a probe, an evaluation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE


def run_as_task(name: str, work: Callable[[], Any]) -> Any:
    """Do a subtask as a task of this name; the store keeps what it has done, so Prefect keeps no result."""
    return _subtask.with_options(task_run_name=name.replace("{", "(").replace("}", ")"))(_Work(work))


class _Work:
    """Hides the work from Prefect, which would look through what a function has closed over."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.do = work


@task(name="subtask", cache_policy=NO_CACHE, persist_result=False)
def _subtask(work: _Work) -> Any:
    return work.do()

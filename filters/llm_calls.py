"""How steps of the funnel ask a language model: with cached answers, within a budget, and with failures kept apart.

An answer is in the store's journal before it is returned, and in table `answers` when the context ends, even by an error. So a run that was
killed, or whose budget was spent, continues at the next call and pays nothing twice. An engine fails for a whole batch; here the requests
of a failed batch are asked one by one, so a request that is never answered (a provider's filter, for example) fails alone. After three
unanswered requests in a row the engine counts as gone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from storage.execution import Progress
from storage.store import Store
from synth.engines.base import ChatRequest, Engine, EngineFailure
from synth.engines.budget import Budget
from synth.engines.cache import Answers
from synth.engines.engine_names import EngineUse, engine_named, weights_of
from synth.engines.structured import Check, Structured, ask

_AT_ONCE = 128
_GONE = 3
"""Unanswered requests in a row after which the engine counts as gone."""


@contextlib.contextmanager
def open_cached_engine(store: Store, name: str, budget: Budget | None = None, *, run: str = "", **how: Any) -> Iterator[Engine]:
    """The engine of this name, checked before it is used; the store caches its answers. A local server logs beside the store.

    Args:
        run: run that the budget belongs to; what the run spent before counts.
        how: see `engine_named`.

    Raises:
        BadInput, HeadraceError: see `engine_named`.
    """
    answers = Answers(store)
    answers.run = run
    try:
        if run and budget is not None:
            budget.begin(*answers.spent_tokens())
        with engine_named(name, EngineUse(store.root.with_name("engine.log"), answers, budget, **how)) as engine:
            yield engine
    finally:
        try:
            answers.commit()
        finally:
            answers.close()


def ask_each(
    engine: Engine, requests: Sequence[ChatRequest], check: Check, *, label: str = "ask", progress: Progress | None = None
) -> list[Structured | EngineFailure]:
    """The result of each request, repairs included, or the failure of the engine.

    Raises:
        EngineFailure: the engine is gone. BudgetSpent: nothing more may be asked.
    """
    answers: list[Structured | EngineFailure] = []
    for start in range(0, len(requests), _AT_ONCE):
        chunk = requests[start : start + _AT_ONCE]
        try:
            answers += ask(engine, chunk, check=_from(start, check))
        except EngineFailure:
            _one_by_one(engine, chunk, _from(start, check), answers)
        if progress is not None:
            progress(label, len(answers), len(requests))
    return answers


def is_overflow(answer: Structured) -> bool:
    """Whether the answer is empty because the engine's window or the limit of answer tokens was too small."""
    last = answer.answers[-1]
    return last.finish_reason == "length" and not last.message.content


def name_of(engine: Engine) -> str:
    """An engine's name for provenance; for a local model folder with `@` and its weights, as in names of `vllm:` engines."""
    weights = weights_of(engine.name) if engine.name.startswith("hf:") else ""
    return f"{engine.name}@{weights}" if weights else engine.name


def _one_by_one(engine: Engine, requests: Sequence[ChatRequest], check: Check, answers: list[Structured | EngineFailure]) -> None:
    """Appends the result of each request to the results."""
    for place, request in enumerate(requests):
        try:
            answers += ask(engine, [request], check=_from(place, check))
        except EngineFailure as failure:
            answers.append(failure)
            if len(answers) >= _GONE and all(isinstance(one, EngineFailure) for one in answers[-_GONE:]):
                raise


def _from(start: int, check: Check) -> Check:
    """The check for a chunk of requests whose first has this number."""
    return lambda place, value: check(start + place, value)

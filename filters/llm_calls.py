"""How steps of the funnel ask a language model: with the store's memory, within a budget, and so that one question spoils no other.

What was answered is in the store's journal before anyone sees it, and in its table `answers` when the context ends, however it ends; so a
run that was killed, or whose budget was spent, goes on where it was when it is called again, and pays nothing twice.
Engines fail whole batches. Here a batch that failed is asked one by one: what no engine will answer (a filter of the provider's, say) costs
itself alone, and an engine that leaves three in a row unanswered is taken to be gone.
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
"""An engine that leaves so many requests unanswered, one after the other, is gone."""


@contextlib.contextmanager
def open_cached_engine(store: Store, name: str, budget: Budget | None = None, *, run: str = "", **how: Any) -> Iterator[Engine]:
    """The engine of this name, looked at before it is used, whose answers the store keeps. A server of our own logs beside the store.

    Args:
        run: whose budget it is; it begins with what the run of this name had spent. how: see `engine_named`.

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
    """What each request brought, repairs included; or why the engine did not answer it.

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
    """Whether nothing was said for want of room, in the engine's window or in the answer: that tells nothing of what was asked about."""
    last = answer.answers[-1]
    return last.finish_reason == "length" and not last.message.content


def name_of(engine: Engine) -> str:
    """An engine's name for provenance; of a model folder here with `@` and which weights, as `vllm:` has it in its own."""
    weights = weights_of(engine.name) if engine.name.startswith("hf:") else ""
    return f"{engine.name}@{weights}" if weights else engine.name


def _one_by_one(engine: Engine, requests: Sequence[ChatRequest], check: Check, answers: list[Structured | EngineFailure]) -> None:
    """Adds what each request brought to what was found before."""
    for place, request in enumerate(requests):
        try:
            answers += ask(engine, [request], check=_from(place, check))
        except EngineFailure as failure:
            answers.append(failure)
            if len(answers) >= _GONE and all(isinstance(one, EngineFailure) for one in answers[-_GONE:]):
                raise


def _from(start: int, check: Check) -> Check:
    """The check for requests of which the first has this number."""
    return lambda place, value: check(start + place, value)

"""Resolve the name of a policy or engine, and open the engine that answers for it.

One idea: an engine given by name needs no store; a store, if given, keeps its answers. A policy of the cascade always belongs to a store.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from flows import validation
from flows.runtime.store_lock import hold_store
from storage.store import Store
from synth.engines.base import Engine
from synth.engines.engine_names import EngineUse, engine_named
from train.config import EngineConfig
from train.policies import Policy, engine_policy, find_policy, open_policy_engine


@dataclass(frozen=True)
class ResolvedPolicy:
    """A policy and its store.

    store: store of the policy, or the store that keeps an engine's answers; None: answers are not kept.
    """

    policy: Policy
    store: Store | None


def resolve_policy(name: str | None, store: Path | None) -> ResolvedPolicy:
    """Resolve a policy's name. Starts nothing.

    name: id, stage, name of an engine, or `latest`; None: the last promoted policy.
    store: folder of the store; None: the newest store under runs/.

    Raises:
        BadInput: the store, the policy or the kind of engine does not exist.
    """
    if name is not None and ":" in name:
        return ResolvedPolicy(engine_policy(name), None if store is None else Store(store))
    opened = validation.open_store(None, store)
    return ResolvedPolicy(find_policy(opened, name), opened)


@contextlib.contextmanager
def open_engine(target: ResolvedPolicy, config: EngineConfig, *, command: str, run: str = "") -> Iterator[Engine]:
    """Open the engine of a policy for the time of the context. Holds the lock of a store that keeps its answers.

    command: name of the command, for the lock.
    run: run that the budget belongs to (see `open_policy_engine`); empty: a new budget.

    Raises:
        BadInput, HeadraceError: the engine cannot answer, or another process works on the store.
    """
    name = target.policy.engine
    if target.store is None:
        log, budget = Path("engine.log"), config.budget()
        use = EngineUse(log, budget=budget, tools=True, in_flight=config.in_flight, timeout_s=config.timeout_s)
        with engine_named(name, use) as engine:
            yield engine
        return
    with (
        hold_store(command, target.store.root) if name else contextlib.nullcontext(),
        open_policy_engine(target.store, target.policy, config, run) as engine,
    ):
        yield engine

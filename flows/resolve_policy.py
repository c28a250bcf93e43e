"""Who is asked by a command that holds conversations, and what answers for it.

One idea: an engine by its name needs no store; with one, that store keeps its answers. A policy of the cascade is always one of a store's.
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
from synth.engines.engine_names import engine_named
from train.config import EngineConfig
from train.policies import Policy, answering, engine_policy, policy_named


@dataclass(frozen=True)
class Asked:
    """store: where the policy is from, or where the answers of an engine are kept; None where they are not."""

    policy: Policy
    store: Store | None


def asked(named: str | None, store: Path | None) -> Asked:
    """What an id, a stage, an engine's name, `latest` or None stands for. Without a folder, policies are looked for in the newest store
    under runs/. Nothing is started.

    Raises:
        BadInput: no such store, policy or kind of engine.
    """
    if named is not None and ":" in named:
        return Asked(engine_policy(named), None if store is None else Store(store))
    opened = validation.readable(None, store)
    return Asked(policy_named(opened, named), opened)


@contextlib.contextmanager
def answers(who: Asked, config: EngineConfig, *, command: str, run: str = "") -> Iterator[Engine]:
    """The engine, for as long as the context lasts; a store that keeps its answers is held for the command.

    run: whose budget it is, as `answering` has it; empty for one of this call's own.

    Raises:
        BadInput, HeadraceError: it cannot answer, or another process works on the store.
    """
    name = who.policy.engine
    if who.store is None:
        log, budget = Path("engine.log"), config.budget()
        with engine_named(name, log=log, budget=budget, tools=True, in_flight=config.in_flight, timeout_s=config.timeout_s) as engine:
            yield engine
        return
    with hold_store(command, who.store.root) if name else contextlib.nullcontext(), answering(who.store, who.policy, config, run) as engine:
        yield engine

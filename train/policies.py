"""The policies of a store, by id, stage or engine's name, and what answers for them.

One idea: whatever answers is a policy. One that the cascade trained is a model folder of the store; any other is an engine by its name
(`openai:MODEL`, `vllm:MODEL`, `hf:FOLDER`), whose id follows from that name and, where its weights lie here, from them.

What it does not do: train them (`train/cascade.py`), or measure them (`train/measure/probe.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from filters.llm_calls import open_cached_engine
from storage.errors import BadInput
from storage.records import content_id
from storage.releases.lineage_graph import POLICY_NAME, PROMOTED_POLICY_SQL
from storage.store import Store, part_id
from storage.tables import TABLES
from synth.engines.base import Engine
from synth.engines.engine_names import kind_and_model, look_at, weights_of
from synth.engines.local.model_folder import check_folder
from train.config import EngineConfig

if TYPE_CHECKING:
    from synth.engines.local.hf import HFEngine

VERSION = 1
LATEST = "latest"
"""Stands for the policy promoted last, as no name does."""


@dataclass(frozen=True)
class Policy:
    """What answers. path: its model folder; engine: the name of an engine instead, empty where the cascade trained it."""

    id: str
    name: str
    path: Path
    engine: str = ""

    def check(self) -> None:
        """Looks whether it can answer; nothing is loaded or started.

        Raises:
            BadInput: its folder lacks something, other weights lie there now, or see `look_at`.
        """
        if not self.engine:
            check_folder(self.path)
            return
        look_at(self.engine, tools=True)
        self.check_weights()

    def check_weights(self) -> None:
        """Raises BadInput: where its engine's folder is, other weights lie now."""
        if self.engine and (now := engine_policy(self.engine)).id != self.id:
            problem = f"other weights lie there now ({now.id}); name the engine instead"
            raise BadInput(f"{self.id} is no longer what {self.engine} holds: {problem}")


def find_policy(store: Store, name_or_id: str | None) -> Policy:
    """The policy that an id, a stage or an engine's name stands for; of None or `latest`, the one promoted last. Nothing is written.

    Raises:
        BadInput: there is none; the message names those that there are.
    """
    if name_or_id is None or name_or_id == LATEST:
        promoted = promoted_policy(store)
        if promoted is None:
            raise BadInput(f"{store.root} has no promoted policy yet: train one first, or name one with --policy")
        return promoted
    return engine_policy(name_or_id) if ":" in name_or_id else known_policy(store, name_or_id)


def promoted_policy(store: Store) -> Policy | None:
    """The policy that passed the gate last."""
    rows = store.query(PROMOTED_POLICY_SQL)
    return known_policy(store, rows.item()) if rows.height else None


def known_policy(store: Store, name_or_id: str) -> Policy:
    """The policy with this id, or the latest that a stage or an engine of this name gave.

    Raises:
        BadInput: the store has none; the message names those that it has.
    """
    every = store.query(
        f"""SELECT policy_id, {POLICY_NAME} AS name, p.path FROM policies p JOIN parts USING (part_id)
            LEFT JOIN stages s USING (stage_id) ORDER BY committed_at DESC, policy_id"""
    )
    matches = every.filter((pl.col("policy_id") == name_or_id) | (pl.col("name") == name_or_id))
    if matches.is_empty():
        names = [f"{each} ({name})" if name != each else each for each, name, _ in every.sort("name", "policy_id").iter_rows()]
        raise BadInput(f"{store.root} has no policy {name_or_id}; it has {', '.join(names) or 'none'}")
    policy_id, name, path = matches.row(0)
    return Policy(policy_id, name, Path(path), path) if ":" in path else Policy(policy_id, name, store.root / path)


def engine_policy(name: str) -> Policy:
    """An engine by its name as a policy. Raises BadInput: see `kind_and_model`."""
    kind_and_model(name)
    return Policy(content_id("policy", name, weights_of(name)), name, Path(name), name)


@contextlib.contextmanager
def open_policy_engine(store: Store, policy: Policy, config: EngineConfig, run: str) -> Iterator[Engine]:
    """What answers for a policy, for as long as the context lasts. An engine by its name becomes a policy of the store once it was looked
    at; what a server answers is kept there, and paid for within the budget of `run`.

    Raises:
        BadInput, HeadraceError: it cannot answer; see `Policy.check` and `engine_named`.
    """
    if not policy.engine:
        yield engine_of(policy)
        return
    how = {"in_flight": config.in_flight, "timeout_s": config.timeout_s, "tools": True, "traced": True}
    with open_cached_engine(store, policy.engine, config.budget(), run=run, **how) as engine:
        policy.check_weights()
        part = part_id("policies", [policy.id], {}, VERSION)
        row = {"policy_id": policy.id, "stage_id": None, "path": policy.engine, "weights_hash": weights_of(policy.engine)}
        store.commit([store.find(part) or store.write("policies", part, pl.DataFrame([row], schema=TABLES["policies"].columns))])
        yield engine


@lru_cache(maxsize=2)
def engine_of(policy: Policy) -> HFEngine:
    """A policy of the cascade in process, on one thread: its rollouts are then the same in every run.

    Raises:
        BadInput: its folder lacks something.
    """
    import torch

    from synth.engines.local.hf import HFEngine
    from train.device import keep_freed_memory

    keep_freed_memory()
    torch.set_num_threads(1)
    return HFEngine(policy.path, policy_version=policy.id)

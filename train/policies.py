"""The policies of a store, found by id, stage or engine name, and their engines.

One idea: anything that answers is a policy. A policy trained by the cascade is a model folder of the store. Any other is named as an engine
(`openai:MODEL`, `vllm:MODEL`, `hf:FOLDER`); its id is made from the name and, for a local folder, from the weights.

What it does not do: train them (`train/cascade.py`), or measure them (`train/measure/probe.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from filters.llm_calls import open_cached_engine
from storage.errors import BadInput
from storage.health.weights import refuse_pruned
from storage.records import content_id
from storage.releases.lineage_graph import POLICY_NAME, PROMOTED_POLICY_SQL
from storage.store import Store, part_id
from storage.tables import TABLES
from synth.engines.base import Engine
from synth.engines.engine_names import check_engine, kind_and_model, weights_of
from synth.engines.local.model_folder import check_folder
from train.config import EngineConfig
from train.spec import RolloutEngine

if TYPE_CHECKING:
    from synth.engines.local.hf import HFEngine

VERSION = 1
LATEST = "latest"
"""Name for the policy promoted last; no stage may have it."""


@dataclass(frozen=True)
class Policy:
    """A policy. path: its model folder. engine: name of its engine; empty if the cascade trained it."""

    id: str
    name: str
    path: Path
    engine: str = ""

    def check(self) -> None:
        """Checks that the policy can answer; loads and starts nothing.

        Raises:
            BadInput: its folder was pruned or is incomplete, the weights have changed, or see `check_engine`.
        """
        if not self.engine:
            refuse_pruned(self.path)
            check_folder(self.path)
            return
        check_engine(self.engine, tools=True)
        self.check_weights()

    def check_weights(self) -> None:
        """Raises BadInput if the weights in its engine's folder have changed."""
        if self.engine and (now := engine_policy(self.engine)).id != self.id:
            problem = f"other weights lie there now ({now.id}); name the engine instead"
            raise BadInput(f"{self.id} is no longer what {self.engine} holds: {problem}")


def find_policy(store: Store, name_or_id: str | None) -> Policy:
    """The policy with this id, stage or engine name; for None or `latest`, the one promoted last. Writes nothing.

    Raises:
        BadInput: there is none; the message lists the policies.
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
    """The policy with this id, or the latest policy of the stage or engine with this name.

    Raises:
        BadInput: the store has none; the message lists its policies.
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
    """The policy that an engine's name stands for. Raises BadInput: see `kind_and_model`."""
    kind_and_model(name)
    return Policy(content_id("policy", name, weights_of(name)), name, Path(name), name)


@contextlib.contextmanager
def open_policy_engine(store: Store, policy: Policy, config: EngineConfig, run: str) -> Iterator[Engine]:
    """The engine of a policy, as a context manager. A policy named as an engine is added to the store once its engine is open; a server's
    answers are cached in the store and charged to the budget of `run`.

    Raises:
        BadInput, HeadraceError: the policy cannot answer; see `Policy.check` and `engine_named`.
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


class OwnEngines:
    """Engines of the policies that the cascade trained, by vLLM or in this process; a server serves one policy and ends before the next.

    Calling it with a policy gives its engine. A context manager that ends the server.

    Args:
        wanted: what plays: see `CascadeConfig.rollouts`.
    """

    def __init__(self, wanted: RolloutEngine) -> None:
        self._wanted: RolloutEngine = wanted
        self._server, self._open = contextlib.ExitStack(), dict[str, Engine]()

    def __call__(self, policy: Policy) -> Engine:
        """Raises BadInput: its folder was pruned or is incomplete, or vLLM is not installed. HeadraceError: its server did not start."""
        from transformers import AutoTokenizer

        from train.rl.policy_server import LOG, is_served, serve_folder

        if policy.id in self._open:
            return self._open[policy.id]
        self.close()
        policy.check()
        if not is_served(self._wanted, AutoTokenizer.from_pretrained(policy.path, trust_remote_code=False)):
            return self._open.setdefault(policy.id, engine_of(policy))
        opened = serve_folder(policy.path, log=policy.path.parent / LOG, policy_version=policy.id)
        return self._open.setdefault(policy.id, self._server.enter_context(opened))

    def close(self) -> None:
        """Ends the server, or forgets the model, so that their memory is free for training."""
        self._open.clear()
        self._server.close()

    def __enter__(self) -> OwnEngines:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def engine_of(policy: Policy) -> HFEngine:
    """Loads a policy of the cascade in this process, with one thread, so that rollouts are reproducible; one that is too large for our own
    decoder in bf16 to a GPU, if there is one.

    Raises:
        BadInput: its folder is incomplete.
    """
    import torch

    from synth.engines.local.hf import HFEngine
    from synth.engines.local.qwen3 import Qwen3Decoder
    from train.device import keep_freed_memory

    keep_freed_memory()
    torch.set_num_threads(1)
    engine = HFEngine(policy.path, policy_version=policy.id)
    if torch.cuda.is_available() and not Qwen3Decoder.fits(engine.model):
        engine.model.to("cuda", torch.bfloat16)
    return engine

"""The policies of a store: by id or stage, the one promoted last, and the engine that a policy answers through.

What it does not do: train them (`train/cascade.py`), or measure them (`train/probe.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from storage.errors import BadInput
from storage.graph import PROMOTED_POLICY_SQL
from storage.store import Store
from train.on_cpu import keep_freed_memory

if TYPE_CHECKING:
    from synth.engines.hf import HFEngine


@dataclass(frozen=True)
class Policy:
    """A trained policy; `path` is its model folder."""

    id: str
    name: str
    path: Path


def promoted_policy(store: Store) -> Policy | None:
    """The policy that passed the gate last."""
    found = store.query(PROMOTED_POLICY_SQL)
    return known_policy(store, found.item()) if found.height else None


def known_policy(store: Store, named: str) -> Policy:
    """The policy with this id, or the one trained last in the stage of this name.

    Raises:
        BadInput: the store has none; the message names those that it has.
    """
    found = store.query(
        """SELECT policy_id, name, policies.path FROM policies JOIN parts USING (part_id) LEFT JOIN stages USING (stage_id)
           WHERE ? IN (policy_id, name) ORDER BY committed_at DESC, policy_id LIMIT 1""",
        [named],
    )
    if found.is_empty():
        known = store.query("SELECT policy_id, name FROM policies LEFT JOIN stages USING (stage_id) ORDER BY name, policy_id")
        raise BadInput(
            f"{store.root} has no policy {named}; it has {', '.join(f'{each} ({name})' for each, name in known.iter_rows()) or 'none'}"
        )
    policy_id, name, path = found.row(0)
    return Policy(policy_id, name or policy_id, store.root / path)


@lru_cache(maxsize=2)
def engine_of(policy: Policy) -> HFEngine:
    """The policy in process, on one thread: its rollouts are then the same in every run."""
    import torch

    from synth.engines.hf import HFEngine

    keep_freed_memory()
    torch.set_num_threads(1)
    return HFEngine(policy.path, policy_version=policy.id)

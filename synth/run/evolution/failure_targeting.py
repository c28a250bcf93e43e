"""The focus: probed tasks that the current policy fails, or solves only sometimes, so that synthesis makes more tasks like them.

Sources: RAFT (arXiv 2606.12908): new tasks from the policy's failures; RODS (2606.19047): tasks with varying rewards are worth most. The
formulas are ours.

Every probed task has an *urgency*. A domain, an intent, and a mode family in a complexity band have the mean urgency of their tasks, shrunk
if there are few. The controller, the planner and the funnel's coverage weigh by it.

Only probes of the policy promoted last count (table `tags`, `filters/certainty/certainty.py`). Held-out tasks do not, or evaluation would
steer training towards itself. A run stores the focus at its start in a part of table `focus`, and a resumed run uses that part. After the
promotion of another policy, the same configuration gives another run.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import polars as pl

from storage.errors import BadInput
from storage.parts import read_part
from storage.records import JSON, Task, content_id
from storage.releases.lineage_graph import PROMOTED_POLICY_SQL
from storage.store import Part, Store, part_id
from storage.tables import TABLES
from synth.blueprints.blueprint import Bands
from synth.blueprints.cell import Band, mode_family
from synth.blueprints.conversation_template import intent_pool
from synth.clusters.business_clusters import Cluster
from synth.conversations.expert import expert_profile
from synth.intervals import wilson
from synth.run.config import SynthesisConfig
from synth.run.evolution.controller import Controller, EvolutionConfig
from synth.worlds import WORLDS

VERSION = 1
_FAILURE_WEIGHT, _LEARNABILITY_WEIGHT = 0.5, 5.5
_PROBED_SQL = """SELECT g.task_id, g.k, g.successes, g.reward_mean, g.learnability, t.spec
FROM tags g JOIN tasks t USING (task_id)
WHERE g.policy_id = ? AND g.purpose = 'probe' AND t.division = 'probe' AND t.use = 'train'
QUALIFY row_number() OVER (PARTITION BY g.task_id ORDER BY g.k DESC) = 1 ORDER BY g.task_id"""
Label = TypeVar("Label", bound=Hashable)


def urgency(reward_mean: float, learnability: float) -> float:
    """How much a policy can learn from tasks like this one, in [0, 1): (1 - mu) / 2 + 5.5 LPS, with P7's potential LPS = v mu.

    mu: mean reward; v: variance of the rewards. 0 at mu = 1, 0.5 at mu = 0. With rewards of 0 and 1 the peak is .99 at mu = .62; 0 to 8
    successes of 8 rollouts give .50 .51 .63 .80 .94 .99 .90 .59 0. The potential alone would drop tasks that are never solved."""
    return _FAILURE_WEIGHT * (1 - reward_mean) + _LEARNABILITY_WEIGHT * learnability


@dataclass(frozen=True, slots=True)
class FailureStats:
    """Results of a policy on a group of probed tasks.

    urgency: mean over the tasks, times 1 - (high - low); this factor is .1 to .2 for one task, .7 to .9 for forty.
    tasks, rollouts: counts.
    rate: success rate.
    low, high: Wilson's 95 % interval of the rate. The trials are tasks, because rollouts of one task are not independent.
    never, always: number of tasks that no rollout solves, and that every rollout solves.
    """

    urgency: float
    tasks: int
    rollouts: int
    rate: float
    low: float
    high: float
    never: int
    always: int


@dataclass(frozen=True)
class Focus:
    """The probed tasks of a policy. rows: of table `focus`, whose part has the id `part_id`."""

    part_id: str
    policy_id: str
    rows: pl.DataFrame

    @cached_property
    def id(self) -> str:
        """Hash of the content: it steers all runs with this id in the same way."""
        return content_id("focus", self.policy_id, self.rows.drop("focus_id").rows())

    def write(self, store: Store) -> Part:
        """The part of the store, written if it does not exist. Does not commit it."""
        return store.find(self.part_id) or store.write("focus", self.part_id, self.rows)

    def by_domain(self) -> dict[str, FailureStats]:
        return self._group_stats(lambda row: row["domain"])

    def by_intent(self) -> dict[tuple[str, str], FailureStats]:
        """By world and intent."""
        return self._group_stats(lambda row: (row["world"], row["intent"]))

    def by_mode(self, bands: Bands) -> dict[tuple[str, Band], FailureStats]:
        """By mode family and complexity band of the tasks' expert plans, without plans with a program, which are not executed here."""
        return self._group_stats(lambda row: (row["mode_family"], bands.band(row["complexity"])) if row["mode_family"] else None)

    def _group_stats(self, label: Callable[[Mapping[str, Any]], Label | None]) -> dict[Label, FailureStats]:
        groups: dict[Label, list[Mapping[str, Any]]] = {}
        for row in self.rows.to_dicts():
            at = label(row)
            if at is not None:
                groups.setdefault(at, []).append(row)
        return {at: _failure_stats(rows) for at, rows in groups.items()}


def _failure_stats(rows: list[Mapping[str, Any]]) -> FailureStats:
    rate_sum = sum(row["successes"] / row["k"] for row in rows)
    low, high = wilson(rate_sum, len(rows))
    mean = sum(row["urgency"] for row in rows) / len(rows)
    return FailureStats(
        urgency=round(mean * (1 - (high - low)), 6),
        tasks=len(rows),
        rollouts=sum(row["k"] for row in rows),
        rate=rate_sum / len(rows),
        low=low,
        high=high,
        never=sum(row["successes"] == 0 for row in rows),
        always=sum(row["successes"] == row["k"] for row in rows),
    )


def read_focus(store: Store, parameters: Mapping[str, JSON]) -> Focus:
    """The focus of a run with these parameters: as the run has stored it, else from the current probes of the policy promoted last.

    Raises:
        BadInput: no policy was promoted, or the policy promoted last was not probed.
    """
    promoted = store.query(PROMOTED_POLICY_SQL)
    if promoted.is_empty():
        raise BadInput(f"{store.root} has no promoted policy yet, so there are no failures to focus on: train one first")
    policy = str(promoted.item())
    part = part_id("focus", [policy], dict(parameters), VERSION)
    stored = store.find(part)
    if stored is not None:
        return Focus(part, policy, read_part(store.root, stored.path))
    rows = _rows(store.query(_PROBED_SQL, [policy]).to_dicts(), content_id("focus", part), policy)
    if rows.is_empty():
        raise BadInput(
            f"{store.root} holds no probe of {policy}, which was promoted last, so its failures are not known: run `headrace tag`"
        )
    return Focus(part, policy, rows)


def focus_of(store: Store, config: SynthesisConfig) -> Focus:
    """The focus of a synthesis run with this configuration. Raises as `read_focus`."""
    return read_focus(store, config.model_dump(mode="json", exclude={"tools", "roles"}))


def _rows(probed: Iterable[Mapping[str, Any]], focus_id: str, policy: str) -> pl.DataFrame:
    """Rows of table `focus`, without tasks whose world or intent this process does not know."""
    rows = []
    for tag in probed:
        task = Task.model_validate_json(tag["spec"])
        if task.world not in WORLDS or task.intent not in WORLDS[task.world].intents:
            continue
        profile = expert_profile(WORLDS[task.world], task)
        rows.append(
            {
                "focus_id": focus_id,
                "policy_id": policy,
                "task_id": task.id,
                "world": task.world,
                "intent": task.intent,
                "domain": WORLDS[task.world].intents[task.intent].domain,
                "mode_family": mode_family(profile.coarse) if profile is not None else None,
                "complexity": profile.complexity if profile is not None else None,
                "k": tag["k"],
                "successes": tag["successes"],
                "urgency": round(urgency(tag["reward_mean"], tag["learnability"]), 6),
            }
        )
    return pl.DataFrame(rows, schema=TABLES["focus"].columns)


# ---- effects of the focus ---------------------------------------------------------------------------------------------


def build_controller(
    domains: Sequence[str], config: EvolutionConfig, focus: Focus | None, bands: Bands | None, weights: Mapping[str, float] | None = None
) -> Controller:
    """A new controller. bands: None if unknown; then modes have no urgency. weights: of domains."""
    by_domain = focus.by_domain() if focus is not None else {}
    by_mode = focus.by_mode(bands) if focus is not None and bands is not None else {}
    return Controller(
        domains,
        config,
        weights=weights,
        domain_urgency={domain: stats.urgency for domain, stats in by_domain.items()},
        mode_urgency={mode: stats.urgency for mode, stats in by_mode.items()},
    )


def factors(failures: Mapping[Label, FailureStats], weight_bits: float) -> dict[Label, float]:
    """How many times as often each label is drawn as a label without urgency: 2^(weight x urgency)."""
    return {label: 2 ** (weight_bits * stats.urgency) for label, stats in failures.items()}


def order_clusters(
    clusters: Iterable[Cluster], domain: str, use: Mapping[str, int], intent_factors: Mapping[tuple[str, str], float]
) -> list[Cluster]:
    """Clusters of a domain, the least used first; ties by rank. Uses are divided by the greatest factor of the domain's intents that a
    cluster serves.

    Args:
        use: cluster id -> number of uses.
        intent_factors: (world, intent) -> factor; 1 for intents that are missing.
    """

    def turns(cluster: Cluster) -> float:
        assert cluster.world is not None
        intents = WORLDS[cluster.world].intents
        served = [intent for intent in intent_pool(WORLDS[cluster.world], cluster.tool_names).busy if intents[intent].domain == domain]
        return (use[cluster.id] + 1) / max(intent_factors.get((cluster.world, intent), 1.0) for intent in served)

    return sorted(clusters, key=lambda cluster: (turns(cluster) if intent_factors else use[cluster.id], cluster.rank))

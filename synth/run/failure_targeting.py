"""Focus: what the current policy fails or wavers at, from the store, so that more of its like is made next (after RAFT, arXiv 2606.12908:
new tasks from the policy's own failures; RODS, 2606.19047: they are worth most where its rewards vary; formulas ours).

Every probed task has an *urgency*, and so have a domain, an intent, and a mode family in a complexity band, from the tasks that lie in
them, shrunk by how little is known: the controller, the planner and the funnel's coverage weigh by it.

Only probes count: certainty of probe tasks (`filters/certainty/certainty.py`, table `tags`), of the policy promoted last. What is held out
is evaluated and never looked at here, or evaluation would steer what is trained on towards itself. A run takes what is known when it begins
and keeps it in a part of its own (`focus`): resumed, it goes on with that, whatever was probed meanwhile. A policy promoted meanwhile makes
it another run.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import polars as pl

from storage.errors import BadInput
from storage.records import JSON, Task, content_id
from storage.releases.lineage_graph import PROMOTED_POLICY_SQL
from storage.store import Part, Store, part_id
from storage.tables import TABLES
from synth.blueprints.blueprint import Bands
from synth.blueprints.cell import Band, mode_family
from synth.blueprints.conversation_template import intent_pool
from synth.clusters.business_clusters import Cluster
from synth.intervals import wilson
from synth.roles.simulate import expert_profile
from synth.run.config import SynthesisConfig
from synth.run.controller import Controller, EvolutionConfig
from synth.worlds import WORLDS

VERSION = 1
_OUT_OF_REACH, _WAVERING = 0.5, 5.5
_PROBED_SQL = """SELECT g.task_id, g.k, g.successes, g.reward_mean, g.learnability, t.spec
FROM tags g JOIN tasks t USING (task_id)
WHERE g.policy_id = ? AND g.purpose = 'probe' AND t.division = 'probe' AND t.use = 'train'
QUALIFY row_number() OVER (PARTITION BY g.task_id ORDER BY g.k DESC) = 1 ORDER BY g.task_id"""
Label = TypeVar("Label", bound=Hashable)


def urgency(reward_mean: float, learnability: float) -> float:
    """How much there is to learn from a task's like, in [0, 1): (1 - mu) / 2 + 5.5 LPS, with P7's potential LPS = v mu.

    0 for what has full marks every time (mu = 1), 0.5 for what brings nothing (mu = 0), more where it wavers, with a peak of .99 at
    mu = .62 (rewards of 0 and 1; of 8 rollouts 0 to 8 full successes give .50 .51 .62 .79 .94 .99 .90 .59 0). The potential alone would
    drop what brings nothing."""
    return _OUT_OF_REACH * (1 - reward_mean) + _WAVERING * learnability


@dataclass(frozen=True, slots=True)
class FailureStats:
    """How a policy does at some probed tasks: rate of success with Wilson's 95 % interval, the tasks being the trials (rollouts of one
    task are alike); never, always: tasks in which no rollout succeeds, and in which each does.

    urgency: mean over the tasks, times 1 - (high - low): of one task counts .1 to .2, of forty .7 to .9."""

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
    """What is known of the probed tasks of a policy. rows: of table `focus`."""

    part_id: str
    policy_id: str
    rows: pl.DataFrame

    @cached_property
    def id(self) -> str:
        """Of what it says: runs with the same are steered alike."""
        return content_id("focus", self.policy_id, self.rows.drop("focus_id").rows())

    def write(self, store: Store) -> Part:
        """Keeps it for the run that it was made for. Uncommitted."""
        return store.find(self.part_id) or store.write("focus", self.part_id, self.rows)

    def by_domain(self) -> dict[str, FailureStats]:
        return self._group_stats(lambda row: row["domain"])

    def by_intent(self) -> dict[tuple[str, str], FailureStats]:
        """By world and intent."""
        return self._group_stats(lambda row: (row["world"], row["intent"]))

    def by_mode(self, bands: Bands) -> dict[tuple[str, Band], FailureStats]:
        """By mode family and complexity band of the tasks' expert plans; those with a program, which is not run here, are left out."""
        return self._group_stats(lambda row: (row["mode_family"], bands.band(row["complexity"])) if row["mode_family"] else None)

    def _group_stats(self, label: Callable[[Mapping[str, Any]], Label | None]) -> dict[Label, FailureStats]:
        groups: dict[Label, list[Mapping[str, Any]]] = {}
        for row in self.rows.to_dicts():
            at = label(row)
            if at is not None:
                groups.setdefault(at, []).append(row)
        return {at: _standing(rows) for at, rows in groups.items()}


def _standing(rows: list[Mapping[str, Any]]) -> FailureStats:
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


def failures(store: Store, made_for: Mapping[str, JSON]) -> Focus:
    """What the policy promoted last fails or wavers at: as the run of these parameters has kept it, else as it is known now.

    Raises:
        BadInput: no policy was promoted, or the one promoted last was not probed.
    """
    promoted = store.query(PROMOTED_POLICY_SQL)
    if promoted.is_empty():
        raise BadInput(f"{store.root} has no promoted policy yet, so there are no failures to focus on: train one first")
    policy = str(promoted.item())
    part = part_id("focus", [policy], dict(made_for), VERSION)
    stored = store.find(part)
    if stored is not None:
        return Focus(part, policy, pl.read_parquet(store.root / stored.path))
    rows = _rows(store.query(_PROBED_SQL, [policy]).to_dicts(), content_id("focus", part), policy)
    if rows.is_empty():
        raise BadInput(
            f"{store.root} holds no probe of {policy}, which was promoted last, so what it fails at is not known: `headrace tag` probes it"
        )
    return Focus(part, policy, rows)


def focus_of(store: Store, config: SynthesisConfig) -> Focus:
    """What a run of synthesis of this configuration focuses on, where it is told to; raises as `failures`."""
    return failures(store, config.model_dump(mode="json", exclude={"tools", "roles"}))


def _rows(probed: Iterable[Mapping[str, Any]], focus_id: str, policy: str) -> pl.DataFrame:
    """Rows of table `focus`; tasks that no world of this process knows are left out."""
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


# ---- what follows from it ---------------------------------------------------------------------------------------------


def controller_of(domains: Sequence[str], config: EvolutionConfig, focus: Focus | None, bands: Bands | None) -> Controller:
    """A controller that has counted nothing yet. bands: None where they are not known: modes have no urgency then."""
    by_domain = focus.by_domain() if focus is not None else {}
    by_mode = focus.by_mode(bands) if focus is not None and bands is not None else {}
    return Controller(
        domains,
        config,
        domain_urgency={domain: standing.urgency for domain, standing in by_domain.items()},
        mode_urgency={mode: standing.urgency for mode, standing in by_mode.items()},
    )


def factors(standings: Mapping[Label, FailureStats], weight_bits: float) -> dict[Label, float]:
    """How many times as often each is to be taken as what is mastered or not known: 2^(weight x urgency)."""
    return {label: 2 ** (weight_bits * standing.urgency) for label, standing in standings.items()}


def in_turn(
    clusters: Iterable[Cluster], domain: str, use: Mapping[str, int], intent_factors: Mapping[tuple[str, str], float]
) -> list[Cluster]:
    """Clusters of a domain in the order of their turns: the least used first, uses divided by the greatest factor of the domain's intents
    that a cluster serves; of equals the one that was selected first.

    Args:
        use: by a cluster's id. intent_factors: by world and intent; 1 where it is not here.
    """

    def turns(cluster: Cluster) -> float:
        assert cluster.world is not None
        intents = WORLDS[cluster.world].intents
        served = [intent for intent in intent_pool(WORLDS[cluster.world], cluster.tool_names).busy if intents[intent].domain == domain]
        return (use[cluster.id] + 1) / max(intent_factors.get((cluster.world, intent), 1.0) for intent in served)

    return sorted(clusters, key=lambda cluster: (turns(cluster) if intent_factors else use[cluster.id], cluster.rank))

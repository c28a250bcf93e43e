"""The conversations that arms select from: two pools of the unsteered planner, one of each controller, for every seed.

One idea: a pool is a list of accepted conversations in the order in which they were made, in one file that is whole or absent; so a killed
experiment makes none of them twice. The teacher is scripted, in every pool the same, and so is what it costs: proposals.
The unsteered planner comes by its domains by Zipf's law, ranks shuffled by the seed, as one who takes what comes does, or draws them
evenly (pool `even`); which modes and how much complexity it plans is the planner's own habit. A controller's pool is a run of
`synthesize` in a store of its own.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.experiment.config import DiversityExperimentConfig, PoolName
from benchmarks.experiment.domains import DomainSeeds, domains_of
from storage.files import replace_atomically
from storage.records import JSON, Message, content_id
from storage.store import Store
from synth.blueprints.conversation_template import intent_pool
from synth.blueprints.draft import PlanFailed
from synth.blueprints.planner import Planner
from synth.clusters.business_clusters import Cluster, cluster_tools
from synth.roles.simulate import simulate
from synth.run.config import SynthesisConfig
from synth.run.controller import EvolutionConfig
from synth.run.synthesize import synthesize
from synth.tasks.split import DivisionConfig, division
from synth.worlds import WORLDS
from synth.worlds.base import World

_WEIGHTS: dict[PoolName, dict[str, float]] = {
    "no_domain": {"domain_weight": 0.0},
    "no_family": {"family_weight": 0.0},
    "no_band": {"band_weight": 0.0},
}
VERSION = 1
_TRIES_A_TALK = 6
_CALIBRATION = 300


@dataclass(frozen=True, slots=True)
class Talk:
    """An accepted conversation: where it was held, its coarse modes, its complexity (CAC), the tools it called, and what was said."""

    world: str
    domain: str
    mode: str
    complexity: float
    tools: tuple[str, ...]
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Pool:
    """proposals: blueprints that were asked for in all; with a scripted teacher, what the pool cost."""

    talks: tuple[Talk, ...]
    proposals: int

    @property
    def proposals_per_talk(self) -> float:
        return self.proposals / len(self.talks) if self.talks else 0.0


@dataclass(frozen=True, slots=True)
class PoolJob:
    """A pool of `size` conversations, to be made in any process."""

    name: PoolName
    size: int
    seed: int
    config: DiversityExperimentConfig
    domains: DomainSeeds
    folder: Path

    @property
    def skew(self) -> float:
        """Exponent of Zipf's law by which the unsteered planner comes by its domains."""
        return 0.0 if self.name == "even" else self.config.native_skew

    @property
    def path(self) -> Path:
        """Its file, named by what goes into it but for the code, by which the experiment's folder is named."""
        about = [self.domains.training, self.size, self.skew, self.config.code_share, VERSION]
        return self.folder / f"{self.name}-{self.seed}-{content_id('pool', *about)[5:]}.jsonl"


def make_pool(job: PoolJob) -> Path:
    """The file of a pool, made now unless it is there."""
    if not job.path.exists():
        worlds = domains_of(job.domains).training
        pool = _native(worlds, job) if job.name in ("native", "even") else _steered(worlds, job)
        replace_atomically(job.path, lambda draft: draft.write_text(_lines(pool), encoding="utf-8") and None)
    return job.path


def read_pool(path: Path) -> Pool:
    """A pool from its file."""
    head, *rows = path.read_text(encoding="utf-8").splitlines()
    return Pool(tuple(_talk(json.loads(row)) for row in rows), int(json.loads(head)["proposals"]))


def _lines(pool: Pool) -> str:
    rows = [asdict(talk) | {"messages": [message.to_openai() for message in talk.messages]} for talk in pool.talks]
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in [{"proposals": pool.proposals}, *rows])


def _talk(row: Mapping[str, JSON]) -> Talk:
    messages = tuple(Message.model_validate(message) for message in row["messages"])
    return Talk(row["world"], row["domain"], row["mode"], row["complexity"], tuple(row["tools"]), messages)


# ---- unsteered --------------------------------------------------------------------------------------------------------------------


def _native(worlds: Sequence[type[World]], job: PoolJob) -> Pool:
    config, size = job.config, job.size
    rng, divisions = random.Random(content_id(job.name, job.seed)), DivisionConfig()
    planner = Planner(lambda frame: division(frame, divisions) == "seed", chinese_share=0.0, code_share=config.code_share or None)
    by_domain = _clusters(worlds)
    domains = rng.sample(sorted(by_domain), len(by_domain))
    weights = [rank**-job.skew for rank in range(1, len(domains) + 1)]
    talks: list[Talk] = []
    proposals = 0
    while len(talks) < size and proposals < _TRIES_A_TALK * size:
        (domain,) = rng.choices(domains, weights)
        proposals += 1
        try:
            blueprint = planner.draw_unsteered(rng.choice(by_domain[domain]), rng, domain=domain)
        except PlanFailed:
            continue
        made = simulate(blueprint)
        if made.accepted:
            found = made.profile
            talks.append(Talk(found.world, found.domain, found.coarse, found.complexity, found.tools, made.trajectory.messages))
    return Pool(tuple(talks), proposals)


def _clusters(worlds: Sequence[type[World]]) -> dict[str, list[Cluster]]:
    """Clusters by every domain that they serve with calls."""
    found: dict[str, list[Cluster]] = {}
    for cluster in cluster_tools([tool for world in worlds for tool in world.tools]):
        if cluster.world is not None:
            busy = intent_pool(WORLDS[cluster.world], cluster.tool_names).busy
            for domain in sorted({WORLDS[cluster.world].intents[intent].domain for intent in busy}):
                found.setdefault(domain, []).append(cluster)
    return found


# ---- steered ----------------------------------------------------------------------------------------------------------------------


def _steered(worlds: Sequence[type[World]], job: PoolJob) -> Pool:
    store = Store(job.path.with_suffix(".store"))
    result = synthesize(
        store,
        SynthesisConfig(
            worlds=tuple(world.name for world in worlds),
            seed=job.seed,
            accepted=job.size,
            max_proposals=_TRIES_A_TALK * job.size,
            calibration=_CALIBRATION,
            chinese_share=0.0,
            veiled_share=0.0,
            code_share=0.0 if job.name == "no_code" else job.config.code_share,
            drills={},
            evolution=EvolutionConfig(stop_idle_rounds=10_000, **_WEIGHTS.get(job.name, {})),
        ),
    )
    rows = store.query(
        """SELECT t.world, t.domain, t.mode_coarse, t.complexity, t.tools_used, t.messages
           FROM trajectories t JOIN decisions d ON d.blueprint_id = t.blueprint_id WHERE t.accepted ORDER BY d.round, d.position"""
    )
    return Pool(tuple(_of_row(row) for row in rows.rows()), result.proposals)


def _of_row(row: tuple[str, str, str, float, list[str], str]) -> Talk:
    world, domain, mode, complexity, tools, messages = row
    return Talk(world, domain, mode, complexity, tuple(tools), tuple(Message.model_validate(each) for each in json.loads(messages)))

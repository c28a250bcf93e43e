"""The evolution controller against the same scripted planner with no cell asked, and how fast scripted trajectories are made.

The control draws domains by Zipf's law (exponent 1, ranks shuffled by the seed) and modes as the planner draws them. Both arms end at the
same number of accepted trajectories, so effective numbers (2^H of domains, and of coarse mode signatures) compare, and in neither is
`run_python` on offer; a yield is accepted trajectories per proposal. Each figure is the worst of the seeds.

Speed is in seconds of processor time of one thread, from proposal to acceptance, after a warm-up; nothing is stored meanwhile.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.harness import ROOT, Figures
from storage.store import Store
from synth.blueprints.blueprint import Bands
from synth.blueprints.cell import BANDS
from synth.blueprints.conversation_template import intent_pool
from synth.blueprints.diversity import entropy_bits
from synth.blueprints.draft import PlanFailed
from synth.blueprints.planner import Planner
from synth.clusters.business_clusters import Cluster, cluster_tools
from synth.roles.simulate import simulate
from synth.run.config import SynthesisConfig
from synth.run.evolution.controller import Controller, EvolutionConfig
from synth.run.proposals import Job, propose, report
from synth.run.synthesize import synthesize
from synth.tasks.split import DivisionConfig, division
from synth.worlds import WORLDS

STEERING_KEYS = ("eff_domains_ratio", "eff_modes_ratio", "band_share_gap", "yield_ratio")
SPEED_KEYS = ("scripted_accepted_per_s", "scripted_steered_accepted_per_s")
_CALIBRATION, _WARM_UP, _BATCHES, _BATCH = 300, 400, 16, 50


@dataclass(frozen=True)
class Arm:
    """500 or so accepted trajectories: effective numbers of domains and modes, accepted per proposal, shares of the bands."""

    domains: float
    modes: float
    accepted_share: float
    bands: tuple[float, ...] = ()


def steering(worlds: Sequence[str], *, trajectories: int = 500, seeds: Sequence[int] = (0, 1, 2)) -> Figures:
    """`STEERING_KEYS` over these worlds."""
    pairs = [(steered(worlds, trajectories, seed), unsteered(worlds, trajectories, seed)) for seed in seeds]
    targets = EvolutionConfig().band_shares
    return {
        "eff_domains_ratio": min(ours.domains / control.domains for ours, control in pairs),
        "eff_modes_ratio": min(ours.modes / control.modes for ours, control in pairs),
        "band_share_gap": max(abs(share - target) for ours, _ in pairs for share, target in zip(ours.bands, targets, strict=True)),
        "yield_ratio": min(ours.accepted_share / control.accepted_share for ours, control in pairs),
    }


def steered(worlds: Sequence[str], trajectories: int, seed: int) -> Arm:
    """What the controller makes: a whole run of synthesis."""
    config = SynthesisConfig(
        worlds=tuple(worlds),
        seed=seed,
        accepted=trajectories,
        max_proposals=10 * trajectories,
        calibration=_CALIBRATION,
        code_share=0,
        drills={},
        evolution=EvolutionConfig(objective="rarity"),
    )
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        result = synthesize(store, config)
        rows = store.query("SELECT domain, mode_coarse, complexity_band FROM trajectories WHERE accepted").rows()
    bands = Counter(band for _, _, band in rows)
    return Arm(
        _effective(domain for domain, _, _ in rows),
        _effective(modes for _, modes, _ in rows),
        result.accepted / result.proposals,
        tuple(bands[band] / len(rows) for band in BANDS),
    )


def unsteered(worlds: Sequence[str], trajectories: int, seed: int) -> Arm:
    """What the planner makes when no cell is asked of it."""
    rng, divisions = random.Random(seed), DivisionConfig()
    planner = Planner(lambda frame_id: division(frame_id, divisions) == "seed")
    by_domain = clusters_by_domain(worlds)
    domains = rng.sample(sorted(by_domain), len(by_domain))
    weights = [1 / rank for rank in range(1, len(domains) + 1)]
    got: list[tuple[str, str]] = []
    proposals = 0
    while len(got) < trajectories:
        (domain,) = rng.choices(domains, weights)
        proposals += 1
        try:
            blueprint = planner.draw_unsteered(rng.choice(by_domain[domain]), rng, domain=domain)
        except PlanFailed:
            continue
        simulated = simulate(blueprint)
        if simulated.accepted:
            got.append((simulated.profile.domain, simulated.profile.coarse))
    return Arm(_effective(domain for domain, _ in got), _effective(modes for _, modes in got), trajectories / proposals)


def clusters_by_domain(worlds: Sequence[str]) -> dict[str, list[Cluster]]:
    """The clusters of these worlds' tools by every domain that they serve with calls."""
    found: dict[str, list[Cluster]] = {}
    for cluster in cluster_tools([tool for world in worlds for tool in WORLDS[world].tools]):
        if cluster.world is not None:
            busy = intent_pool(WORLDS[cluster.world], cluster.tool_names).busy
            for domain in sorted({WORLDS[cluster.world].intents[intent].domain for intent in busy}):
                found.setdefault(domain, []).append(cluster)
    return found


def speed(worlds: Sequence[str]) -> Figures:
    """`SPEED_KEYS`: accepted trajectories a second of processor time, with no cell asked and steered by a controller.

    The best of some batches: whatever else the machine does only slows them down."""
    by_domain, rng, divisions = clusters_by_domain(worlds), random.Random(0), DivisionConfig()
    clusters = [cluster for found in by_domain.values() for cluster in found]

    def plain(count: int) -> list[Job]:
        return [Job(f"speed {rng.random()}", (rng.choice(clusters),), None, 0, None, 0.3, divisions) for _ in range(count)]

    warm = [made.simulated.profile.complexity for made in propose(plain(_WARM_UP)) if made.simulated is not None]
    low, high = np.quantile(warm, [1 / 3, 2 / 3])
    bands, controller = Bands(float(low), float(high)), Controller(sorted(by_domain))

    def steered_batch() -> int:
        jobs = [
            Job(
                f"speed {rng.random()}",
                tuple(by_domain[draw.cell.domain][:3]),
                draw.cell,
                controller.failures(draw.cell),
                bands,
                0.3,
                divisions,
                veiled_share=0.3,
                tries=controller.tries(draw.cell.domain),
                else_families=draw.else_families,
                used_modes=controller.used_modes.copy(),
            )
            for draw in controller.draw_round(rng, _BATCH)
        ]
        made = propose(jobs)
        for one in made:
            controller.record(report(one, bands))
        return sum(one.accepted for one in made)

    return {
        "scripted_accepted_per_s": _best_rate(lambda: sum(made.accepted for made in propose(plain(_BATCH)))),
        "scripted_steered_accepted_per_s": _best_rate(steered_batch),
    }


def speed_alone(worlds: Sequence[str]) -> Figures:
    """`speed` in a process of its own: what other sections left in memory slows it down."""
    command = [sys.executable, "-m", "benchmarks.worlds_sections.evolution", *worlds]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def _best_rate(batch: Callable[[], int]) -> float:
    rates = []
    for _ in range(_BATCHES):
        start = time.process_time()
        accepted = batch()
        rates.append(accepted / (time.process_time() - start))
    return max(rates)


def _effective(labels: Iterable[str]) -> float:
    """2^H: how many equally frequent labels would be as diverse."""
    return float(2 ** entropy_bits(Counter(labels).values()))


if __name__ == "__main__":
    print(json.dumps(speed(sys.argv[1:])))

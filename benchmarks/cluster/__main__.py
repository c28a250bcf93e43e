"""Clusters: verl's and ROLL's real classes over our worlds, their stages from launch to policy, the queue of trajectories, and IPA.
`make bench cluster`.

Each section says in its own module what its figures mean. No section needs a GPU; what only a GPU can tell is not measured here.
"""

from __future__ import annotations

from benchmarks.cluster import fake_jobs_run, ipa
from benchmarks.cluster.queue_sections import queue_faults, queue_speed
from benchmarks.cluster.roll_sections import roll_classes
from benchmarks.cluster.verl_sections import verl_classes
from benchmarks.harness import Section, run_sections


def sections() -> list[Section]:
    modules = {
        "verl's classes": verl_classes,
        "ROLL's classes": roll_classes,
        "scripted jobs": fake_jobs_run,
        "the queue among faults": queue_faults,
        "the queue's speed": queue_speed,
        "IPA": ipa,
    }
    return [Section(name, module.KEYS, module.measure, minutes=module.MINUTES) for name, module in modules.items()]


if __name__ == "__main__":
    raise SystemExit(run_sections("cluster", sections()))

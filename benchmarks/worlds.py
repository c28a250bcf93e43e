"""Worlds: compiled domains, clusters of a public catalogue, the sandbox, and the controller over all of them.

domains     generated until 2,000 are admitted: their shapes and tools, tasks drawn in them, what compiling costs
calls       calls a second on one core, over the domains that Headrace ships and generated ones
forks       what a snapshot and its restoring take, and how much of the state a branch costs that changes one row
replay      random calls in every kind of world, repeated by another process from their log; forks must not change their origin
clusters    `benchmarks/worlds_sections/business_clusters.py`: needs the optional test data
steering    the controller compared with the same planner without requested cells, over 200 generated domains, three seeds
speed       accepted scripted conversations a second, on one core
escapes     programs that try to escape from the sandbox, each with a control run without the protection
sandbox     cost of a warm run and of a cold start
"""

from __future__ import annotations

import sys

from benchmarks.harness import Section, run_sections
from benchmarks.worlds_sections import business_clusters, domains, evolution, sandbox

STEERED = 200
"""Generated domains that the controller steers over."""
FAST = ("retail", "banking", "library", "gen-1", "gen-2")
"""Worlds in which scripted conversations are timed."""


def main() -> int:
    sections = [
        Section(
            "domains",
            (
                "domains_tried", "domains_admitted", "domains_distinct_shape", "tools_total", "tasks_drawn", "tasks_solvable_share",
                "compile_ms", "compile_p95_ms",
            ),
            lambda _: domains.domain_figures(),
            minutes=12,
        ),
        Section("calls", ("spec_calls_per_s",), lambda _: domains.call_figures(), minutes=2),
        Section("forks", ("snapshot_restore_ms", "fork_bytes_share"), lambda _: domains.fork_figures(), minutes=2),
        Section("replay", ("replay_sequences", "replay_mismatches"), lambda _: domains.replay_figures(), minutes=5),
        *business_clusters.sections(),
        Section("steering", evolution.STEERING_KEYS, lambda _: evolution.steering(domains.try_domains(STEERED).names), minutes=10),
        Section("speed", evolution.SPEED_KEYS, lambda _: evolution.speed_alone(FAST), minutes=3),
        Section(
            "escapes",
            ("docker_escapes_tried", "docker_escapes_missed", "bwrap_escapes_tried", "bwrap_escapes_missed"),
            lambda _: sandbox.escapes(),
            minutes=10,
        ),
        Section("sandbox", ("docker_exec_ratio", "bwrap_start_ms", "code_calls_per_s"), lambda _: sandbox.costs(), minutes=4),
    ]  # fmt: skip
    return run_sections("worlds", sections)


if __name__ == "__main__":
    sys.exit(main())

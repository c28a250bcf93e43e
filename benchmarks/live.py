"""Real tools as worlds, and our worlds in other harnesses. `make bench live`.

`live_sections/connecting.py`: eight servers that nobody here wrote, and ten that lie.
`live_sections/copies.py`: resets, calls, and copies side by side.
`live_sections/hostile.py`: a server that wants out of its box.
`live_sections/found_plans.py`: tasks that are found by execution.
`live_sections/clusters.py`: catalogues in six forms, and clusters that become worlds.
`live_sections/serving.py`: our worlds as MCP servers.
`live_sections/packages.py`: our tasks in five ecosystems, checked by their own tools.
`live_sections/suites.py`: other people's tasks, their checkers beside our verifier.
`live_sections/context.py`: what the policy sees of a world, and what that costs.
"""

from __future__ import annotations

from benchmarks.harness import Section, run_sections
from benchmarks.live_sections import clusters, connecting, context, copies, found_plans, hostile, packages, serving, suites


def sections() -> list[Section]:
    return [
        Section("connecting", connecting.KEYS, connecting.measure_connecting, minutes=connecting.MINUTES),
        Section("copies", copies.KEYS, copies.measure_copies, minutes=copies.MINUTES),
        Section("hostile servers", hostile.KEYS, hostile.measure_hostile, minutes=hostile.MINUTES),
        Section("plans", found_plans.KEYS, found_plans.measure_plans, minutes=found_plans.MINUTES),
        Section("clusters", clusters.KEYS, clusters.cluster_figures, minutes=5),
        Section("serving", ("episodes_leaking", "served_calls_per_s"), serving.measure, minutes=5),
        Section("suites", suites.KEYS, suites.measure, minutes=8),
        Section("packages", ("packages_ok",), packages.packages, minutes=25),
        Section("context", context.keys(), context.measure, minutes=20),
    ]


if __name__ == "__main__":
    raise SystemExit(run_sections("live", sections()))

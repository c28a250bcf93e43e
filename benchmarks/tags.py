"""Tags that can be trusted: what the verdicts, the probes and the rollouts that they come from are worth.

bfcl       `tags_bfcl.py`: the verdict over BFCL's multi-turn cases, on reference conversations and broken ones
veto       `tags_veto.py`: what the grounding veto finds of invented facts, and takes for invented
trivial    `tags_trivial.py`: what policies are worth that know nothing of a task
certainty  `tags_certainty.py`: static difficulty against a policy's success; what an adaptive probe saves, and how many regions are luck
rollouts   `tags_rollouts.py`: rollouts beside TRL's own, and whether traces are what was sampled
routing    `tags_routing.py`: what a cascade routed by certainty reaches, against routes by static difficulty and by a coin
"""

from __future__ import annotations

import sys

from benchmarks import tags_bfcl, tags_certainty, tags_rollouts, tags_routing, tags_trivial, tags_veto
from benchmarks.harness import Section, run_sections


def sections() -> list[Section]:
    return [
        *tags_bfcl.sections(),
        *tags_veto.sections(),
        *tags_trivial.sections(),
        *tags_certainty.sections(),
        *tags_rollouts.sections(),
        *tags_routing.sections(),
    ]


def main() -> int:
    return run_sections("tags", sections())


if __name__ == "__main__":
    sys.exit(main())

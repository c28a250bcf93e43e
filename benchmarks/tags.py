"""Tags that can be trusted: what the verdicts, the probes and the rollouts that they come from are worth.

bfcl       `bfcl.py`: the verdict over BFCL's multi-turn cases, on reference conversations and broken ones
veto       `veto.py`: what the grounding veto finds of invented facts, and takes for invented
trivial    `trivial.py`: what policies are worth that know nothing of a task
certainty  `certainty.py`: static difficulty against a policy's success; what an adaptive probe saves, and how many regions are luck
rollouts   `rollouts.py`: rollouts beside TRL's own, and whether traces are what was sampled
routing    `routing.py`: what a cascade routed by certainty reaches, against routes by static difficulty and by a coin
"""

from __future__ import annotations

import sys

from benchmarks.harness import Section, run_sections
from benchmarks.tags_sections import bfcl, certainty, rollouts, routing, trivial, veto


def sections() -> list[Section]:
    return [
        *bfcl.sections(),
        *veto.sections(),
        *trivial.sections(),
        *certainty.sections(),
        *rollouts.sections(),
        *routing.sections(),
    ]


def main() -> int:
    return run_sections("tags", sections())


if __name__ == "__main__":
    sys.exit(main())

"""Quality of tags: of the verdicts, probes and rollouts that they come from.

bfcl       `bfcl.py`: the verdict over BFCL's multi-turn cases, on reference conversations and broken ones
veto       `veto.py`: recall and false positives of the grounding veto on invented facts
trivial    `trivial.py`: reward of policies that ignore the task
certainty  `certainty.py`: static difficulty against a policy's success; rollouts that an adaptive probe
           saves, and regions that change in a second probe
rollouts   `rollouts.py`: speed of rollouts compared with TRL's, and whether traces equal the sampled tokens
"""

from __future__ import annotations

import sys

from benchmarks.harness import Section, run_sections
from benchmarks.tags_sections import bfcl, certainty, rollouts, trivial, veto


def sections() -> list[Section]:
    return [
        *bfcl.sections(),
        *veto.sections(),
        *trivial.sections(),
        *certainty.sections(),
        *rollouts.sections(),
    ]


def main() -> int:
    return run_sections("tags", sections())


if __name__ == "__main__":
    sys.exit(main())

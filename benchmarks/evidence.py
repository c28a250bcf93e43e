"""Whether this data makes better agents, and what each part of it bought: the figures of docs/experiment.md and docs/ladder.md."""

from __future__ import annotations

import sys

from benchmarks.harness import run_sections


def main() -> int:
    from benchmarks.experiment.sections import sections

    return run_sections("evidence", sections())


if __name__ == "__main__":
    sys.exit(main())

"""Whether this data makes better agents, and what each part of it bought: the figures of docs/experiment.md and docs/ladder.md."""

from __future__ import annotations

import sys

from benchmarks.harness import run_sections


def main() -> int:
    from benchmarks.experiment.cells import Cells
    from benchmarks.experiment.plots import draw
    from benchmarks.experiment.sections import sections

    code = run_sections("evidence", sections())
    draw(Cells())
    return code


if __name__ == "__main__":
    sys.exit(main())

"""Which worlds can a tiny policy learn in? `headrace worlds learn` over all worlds of the library, and generated ones.

Nobody chose the generated worlds: they are the first `GENERATED` admitted ones from `gen-7000` on, which no setting of the command was
tried on.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from functools import lru_cache

import numpy as np

from benchmarks.experiment.cells import Cells, Result, work
from benchmarks.harness import Deadline, Figures
from synth.blueprints import single_goal
from synth.worlds import WORLDS, admitted_names
from synth.worlds.declarative.library_worlds import library_specs
from train.proxy.learnable import LearnConfig, learn_world

GENERATED = 34
"""To be raised to measure more of them: a world takes three to four CPU minutes."""
_FIRST = 7_000
KEYS = (
    "worlds_learnable_share",
    "worlds_learnable_share_library",
    "learn_minutes_median",
    "learn_controls_risen",
    "intents_moved_share",
    "intents_fell_share",
)


@dataclass(frozen=True)
class LearnCell:
    """A world, as `headrace worlds learn` trains in it. drills: version of the code that draws its tasks."""

    world: str
    drills: int = single_goal.VERSION


@lru_cache(maxsize=1)
def generated() -> tuple[str, ...]:
    return admitted_names([f"gen-{_FIRST}..{_FIRST + 2 * GENERATED}"])[:GENERATED]


def library() -> tuple[str, ...]:
    return tuple(sorted(library_specs()))


def run(cell: LearnCell) -> Result:
    learned = learn_world(WORLDS[cell.world], LearnConfig())
    assert learned.control_gain is not None
    return {
        "before": learned.before,
        "after": learned.after,
        "climbs": learned.climbs,
        "gain": list(asdict(learned.gain).values()),
        "control_gain": list(asdict(learned.control_gain).values()),
        "curve": list(learned.curve),
        "fell": round(learned.fell_share * sum(one.reason != "unmeasured" for one in learned.intents)),
        "reasons": dict(Counter(one.reason for one in learned.intents)),
        "stuck": {one.intent: one.reason for one in learned.intents if one.reason not in ("moved", "mastered", "unmeasured")},
        "minutes": learned.cpu_s / 60,
    }


def measure(deadline: Deadline) -> Figures:
    cells = Cells()
    work([LearnCell(world) for world in (*library(), *generated())], run, cells, deadline, minutes=5)
    return figures(cells)


def figures(cells: Cells) -> Figures:
    """`learn_controls_risen`: worlds whose control rose by more than chance, as a share. Minutes are of the CPU."""
    of_library, of_generated = ([cells[LearnCell(world)] for world in worlds] for worlds in (library(), generated()))
    every = [*of_library, *of_generated]
    reasons = sum((Counter(one["reasons"]) for one in every), Counter[str]())
    measured = sum(reasons.values()) - reasons["unmeasured"]
    return {
        "worlds_learnable_share": float(np.mean([one["climbs"] for one in of_generated])),
        "worlds_learnable_share_library": float(np.mean([one["climbs"] for one in of_library])),
        "learn_minutes_median": float(np.median([one["minutes"] for one in every])),
        "learn_controls_risen": float(np.mean([one["control_gain"][1] > 0 for one in every])),
        "intents_moved_share": (reasons["moved"] + reasons["mastered"]) / measured,
        "intents_fell_share": sum(one["fell"] for one in every) / measured,
    }

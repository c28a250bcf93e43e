"""Does `headrace value` predict what a mixture is worth? On a synthesised store, by world and by mode family.

The regression on square roots was chosen on another store, of the worlds library, hotel, clinic, school, telecom and logistics.
"""

from __future__ import annotations

from typing import Literal

from benchmarks.experiment.cells import VERSION, WORK
from benchmarks.harness import Deadline, Figures
from storage.records import content_id
from storage.store import Store
from synth.run.config import SynthesisConfig
from synth.run.synthesize import synthesize
from train.proxy.source_value import ValueConfig, value_sources

WORLDS = ("banking", "helpdesk", "hotel", "retail", "school", "telecom")
ACCEPTED = 900
KEYS = ("value_rank", "value_minutes", "value_rank_modes", "value_minutes_modes")


def measure(deadline: Deadline) -> Figures:
    config = SynthesisConfig.model_validate({"worlds": WORLDS, "accepted": ACCEPTED, "chinese_share": 0.0, "code_share": 0.0})
    store = Store(WORK / "value" / content_id("value", VERSION, config.model_dump(mode="json")) / "store")
    deadline.allows(5)
    synthesize(store, config)
    found: Figures = {}
    by: Literal["world", "mode"]
    for by, suffix in (("world", ""), ("mode", "_modes")):
        deadline.allows(30)
        value, _ = value_sources(store, ValueConfig(by=by))
        found |= {f"value_rank{suffix}": value.rank, f"value_minutes{suffix}": value.minutes}
    return found

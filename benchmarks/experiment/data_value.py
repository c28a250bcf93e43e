"""Does `headrace value` predict what a mixture is worth? On a synthesised store, by world and by mode family.

The regression on square roots was chosen on another store, of the worlds library, hotel, clinic, school, telecom and logistics.
"""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.experiment.cells import VERSION, WORK
from benchmarks.harness import Deadline, Figures
from storage.records import content_id
from storage.store import Store
from synth.run.config import SynthesisConfig
from synth.run.evolution.source_weights import SourceKind
from synth.run.synthesize import synthesize
from train.proxy.source_value import ValueConfig, value_sources

WORLDS = ("banking", "helpdesk", "hotel", "retail", "school", "telecom")
ACCEPTED = 900
_SUFFIXES: Mapping[SourceKind, str] = {"world": "", "mode": "_modes"}
KEYS = (
    *(f"value_{name}{suffix}" for name in ("rank", "minutes", "sources_gaining", "sources_losing") for suffix in _SUFFIXES.values()),
    *(f"value_gain_{world}{end}" for world in WORLDS for end in ("", "_lo95", "_hi95")),
)


def measure(deadline: Deadline) -> Figures:
    """`value_gain_WORLD`: fall of the held-out loss per 10,000 tokens, thousandths of a nat. A source gains or loses if 0 is outside its
    interval."""
    config = SynthesisConfig.model_validate({"worlds": WORLDS, "accepted": ACCEPTED, "chinese_share": 0.0, "code_share": 0.0})
    folder = WORK / "value" / content_id("value", VERSION, config.model_dump(mode="json"))
    store, whole = Store(folder / "store"), folder / "whole"
    if not whole.exists():
        deadline.allows(5)
        synthesize(store, config)
        whole.touch()
    figures: Figures = {}
    for by, suffix in _SUFFIXES.items():
        deadline.allows(30)
        value, _ = value_sources(store, ValueConfig(by=by))
        figures |= {f"value_rank{suffix}": value.rank, f"value_minutes{suffix}": value.minutes}
        figures[f"value_sources_gaining{suffix}"] = float(sum(gain.low > 0 for gain in value.gains))
        figures[f"value_sources_losing{suffix}"] = float(sum(gain.high < 0 for gain in value.gains))
        if by == "world":
            for gain in value.gains:
                ends = {"": gain.gain, "_lo95": gain.low, "_hi95": gain.high}
                figures |= {f"value_gain_{gain.source}{end}": 1000 * number for end, number in ends.items()}
    return figures

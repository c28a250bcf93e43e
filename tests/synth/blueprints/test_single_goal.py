"""Drills: every intent of a world has its turns, however many intents there are."""

from __future__ import annotations

from collections import Counter

import pytest

from synth.blueprints.single_goal import _intents, draw_drills
from synth.tasks.split import STANDARD
from synth.worlds import WORLDS


@pytest.mark.parametrize("name", ["banking", "school"])  # 36 and 38 acting intents: with 4, the turns of others, they share a divisor
def test_every_intent_has_turns(name: str) -> None:
    intents = _intents(WORLDS[name], programs=False)

    drawn = Counter(drill.task.intent for drill in draw_drills(WORLDS[name], 160, [], STANDARD, seed=0))

    acting = {intent.name for intent in intents if intent.refusal is None and not intent.needs_no_tool}
    assert len(acting) % 2 == 0
    assert acting <= set(drawn)
    assert max(drawn[intent] for intent in acting) - min(drawn[intent] for intent in acting) <= 1 + 160 // 40
    assert sum(count for intent, count in drawn.items() if intent not in acting) <= 40

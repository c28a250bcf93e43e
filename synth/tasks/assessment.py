"""The share of a world's tasks that are admitted: draws tasks as the pipeline does, and admits each or counts the reason of its refusal.

`headrace worlds check` and the gate of written specs decide by it whether a world is fit for use. It keeps no task.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from storage.records import Frame, Language
from synth.tasks.solver import NotAdmitted, admit, draw_seed
from synth.tasks.wording import render
from synth.worlds.base import World

_OPTIONAL_SHARE = 0.35


@dataclass(slots=True)
class Assessment:
    """Counts of drawn tasks.

    tried, solvable: tasks that were drawn, and of them admitted.
    admitted: intent -> tasks admitted.
    refused: "intent: reason" -> tasks refused.
    requests: language -> requests of admitted tasks.
    """

    tried: int = 0
    solvable: int = 0
    admitted: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    requests: dict[Language, list[str]] = field(default_factory=dict)

    @property
    def share(self) -> float:
        """Share of drawn tasks that were admitted."""
        return self.solvable / self.tried if self.tried else 0.0


def assess(world: type[World], draws: int, *, seed: int) -> Assessment:
    """Draws tasks of a world and admits each (`solver.admit`): intents in turn, optional slots at random, its languages in turn.

    draws: how many tasks are drawn.
    """
    rng = random.Random(f"assess/{world.name}/{seed}")
    intents, assessment = list(world.jobs()), Assessment()
    rng.shuffle(intents)
    for turn in range(draws):
        intent, language = intents[turn % len(intents)], world.languages[turn % len(world.languages)]
        names = frozenset(slot.name for slot in intent.slots if slot.is_required or rng.random() < _OPTIONAL_SHARE)
        world_seed = draw_seed(rng, "train")
        frame = Frame(world=world.name, intent=intent.name, slots=world(world_seed).draw_slots(intent.name, names, rng))
        text = render(world, frame, language, rng)
        assessment.tried += 1
        try:
            admit(world, frame, text=text, language=language, seed=world_seed, division="seed")
        except NotAdmitted as refused:
            assessment.refused[f"{intent.name}: {refused}"] += 1
            continue
        assessment.solvable += 1
        assessment.admitted[intent.name] += 1
        assessment.requests.setdefault(language, []).append(text)
    return assessment

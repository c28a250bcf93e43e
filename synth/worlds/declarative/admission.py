"""Which of a domain's intents are any good: each is tried in a few fixed seeds, drawn as the pipeline draws it.

One idea: what cannot be drawn and solved nearly always is left out, with the reason, before anybody plans with it; so a task of an
admitted domain is solvable. A spec with a business rule that is never in anybody's way, or without a single solvable act, is refused.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from storage.records import Frame, Language
from synth.worlds.base import Unsolvable
from synth.worlds.declarative.domain import Domain
from synth.worlds.declarative.intents.acts import Doing
from synth.worlds.declarative.intents.base import SpecIntent
from synth.worlds.declarative.intents.questions import Asking, Counting, Finding
from synth.worlds.declarative.intents.row_references import Owned, Picked
from synth.worlds.declarative.language.problems import Problem
from synth.worlds.declarative.state import State, open_base

if TYPE_CHECKING:
    from synth.worlds.declarative.compiled_world import SpecWorld

SEEDS = (0, 1, 2, 4)
"""Training seeds in which intents are tried: an act by ids, or a rule in its way, until one suits; all others in some of them until one
does not."""
_LANGUAGES: tuple[Language, Language] = ("en", "zh")
_OPTIONAL_SHARE = 0.35


def tried(domain: Domain, intents: Sequence[SpecIntent]) -> dict[str, str]:
    """Why intents cannot be offered, by name."""
    refused: dict[str, str] = {}
    states = [State(open_base(domain, seed)) for seed in SEEDS]
    rng = random.Random(17)
    for intent in intents:
        is_basic = isinstance(intent, Doing) and (intent.against or intent.name == intent.act.name)
        problem: str | None = None
        for at, state in enumerate(states[: len(SEEDS) if is_basic else _trials(intent)]):
            problem = _problem(intent, state, rng, at, is_solved=at == 0 or bool(is_basic))
            if (problem is None) == bool(is_basic):
                break
        if problem is not None:
            refused[intent.name] = problem
    return refused


def _trials(intent: SpecIntent) -> int:
    """In how many seeds an intent is tried: how its rows are named says how seldom there are such."""
    finders = intent.finders.values() if isinstance(intent, Doing) else [intent.finder] if isinstance(intent, (Asking, Finding)) else []
    if any(isinstance(finder, Picked) for finder in finders):
        return 3
    return 2 if isinstance(intent, Counting) or any(isinstance(finder, Owned) for finder in finders) else 1


def _problem(intent: SpecIntent, state: State, rng: random.Random, at: int, *, is_solved: bool) -> str | None:
    """Why an intent cannot be drawn in state number `at`, or the draw cannot be solved (where it `is_solved`): in the second state it has
    its optional slots, where there are rows that have them all."""
    required = frozenset(slot.name for slot in intent.slots if slot.is_required)
    every = frozenset(slot.name for slot in intent.slots)
    slots = intent.draw(state, every, {}, rng) if at == 1 and every != required else None
    if slots is None:
        slots = intent.draw(state, required, {}, rng)
    if slots is None:
        return f"nothing in the world of seed {state.base.seed} suits it"
    if is_solved:
        try:
            intent.plan(state, slots, "en")
        except Unsolvable as unsolvable:
            return unsolvable.detail
    return None


def problems_of(domain: Domain, intents: Sequence[SpecIntent], refused: dict[str, str]) -> list[Problem]:
    """What makes the whole spec unusable: a rule that traps nobody, or no act that can be done."""
    found = []
    for intent in intents:
        if isinstance(intent, Doing) and intent.against and intent.name in refused:
            path = f"actions.{intent.act.name}.rules.{intent.against}"
            found.append(
                Problem(
                    path,
                    f"no task with this rule in the way ({refused[intent.name]}); let some rows break it while all else about them fits",
                )
            )
    acts = {intent.act.name for intent in intents if isinstance(intent, Doing) and not intent.against and intent.name not in refused}
    for name in domain.acts:
        if name not in acts:
            reason = refused.get(name, "it has no intent")
            found.append(Problem(f"actions.{name}", f"can hardly ever be done ({reason}); let more rows fit what it needs"))
    return found


@dataclass(slots=True)
class Assessment:
    """Tasks drawn as the pipeline draws them. admitted: by intent. refused: why, with the intent. requests: some that were admitted, by
    language."""

    tried: int = 0
    solvable: int = 0
    admitted: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    requests: dict[Language, list[str]] = field(default_factory=lambda: {"en": [], "zh": []})

    @property
    def share(self) -> float:
        """Of the tasks that were drawn, those that were admitted."""
        return self.solvable / self.tried if self.tried else 0.0


def assess(world: type[SpecWorld], draws: int, *, seed: int) -> Assessment:
    """Draws `draws` tasks of a world, intents in turn, optional slots at random, both languages in turn, and admits each (`solver.admit`).

    The world is registered where it is not known by name already.
    """
    from synth.tasks.solver import NotAdmitted, admit, draw_seed
    from synth.tasks.wording import render
    from synth.worlds import WORLDS, make_world

    if world.name not in WORLDS:
        WORLDS.register(world)
    rng = random.Random(f"assess/{world.name}/{seed}")
    intents, found = list(world.jobs()), Assessment()
    rng.shuffle(intents)
    for turn in range(draws):
        intent, language = intents[turn % len(intents)], _LANGUAGES[turn % 2]
        names = frozenset(slot.name for slot in intent.slots if slot.is_required or rng.random() < _OPTIONAL_SHARE)
        place = draw_seed(rng, "train")
        frame = Frame(world=world.name, intent=intent.name, slots=make_world(world.name, place).draw_slots(intent.name, names, rng))
        text = render(frame, language, rng)
        found.tried += 1
        try:
            admit(frame, text=text, language=language, seed=place, division="seed")
        except NotAdmitted as refused:
            found.refused[f"{intent.name}: {refused}"] += 1
            continue
        found.solvable += 1
        found.admitted[intent.name] += 1
        found.requests[language].append(text)
    return found

"""Which of a domain's intents are any good: each is tried in a few fixed seeds, drawn as the pipeline draws it.

One idea: what cannot be drawn and solved nearly always is left out, with the reason, before anybody plans with it; so a task of an
admitted domain is solvable. A spec with a business rule that is never in anybody's way, or without a single solvable act, is refused.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from synth.worlds.base import Unsolvable
from synth.worlds.spec.domain import Domain
from synth.worlds.spec.intents.acts import Doing
from synth.worlds.spec.intents.base import SpecIntent
from synth.worlds.spec.schema import Problem
from synth.worlds.spec.state import State, open_base

SEEDS = (0, 1, 2, 4, 5)
"""Training seeds in which every intent is tried."""


def tried(domain: Domain, intents: Sequence[SpecIntent]) -> dict[str, str]:
    """Why intents cannot be offered, by name."""
    found: dict[str, str] = {}
    states = [State(open_base(domain, seed)) for seed in SEEDS]
    for intent in intents:
        problem = _problem(intent, states)
        if problem is not None:
            found[intent.name] = problem
    return found


def _problem(intent: SpecIntent, states: Sequence[State]) -> str | None:
    required = frozenset(slot.name for slot in intent.slots if slot.is_required)
    every = frozenset(slot.name for slot in intent.slots)
    for turn, state in enumerate(states):
        names = every if turn == 1 else required
        rng = random.Random(turn)
        slots = intent.draw(state, names, {}, rng)
        if slots is None and names != required:
            slots = intent.draw(state, required, {}, rng)
        if slots is None:
            return f"nothing in the world of seed {state.base.seed} suits it"
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

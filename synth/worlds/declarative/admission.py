"""Which of a domain's intents are any good: each is tried in a few fixed seeds, drawn as the pipeline draws it.

One idea: what cannot be drawn and solved nearly always is left out, with the reason, before anybody plans with it; so a task of an
admitted domain is solvable. A spec with a business rule that is never in anybody's way, or without a single solvable act, is refused.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from synth.worlds.base import Unsolvable
from synth.worlds.declarative.domain import Domain
from synth.worlds.declarative.intents.acts import ActIntent
from synth.worlds.declarative.intents.base import SpecIntent
from synth.worlds.declarative.intents.questions import Counting, Finding, QuestionIntent
from synth.worlds.declarative.intents.row_references import Owned, Picked
from synth.worlds.declarative.intents.spec_jobs import Scripted
from synth.worlds.declarative.language.problems import Problem
from synth.worlds.declarative.state import State, open_base

SEEDS = (0, 1, 2, 4)
"""Training seeds in which intents are tried: an act by ids, a rule in its way, or a job of the spec's own, until one suits; all others in
some of them until one does not."""


def try_intent(domain: Domain, intents: Sequence[SpecIntent]) -> dict[str, str]:
    """Why intents cannot be offered, by name."""
    refused: dict[str, str] = {}
    states = [State(open_base(domain, seed)) for seed in SEEDS]
    rng = random.Random(17)
    for intent in intents:
        is_basic = isinstance(intent, Scripted) or (isinstance(intent, ActIntent) and (intent.against or intent.name == intent.act.name))
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
    finders = (
        intent.finders.values()
        if isinstance(intent, ActIntent)
        else [intent.finder]
        if isinstance(intent, (QuestionIntent, Finding))
        else []
    )
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
    problems = []
    for intent in intents:
        if isinstance(intent, ActIntent) and intent.against and intent.name in refused:
            path = f"actions.{intent.act.name}.rules.{intent.against}"
            problems.append(
                Problem(
                    path,
                    f"no task with this rule in the way ({refused[intent.name]}); let some rows break it while all else about them fits",
                )
            )
        if isinstance(intent, Scripted) and intent.name in refused:
            problems.append(Problem(f"intents.{intent.name}", f"can hardly ever be done ({refused[intent.name]}); let more rows fit it"))
    able = [intent for intent in intents if intent.name not in refused]
    acts = {intent.act.name for intent in able if isinstance(intent, ActIntent) and not intent.against}
    acts |= {name for intent in able if isinstance(intent, Scripted) for name in intent.acts}
    for name in domain.acts:
        if name not in acts:
            reason = refused.get(name, "it has no intent")
            problems.append(Problem(f"actions.{name}", f"can hardly ever be done ({reason}); let more rows fit what it needs"))
    return problems

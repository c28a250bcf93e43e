"""Which intents of a domain are admitted: each is drawn and solved in a few fixed seeds, as the pipeline does it.

One idea: an intent whose tasks can often not be drawn or solved is left out, with the reason, so tasks of an admitted domain are solvable.
A spec is refused if a business rule forbids no task of its action, or an action can never be done.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from synth.worlds.base import Unsolvable
from synth.worlds.declarative.admission_reasons import explain
from synth.worlds.declarative.domain import Domain
from synth.worlds.declarative.intents.acts import ActIntent
from synth.worlds.declarative.intents.base import SpecIntent
from synth.worlds.declarative.intents.questions import BestQuestion, CountQuestion, QuestionIntent
from synth.worlds.declarative.intents.row_references import BestReference, OwnedReference, RowReference
from synth.worlds.declarative.intents.spec_jobs import ScriptedIntent
from synth.worlds.declarative.language.problems import ROOT, Problem
from synth.worlds.declarative.rows.state import State, fresh_state

SEEDS = (0, 1, 2, 4)
"""Training seeds in which intents are tried. Basic intents (an action by ids, a rule that forbids it, an intent of the spec) need one seed
in which they can be solved; the others are tried in the first one to three seeds, and must be drawable in each."""
NOTHING_SUITS = "no rows of a fresh world suit it"


def try_intents(domain: Domain, intents: Sequence[SpecIntent]) -> dict[str, str]:
    """The intents that are not admitted, by name, with the reason."""
    refused: dict[str, str] = {}
    states = [State(fresh_state(domain, seed)) for seed in SEEDS]
    rng = random.Random(17)
    for intent in intents:
        is_basic = isinstance(intent, ScriptedIntent) or (
            isinstance(intent, ActIntent) and (bool(intent.against) or intent.name == intent.act.name)
        )
        problem: str | None = None
        for at, state in enumerate(states[: len(SEEDS) if is_basic else _trials(intent)]):
            problem = _problem(intent, state, rng, at, is_solved=at == 0 or is_basic)
            if (problem is None) == is_basic:
                break
        if problem is not None:
            refused[intent.name] = problem
    return refused


def _trials(intent: SpecIntent) -> int:
    """The number of seeds in which an intent is tried: more for references that fit few rows."""
    references: list[RowReference] = []
    if isinstance(intent, ActIntent):
        references = [*intent.references.values()]
    elif isinstance(intent, (QuestionIntent, BestQuestion)):
        references = [intent.reference]
    if any(isinstance(each, BestReference) for each in references):
        return 3
    return 2 if isinstance(intent, CountQuestion) or any(isinstance(each, OwnedReference) for each in references) else 1


def _problem(intent: SpecIntent, state: State, rng: random.Random, at: int, *, is_solved: bool) -> str | None:
    """Why an intent cannot be drawn or solved in a state; None if it can.

    at: number of the state; in the second one the draw has all optional slots if rows fit them.
    is_solved: whether the draw is also solved.
    """
    required = frozenset(slot.name for slot in intent.slots if slot.is_required)
    every = frozenset(slot.name for slot in intent.slots)
    slots = intent.draw(state, every, {}, rng) if at == 1 and every != required else None
    if slots is None:
        slots = intent.draw(state, required, {}, rng)
    if slots is None:
        return NOTHING_SUITS
    if is_solved:
        try:
            intent.plan(state, slots, "en")
        except Unsolvable as unsolvable:
            return unsolvable.detail
    return None


_UNUSED = "no intent of the file can be done with it; let an intent `do` it, or leave it out"


def problems_of(domain: Domain, intents: Sequence[SpecIntent], refused: dict[str, str]) -> list[Problem]:
    """The problems for which the spec is refused: a rule that forbids no task, an intent of the spec or an action that fits no rows."""
    problems = []
    admitted = [intent for intent in intents if intent.name not in refused]
    acts = {intent.act.name for intent in admitted if isinstance(intent, ActIntent) and not intent.against}
    acts |= {name for intent in admitted if isinstance(intent, ScriptedIntent) for name in intent.acts}
    state = State(fresh_state(domain, SEEDS[0]))
    for name, act in domain.acts.items():
        if name not in acts:
            reason = refused.get(name, NOTHING_SUITS)
            reason = explain(domain, act, state) if reason == NOTHING_SUITS else reason
            what = f"can hardly ever be done: {reason}" if domain.spec.head.combined else _UNUSED
            problems.append(Problem(f"actions.{name}", what, ROOT))
    for intent in intents:
        if isinstance(intent, ActIntent) and intent.against and intent.name in refused and intent.act.name in acts:
            path, reason = f"actions.{intent.act.name}.rules.{intent.against}", refused[intent.name]
            reason = explain(domain, intent.act, state, intent.against) if reason == NOTHING_SUITS else reason
            problems.append(Problem(path, f"forbids no task: {reason}"))
        if isinstance(intent, ScriptedIntent) and intent.name in refused:
            problems.append(Problem(f"intents.{intent.name}", f"can hardly ever be done ({refused[intent.name]}); let more rows fit it"))
    return problems

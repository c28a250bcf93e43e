"""Which decisions of an assistant nothing that it sees asks for.

A decision that follows from nothing in the conversation is a coin flip, and training on it teaches noise. Each of these needs a cue: a
question (a value that the request leaves open, or the wish to be asked first), calls that are made together, a call that is made again.
A turn that erred is context, and never learned, so it needs none.
"""

from __future__ import annotations

from collections.abc import Sequence

from storage.conversation import Step, derive_turns
from storage.records import Message
from synth.blueprints.blueprint import Blueprint, TurnPlan
from synth.blueprints.phrases import says_cue
from synth.blueprints.schedule import Cue


def uncued_turns(blueprint: Blueprint, messages: Sequence[Message]) -> tuple[int, int]:
    """(messages of the assistant without a cue that they need, all messages of the assistant that are learned) in an executed conversation.

    blueprint: its plan; a user that is a model says the plan's turns in its own words.
    """
    uncued = learned = 0
    heard: list[str] = []
    for turn, plan in zip(derive_turns(messages), blueprint.turns, strict=False):
        heard = [*heard, turn.user] if _continues(blueprint, plan) else [turn.user]
        for step in turn.steps:
            if any(call.status == "error" for call in step.calls):
                continue
            learned += 1
            uncued += not _has_cue(step, plan, heard)
    return uncued, learned


def _continues(blueprint: Blueprint, plan: TurnPlan) -> bool:
    """Whether a turn belongs to the request before it: it reveals, agrees, or asks to look again."""
    before = blueprint.turns[plan.t - 1] if plan.t else None
    if before is None or before.settles:
        return False
    return not any(blueprint.goals[blueprint.nodes[n].goal].is_abandoned for step in before.steps for n in step)


def _has_cue(step: Step, plan: TurnPlan, heard: Sequence[str]) -> bool:
    if len(step.calls) > 1:
        return _said(heard, "together")
    if step.mode == "V":
        return _said(heard, "double_check")
    if step.mode == "A":
        return bool(plan.withholds) or _said(heard, "ask_first")
    return True


def _said(heard: Sequence[str], cue: Cue) -> bool:
    return any(says_cue(text, cue) for text in heard)

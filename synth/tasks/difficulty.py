"""Static difficulty of a query or task: r in {-1, 0, 1..5}, from the shape of its plan and its constraints, without a model.

-1: to be refused (a rule, a missing tool or piece of information, nothing to act on). 0: answered without a call.
Otherwise r = clip(round(0.3 s_tool + 0.4 s_chain + 0.3 s_constraints), 1, 5), halves rounded up:
  s_tool         distinct tools of the plan shape (1..4), + 1 if the text names none of them (`World.tool_words`)
  s_chain        calls 1 / 2 / 3-4 / 5-7 / >= 8 -> 1..5, + 1 (at most 5) if the longest chain of dependent calls is >= 4
  s_constraints  checkable constraints 0-1 / 2 / 3 / 4-5 / >= 6 -> 1..5, + 1 (at most 5) if two of them conflict
Intent and slot *names* decide everything, so a caller with many rows rates each combination once (`rate`).
Source: definition P6 (after STAgent's execution-simulation scoring). A language model may judge s_tool instead
(`filters/steps/tool_load.py`, `with_tool_load`).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass

from storage.records import Frame
from synth.text.claims import has_word, normalise
from synth.worlds.base import Shape, World, cached_per_world

_CALL_BINS = (1, 2, 4, 7)
"""Upper ends of the bins of s_chain 1..4; beyond the last it is 5."""
_CONSTRAINT_BINS = (1, 2, 3, 5)
DEEP_CHAIN = 4


@dataclass(frozen=True, slots=True)
class Difficulty:
    """r as above; the three scores are 0 where r is -1 or 0."""

    r: int
    s_tool: int = 0
    s_chain: int = 0
    s_constraints: int = 0


def score_shape(shape: Shape, constraints: int, *, has_conflict: bool, names_a_tool: bool) -> Difficulty:
    """The rating of a non-empty plan shape with this many checkable constraints."""
    is_deep = shape.depth >= DEEP_CHAIN
    return score_counts(
        len(set(shape.tools)), len(shape.calls), constraints, has_conflict=has_conflict, is_deep=is_deep, names_a_tool=names_a_tool
    )


def score_counts(
    tools: int, calls: int, constraints: int, *, has_conflict: bool, is_deep: bool = False, names_a_tool: bool = True
) -> Difficulty:
    """The rating of so many distinct tools, calls and constraints; is_deep: the longest chain of dependent calls is at least DEEP_CHAIN."""
    s_tool = min(4, tools) + (not names_a_tool)
    s_chain = min(5, 1 + bisect_left(_CALL_BINS, calls) + is_deep)
    s_constraints = min(5, 1 + bisect_left(_CONSTRAINT_BINS, constraints) + has_conflict)
    return _difficulty_of(s_tool, s_chain, s_constraints)


def with_tool_load(rating: Difficulty, s_tool: int) -> Difficulty:
    """The rating with another tool load, 1 to 5; r = -1 and r = 0 are returned unchanged."""
    return _difficulty_of(s_tool, rating.s_chain, rating.s_constraints) if rating.r >= 1 else rating


def _difficulty_of(s_tool: int, s_chain: int, s_constraints: int) -> Difficulty:
    weighted = 0.3 * s_tool + 0.4 * s_chain + 0.3 * s_constraints
    return Difficulty(max(1, min(5, math.floor(weighted + 0.5 + 1e-9))), s_tool, s_chain, s_constraints)


@cached_per_world(maxsize=65536)
def rate(world: type[World], intent: str, slot_names: frozenset[str], names_a_tool: bool) -> Difficulty:
    """The rating of a combination of intent and slot names."""
    declared = world.intents[intent]
    if declared.refusal is not None:
        return Difficulty(-1)
    shape = declared.shape(slot_names)
    if declared.needs_no_tool or not shape.calls:
        return Difficulty(0)
    return score_shape(shape, declared.constraints(slot_names), has_conflict=declared.has_conflict(slot_names), names_a_tool=names_a_tool)


@cached_per_world(maxsize=4096)
def tool_words(world: type[World], intent: str, slot_names: frozenset[str]) -> tuple[str, ...]:
    """The words that name a tool of this combination's plan outright."""
    tools = world.intents[intent].shape(slot_names).tools
    return tuple(dict.fromkeys(word for tool in tools for word in world.tool_words.get(tool, ())))


def names_a_tool(text: str, words: tuple[str, ...]) -> bool:
    """Whether the text contains one of the words."""
    plain = normalise(text)
    return any(has_word(plain, word) for word in words)


def difficulty(world: type[World], frame: Frame, text: str | None = None) -> Difficulty:
    """The rating of a frame of this world worded as `text`; without a text it counts as naming its tools."""
    slot_names = frozenset(frame.slots)
    is_explicit = text is None or names_a_tool(text, tool_words(world, frame.intent, slot_names))
    return rate(world, frame.intent, slot_names, is_explicit)

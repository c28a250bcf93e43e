"""The synthesised part of the seed split: accepted conversations of the store, as they are, chosen for what they cover.

Conversations are taken greedily by coverage per token: what a conversation adds to the sum of sqrt(count) over tools that change the state
(weight 1), tools that read (.4) and kinds of decisions (1; modes A, P, R, V, N, X), divided by its length. Those with a decision that has
no cue are left out, and those that are no task, or that show what is kept for evaluation.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from storage.records import Language, Message, Task
from storage.releases.release import ReleaseItem
from storage.store import Store
from synth.blueprints.blueprint import Blueprint
from synth.conversations.conversation_task import rate_difficulty
from synth.conversations.cues import uncued_turns
from synth.worlds import WORLDS
from train.data.task_pool import is_for_evaluation

ACTING, READING, DECISION = 1.0, 0.4, 1.0
DECISIONS = frozenset("APRVNX")
_TOKEN = re.compile(r"\w+|[^\w\s]+")


@dataclass(frozen=True, slots=True)
class _Candidate:
    """weights: what it covers -> weight. tokens: rough length."""

    item: ReleaseItem
    weights: dict[str, float]
    tokens: int


def synthesised_conversations(
    store: Store, *, worlds: Sequence[str], language: Language, max_difficulty: int, max_tokens: int, count: int
) -> list[ReleaseItem]:
    """At most `count` accepted conversations in these worlds and this language (or a world's own, if it lacks it), in order of choice.

    Args:
        max_difficulty: highest static difficulty of all goals together.
        max_tokens: longest conversation, in words and signs (`rough_tokens`).
    """
    rows = store.query(
        """SELECT trajectory_id, k.spec AS task, t.world, tools_used, mode_coarse, t.messages, b.spec
           FROM trajectories t JOIN blueprints b USING (blueprint_id) JOIN tasks k USING (task_id)
           WHERE accepted AND t.cluster_id IS NOT NULL AND round >= 0 AND list_contains(?, t.world || '/' || t.language)
           ORDER BY trajectory_id""",
        [[f"{world}/{WORLDS[world].language_near(language)}" for world in worlds]],
    )
    candidates: list[_Candidate] = []
    for item, task_spec, world, tools, modes, text, spec in rows.iter_rows():
        task = Task.model_validate_json(task_spec)
        blueprint, messages = Blueprint.model_validate_json(spec), [Message.model_validate(one) for one in json.loads(text)]
        tokens = rough_tokens(messages)
        is_fit = rate_difficulty(blueprint) <= max_difficulty and tokens <= max_tokens and not is_for_evaluation(task)
        if is_fit and not uncued_turns(blueprint, messages)[0]:
            candidates.append(_Candidate(ReleaseItem("trajectory", item, task.id), _covered(world, tools, modes), tokens))
    return [candidate.item for candidate in _choose(candidates, count)]


def explain_shortage(store: Store, *, worlds: Sequence[str], language: Language) -> str:
    """Why `synthesised_conversations` found none, and what to do."""
    rows = store.query("SELECT DISTINCT world, language FROM trajectories WHERE accepted AND cluster_id IS NOT NULL ORDER BY 1, 2").rows()
    languages = {spoken for world, spoken in rows if world in worlds}
    named, elsewhere = ", ".join(worlds), ", ".join(dict.fromkeys(world for world, _ in rows))
    if language in languages:
        return (
            f"no accepted conversation in {named} is short and easy enough: raise train.max_difficulty, or set train.synthesised_share to 0"
        )
    if languages:
        return f"train.language is {language}, but the conversations in {named} are in {', '.join(sorted(languages))}: set train.language"
    if rows:
        return f"train.worlds is {named}, but the accepted conversations are in {elsewhere}: name these in train.worlds"
    return f"no accepted conversation in {named}: run `headrace synthesize` on this store, or set train.synthesised_share to 0"


def rough_tokens(messages: Sequence[Message]) -> int:
    """Words, numbers and runs of signs in a conversation: at least as many as the tiny policy's tokens."""
    texts = [message.content or "" for message in messages]
    texts += [f"{call.function.name} {call.function.arguments}" for message in messages for call in message.tool_calls]
    return sum(len(_TOKEN.findall(text)) for text in texts) + 4 * len(messages)


def _covered(world: str, tools: Sequence[str], modes: str) -> dict[str, float]:
    changing = {tool.name for tool in WORLDS[world].tools if tool.changes_state}
    weights = {f"{world}/{tool}": ACTING if tool in changing else READING for tool in tools}
    return weights | dict.fromkeys(DECISIONS & set(modes.replace("+", "").split(">")), DECISION)


def _choose(candidates: Sequence[_Candidate], count: int) -> list[_Candidate]:
    left, covered, chosen = list(candidates), Counter[str](), list[_Candidate]()
    while left and len(chosen) < count:
        best = max(left, key=lambda one: _gain(one, covered))
        left.remove(best)
        chosen.append(best)
        covered.update(best.weights.keys())
    return chosen


def _gain(one: _Candidate, covered: Counter[str]) -> float:
    return sum(weight * (math.sqrt(covered[name] + 1) - math.sqrt(covered[name])) for name, weight in one.weights.items()) / one.tokens

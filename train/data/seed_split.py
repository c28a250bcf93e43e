"""The synthesised part of the seed split: accepted conversations of the store, as they are, chosen for what they cover.

Conversations are taken greedily by coverage per token (`synth/blueprints/token_coverage.py`), weighed by their source where that is asked
for. Those with a decision that has no cue are left out, those that are no task, that show what is kept for evaluation, and what a person
dropped by hand. What a judge alone rejected comes in if a person keeps it and it is a task.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from storage.by_hand.hand_rows import admissible
from storage.records import Language, Message, Task
from storage.releases.release import ReleaseItem
from storage.store import Store
from synth.blueprints.blueprint import Blueprint
from synth.blueprints.cell import mode_family
from synth.blueprints.token_coverage import Coverage, Features, features
from synth.conversations.conversation_task import rate_difficulty
from synth.conversations.cues import uncued_turns
from synth.run.evolution.source_weights import SourceWeights
from synth.worlds import WORLDS
from train.data.task_pool import is_for_evaluation

_TOKEN = re.compile(r"\w+|[^\w\s]+")


def synthesised_conversations(
    store: Store,
    *,
    worlds: Sequence[str],
    language: Language,
    max_difficulty: int,
    max_tokens: int,
    count: int,
    sources: SourceWeights | None = None,
) -> list[ReleaseItem]:
    """At most `count` accepted conversations in these worlds and this language (or a world's own, if it lacks it), in order of choice.

    Args:
        max_difficulty: highest static difficulty of all goals together.
        max_tokens: longest conversation, in words and signs (`rough_tokens`).
        sources: weights by world, cluster, mode, teacher or day.
    """
    rows = store.query(
        f"""SELECT trajectory_id, k.spec AS task, t.messages, b.spec, t.world, t.cluster_id AS cluster, t.teacher,
             t.mode_coarse, coalesce(left(p.committed_at::VARCHAR, 10), 'unknown') AS day
           FROM trajectories t JOIN blueprints b USING (blueprint_id) JOIN tasks k USING (task_id)
             LEFT JOIN parts p ON p.part_id = b.part_id
           WHERE {admissible("t")} AND t.cluster_id IS NOT NULL AND round >= 0 AND list_contains(?, t.world || '/' || t.language)
           ORDER BY trajectory_id""",
        [[f"{world}/{WORLDS[world].language_near(language)}" for world in worlds]],
    )
    items, offered, factors = list[ReleaseItem](), list[tuple[Features, int]](), list[float]()
    for row in rows.iter_rows(named=True):
        task, blueprint = Task.model_validate_json(row["task"]), Blueprint.model_validate_json(row["spec"])
        messages = [Message.model_validate(one) for one in json.loads(row["messages"])]
        tokens = rough_tokens(messages)
        is_fit = rate_difficulty(blueprint) <= max_difficulty and tokens <= max_tokens and not is_for_evaluation(task)
        if is_fit and not uncued_turns(blueprint, messages)[0]:
            items.append(ReleaseItem("trajectory", row["trajectory_id"], task.id))
            offered.append((features(blueprint), tokens))
            row["mode"] = mode_family(row["mode_coarse"])
            factors.append(sources.weight(row[sources.by]) ** 0.5 if sources else 1.0)
    return [items[at] for at in Coverage().choose(offered, count, factors)]


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

"""The data of a store by source, and held-out conversations to measure on: what proxies train on, and by what they are compared.

A source is what the conversations of one label share: a world, a cluster of tools, a family of reasoning modes, an origin (synthesised or a
task's expert), a teacher, or the day on which their blueprints were committed. Small sources are one, `other` (by mode, with the family of
that name). The held-out conversations are the expert solutions of the store's held-out tasks, in strata by what a solution does.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from storage.by_hand.hand_rows import admissible
from storage.errors import BadInput
from storage.records import CODE_TOOL, Language, Message, Task
from storage.store import Store
from synth.blueprints.cell import mode_family
from synth.conversations.expert import expert_trajectory
from synth.run.evolution.source_weights import OTHER, SourceKind
from synth.worlds import WORLDS
from train.measure.evaluate import task_kind

_MOST_SOURCES = 12
_LEAST_SHARE = 0.02
"""Share of the conversations' characters below which a source is part of `other`."""


@dataclass(frozen=True)
class LabelledConversation:
    """An accepted conversation and its source."""

    source: str
    messages: tuple[Message, ...]


@dataclass(frozen=True)
class HeldOutConversation:
    """The expert's conversation of a held-out task. stratum: `act`, `look-up`, `refusal`, or `conversation` if the user goes on."""

    stratum: str
    messages: tuple[Message, ...]


_ACCEPTED_SQL = f"""
    SELECT t.trajectory_id, t.world, t.teacher, t.mode_coarse, t.messages,
      CASE WHEN t.cluster_id IS NULL THEN 'expert' ELSE 'synthesised' END AS origin,
      coalesce(t.cluster_id, 'none') AS cluster, coalesce(left(p.committed_at::VARCHAR, 10), 'unknown') AS day
    FROM trajectories t LEFT JOIN blueprints b USING (blueprint_id) LEFT JOIN parts p ON p.part_id = b.part_id
    WHERE {admissible("t")} AND t.language = ? ORDER BY t.trajectory_id"""


def read_sources(store: Store, kind: SourceKind, language: Language) -> list[LabelledConversation]:
    """The accepted conversations of a store in one language, each with its source.

    Raises:
        BadInput: there are none, all are of one source, or all sources are too small.
    """
    rows = store.query(_ACCEPTED_SQL, [language]).to_dicts()
    if not rows:
        raise BadInput(f"{store.root} has no accepted conversation in {language}: run `headrace synthesize` on it, or give --language")
    labels = [_label(row, kind) for row in rows]
    sizes: dict[str, int] = defaultdict(int)
    for label, row in zip(labels, rows, strict=True):
        sizes[label] += len(row["messages"])
    total = sum(sizes.values())
    largest = sorted(sizes, key=lambda label: (-sizes[label], label))[:_MOST_SOURCES]
    kept = {label for label in largest if sizes[label] >= _LEAST_SHARE * total}
    sources = [label if label in kept else OTHER for label in labels]
    if len(set(labels)) == 1:
        raise BadInput(
            f"all conversations of {store.root} are of one {kind} ({labels[0]}), so there is nothing to compare: give another --by"
        )
    if len(set(sources)) == 1:
        raise BadInput(
            f"each of the {len(set(labels))} sources of {store.root} by {kind} has less than {_LEAST_SHARE:.0%} of it: give another --by"
        )
    return [
        LabelledConversation(source, tuple(Message.model_validate(one) for one in json.loads(row["messages"])))
        for source, row in zip(sources, rows, strict=True)
    ]


def _label(row: Mapping[str, Any], kind: SourceKind) -> str:
    return mode_family(row["mode_coarse"]) if kind == "mode" else str(row[kind])


def read_held_out(store: Store, language: Language, most: int) -> list[HeldOutConversation]:
    """The expert conversations of at most `most` held-out tasks, the first by a hash of their ids; none with a program.

    Raises:
        BadInput: the store has no held-out task in this language.
    """
    specs = store.query(
        """SELECT any_value(spec) AS spec FROM tasks WHERE division = 'held_out' AND language = ?
           GROUP BY task_id ORDER BY md5(task_id) LIMIT ?""",
        [language, 2 * most],
    )["spec"]
    tasks = [task for task in map(Task.model_validate_json, specs) if all(call.tool != CODE_TOOL for call in task.plan.calls)]
    if not tasks:
        raise BadInput(f"{store.root} has no held-out task in {language} to measure on: synthesise or curate more")
    return [HeldOutConversation(stratum_of(task), expert_trajectory(WORLDS[task.world], task).messages) for task in tasks[:most]]


def stratum_of(task: Task) -> str:
    return task_kind(task) if task.conversation is None else "conversation"


def totals(conversations: Sequence[LabelledConversation], tokens: Sequence[int]) -> dict[str, int]:
    """Source -> tokens, sorted by name. tokens: of each conversation."""
    found: dict[str, int] = defaultdict(int)
    for one, count in zip(conversations, tokens, strict=True):
        found[one.source] += count
    return dict(sorted(found.items()))

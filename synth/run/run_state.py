"""Counts of a synthesis run so far. A round adds the same whether it was just played or is read from the store."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from storage.records import Outcome
from synth.blueprints.cell import Cell, mode_family
from synth.blueprints.diversity import Profile
from synth.engines.encoder import encode
from synth.run.evolution.controller import Report
from synth.run.outcomes import Example, conversation_example, reason_in_words, reason_key, unplanned_example
from synth.run.proposals import Proposal


@dataclass
class RunState:
    """The state of a run.

    profiles: of the accepted conversations, in order.
    vectors: embeddings of the accepted conversations' user texts, one array a round, [accepted, dimensions].
    cluster_use: cluster id -> number of proposals with it.
    rejected: reason -> number of proposals.
    examples: reason -> its first proposal; the keys are those of `reason_key`.
    proposals: number of proposals.
    in_vain: number of proposals since the last accepted conversation.
    unrated: number of proposals in which an engine, a tool, the user or the judge failed.
    tasks: number of tasks made of accepted conversations.
    alarms: the controller's alarms, as texts.
    blueprints: ids of the proposals so far, those of the calibration too.
    """

    profiles: list[Profile] = field(default_factory=list)
    vectors: list[NDArray[np.float32]] = field(default_factory=list)
    cluster_use: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)
    examples: dict[str, Example] = field(default_factory=dict)
    proposals: int = 0
    in_vain: int = 0
    unrated: int = 0
    tasks: int = 0
    alarms: list[str] = field(default_factory=list)
    blueprints: set[str] = field(default_factory=set)

    @property
    def accepted(self) -> int:
        """Number of accepted conversations."""
        return len(self.profiles)

    def all_vectors(self) -> NDArray[np.float32]:
        return np.concatenate(self.vectors)

    def add(self, proposals: Sequence[Proposal]) -> None:
        """Adds a round that was just played."""
        accepted = [one for one in proposals if one.accepted]
        self.cluster_use.update(one.cluster.id for one in proposals)
        for one in proposals:
            self._count_rejection(one.reason, one.example)
        self.blueprints.update(one.id for one in proposals)
        self.proposals += len(proposals)
        self.unrated += sum(not one.is_rated for one in proposals)
        self.tasks += sum(len(one.tasks) for one in proposals)
        self.profiles += [one.simulated.profile for one in accepted if one.simulated is not None]
        self.vectors.append(vectors_of(accepted))

    def most_frequent_reason(self, proposals: Sequence[Proposal] = ()) -> str:
        """The most frequent reason in words, its share and an example, of the proposals so far and of these; empty without one."""
        counts = Counter(reason_key(one.reason) for one in proposals if one.reason)
        for reason, count in self.rejected.items():
            counts[reason_key(reason)] += count
        if not counts:
            return ""
        examples = {reason_key(one.reason): one.example for one in reversed(proposals)} | self.examples
        key, count = min(counts.items(), key=lambda item: (-item[1], item[0]))
        return f"most often ({count:,} of {counts.total():,}): {reason_in_words(key)}, for example {examples[key]}"

    def _count_rejection(self, reason: str | None, example: Example) -> None:
        """Counts one proposal. reason: why it was not accepted; empty or None if it was."""
        self.in_vain = self.in_vain + 1 if reason else 0
        if reason:
            self.rejected[reason] += 1
            self.examples.setdefault(reason_key(reason), example)

    def add_stored(
        self, blueprints: pl.DataFrame, trajectories: pl.DataFrame, tasks: pl.DataFrame, provenance: pl.DataFrame | None = None
    ) -> list[Report]:
        """Adds a round from its rows of these tables. Returns the reports for the controller, in order.

        provenance: None if all roles are scripted.
        """
        trajectory_of = {row["blueprint_id"]: row for row in trajectories.to_dicts()}
        failures = {} if provenance is None else dict(provenance.select("trajectory_id", "failure").iter_rows())
        texts: list[str] = []
        reports: list[Report] = []
        for blueprint in blueprints.to_dicts():
            requested = Cell(blueprint["domain"], blueprint["mode_family"], blueprint["complexity_band"])
            row = trajectory_of.get(blueprint["blueprint_id"])
            self.cluster_use[blueprint["cluster_id"]] += 1
            self._count_rejection(blueprint["reason"], _stored_example(requested, blueprint, row, failures))
            if not Outcome(row["outcome"]).is_rated if row is not None else blueprint["reason"] == Outcome.INFRA_FAILURE:
                self.unrated += 1
                continue
            if row is None or not row["accepted"]:
                reports.append(Report(requested, was_planned=row is not None))
                continue
            coarse = row["mode_coarse"]
            reports.append(Report(requested, coarse, Cell(row["domain"], mode_family(coarse), row["complexity_band"])))
            self.profiles.append(
                Profile(row["world"], row["domain"], coarse, row["mode_fine"], row["complexity"], tuple(row["tools_used"]))
            )
            texts.append(_join(message["content"] for message in json.loads(row["messages"]) if message["role"] == "user"))
        self.vectors.append(encode(texts))
        self.blueprints.update(blueprints["blueprint_id"])
        self.proposals += blueprints.height
        self.tasks += tasks.height
        return reports


def _stored_example(
    cell: Cell, blueprint: Mapping[str, Any], trajectory: Mapping[str, Any] | None, failures: Mapping[str, str | None]
) -> Example:
    """`Proposal.example`, from rows."""
    if trajectory is None:
        return unplanned_example(blueprint["blueprint_id"], cell.domain, cell.family, cell.band)
    id = trajectory["trajectory_id"]
    return conversation_example(id, json.loads(trajectory["messages"]), failures.get(id))


def vectors_of(proposals: Sequence[Proposal]) -> NDArray[np.float32]:
    """Embeddings of the user texts, [conversations, dimensions]. One round a call, so that a resumed run gets the same bytes."""
    dialogues = [one.simulated.trajectory.messages for one in proposals if one.simulated is not None]
    return encode([_join(message.content for message in dialogue if message.role == "user") for dialogue in dialogues])


def _join(texts: Iterable[str | None]) -> str:
    return "\n".join(text or "" for text in texts)

"""What a run of synthesis has made and accepted so far: the same whether a round was made just now or is read back from the store."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl
from numpy.typing import NDArray

from storage.records import Outcome
from synth.blueprints.cell import Cell, mode_family
from synth.blueprints.diversity import Profile
from synth.engines.encoder import encode
from synth.run.controller import Report
from synth.run.proposals import Made


@dataclass
class SoFar:
    """profiles: of what was accepted, in order; vectors: embeddings of what its users said, an array a round, [accepted, dimensions].
    cluster_use: by a cluster's id, blueprints over it. rejected: reasons with counts. proposals: blueprints asked for. tasks: those
    that single-goal conversations gave. unrated: proposals in which something failed that is nobody's fault who is judged. alarms:
    collapses of the controller, in words."""

    profiles: list[Profile] = field(default_factory=list)
    vectors: list[NDArray[np.float32]] = field(default_factory=list)
    cluster_use: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)
    proposals: int = 0
    unrated: int = 0
    tasks: int = 0
    alarms: list[str] = field(default_factory=list)

    def all_vectors(self) -> NDArray[np.float32]:
        return np.concatenate(self.vectors)

    def add(self, proposals: Sequence[Made]) -> None:
        """A round that was made."""
        accepted = [one for one in proposals if one.accepted]
        self.cluster_use.update(one.cluster.id for one in proposals)
        self.rejected.update(one.reason for one in proposals if one.reason)
        self.proposals += len(proposals)
        self.unrated += sum(one.is_held_against_nobody for one in proposals)
        self.tasks += sum(one.task is not None for one in proposals)
        self.profiles += [one.simulated.profile for one in accepted if one.simulated is not None]
        self.vectors.append(vectors_of(accepted))

    def add_stored(self, blueprints: pl.DataFrame, trajectories: pl.DataFrame, tasks: pl.DataFrame) -> list[Report]:
        """A round by its rows of these tables; returns what its controller is to be told, in order."""
        done = {row["blueprint_id"]: row for row in trajectories.to_dicts()}
        texts: list[str] = []
        reports: list[Report] = []
        for row in blueprints.to_dicts():
            cell = Cell(row["domain"], row["mode_family"], row["complexity_band"])
            got = done.get(row["blueprint_id"])
            self.cluster_use[row["cluster_id"]] += 1
            self.rejected.update([row["reason"]] if row["reason"] else [])
            if not Outcome(got["outcome"]).is_rated if got is not None else row["reason"] == Outcome.INFRA_FAILURE:
                self.unrated += 1
                continue
            if got is None or not got["accepted"]:
                reports.append(Report(cell, was_planned=got is not None))
                continue
            reports.append(Report(cell, got["mode_coarse"], Cell(got["domain"], mode_family(got["mode_coarse"]), got["complexity_band"])))
            self.profiles.append(
                Profile(got["world"], got["domain"], got["mode_coarse"], got["mode_fine"], got["complexity"], tuple(got["tools_used"]))
            )
            texts.append(_join_texts(message["content"] for message in json.loads(got["messages"]) if message["role"] == "user"))
        self.vectors.append(encode(texts))
        self.proposals += blueprints.height
        self.tasks += tasks.height
        return reports


def vectors_of(proposals: Sequence[Made]) -> NDArray[np.float32]:
    """Embeddings of what the users said, [conversations, dimensions]; always of one round's list, so that a resumed run has the same
    bytes."""
    talks = [one.simulated.trajectory.messages for one in proposals if one.simulated is not None]
    return encode([_join_texts(message.content for message in talk if message.role == "user") for talk in talks])


def _join_texts(texts: Iterable[str | None]) -> str:
    return "\n".join(text or "" for text in texts)

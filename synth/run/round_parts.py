"""The store parts of a round: one of each table, with ids that follow from the round before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from storage.record_rows import tasks_frame
from storage.store import Part
from storage.tables import TABLES
from synth.blueprints.blueprint import Bands
from synth.blueprints.diversity import Figure, Profile, figures
from synth.roles.role_engines import RoleEngines, provenance_frame
from synth.roles.simulate import simulated_frame
from synth.run.proposals import Proposal, blueprint_rows
from synth.run.setup import SynthesisSetup

CALIBRATION = -1
"""The round number under which calibration is stored."""


class RoundParts:
    """Finds, reads and writes the parts of a run's rounds.

    run: id of the run.
    parameters: those of steered rounds; calibration has those of the setup, because it is scripted and not steered.
    """

    def __init__(self, setup: SynthesisSetup, run: str, parameters: Mapping[str, Any]) -> None:
        self.run, self.setup, self.parameters = run, setup, parameters

    def ids(self, number: int, previous: str) -> dict[str, str]:
        """Table -> id of the round's part. previous: id of the part that the round builds on."""
        tables = ["trajectories", "tasks", "diversity", "blueprints"]
        if number != CALIBRATION:
            tables += ["decisions", "provenance"] if "roles" in self.parameters else ["decisions"]
        parameters = {"config": self.setup.parameters if number == CALIBRATION else self.parameters, "round": number}
        return {table: self.setup.writer.id(table, [previous], parameters) for table in tables}

    def find(self, ids: Mapping[str, str]) -> dict[str, Part] | None:
        """Table -> part, added to the run; None unless the store has them all."""
        parts = {table: part for table, id in ids.items() if (part := self.setup.store.find(id)) is not None}
        if len(parts) < len(ids):
            return None
        self.setup.writer.add(*parts.values())
        return parts

    def write(
        self,
        number: int,
        ids: Mapping[str, str],
        proposals: Sequence[Proposal],
        figures: Sequence[Figure],
        bands: Bands | None,
        decisions: pl.DataFrame | None = None,
        engines: RoleEngines | None = None,
    ) -> None:
        """Writes a round. bands: None for calibration. decisions, engines: for the tables `decisions` and `provenance`, if in `ids`."""
        conversations = [
            (one.blueprint, one.simulated, one.task) for one in proposals if one.blueprint is not None and one.simulated is not None
        ]
        frames = {
            "blueprints": blueprint_rows(number, proposals),
            "trajectories": simulated_frame(conversations, bands),
            "tasks": tasks_frame([task for one in proposals for task in one.tasks]),
            "diversity": self.diversity_rows(number, figures),
        }
        if decisions is not None:
            frames["decisions"] = decisions
        if "provenance" in ids and engines is not None:
            frames["provenance"] = provenance_frame([simulated for _, simulated, _ in conversations], engines)
        self.setup.writer.add(*(self.setup.store.write(table, ids[table], frames[table]) for table in ids))

    def figures(self, profiles: Sequence[Profile], vectors: NDArray[np.float32]) -> list[Figure]:
        """Diversity of accepted conversations. vectors: embeddings of their users' texts, [conversations, dimensions]."""
        setup = self.setup
        measured = figures(
            profiles,
            domains=tuple(sorted(setup.by_domain)),
            universe=[(tool.world or tool.server, tool.name) for tool in setup.tools],
            vectors=vectors,
            size=setup.config.subsample,
            seed=setup.config.seed,
        )
        return [Figure(f.metric, round(f.value, 6), None if f.sd is None else round(f.sd, 6), f.n) for f in measured]

    def diversity_rows(self, number: int, figures: Sequence[Figure]) -> pl.DataFrame:
        """Rows of table `diversity`."""
        rows = [{"run": self.run, "round": number, "metric": f.metric, "value": f.value, "sd": f.sd, "n": f.n} for f in figures]
        return pl.DataFrame(rows, schema=TABLES["diversity"].columns)

    def read_figures(self, part: Part) -> tuple[Figure, ...]:
        """The figures of a part of table `diversity`."""
        return tuple(Figure(row["metric"], row["value"], row["sd"], row["n"]) for row in self.setup.writer.read(part).to_dicts())

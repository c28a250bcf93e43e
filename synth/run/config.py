"""Configuration of a synthesis run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from synth.blueprints.diversity import SUBSAMPLE
from synth.blueprints.single_goal import has_programs
from synth.clusters.business_clusters import ClusterConfig
from synth.roles.role_engines import RolesConfig
from synth.run.evolution.controller import EvolutionConfig
from synth.run.evolution.source_weights import SourceWeights
from synth.worlds import WORLDS, WorldName, WorldRange, names_in

_SPECS = ("banking", "clinic", "helpdesk", "hotel", "library", "logistics", "school", "telecom")
_DRILLS = {"retail": 160, "library": 24}
_WEIGHTS = {"retail": 12.0, "library": 12.0}


class SynthesisConfig(BaseModel):
    """Configuration of synthesis: worlds and tools, numbers and shares, roles, clusters, steering."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    worlds: tuple[WorldRange, ...] = Field(
        ("city", "retail", *_SPECS, "gen-1..40"),
        description="Worlds that conversations are held in: names, domain specs' files, ranges of generated worlds (gen-1..100).",
    )
    tools: Path | None = Field(
        None,
        description="Catalogue of tools (JSONL, OpenAI or MCP form) beside those; null: none. Tools of no world are only stored.",
    )
    seed: int = Field(0, description="Seed of the conversations; another seed gives others.")
    world_weights: Mapping[WorldName, Annotated[float, Field(gt=0)]] = Field(
        _WEIGHTS,
        description="Worlds, each with how many times as often, at most, its domains are asked for as others, if it is among `worlds`; a "
        "world that is not named has 1. Give more to worlds that you train on.",
    )
    source_weights: SourceWeights | None = Field(
        None,
        description="What `headrace value` found sources to be worth: by world, or, with the objective coverage, by mode or cluster.",
    )
    accepted: int = Field(300, ge=1, description="Accepted conversations at which the run stops.")
    max_proposals: int = Field(2000, ge=1, description="Most blueprints that are asked for, accepted or not.")
    patience: int | None = Field(
        200, ge=1, description="Proposals in a row without an accepted conversation at which the run stops with an error; null: never."
    )
    calibration: int = Field(
        300, ge=9, description="Unsteered conversations whose complexity sets the bands; they are used for nothing else."
    )
    chinese_share: float = Field(0.3, ge=0, le=1, description="Share of conversations in Chinese; the rest are English.")
    veiled_share: float = Field(
        0.3, ge=0, le=1, description="Share of steered conversations that are made harder: distractors, vague words, noisy tools."
    )
    code_share: float = Field(
        0.15,
        ge=0,
        lt=1,
        description="Share of accepted conversations that call run_python, in worlds that offer it (compiled domains); 0 switches it off.",
    )
    subsample: int = Field(SUBSAMPLE, ge=10, description="Conversations in each subsample on which mode entropy is measured.")
    drills: Mapping[WorldName, Annotated[int, Field(ge=0)]] = Field(
        _DRILLS,
        description="Worlds that a small policy practises on, each with the number of single-goal blueprints that are made in it, in all "
        "divisions, beside the conversations.",
    )
    programs: Mapping[WorldName, Annotated[int, Field(ge=0)]] = Field(
        {},
        description="Worlds, each with its number of drills that need a program (compiled domains; needs a sandbox).",
    )
    roles: RolesConfig = Field(default_factory=RolesConfig, description="The engines that play the roles, and what they may cost.")
    clusters: ClusterConfig = Field(default_factory=ClusterConfig, description="How tools are grouped into clusters.")
    evolution: EvolutionConfig = Field(default_factory=EvolutionConfig, description="How the controller steers.")

    @model_validator(mode="before")
    @classmethod
    def _set_defaults_of_worlds(cls, values: Any) -> Any:
        """Where `worlds` are given alone: the default drills of these worlds, and equal weights."""
        if not isinstance(values, Mapping) or not isinstance(values.get("worlds"), (list, tuple)):
            return values
        drills = {world: count for world, count in _DRILLS.items() if world in values["worlds"]}
        return {"drills": drills, "world_weights": {}, **values}

    @model_validator(mode="after")
    def _check_drill_worlds(self) -> SynthesisConfig:
        for setting, requested in (("drills", self.drills), ("programs", self.programs)):
            if others := sorted(set(requested) - set(names_in(self.worlds))):
                raise ValueError(f"{setting}: {others[0]!r} is not among worlds ({', '.join(self.worlds)}): add it there, or drill another")
        if plain := [world for world in self.programs if not has_programs(WORLDS[world])]:
            raise ValueError(f"programs: no task of {plain[0]!r} needs a program: name a compiled domain that has sums to do")
        return self

    @model_validator(mode="after")
    def _check_source_weights(self) -> SynthesisConfig:
        by = self.source_weights.by if self.source_weights else "world"
        if by in ("origin", "teacher", "day"):
            raise ValueError(f"source_weights by {by} steer no synthesis: weigh the seed split with them (train.source_weights)")
        if by != "world" and self.evolution.objective != "coverage":
            raise ValueError(f"source_weights by {by} need evolution.objective: coverage")
        return self

    @model_validator(mode="after")
    def _check_worlds_or_tools(self) -> SynthesisConfig:
        if not self.worlds and self.tools is None:
            raise ValueError("worlds and tools are both empty: name at least one world, or a catalogue of tools")
        return self

"""The list of the funnel's steps, and the configuration with a section for each step.

Cheap steps come first, in STAgent's order. A new step is a file in `filters/steps/`, a line in `STEPS`, a section in `FunnelConfig` if it
has settings, and a test: docs/extending.md shows one. `step.py` defines the forms of a step; `runner.py` runs the list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
from pydantic import BaseModel, ConfigDict, Field

from filters.dedup.dedup_index import INDEXED, INDEXED_COLUMNS
from filters.dedup.near import NearConfig
from filters.grounding.ground_model import GroundConfig
from filters.grounding.tool_reach import ReachConfig
from filters.ingest import IngestConfig
from filters.step import BatchStep, Step, SurveyStep, WholeStep
from filters.steps import (
    combination_counts,
    exact,
    hand_verdicts,
    ingest,
    label_leaf,
    mask_values,
    near_duplicates,
    normalise_text,
    quality,
    rate_difficulty,
    rules,
    same_frame,
    tool_load,
)
from filters.steps.quality import QualityConfig
from filters.steps.reading import ground_frames
from filters.steps.rules import RulesConfig
from filters.steps.selection import admit, contamination, coverage, encode, pool, rank_topics, semantic, tool_match
from filters.steps.selection.contamination import ContaminationConfig
from filters.steps.selection.coverage import CoverageConfig
from filters.steps.selection.semantic import SemanticConfig
from filters.steps.tool_load import DifficultyConfig
from filters.verdicts import OF_FRAMES
from storage.errors import BadInput
from synth.engines.encoder import EncoderConfig
from synth.tasks.split import DivisionConfig
from synth.worlds import WorldName

STEPS: tuple[Step, ...] = (
    ingest.STEP,
    normalise_text.STEP,
    exact.STEP,
    rules.STEP,
    near_duplicates.STEP,
    *ground_frames.STEPS,
    hand_verdicts.STEP,
    combination_counts.STEP,
    same_frame.STEP,
    tool_load.STEP,
    label_leaf.STEP,
    quality.STEP,
    rate_difficulty.STEP,
    mask_values.STEP,
    pool.STEP,
    encode.STEP,
    label_leaf.BY_VECTORS,
    tool_match.STEP,
    semantic.STEP,
    contamination.STEP,
    rank_topics.STEP,
    coverage.STEP,
    admit.STEP,
)


class FunnelConfig(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    ingest: IngestConfig = Field(default=IngestConfig(), description="How query files are read.")
    only_new: bool = Field(default=False, description="Whether files that an earlier run has read into the store are skipped.")
    rules: RulesConfig = Field(default=RulesConfig(), description="Which rows are requests: their language and length.")
    near: NearConfig = Field(default=NearConfig(), description="Which rows are near duplicates.")
    worlds: tuple[WorldName, ...] | None = Field(
        default=None, description="Worlds in which requests are read; null: city and retail, which have a lexicon."
    )
    ground: GroundConfig = Field(default=GroundConfig(), description="How requests are read, by a language model too if one is named.")
    difficulty: DifficultyConfig = Field(
        default=DifficultyConfig(), description="The language model, if any, that judges how difficult a query's tools are."
    )
    quality: QualityConfig = Field(default=QualityConfig(), description="Which rows are too poor to be kept.")
    coverage: CoverageConfig = Field(default=CoverageConfig(), description="How many tasks are wanted, and of which kind.")
    keep_one_in: int | None = Field(
        default=None, ge=1, description="Keep one row in this many, instead of the number `coverage.keep`; null: keep that number."
    )
    divisions: DivisionConfig = Field(
        default=DivisionConfig(), description="How frames are divided into training, probing and evaluation; the same as in `synthesize`."
    )
    encoder: EncoderConfig = Field(default=EncoderConfig(), description="The model that makes vectors of texts.")
    reach: ReachConfig = Field(
        default=ReachConfig(), description="Which tools of the store's clusters could serve queries that no world can execute."
    )
    semantic: SemanticConfig = Field(default=SemanticConfig(), description="Which rows say the same in other words.")
    contamination: ContaminationConfig = Field(default=ContaminationConfig(), description="Held-out sets that no kept row may come from.")
    ungrounded: bool | None = Field(
        default=None,
        description="Whether rows that no world can execute are kept too, evenly over topics, where tasks leave room. null: in a store "
        "without conversations, of files that you name.",
    )

    def target_tasks(self, rows: int) -> int:
        """Number of tasks to make from so many rows."""
        return self.coverage.keep if self.keep_one_in is None else max(1, round(rows / self.keep_one_in))


INDECISIVE: Any = {"only_new": True, "encoder": True, "contamination": {"held_out"}, "ingest": {"strict"}}
INDECISIVE |= {"ground": {"max_tokens"}, "difficulty": {"max_tokens"}}
"""Settings that decide no row, or that a step's `made_by` puts into the run's id."""


def check(steps: Sequence[Step], config: FunnelConfig) -> list[Step]:
    """The steps that the configuration has.

    Raises:
        BadInput: the steps cannot run in this order; the message names the step and what it lacks.
    """
    used = [step for step in steps if step.is_on(config)]
    columns, names, is_whole = set[str](), set[str](), False
    for step in used:
        if missing := [name for name in step.needs if name not in columns]:
            raise BadInput(f"step {step.name} needs the column {missing[0]}, which no step before it adds")
        if step.name in names:
            raise BadInput(f"two steps are called {step.name}")
        if step.config is not None and section(config, step.config) is None:
            raise BadInput(f"step {step.name} has settings ({step.config.__name__}), but {type(config).__name__} has no section for them")
        surveys = [one.name for one in steps if isinstance(one, SurveyStep) and (one.name in names or not one.is_on(config))]
        if step.uses is not None and step.uses not in surveys:
            raise BadInput(f"step {step.name} uses the survey {step.uses}, which is not before it")
        if is_whole and not isinstance(step, WholeStep):
            raise BadInput(f"step {step.name} stands after a whole step, from which on rows are in memory; put it before")
        is_whole |= isinstance(step, WholeStep)
        columns |= set(step.adds)
        names.add(step.name)
    for name in INDEXED:
        if name not in names:
            raise BadInput(f"there is no step {name}, by which later runs are compared with this one")
    if missing := sorted((OF_FRAMES | {"text", "language", *INDEXED_COLUMNS}) - columns):
        raise BadInput(f"the tables of the store need the column {missing[0]}, which no step adds")
    if not is_whole or not isinstance(used[0], BatchStep) or used[0].needs:
        raise BadInput("the first step must be a batch step that needs nothing, and one must be a whole step")
    return used


def section(config: FunnelConfig, model: type[BaseModel]) -> tuple[str, BaseModel] | None:
    """Name and value of the section of this model."""
    for name in type(config).model_fields:
        if type(value := getattr(config, name)) is model:
            return name, value
    return None


def not_done(funnel: pl.DataFrame, tasks: int, config: FunnelConfig, inputs: Mapping[str, Any]) -> list[str]:
    """Notes for the user: what the run could not do with rows that no world executes, and what would help.

    inputs: inputs of each step, by its name.
    """
    notes = []
    grounded = funnel.filter(step=ground_frames.GROUND).to_dicts()
    if not config.ungrounded and grounded and grounded[0]["dropped"] > grounded[0]["kept"]:
        share = f"{grounded[0]['dropped']:,} of {grounded[0]['rows_in']:,} distinct requests ask for what no world here executes"
        notes.append(f"{share}; keep such rows with --ungrounded, or describe your domain (headrace worlds new)")
    if config.ungrounded and funnel["kept"][-1] > tasks:
        tools, _ = inputs.get(tool_match.STEP.name, (None, None))
        if tools is None or not tools.clusters:
            notes.append("which tool could serve queries without a world is not known: the store knows no tools (headrace clusters build)")
        if not config.contamination.held_out:
            notes.append("the queries were compared with no held-out questions (--held-out FILE)")
    return notes

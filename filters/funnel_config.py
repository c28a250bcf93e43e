"""The funnel's configuration: the sum of its steps'."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from filters.dedup.near import NearConfig
from filters.grounding.ground_model import GroundConfig
from filters.ingest import IngestConfig
from filters.steps.contamination import ContaminationConfig
from filters.steps.coverage import CoverageConfig
from filters.steps.quality import QualityConfig
from filters.steps.rules import RulesConfig
from filters.steps.semantic import SemanticConfig
from filters.steps.tool_load import DifficultyConfig
from filters.tool_match import ReachConfig
from synth.engines.encoder import EncoderConfig
from synth.tasks.split import DivisionConfig


class FunnelConfig(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    ingest: IngestConfig = Field(default=IngestConfig(), description="How files are read.")
    only_new: bool = Field(
        default=False, description="Leave out files that an earlier run has read into the store, instead of judging them again."
    )
    rules: RulesConfig = Field(default=RulesConfig(), description="What is no request.")
    near: NearConfig = Field(default=NearConfig(), description="What is a near duplicate.")
    ground: GroundConfig = Field(default=GroundConfig(), description="Who reads what the parser could not.")
    difficulty: DifficultyConfig = Field(default=DifficultyConfig(), description="Who judges the tool load of static difficulty.")
    quality: QualityConfig = Field(default=QualityConfig(), description="What is too poor to be kept.")
    coverage: CoverageConfig = Field(default=CoverageConfig(), description="How many tasks are wanted, and of which kind.")
    keep_one_in: int | None = Field(default=None, ge=1, description="Keep one row in so many, instead of the count `coverage.keep`.")
    divisions: DivisionConfig = Field(default=DivisionConfig(), description="How frames are divided into training, probing and evaluation.")
    encoder: EncoderConfig = Field(default=EncoderConfig(), description="What makes vectors of the texts in the pool.")
    reach: ReachConfig = Field(default=ReachConfig(), description="Which tool of the store's clusters could serve what no world reads.")
    semantic: SemanticConfig = Field(default=SemanticConfig(), description="What says the same in other words.")
    contamination: ContaminationConfig = Field(default=ContaminationConfig(), description="Held-out sets that no kept row may come from.")
    ungrounded: bool = Field(
        default=False, description="Keep rows that no world can execute, in a stratum of their own, instead of dropping them."
    )

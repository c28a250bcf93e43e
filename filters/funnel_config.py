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

    ingest: IngestConfig = Field(default=IngestConfig(), description="How query files are read.")
    only_new: bool = Field(default=False, description="Whether files that an earlier run has read into the store are skipped.")
    rules: RulesConfig = Field(default=RulesConfig(), description="Which rows are requests: their language and length.")
    near: NearConfig = Field(default=NearConfig(), description="Which rows are near duplicates.")
    ground: GroundConfig = Field(default=GroundConfig(), description="The language model, if any, that reads what the parser could not.")
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
    ungrounded: bool = Field(
        default=False, description="Whether rows that no world can execute are kept, in a stratum of their own, instead of dropped."
    )

    def wanted(self, rows: int) -> int:
        """How many tasks are wanted of so many rows."""
        return self.coverage.keep if self.keep_one_in is None else max(1, round(rows / self.keep_one_in))

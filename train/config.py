"""What the cascade is told: which tasks, with which budgets, how probes are drawn, tasks routed, and policies gated."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, model_validator

from filters.certainty.certainty import DrawsConfig
from filters.certainty.route import RouteConfig
from storage.records import Language
from synth.engines.budget import AskingConfig
from synth.worlds import WorldName
from train.backends.cluster import ClusterConfig
from train.measure.gate import GateConfig
from train.spec import RLSettings, SFTSettings


class EngineConfig(AskingConfig):
    """How a policy that is an engine by its name is asked."""

    answer_tokens: int = Field(1024, ge=16, description="Longest message of the policy, in tokens.")


class CascadeConfig(BaseModel):
    """What the cascade trains on, with which budgets."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    worlds: tuple[WorldName, ...] = Field(("retail", "library"), min_length=1, description="Worlds whose tasks are trained on.")
    max_difficulty: int = Field(3, ge=-1, le=5, description="Highest static difficulty of a task that is used.")
    language: Language = Field("en", description="Language in which siblings of a task are worded.")
    expert_budget: int = Field(480, ge=1, description="Most expert conversations that the seed SFT uses.")
    probe_tasks: int = Field(720, ge=1, description="Tasks on which certainty is measured.")
    draws: DrawsConfig = Field(default_factory=DrawsConfig, description="How often each of these tasks is rolled out.")
    eval_tasks: int = Field(120, ge=1, description="Held-out tasks of known needs (eval_in), on which policies are measured and gated.")
    eval_out_tasks: int = Field(120, ge=1, description="Held-out tasks of needs that no policy was trained on (eval_out); only reported.")
    eval_samples: int = Field(4, ge=1, description="Rollouts of every held-out task at temperature 1, beside one greedy rollout.")
    sft1: SFTSettings = Field(
        SFTSettings(max_steps=250, plateau_window=25), description="Seed SFT, on expert trajectories, to a plateau of the loss."
    )
    sft2: SFTSettings = Field(
        SFTSettings(max_steps=150, learning_rate=1e-3), description="Second SFT: short and soft, so that entropy survives for RL."
    )
    rl: RLSettings = Field(default_factory=RLSettings, description="RL on fresh siblings of the probed tasks.")
    route: RouteConfig = Field(default_factory=RouteConfig, description="Which region of certainty is used by which stage.")
    gate: GateConfig = Field(default_factory=GateConfig, description="What a policy must pass to be promoted.")
    engine: EngineConfig = Field(
        default_factory=EngineConfig,
        description="How `tag` and `evaluate` ask a policy that is named as an engine, and what that may cost.",
    )
    cluster: ClusterConfig = Field(
        default_factory=ClusterConfig,
        description="Where the stages run; a change trains no stage again.",
    )
    seed: int = Field(0, ge=0, description="Seed of the weights, the order of batches and every rollout.")

    @model_validator(mode="after")
    def _shared_by_the_gpus(self) -> CascadeConfig:
        gpus = max(1, self.cluster.nodes * self.cluster.gpus_per_node) if self.cluster.backend == "ray" else 1
        for name, told in (("sft1", self.sft1), ("sft2", self.sft2)):
            share, rest = divmod(told.batch_size, gpus)
            if rest:
                raise ValueError(f"{name}.batch_size {told.batch_size} does not divide among the {gpus} GPUs of `cluster`: give a multiple")
            if share % min(told.micro_batch_size or share, share):
                raise ValueError(f"{name}.micro_batch_size {told.micro_batch_size} does not divide the {share} rows of a GPU's share")
        return self

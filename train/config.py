"""Configuration of a cascade: its tasks, budgets and stages, how probes are drawn, tasks routed and policies gated."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from filters.certainty.certainty import DrawsConfig
from filters.certainty.route import RouteConfig
from storage.context.settings import PolicyContext
from storage.errors import BadInput
from storage.records import Language
from synth.engines.budget import AskingConfig
from synth.rollouts.episode import MAX_TOKENS
from synth.run.evolution.source_weights import SourceWeights
from synth.suites.suite_questions import SuiteName
from synth.worlds import WorldName
from train.backends.base import Backend
from train.backends.cluster import ClusterConfig
from train.backends.named import BACKENDS, BackendName
from train.spec import RLSettings, RolloutEngine, SFTSettings, StageSpec
from train.stages import DEFAULT, SPLITS, RLStage, SFTStage, Stage, Stages, field_error, order_stages

BASE_TOKENS = 512
"""Longest answer of a base model, whose tokens are parts of words."""


class EngineConfig(AskingConfig):
    """How a policy that is named as an engine is asked."""

    answer_tokens: int = Field(1024, ge=16, description="Longest message of the policy, in tokens.")


class ExpertsConfig(EngineConfig):
    """Who makes the expert conversations of tasks."""

    engine: str | None = Field(
        None,
        description="The engine that makes them (openai:MODEL, vllm:MODEL, hf:FOLDER), each verified; null: the scripted solver, free.",
    )
    best_of: int = Field(8, ge=1, description="Most tries of the engine at a task; it stops at the first that is verified.")
    temperature: float = Field(0.7, ge=0, description="Its sampling temperature.")
    oracle: bool = Field(
        False,
        description="Whether the second SFT also learns from the engine's verified answers to tasks that the probe found uncertain, with "
        "tries in proportion to their learnability potential, and, with one try, to unsolved tasks of partly solved needs.",
    )

    @model_validator(mode="after")
    def _check_oracle(self) -> ExpertsConfig:
        if self.oracle and self.engine is None:
            raise ValueError("oracle needs an engine to ask: name one as `engine`")
        return self


class GateConfig(BaseModel):
    """Thresholds of the gate."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    min_gain: float = Field(
        0.0, ge=-1, le=1, description="Least mean paired difference of success rates on eval_in, to the promoted policy."
    )
    max_forgotten: float = Field(
        0.25,
        ge=0,
        le=1,
        description="Largest fall of the success rate of any intent, or of tasks with a program, against any earlier policy.",
    )
    min_intent_tasks: int = Field(
        8, ge=1, description="Intents with fewer held-out tasks are judged together; if there are fewer even so, not at all."
    )


class CascadeConfig(BaseModel):
    """Tasks, budgets and stages of a cascade."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    worlds: tuple[WorldName, ...] = Field(("retail", "library"), min_length=1, description="Worlds whose tasks are trained on.")
    model: str | None = Field(
        None,
        description="Base model of stages without a parent: a Hugging Face folder, or an id of the hub; null: a fresh tiny policy.",
    )
    mix: dict[str, Annotated[float, Field(gt=0, lt=1)]] = Field(
        default_factory=dict,
        description="General conversations that SFT learns too, so that the base model keeps what it knew: a JSONL or Parquet file (column "
        "messages), or a dataset of the hub, with its share of the seed split. What every stage forgets of them is measured.",
    )
    max_difficulty: int = Field(3, ge=-1, le=5, description="Highest static difficulty of a task that is used.")
    language: Language = Field("en", description="Language in which siblings of a task are worded.")
    expert_budget: int = Field(960, ge=1, description="Conversations that the seed SFT uses, of both kinds.")
    synthesised_share: float = Field(
        0.5,
        ge=0,
        le=1,
        description="Share of them that come of synthesis: accepted conversations, chosen for what they cover, and siblings of these where "
        "they are too few. The others are experts of single tasks.",
    )
    source_weights: SourceWeights | None = Field(
        None,
        description="What `headrace value` found sources to be worth: accepted conversations are chosen by it, too; by all but origin.",
    )
    experts: ExpertsConfig = Field(default_factory=ExpertsConfig, description="Who makes the experts, and what that may cost.")
    context: PolicyContext = Field(
        default_factory=PolicyContext,
        description="How every task shows its world to the policy: in experts, probes, RL and evaluations alike. With any of it, the seed "
        "split has siblings of accepted conversations, made in the same context, in place of these.",
    )
    probe_tasks: int = Field(480, ge=1, description="Tasks on which certainty is measured.")
    draws: DrawsConfig = Field(default_factory=DrawsConfig, description="How often each of these tasks is rolled out.")
    eval_tasks: int = Field(240, ge=1, description="Held-out tasks of known needs (eval_in), on which policies are measured and gated.")
    eval_out_tasks: int = Field(60, ge=1, description="Held-out tasks of needs that no policy was trained on (eval_out); only reported.")
    answer_tokens: int | None = Field(
        None,
        ge=1,
        description="Longest answer of a policy that the cascade trains, in tokens: in probes, evaluations, and RL stages without "
        "`max_tokens`; null: 64, which is a long answer of the tiny policy, or 512 with a base model.",
    )
    eval_samples: int = Field(4, ge=1, description="Rollouts of every held-out task at temperature 1, beside one greedy rollout.")
    stages: Stages = Field(
        DEFAULT,
        description="The stages, as a list of what differs from the default ones (sft1, sft2, rl): an entry of one of these names changes "
        "that stage's keys, another name adds a stage. Each policy is evaluated and gated.",
    )
    route: RouteConfig = Field(default_factory=RouteConfig, description="Which region of certainty is used by which stage.")
    gate: GateConfig = Field(default_factory=GateConfig, description="What a policy must pass to be promoted.")
    engine: EngineConfig = Field(
        default_factory=EngineConfig,
        description="How `tag` and `evaluate` ask a policy that is named as an engine, and what that may cost.",
    )
    rollouts: RolloutEngine = Field(
        "auto",
        description="What plays the rollouts of probes and evaluations of policies trained here: as `rollouts` of an RL stage; with vllm, "
        "a server for each policy.",
    )
    held_out: tuple[Literal["bfcl"] | SuiteName, ...] | None = Field(
        None,
        description="Suites of others (bfcl, tau2-retail, tau2-airline, agentdojo) that nothing may be trained on: a release with a near "
        "copy of one of their questions is refused before a stage reads it; null: all that are installed here; []: none.",
    )
    backend: BackendName = Field(
        "local",
        description="What runs the stages: local (a process here), ray, verl or roll (jobs on a Ray cluster), slurm, or kuberay "
        "(Kubernetes).",
    )
    cluster: ClusterConfig = Field(
        default_factory=ClusterConfig,
        description="The cluster of the backend; a change trains no stage again.",
    )
    seed: int = Field(0, ge=0, description="Seed of the weights, the order of batches and every rollout.")

    @model_validator(mode="after")
    def _check_source_weights(self) -> CascadeConfig:
        if self.source_weights and self.source_weights.by == "origin":
            raise ValueError("source_weights by origin choose no conversations: set synthesised_share, or weigh by another kind of source")
        return self

    @model_validator(mode="after")
    def _check_mix(self) -> CascadeConfig:
        if self.mix and self.model is None:
            raise ValueError(
                "mix keeps what a base model knew; the tiny policy knew nothing: name a base model as `model`, or leave mix out"
            )
        if sum(self.mix.values()) >= 0.9:
            raise ValueError(f"the shares of mix are {sum(self.mix.values()):g} together: leave at least a tenth to tasks")
        return self

    @model_validator(mode="after")
    def _check_batches(self) -> CascadeConfig:
        for index, stage in enumerate(self.stages):
            if isinstance(stage, SFTStage) and not stage.skip:
                self._check_batch(index, stage)
        return self

    def _check_batch(self, index: int, stage: SFTStage) -> None:
        processes = self.backend_of(stage).processes(self.draft_specs(Path())[stage.name])
        share, remainder = divmod(stage.batch_size, processes)
        if remainder:
            message = f"{stage.batch_size} does not divide among the {processes} GPUs of `cluster` in {stage.name}: give a multiple"
            raise field_error(message, "stages", index, "batch_size")
        if share % min(stage.micro_batch_size or share, share):
            message = f"{stage.micro_batch_size} does not divide the {share} rows of a GPU's share in {stage.name}"
            raise field_error(message, "stages", index, "micro_batch_size")

    @property
    def chat_counts(self) -> dict[str, int]:
        """Source of `mix` -> number of its conversations that are trained on, for shares of the whole seed split."""
        items = self.expert_budget / (1 - sum(self.mix.values()))
        return {source: round(items * share) for source, share in self.mix.items()}

    @property
    def cascade(self) -> tuple[Stage, ...]:
        """The stages that run, in order; RL stages without `max_tokens` have that of the policy."""
        limit = {"max_tokens": self.policy_tokens}
        return tuple(
            stage.model_copy(update=limit) if isinstance(stage, RLStage) and stage.max_tokens is None else stage
            for stage in order_stages(self.stages)
        )

    @property
    def policy_tokens(self) -> int:
        """Longest answer of a policy that the cascade trains, in tokens."""
        return self.answer_tokens or (MAX_TOKENS if self.model is None else BASE_TOKENS)

    def stage(self, name: str) -> Stage:
        """The stage of this name.

        Raises:
            BadInput: there is none.
        """
        by_name = {stage.name: stage for stage in self.cascade}
        if name not in by_name:
            raise BadInput(f"train.stages has no stage {name}; it has {', '.join(by_name)}")
        return by_name[name]

    def probed_stage(self, stage: Stage) -> str | None:
        """The stage whose policy is probed to route this one: the first one up the line that routes another too, else the parent; None if
        the stage's split is not routed."""
        if stage.parent is None or not SPLITS[stage.split].is_routed:
            return None
        parent = self.stage(stage.parent)
        earlier = None if self.route.reprobe else self.probed_stage(parent)
        return earlier or parent.name

    def with_stage(self, name: str, **changes: Any) -> CascadeConfig:
        """This configuration with some keys of one stage changed."""
        self.stage(name)
        return self.model_copy(
            update={
                "stages": tuple(
                    type(stage).model_validate(stage.model_dump() | changes) if stage.name == name else stage for stage in self.stages
                )
            }
        )

    def backend_of(self, stage: Stage) -> Backend[Any]:
        """The backend of a stage."""
        return BACKENDS[stage.backend or self.backend](self.cluster)

    def spec(
        self,
        name: str,
        settings: SFTSettings | RLSettings,
        *,
        store: Path,
        release: str,
        split: str,
        model_in: Path | None,
        model_out: Path,
    ) -> StageSpec:
        """The spec of a stage with these settings. split: its name in the release."""
        algorithm: Literal["sft", "rl"] = "rl" if isinstance(settings, RLSettings) else "sft"
        return StageSpec(
            name=name,
            algorithm=algorithm,
            store=store,
            release_id=release,
            split=split,
            model_in=model_in,
            model_out=model_out,
            worlds=self.worlds,
            language=self.language,
            seed=self.seed,
            **{algorithm: settings},
        )

    def draft_specs(self, store: Path) -> dict[str, StageSpec]:
        """Name -> spec of every stage, before any has run. Values not known yet (releases, stage ids) are placeholders in capitals."""
        specs: dict[str, StageSpec] = {}
        base = Path(self.model).expanduser() if self.model is not None else None
        base = base.absolute() if base is not None and base.is_dir() else base
        for stage in self.cascade:
            specs[stage.name] = self.spec(
                stage.name,
                stage.settings,
                store=store,
                release=f"RELEASE-FOR-{stage.name}",
                split=SPLITS[stage.split].part,
                model_in=specs[stage.parent].model_out if stage.parent is not None else base,
                model_out=store / "models" / f"STAGE-{stage.name}" / "model",
            )
        return specs

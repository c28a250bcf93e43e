"""Specification of a training stage: one file, the same for every backend.

One idea: a stage is a function of its spec. The spec holds everything that decides the result (input policy, release split, algorithm,
hyper-parameters, budget in steps, seed), and not where the stage runs. Stages exchange policies as Hugging Face model folders.
This module imports no trainer, so configurations can be read without one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

CHECKPOINTS = "checkpoints"
"""Folder of a stage's checkpoints, beside its model folder; removed when the stage is done."""
METRICS = "metrics.jsonl"
"""File of metrics, one row per step, beside the model folder."""

LossName = Literal["lite_ppo", "grpo", "dapo", "dr_grpo", "gspo", "rft", "ipa"]
RatioName = Literal["token", "chunk", "sequence", "unweighted"]
CreditName = Literal["uniform", "errors_unrewarded", "chunk_return"]
AggregateName = Literal["mean", "least"]
Precision = Literal["auto", "fp32", "bf16"]
RolloutEngine = Literal["auto", "hf", "vllm"]
ScorerName = Literal["success", "graded", "grounded", "plan", "fidelity", "presentation"]
_Weight = Annotated[float, Field(gt=0)]


class TinyConfig(BaseModel):
    """Shape of the tiny policy. The cascade was tuned with the defaults."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    width: int = Field(default=96, ge=8, description="Size of the residual stream; a multiple of twice `heads`.")
    layers: int = Field(default=3, ge=1, description="Transformer layers.")
    heads: int = Field(default=3, ge=1, description="Attention heads; as many key-value heads, so that values span the whole width.")
    feed_forward: int = Field(default=288, ge=8, description="Inner size of the gated feed-forward layers.")
    positions: int = Field(default=512, ge=64, description="Longest conversation in tokens.")

    @model_validator(mode="after")
    def _check_divisible(self) -> TinyConfig:
        each = 2 * self.heads
        if self.width % each:
            raise ValueError(f"width {self.width} does not divide among {self.heads} heads of an even size: give a multiple of {each}")
        return self


class LoRASettings(BaseModel):
    """Low-rank adapters on all linear layers (LoRA, arXiv 2106.09685). They are trained instead of the weights, and merged into them at the
    end of the stage."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rank: int = Field(default=32, ge=1, description="Rank of each adapter.")
    alpha: int = Field(default=64, ge=1, description="An adapter's product is multiplied by alpha / rank.")


class ModelSettings(BaseModel):
    """How the weights are held and trained, whatever the algorithm."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    precision: Precision = Field(
        default="auto", description="Arithmetic of forward and backward passes; auto: bf16 on a GPU, fp32 on a CPU."
    )
    lora: LoRASettings | None = Field(
        default=None, description="Low-rank adapters to train instead of all weights: less memory; null: all weights."
    )
    gradient_checkpointing: bool = Field(
        default=False, description="Whether activations are computed again in the backward pass instead of kept: slower, less memory."
    )


class SFTSettings(ModelSettings):
    """Hyper-parameters of a supervised stage; the defaults suit the tiny policy."""

    max_steps: int = Field(default=150, ge=1, description="Most optimiser steps.")
    batch_size: int = Field(default=16, ge=1, description="Conversations in a step, over all processes.")
    micro_batch_size: int | None = Field(
        default=None, ge=1, description="Conversations that a process holds in memory at once; null: its whole share of the batch."
    )
    leave_out: Literal["nothing", "erred"] = Field(
        default="erred",
        description="Assistant turns that are context but not learned: none, or (erred) those whose call was answered by an error.",
    )
    pack_tokens: int | None = Field(
        default=None,
        ge=2,
        description="Most tokens of a pack of conversations; batch_size and micro_batch_size then count packs; null: no packs.",
    )
    checkpoint_steps: int = Field(
        default=0, ge=0, description="Steps between two checkpoints, from which a killed stage continues; 0: it starts again."
    )
    learning_rate: float = Field(
        default=4e-3, gt=0, description="Peak learning rate; linear warm-up, then linear decay to `final_rate_share` of it."
    )
    warmup_steps: int = Field(default=20, ge=0, description="Steps of warm-up.")
    final_rate_share: float = Field(default=0.05, ge=0, lt=1, description="Learning rate after `max_steps`, as a share of the peak.")
    weight_decay: float = Field(default=0.01, ge=0, description="AdamW's decoupled weight decay.")
    adam_beta2: float = Field(default=0.95, gt=0, lt=1, description="AdamW's second beta.")
    max_grad_norm: float = Field(default=1.0, gt=0, description="Norm to which gradients are clipped.")
    plateau_window: int = Field(default=0, ge=0, description="Steps in a window of the plateau rule; 0 switches the rule off.")
    plateau_gain: float = Field(
        default=0.003, ge=0, description="Fall of the mean loss, in nats a token, below which a window is a plateau."
    )

    @model_validator(mode="after")
    def _check_divisible(self) -> SFTSettings:
        if self.micro_batch_size and self.batch_size % self.micro_batch_size:
            raise ValueError(f"micro_batch_size {self.micro_batch_size} does not divide the {self.batch_size} rows of batch_size")
        return self


class RLSettings(ModelSettings):
    """Hyper-parameters of an RL stage; the defaults suit the tiny policy."""

    max_steps: int = Field(default=200, ge=1, description="Steps; each makes and learns from a batch of fresh rollouts.")
    tasks_a_step: int = Field(default=8, ge=1, description="Fresh tasks in a step.")
    draws: int = Field(default=8, ge=2, description="Rollouts of a task in a step: the group whose mean reward is the baseline.")
    first_draws: int | None = Field(
        default=None,
        ge=2,
        description="Rollouts of a task that are made first; the rest follows only where their rewards differ. null: all at once.",
    )
    max_rollouts: int | None = Field(
        default=None, ge=1, description="The stage ends with the step in which it has made so many rollouts, if `max_steps` are not over."
    )
    learning_rate: float = Field(
        default=6e-4, gt=0, description="Peak learning rate; linear warm-up, then linear decay to `final_rate_share` of it."
    )
    warmup_steps: int = Field(default=5, ge=0, description="Steps of warm-up.")
    final_rate_share: float = Field(default=0.1, ge=0, lt=1, description="Learning rate after `max_steps`, as a share of the peak.")
    weight_decay: float = Field(default=0.0, ge=0, description="AdamW's decoupled weight decay.")
    adam_beta2: float = Field(default=0.99, gt=0, lt=1, description="AdamW's second beta.")
    max_grad_norm: float = Field(default=1.0, gt=0, description="Norm to which gradients are clipped.")
    temperature: float = Field(default=1.0, gt=0, description="Sampling temperature of the rollouts.")
    max_turns: int = Field(default=8, ge=1, description="Most messages of the assistant for one user turn; a longer answer fails.")
    max_tokens: int = Field(default=64, ge=1, description="Longest answer, in tokens; a longer one has failed.")
    reward: ScorerName | Literal["shuffled"] | Annotated[dict[ScorerName, _Weight], Field(min_length=1)] = Field(
        default="success",
        description="The reward: success (the verifier's yes or no), graded (partial success counts), one mark of that, or weights of "
        "several ({success: 3, plan: 1}). Negative control: shuffled, success dealt at random among all rollouts.",
    )
    collapse: AggregateName = Field(
        default="mean", description="How several scores become one number: their weighted mean, or the least of them."
    )
    loss: LossName = Field(
        default="lite_ppo",
        description="The loss; docs/definitions.md has the formulas.",
    )
    credit: CreditName = Field(
        default="uniform",
        description="Tokens learned from: uniform: all of the policy's; errors_unrewarded: not the turns that erred in good rollouts; "
        "chunk_return: all tokens; a turn weighs credit_gamma to the number of turns after it.",
    )
    credit_gamma: float = Field(
        default=0.95, gt=0, le=1, description="Discount of a turn for each turn that follows it, with the credit chunk_return."
    )
    ratio: RatioName | None = Field(
        default=None,
        description="Ratio to the policy that sampled: of each token, or the geometric mean over a chunk (what the policy writes between "
        "two tool results) or over the sequence; unweighted is always 1; null: as the loss has it.",
    )
    clip_low: float | None = Field(default=None, gt=0, description="The ratio is clipped at 1 minus this; null: as the loss has it.")
    clip_high: float | None = Field(default=None, gt=0, description="The ratio is clipped at 1 plus this; null: as the loss has it.")
    beta: float = Field(default=0.0, ge=0, description="Weight of the KL divergence to the input policy; 0 keeps no copy of it.")
    updates_a_batch: int = Field(default=1, ge=1, description="Optimiser updates that a step makes from its batch.")
    micro_batch_size: int | None = Field(
        default=None, ge=1, description="Rollouts in one forward pass; null: all of a step (tasks_a_step x draws)."
    )
    resample_rounds: int | None = Field(
        default=None,
        ge=0,
        description="Most times in a step that tasks whose rollouts hardly differ are replaced by others; null: as the loss has it.",
    )
    start: Literal["task", "rollback"] = Field(
        default="task",
        description="Where rollouts start: task, at the request; rollback, late in the expert's conversation first, and a turn earlier "
        "each time that the policy has mastered the rest.",
    )
    rollback_mastered: float = Field(
        default=0.75,
        gt=0,
        le=1,
        description="With rollback: success rate of the latest rollouts at which their start moves a turn back.",
    )
    rollback_imitation: float = Field(
        default=0.1,
        ge=0,
        description="With rollback: weight of the expert's mean negative log-likelihood up to and with the crucial turn (success from "
        "before it is significantly lower than from after it); 0: none.",
    )
    staleness: int = Field(
        default=0,
        ge=0,
        description="0: plays and learns in turn. From 1 on, other processes play meanwhile: with the policy of exactly this many batches "
        "ago, or with `rollout_workers` of at most this many.",
    )
    rollout_workers: int | None = Field(
        default=None,
        ge=1,
        description="null: one process plays whole batches, exactly `staleness` batches behind. A number: so many processes play single "
        "conversations by the newest weights; a conversation with a token older than `staleness` batches is dropped and played again.",
    )
    reward_url: str | None = Field(
        default=None,
        description="URL of a reward service for `rollout_workers` (`python -P -m train.rl.trajectories.reward_service`); null: the stage "
        "starts one.",
    )
    rollout_timeout_s: float = Field(
        default=600.0,
        gt=0,
        description="With `rollout_workers`: a conversation that a worker has held for so many seconds is dropped and played again, as one "
        "that is too stale.",
    )
    rollouts: RolloutEngine = Field(
        default="auto",
        description="What plays the rollouts: hf, our engine in the training process; vllm, a server that gets the weights before each "
        "step; auto, vllm where there is a GPU, vLLM is installed and a base model is trained, else hf.",
    )
    vllm_memory_share: float = Field(
        default=0.3, gt=0, lt=1, description="Share of a GPU's memory that vLLM takes while it plays; the trainer keeps its own meanwhile."
    )
    checkpoint_steps: int = Field(
        default=100, ge=0, description="Steps between two checkpoints, from which a killed stage continues; 0: it starts again."
    )
    tag_window: int = Field(default=16, ge=2, description="Latest rollouts of a task's siblings that make its running tag.")
    follow_tags: bool = Field(
        default=False,
        description="Whether each step draws tasks by what the latest rollouts of their needs say; if not, by their weights in the split.",
    )

    @model_validator(mode="after")
    def _check_divisible(self) -> RLSettings:
        if self.first_draws and self.first_draws >= self.draws:
            raise ValueError(f"first_draws {self.first_draws} must be less than draws {self.draws}; null makes all at once")
        if self.max_rollouts and self.staleness:
            raise ValueError("max_rollouts needs staleness 0: what is played ahead would not be counted")
        if self.rollout_workers and not self.staleness:
            raise ValueError("rollout_workers play while the trainer learns: set staleness to 1 or more, or rollout_workers to null")
        if self.rollout_workers and self.first_draws:
            raise ValueError("first_draws are drawn for whole batches: set first_draws to null, or rollout_workers to null")
        if self.reward_url is not None and not self.reward_url.startswith(("http://", "https://")):
            raise ValueError(f"reward_url {self.reward_url} is no URL of a service: give http://HOST:PORT")
        if self.reward_url is not None and not self.rollout_workers:
            raise ValueError("reward_url is asked by rollout_workers alone: set rollout_workers, or reward_url to null")
        rows = self.tasks_a_step * self.draws
        if self.micro_batch_size and rows % self.micro_batch_size:
            raise ValueError(f"micro_batch_size {self.micro_batch_size} does not divide tasks_a_step x draws = {rows}")
        if self.lora is not None and self.staleness:
            raise ValueError("a player of stale batches gets whole weights, not adapters: set staleness to 0, or lora to null")
        return self

    @model_validator(mode="after")
    def _check_rollouts(self) -> RLSettings:
        if self.rollouts == "vllm" and self.staleness:
            raise ValueError("rollouts by vllm are of the newest weights: set staleness to 0, or rollouts to hf")
        if self.start == "rollback" and self.staleness:
            raise ValueError("start rollback moves by the newest rollouts: set staleness to 0, or start to task")
        if self.start == "rollback" and self.follow_tags:
            raise ValueError("follow_tags follows rollouts that start at the request: set follow_tags to false, or start to task")
        return self


class StageSpec(BaseModel):
    """One training stage.

    Without `model_in` the stage starts from a fresh tiny policy, whose vocabulary comes from `worlds` and the split's texts.
    Paths are absolute, or relative to the working directory of the process that runs the stage.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(description="Its name, for people: sft1, sft2, rl ...")
    algorithm: Literal["sft", "rl"] = Field(description="How it trains; its settings stand under the same name.")
    store: Path = Field(description="Folder of the store that holds the release.")
    release_id: str = Field(description="Release that it learns from.")
    split: str = Field(description="Split of the release.")
    model_in: Path | None = Field(None, description="Folder of the policy to begin with; null: a fresh tiny policy.")
    model_out: Path = Field(description="Folder that the trained policy is written to.")
    worlds: tuple[str, ...] = Field(("retail",), description="Worlds of its tasks.")
    language: Literal["en", "zh"] = Field("en", description="Language of the siblings that RL draws.")
    seed: int = Field(0, ge=0, description="Seed of the weights, the order of batches and every rollout.")
    tiny: TinyConfig = Field(default_factory=TinyConfig, description="Shape of the fresh policy where `model_in` is null.")
    sft: SFTSettings | None = Field(None, description="Settings of supervised training; null: not trained so.")
    rl: RLSettings | None = Field(None, description="Settings of RL; null: not trained so.")

    @model_validator(mode="after")
    def _check_settings(self) -> StageSpec:
        if getattr(self, self.algorithm) is None:
            raise ValueError(f"a stage with algorithm {self.algorithm} needs the section `{self.algorithm}`")
        other = "rl" if self.algorithm == "sft" else "sft"
        if getattr(self, other) is not None:
            raise ValueError(f"a stage with algorithm {self.algorithm} has no use for the section `{other}`")
        if self.settings.lora is not None and self.model_in is None:
            raise ValueError("lora adapts a policy that there is already: name a model to begin with, or set lora to null")
        if self.model_in == self.model_out:
            raise ValueError("model_out is model_in: a stage that is killed needs the policy that it came from; name another folder")
        if self.rl is not None and self.rl.beta and self.model_in is None:
            raise ValueError("rl.beta holds a policy near the one it came from: name that one as model_in, or set beta to 0")
        return self

    @property
    def settings(self) -> SFTSettings | RLSettings:
        """Settings of the stage's algorithm."""
        settings = self.sft or self.rl
        assert settings is not None
        return settings

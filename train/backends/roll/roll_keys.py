"""Typed, strict models of the keys that we render for ROLL's agentic pipeline.

One idea: ROLL ignores misspelt keys (and a clip range without its switch) and evaluates `device_mapping` as Python. So everything rendered
passes these models. They refuse unknown keys, check rules that ROLL checks late or never, and allow only `list(range(A,B))` in the `eval`.

What it does not do: cover all keys of ROLL. Source: alibaba/ROLL at 8eb27cc, `roll/configs/*.py`,
`roll/pipeline/agentic/agentic_config.py`.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from train.spec import AggregateName, ScorerName

DeviceMapping = Annotated[str, StringConstraints(pattern=r"\Alist\(range\((0|[1-9][0-9]{0,4}),(0|[1-9][0-9]{0,4})\)\)\z")]
Class = Annotated[str, StringConstraints(pattern=r"\A[A-Za-z_]\w*(\.[A-Za-z_]\w*)+\z")]
Positive = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(gt=0, lt=1)]
Above0 = Annotated[float, Field(gt=0)]


def devices(mapping: str) -> range:
    """GPU numbers of a `DeviceMapping`, parsed without `eval`."""
    begin, end = re.findall(r"[0-9]+", mapping)
    return range(int(begin), int(end))


class _Keys(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ModelArgs(_Keys):
    attn_implementation: Literal["fa2", "sdpa", "auto"] = "fa2"
    dtype: Literal["bf16", "fp16", "fp32"] = "bf16"
    disable_gradient_checkpointing: bool


class TrainingArgs(_Keys):
    learning_rate: Above0
    weight_decay: Annotated[float, Field(ge=0)]
    adam_beta2: Share
    per_device_train_batch_size: Positive
    gradient_accumulation_steps: Positive
    warmup_steps: Annotated[int, Field(ge=0)]
    lr_scheduler_type: Literal["linear", "cosine", "constant", "constant_with_warmup"]
    save_hf_model: bool


class GeneratingArgs(_Keys):
    max_new_tokens: Positive
    temperature: Above0
    top_p: Annotated[float, Field(gt=0, le=1)]
    top_k: int
    num_return_sequences: Literal[1]


class FSDP2Config(_Keys):
    fsdp_size: Positive
    param_dtype: Literal["bf16", "float32"]
    reduce_dtype: Literal["bf16", "float32"]
    reshard_after_forward: bool
    offload_policy: bool
    save_only_model: bool


class FSDP2Strategy(_Keys):
    strategy_name: Literal["fsdp2_train"]
    strategy_config: FSDP2Config


class VLLMConfig(_Keys):
    gpu_memory_utilization: Share
    tensor_parallel_size: Positive
    max_model_len: Positive
    load_format: Literal["auto", "dummy"]


class VLLMStrategy(_Keys):
    strategy_name: Literal["vllm"]
    strategy_config: VLLMConfig


class ActorTrain(_Keys):
    model_args: ModelArgs
    training_args: TrainingArgs
    strategy_args: FSDP2Strategy
    device_mapping: DeviceMapping
    infer_batch_size: Positive


class ActorInfer(_Keys):
    model_args: ModelArgs
    generating_args: GeneratingArgs
    strategy_args: VLLMStrategy
    device_mapping: DeviceMapping


class RewardNormalization(_Keys):
    grouping: Literal["traj_group_id"]
    norm_mean_type: Literal["batch", "group"] | None
    norm_std_type: Literal["batch", "group"] | None


class EnvManager(_Keys):
    num_env_groups: Positive
    group_size: Positive
    max_env_num_per_worker: Positive
    tags: Annotated[list[str], Field(min_length=1)]
    num_groups_partition: Annotated[list[Positive], Field(min_length=1)]
    group_filter_cls: Class

    @model_validator(mode="after")
    def _check_partition(self) -> EnvManager:
        if len(self.tags) != len(self.num_groups_partition) or sum(self.num_groups_partition) != self.num_env_groups:
            raise ValueError("num_groups_partition must have one number a tag, and add up to num_env_groups")
        return self


class EnvConfig(_Keys):
    """Arguments of our environment, `train/backends/roll/gem_environment.py`, and of ROLL's manager."""

    rows: str
    store: str
    rollouts: str
    max_turns: Positive
    reward: ScorerName | dict[ScorerName, Above0]
    collapse: AggregateName
    tool_call_parser: str
    trajectory_mode: Literal["traj"]


class CustomEnv(_Keys):
    env_type: str
    max_steps: Positive
    max_tokens_per_step: Positive
    env_manager_cls: Class
    agent_runner_cls: Class
    agent_system_template: str
    agent_template: str
    env_config: EnvConfig

    @model_validator(mode="after")
    def _check_manager(self) -> CustomEnv:
        if "proxy_env_manager" not in self.env_manager_cls:
            raise ValueError(
                f"{self.env_manager_cls} has no proxy_env_manager in its dotted path, by which ROLL decides to start the server that "
                "answers the environments: give its module that name"
            )
        return self


class FileSystem(_Keys):
    type: Literal["file_system"]
    output_dir: str
    async_upload: Literal[False]


class Agentic(_Keys):
    """One file of ROLL's agentic pipeline."""

    exp_name: str
    seed: Annotated[int, Field(ge=0)]
    output_dir: str
    logging_dir: str
    rollout_dump_dir: str
    checkpoint_config: FileSystem
    track_with: Literal["stdout", "tensorboard"]
    num_gpus_per_node: Positive
    max_steps: Positive
    save_steps: Positive
    max_ckpt_to_keep: Annotated[int, Field(ge=0)]
    logging_steps: Positive
    eval_steps: Annotated[int, Field(ge=0)]
    resume_from_checkpoint: Literal[False] | str
    rollout_batch_size: Positive
    val_batch_size: Positive
    prompt_length: Positive
    sequence_length: Positive
    async_generation_ratio: Annotated[float, Field(ge=0)]
    pretrain: str
    adv_estimator: Literal["grpo", "reinforce"]
    ratio_type: Literal["token", "segment"]
    loss_agg_mode: Literal["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]
    use_pg_clip_range: Literal[True]
    pg_clip_low: Above0
    pg_clip_high: Above0
    dual_clip_loss: bool
    ppo_epochs: Positive
    max_grad_norm: Above0
    use_kl_loss: Literal[False]
    init_kl_coef: Literal[0]
    entropy_loss_coef: Annotated[float, Field(ge=0)]
    whiten_advantages: bool
    batch_adjust_mode: Literal["copy", "delete", "auto", "random_sample"]
    reward_normalization: RewardNormalization
    actor_train: ActorTrain
    actor_infer: ActorInfer
    train_env_manager: EnvManager
    val_env_manager: EnvManager
    custom_envs: dict[str, CustomEnv]

    @model_validator(mode="after")
    def _check_batches(self) -> Agentic:
        group, rows = self.train_env_manager.group_size, self.rollout_batch_size
        if rows % group:
            raise ValueError(f"rollout_batch_size {rows} is not a multiple of train_env_manager.group_size {group}")
        environments = self.train_env_manager.num_env_groups * group
        if rows % environments:
            raise ValueError(
                f"rollout_batch_size {rows} is not a multiple of the {environments} environments (num_env_groups x group_size)"
            )
        environments = self.val_env_manager.num_env_groups * self.val_env_manager.group_size
        if self.val_batch_size % environments:
            raise ValueError(
                f"val_batch_size {self.val_batch_size} is not a multiple of the {environments} environments of val_env_manager"
            )
        training, gpus = self.actor_train.training_args, len(devices(self.actor_train.device_mapping))
        update = training.per_device_train_batch_size * training.gradient_accumulation_steps * max(1, gpus)
        if rows % update:
            raise ValueError(
                f"rollout_batch_size {rows} is not a multiple of {update}, the rows of one update "
                "(per_device_train_batch_size x gradient_accumulation_steps x GPUs of actor_train)"
            )
        return self

    @model_validator(mode="after")
    def _check_normalization(self) -> Agentic:
        norm, group = self.reward_normalization, self.train_env_manager.group_size
        if group < 2 and "group" in (norm.norm_mean_type, norm.norm_std_type):
            raise ValueError("train_env_manager.group_size is 1 and rewards are normalised by group: every advantage would be 0")
        if norm.norm_mean_type is None:
            raise ValueError("reward_normalization.norm_mean_type is missing: without a baseline ROLL learns from raw rewards")
        if self.whiten_advantages:
            raise ValueError(
                "whiten_advantages normalises a second time, by tokens, what reward_normalization has normalised: set it to false"
            )
        return self

    @model_validator(mode="after")
    def _check_layout(self) -> Agentic:
        for name, mapping in (("actor_train", self.actor_train.device_mapping), ("actor_infer", self.actor_infer.device_mapping)):
            used = devices(mapping)
            if not used or len(used) % self.num_gpus_per_node or used.start % self.num_gpus_per_node:
                raise ValueError(f"{name}.device_mapping {mapping} does not fill whole nodes of {self.num_gpus_per_node} GPUs")
        parallel = self.actor_infer.strategy_args.strategy_config.tensor_parallel_size
        if self.num_gpus_per_node % parallel:
            raise ValueError(f"tensor_parallel_size {parallel} does not divide num_gpus_per_node {self.num_gpus_per_node}")
        if len(devices(self.actor_train.device_mapping)) % self.actor_train.strategy_args.strategy_config.fsdp_size:
            raise ValueError("fsdp_size does not divide the GPUs of actor_train")
        if self.actor_infer.strategy_args.strategy_config.max_model_len < self.sequence_length:
            raise ValueError(f"max_model_len is less than sequence_length {self.sequence_length}")
        if self.prompt_length >= self.sequence_length:
            raise ValueError(f"prompt_length {self.prompt_length} leaves nothing of sequence_length {self.sequence_length}")
        missing = {*self.train_env_manager.tags, *self.val_env_manager.tags} - set(self.custom_envs)
        if missing:
            raise ValueError(f"custom_envs has no {min(missing)}, which an env manager names in its tags")
        return self

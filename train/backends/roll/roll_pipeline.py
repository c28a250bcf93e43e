"""Renders an RL stage for ROLL's agentic pipeline: one complete YAML file and the start command.

One idea: ROLL takes no overrides and ignores unknown keys, so the whole file is rendered and `roll_keys.py` checks each key. SFT is not
supported: ROLL's SFT takes single-turn rows of instruction and output, without tools.

ROLL sets `num_gpus_per_node` to the number of GPUs that its *driver* sees, or to 1 if the driver sees none. So the job requests no GPU (Ray
would hide the others from it), and the start command first counts the GPUs.

What it does not do: submit the stage or play rollouts. The `adapter` is a subclass of ROLL's `ProxyEnvManager` in ROLL's image: ours
(`proxy_env_manager.py`), or another in a module of that name, by which ROLL decides to start its proxy server. ROLL is not on PyPI (the
package `roll` there is another project).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from storage.errors import BadInput
from train.backends.cluster_shape import MEMORY_SHARE, ClusterShape, ratio_of, rules_of
from train.backends.roll.roll_keys import Agentic
from train.spec import LossName, RLSettings, StageSpec

COMMIT = "8eb27cc"
CHECKED = f"our own model of the keys of ROLL (commit {COMMIT}) holds; ROLL itself is not asked"
OUTPUT, CHECKPOINTS = "output", "checkpoints"
"""Folders of a stage: what ROLL's workers save, and where they move it."""
ENVIRONMENT = "headrace"
"""Id and tag of our GEM environment."""
_RUNNER = "roll.pipeline.agentic.agent_runner.gem_runner.ToolCallRunner"
_FILTER = "train.backends.roll.failed_groups.FailedGroups"
_ENVIRONMENTS_PER_WORKER = 16

_RULES_OF_LOSS: Mapping[LossName, Mapping[str, Any]] = {
    "grpo": {"loss_agg_mode": "seq-mean-token-mean"},
    "dapo": {"pg_clip_high": 0.28},
    "dr_grpo": {"loss_agg_mode": "seq-mean-token-sum-norm", "reward_normalization.norm_std_type": None},
    "gspo": {"loss_agg_mode": "seq-mean-token-mean", "pg_clip_low": 3e-4, "pg_clip_high": 4e-4},
    "lite_ppo": {"reward_normalization.norm_std_type": "batch"},
}
"""Changes by loss to PPO with group mean, group standard deviation and a token-level mean."""


def keys(spec: StageSpec, shape: ClusterShape, *, folder: Path, adapter: str) -> dict[str, Any]:
    """Content of the YAML file.

    folder: path of the rendered files on the cluster. adapter: dotted path of the class.

    Raises:
        BadInput: an SFT stage, a setting that ROLL lacks, or a number of rollouts that does not divide among the GPUs.
    """
    if spec.rl is None:
        raise BadInput(
            f"stage {spec.name} is SFT, and ROLL's SFT takes single-turn rows without tools, so it cannot learn these conversations: "
            "render it for verl, or train it with the backend local or ray"
        )
    if spec.rl.beta:
        raise BadInput(f"rl.beta is {spec.rl.beta:g}, and no reference policy is rendered for ROLL: set it to 0, or render it for verl")
    if spec.rl.resample_rounds:
        raise BadInput(f"rl.resample_rounds is {spec.rl.resample_rounds}, and ROLL's own group filter keeps every group: set it to 0")
    content = _pipeline(spec, spec.rl, shape, folder) | _roles(spec.rl, shape) | _environments(spec, spec.rl, folder, adapter)
    content["reward_normalization"] = {"grouping": "traj_group_id", "norm_mean_type": "group", "norm_std_type": "group"}
    clips = {"pg_clip_low": spec.rl.clip_low, "pg_clip_high": spec.rl.clip_high}
    return with_overrides(
        content, {**rules_of(spec.rl, _RULES_OF_LOSS, "ROLL"), **{key: clip for key, clip in clips.items() if clip is not None}}
    )


def with_overrides(content: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of the content with other values at dotted keys.

    Raises:
        BadInput: a key is not in the content; ROLL would ignore it.
    """
    changed = copy.deepcopy(content)
    for key, value in changes.items():
        *path, last = key.split(".")
        mapping: Any = changed
        for name in path:
            mapping = mapping.get(name) if isinstance(mapping, dict) else None
        if not isinstance(mapping, dict) or last not in mapping:
            raise BadInput(f"{key} is no key of the rendered file for ROLL, which would ignore it silently")
        mapping[last] = value
    return changed


def check(content: Mapping[str, Any]) -> None:
    """Validates the content by `roll_keys`.

    Raises:
        BadInput: the first key or rule that fails, with its place.
    """
    try:
        Agentic.model_validate(dict(content))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BadInput(f"ROLL's configuration{' at ' + where if where else ''}: {first['msg'].removeprefix('Value error, ')}") from None


def files(content: Mapping[str, Any], spec: StageSpec, shape: ClusterShape) -> dict[str, str]:
    """File name -> text: the YAML and the start script. ROLL takes the YAML's folder relative to its own folder `examples`."""
    entry = f"""#!/usr/bin/env bash
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
gpus="$( (nvidia-smi --list-gpus 2> /dev/null || true) | wc -l)"
if [ "$gpus" -ne {shape.gpus_per_node} ]; then
  echo "ROLL plans with the GPUs that its driver sees: start it on a node with {shape.gpus_per_node}, here are $gpus" >&2
  exit 2
fi
cd "${{ROLL_HOME:?set it to the checkout of alibaba/ROLL in the image}}"
export PYTHONPATH="$PWD${{PYTHONPATH:+:$PYTHONPATH}}"
exec python3 examples/start_agentic_pipeline.py --config_path "$(realpath --relative-to examples "$here")" --config_name pipeline
"""
    return {"pipeline.yaml": yaml.safe_dump(dict(content), sort_keys=False, width=1000), "entrypoint.sh": entry}


def notes(settings: RLSettings) -> list[str]:
    """Differences between the rendered stage and the same stage in our own trainer."""
    texts = [
        "the rate decays linearly to 0 (ROLL passes no final share)",
        "each group takes the rows in the order of the file, from a row that ROLL draws: not every row is played in an epoch",
        "a group with a rollout that failed by no fault of the policy is replaced by the next row's (scheduler/group_filter_count)",
    ]
    if settings.loss in ("dapo", "gspo") and settings.resample_rounds is None:
        texts.append(f"{settings.loss} is without its resampling: ROLL's own group filter keeps every group")
    if ratio_of(settings) == "sequence":
        texts.append("the ratio of a sequence is ROLL's of a segment: the mean over one answer, not over the whole conversation")
    return texts


def _pipeline(spec: StageSpec, settings: RLSettings, shape: ClusterShape, folder: Path) -> dict[str, Any]:
    return {
        "exp_name": spec.name,
        "seed": spec.seed,
        "output_dir": str(folder / OUTPUT),
        "logging_dir": str(folder / "logs"),
        "rollout_dump_dir": str(folder / "dumps"),
        "checkpoint_config": {"type": "file_system", "output_dir": str(folder / CHECKPOINTS), "async_upload": False},
        "track_with": "stdout",
        "num_gpus_per_node": shape.gpus_per_node,
        "max_steps": settings.max_steps,
        "save_steps": settings.checkpoint_steps or settings.max_steps,
        "max_ckpt_to_keep": 2,
        "logging_steps": 1,
        "eval_steps": 0,
        "resume_from_checkpoint": False,
        "rollout_batch_size": settings.tasks_a_step * settings.draws,
        "val_batch_size": 1,
        "prompt_length": shape.prompt_tokens,
        "sequence_length": shape.context_tokens,
        "async_generation_ratio": 0,
        "pretrain": str(spec.model_in),
        "adv_estimator": "grpo",
        "ratio_type": "segment" if ratio_of(settings) == "sequence" else "token",
        "loss_agg_mode": "token-mean",
        "use_pg_clip_range": True,
        "pg_clip_low": 0.2,
        "pg_clip_high": 0.2,
        "dual_clip_loss": False,
        "ppo_epochs": settings.updates_a_batch,
        "max_grad_norm": settings.max_grad_norm,
        "use_kl_loss": False,
        "init_kl_coef": 0,
        "entropy_loss_coef": 0,
        "whiten_advantages": False,
        "batch_adjust_mode": "copy",
    }


def _roles(settings: RLSettings, shape: ClusterShape) -> dict[str, Any]:
    """The two roles of the policy; both use all GPUs, in turn."""
    devices = f"list(range(0,{shape.gpus}))"
    return {"actor_train": _trainer(settings, shape, devices), "actor_infer": _player(settings, shape, devices)}


def _trainer(settings: RLSettings, shape: ClusterShape, devices: str) -> dict[str, Any]:
    rows = settings.tasks_a_step * settings.draws
    if settings.lora is not None:
        raise BadInput("rl.lora is not rendered for ROLL: set it to null, or render for verl")
    if rows % shape.gpus:
        raise BadInput(f"{rows} rollouts a step (rl.tasks_a_step x rl.draws) cannot be shared by {shape.gpus} GPUs: give a multiple of it")
    return {
        "model_args": {
            "attn_implementation": "fa2",
            "dtype": "bf16",
            "disable_gradient_checkpointing": not settings.gradient_checkpointing,
        },
        "training_args": {
            "learning_rate": settings.learning_rate,
            "weight_decay": settings.weight_decay,
            "adam_beta2": settings.adam_beta2,
            "per_device_train_batch_size": 1,
            "gradient_accumulation_steps": rows // shape.gpus,
            "warmup_steps": settings.warmup_steps,
            "lr_scheduler_type": "linear",
            "save_hf_model": True,
        },
        "strategy_args": {
            "strategy_name": "fsdp2_train",
            "strategy_config": {
                "fsdp_size": shape.gpus,
                "param_dtype": "bf16",
                "reduce_dtype": "float32",
                "reshard_after_forward": True,
                "offload_policy": False,
                "save_only_model": True,
            },
        },
        "device_mapping": devices,
        "infer_batch_size": 1,
    }


def _player(settings: RLSettings, shape: ClusterShape, devices: str) -> dict[str, Any]:
    return {
        "model_args": {"attn_implementation": "fa2", "dtype": "bf16", "disable_gradient_checkpointing": True},
        "generating_args": {
            "max_new_tokens": settings.max_tokens,
            "temperature": settings.temperature,
            "top_p": 1.0,
            "top_k": -1,
            "num_return_sequences": 1,
        },
        "strategy_args": {
            "strategy_name": "vllm",
            "strategy_config": {
                "gpu_memory_utilization": MEMORY_SHARE,
                "tensor_parallel_size": shape.tensor_parallel,
                "max_model_len": shape.context_tokens,
                "load_format": "auto",
            },
        },
        "device_mapping": devices,
    }


def _environments(spec: StageSpec, settings: RLSettings, folder: Path, adapter: str) -> dict[str, Any]:
    def manager(groups: int, size: int) -> dict[str, Any]:
        return {
            "num_env_groups": groups,
            "group_size": size,
            "max_env_num_per_worker": _ENVIRONMENTS_PER_WORKER,
            "tags": [ENVIRONMENT],
            "num_groups_partition": [groups],
            "group_filter_cls": _FILTER,
        }

    environment = {
        "env_type": ENVIRONMENT,
        "max_steps": settings.max_turns,
        "max_tokens_per_step": settings.max_tokens,
        "env_manager_cls": adapter,
        "agent_runner_cls": _RUNNER,
        "agent_system_template": "",
        "agent_template": "{observation}",
        "env_config": {
            "rows": str(folder / "data" / f"{spec.split}.prompts.jsonl"),
            "store": str(spec.store),
            "rollouts": str(folder / "rollouts"),
            "max_turns": settings.max_turns,
            "reward": settings.reward,
            "collapse": settings.collapse,
            "tool_call_parser": "qwen25",
            "trajectory_mode": "traj",
        },
    }
    return {
        "train_env_manager": manager(settings.tasks_a_step, settings.draws),
        "val_env_manager": manager(1, 1),
        "custom_envs": {ENVIRONMENT: environment},
    }

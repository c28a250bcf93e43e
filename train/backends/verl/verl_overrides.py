"""Renders a stage for verl 0.9.1: Hydra overrides, the start command, and the list of agent loops.

One idea: verl is strict about overrides only: a key that its schema lacks is an error at start. So overrides are rendered. If Hydra and
verl's wheel are installed (`SCHEMA`), they are composed with verl's schema here. verl itself is never imported: its pinned dependencies
conflict with ours. Rules that the schema cannot express, and one that verl does not check (mini-batch <= batch), are checked here.

What it does not do: submit the stage or play rollouts. The `adapter` is a class in verl's image: for RL an `AgentLoopBase` that plays
`train/backends/environment.py` and sets `reward_score` (`agent_loop.py`); for SFT a `MultiTurnSFTDataset` that decodes the columns
`messages` and `tools`, JSON texts (`storage/releases/verl_dataset.py`). Source of the keys: verl's `trainer/config`.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from storage.errors import BadInput
from train.backends.cluster_shape import MEMORY_SHARE, ClusterShape, ratio_of, rules_of
from train.spec import LossName, ModelSettings, RLSettings, SFTSettings, StageSpec

VERSION = "0.9.1"
AGENT = "headrace"
"""Name of our agent loop; equals column `agent_name` of exported rows."""
CHECKED = f"composed with the schema of verl {VERSION}, and our own rules hold"
SCHEMA = Path(sys.prefix) / f"verl-{VERSION}"
"""Folder of verl's wheel. It is outside site-packages, because the wheel's packages `tests` and `scripts` would shadow others."""
UNCHECKED = (
    f"only our own rules hold: verl {VERSION} is not here to compose it with its schema "
    f"(pip install hydra-core; pip install --no-deps --target {SCHEMA} verl=={VERSION})"
)
_PLAIN = re.compile(r"(?!(?:null|true|false|nan|inf)\Z)[a-z/][a-z0-9_./:-]*", re.ASCII | re.IGNORECASE)
"""Texts that Hydra parses as strings without quotes."""
_LORA_RANK, _MAX_LORA_RANK = "actor_rollout_ref.model.lora_rank", 512
_SAVED = ["model", "optimizer", "extra", "hf_model"]
_ENTRY = {"rl": ("verl.trainer.main_ppo", "ppo_trainer"), "sft": ("verl.trainer.sft_trainer_ray", "sft_trainer_engine")}

Value = bool | int | float | str | None | list[str] | list[float]

_RULES_OF_LOSS: Mapping[LossName, Mapping[str, Value]] = {
    "grpo": {"loss_agg_mode": "seq-mean-token-mean"},
    "dapo": {"clip_ratio_high": 0.28},
    "dr_grpo": {"loss_agg_mode": "seq-mean-token-sum-norm"},
    "gspo": {"loss_agg_mode": "seq-mean-token-mean", "clip_ratio_low": 3e-4, "clip_ratio_high": 4e-4},
    "lite_ppo": {},
}
"""Changes by loss to PPO with a token-level mean; keys below `actor_rollout_ref.actor`."""

_RESAMPLED: Sequence[LossName] = ("dapo", "gspo")
"""Losses that resample by default tasks whose rollouts all have the same reward."""


def overrides(
    spec: StageSpec, shape: ClusterShape, *, folder: Path, adapter: str, changes: Mapping[str, Value] | None = None
) -> dict[str, Value]:
    """Hydra key -> value, in rendering order.

    verl stops after `total_training_steps` or `total_epochs`, whichever comes first. Only verl knows the steps of an epoch (it drops
    prompts that are too long), so `total_epochs` is set to the number of steps.

    folder: path of the rendered files on the cluster. adapter: dotted path of the class. changes: values that override the rendered ones.

    Raises:
        BadInput: a changed key has a Hydra prefix (++, ~, or + before a rendered key) that would hide it from the checks.
    """
    settings = spec.settings
    values = _rl(spec, settings, shape, folder) if isinstance(settings, RLSettings) else _sft(spec, settings, shape, folder, adapter)
    for key in changes or {}:
        if key.startswith(("++", "~")) or (key.startswith("+") and key[1:] in values):
            raise BadInput(f"{key}: name a key as verl has it, without {key[: -len(key.lstrip('+~'))]}, so that it can be checked")
    values |= changes or {}
    return values | {"trainer.total_epochs": values.get("trainer.total_epochs", values["trainer.total_training_steps"])}


def check_rules(values: Mapping[str, Value]) -> None:
    """Checks the rules that verl's schema cannot express, on the final values.

    Raises:
        BadInput: a rule is broken; the message names the keys.
    """
    batch, mini = _positive_int(values, "data.train_batch_size"), "actor_rollout_ref.actor.ppo_mini_batch_size"
    node = _positive_int(values, "trainer.n_gpus_per_node")
    gpus = node * _positive_int(values, "trainer.nnodes")
    if mini not in values:
        _check_divides(gpus, batch, "data.train_batch_size", "the number of GPUs")
        return
    _check_rollouts(values)
    draws, updated = _positive_int(values, "actor_rollout_ref.rollout.n"), _positive_int(values, mini)
    if updated > batch:
        raise BadInput(f"{mini} {updated} is larger than data.train_batch_size {batch}; verl {VERSION} itself would take it")
    _check_divides(updated, batch, "data.train_batch_size", mini)
    _check_divides(gpus, batch * draws, "data.train_batch_size x rollout.n", "the number of GPUs")
    _check_divides(gpus, updated * draws, f"{mini} x rollout.n", "the number of GPUs")
    if draws < 2:
        raise BadInput(f"actor_rollout_ref.rollout.n is {draws}: a group of one has no baseline, and every advantage would be 0")
    parallel = "actor_rollout_ref.rollout.tensor_model_parallel_size"
    _check_divides(_positive_int(values, parallel), node, "trainer.n_gpus_per_node", parallel)
    length = _positive_int(values, "data.max_prompt_length") + _positive_int(values, "data.max_response_length")
    for key in ("actor_rollout_ref.actor.ppo_max_token_len_per_gpu", "actor_rollout_ref.rollout.max_model_len"):
        if _positive_int(values, key) < length:
            raise BadInput(f"{key} {values[key]} is less than the longest conversation, {length} tokens: raise it")


def _check_rollouts(values: Mapping[str, Value]) -> None:
    """Checks what `agent_loop.py` and vLLM need."""
    if not values.get("trainer.use_v1"):
        raise BadInput("trainer.use_v1 is false: that trainer of verl cannot drop a rollout whose world failed; leave it true")
    rank = values.get(_LORA_RANK, 0)
    if isinstance(rank, int) and rank > _MAX_LORA_RANK:
        raise BadInput(f"{_LORA_RANK} is {rank}, and vLLM takes {_MAX_LORA_RANK} at most")


def compose(values: Mapping[str, Value], algorithm: str) -> str | None:
    """The full configuration that verl will read, as YAML; None if verl or Hydra is not installed.

    Raises:
        BadInput: verl's schema lacks a key or has another type for its value.
    """
    config = _schema_folder()
    if config is None:
        return None
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    name = _ENTRY[algorithm][1]
    with initialize_config_dir(str(config), version_base=None):
        try:
            composed = hydra_compose(name, overrides=[line(key, value) for key, value in values.items()])
        except (HydraException, OmegaConfBaseException) as error:
            reason = " ".join(str(error).split()).partition(" To append to your config")[0]
            raise BadInput(f"verl {VERSION} does not take this: {reason}") from None
        defaults = hydra_compose(name)
    for key, value in values.items():
        if key.startswith("+") and not _is_free(defaults, key[1:]):
            raise BadInput(f"{key[1:]} is no key of verl {VERSION}, which would ignore it: + adds to what verl leaves open and empty alone")
        _check_type(key, OmegaConf.select(defaults, key), value)
    return str(OmegaConf.to_yaml(composed))


def line(key: str, value: Value) -> str:
    """One override in Hydra's grammar; text is quoted where Hydra needs it."""
    return f"{key}={_hydra(value)}"


def files(values: Mapping[str, Value], spec: StageSpec, folder: Path, adapter: str) -> dict[str, str]:
    """File name -> text: start script, runtime environment and, for RL, the list of agent loops."""
    module = _ENTRY[spec.algorithm][0]
    command = " \\\n  ".join([f"exec python3 -m {module}", *(shlex.quote(line(key, value)) for key, value in values.items())])
    texts = {
        "entrypoint.sh": f"#!/usr/bin/env bash\n{command}\n",
        "runtime_env.yaml": _yaml({"env_vars": {"VERL_FILE_LOGGER_PATH": str(folder / "metrics.jsonl")}}),
    }
    if spec.rl is not None:
        loop: dict[str, Any] = {"name": AGENT, "_target_": adapter, "max_turns": spec.rl.max_turns, "max_tokens": spec.rl.max_tokens}
        loop |= {"reward": spec.rl.reward, "collapse": spec.rl.collapse, "store": str(spec.store), "rollouts": str(folder / "rollouts")}
        texts["agent_loop.yaml"] = _yaml([loop])
    return texts


def notes(spec: StageSpec) -> list[str]:
    """Differences between the rendered stage and the same stage in our own trainer."""
    texts = ["the rate decays by a cosine to its final share (verl's FSDP optimiser has no linear decay)"]
    if spec.sft is not None and spec.sft.plateau_window:
        texts.append(f"verl has no plateau rule: it goes on for all of max_steps, {spec.sft.max_steps}")
    if spec.rl is None:
        return texts
    if spec.rl.loss == "lite_ppo":
        texts.append(
            "lite_ppo is verl's reinforce_plus_plus_baseline: group mean, then whitened over the batch's tokens, so long answers weigh "
            "more in the standard deviation than in ours, which is over rollouts"
        )
    if _resamples(spec.rl):
        texts.append("tasks whose rollouts all have the same reward are replaced as often as it takes, not in a number of rounds")
    if spec.rl.updates_a_batch > 1 and ratio_of(spec.rl) == "token":
        texts.append("where an advantage is negative, verl also bounds the ratio at 3 (clip_ratio_c)")
    return texts


# ---- rendered keys ---------------------------------------------------------------------------------------------------------------


def _rl(spec: StageSpec, settings: RLSettings, shape: ClusterShape, folder: Path) -> dict[str, Value]:
    data = str(folder / "data" / f"{spec.split}.prompts.parquet")
    return {
        "algorithm.adv_estimator": "reinforce_plus_plus_baseline" if settings.loss == "lite_ppo" else "grpo",
        "algorithm.norm_adv_by_std_in_grpo": settings.loss != "dr_grpo",
        "algorithm.use_kl_in_reward": False,
        "algorithm.filter_groups.enable": _resamples(settings),
        "data.train_files": [data],
        "data.val_files": [data],
        "data.val_max_samples": 1,
        "data.custom_cls.path": "pkg://storage.releases.verl_dataset",
        "data.custom_cls.name": "ExportedPrompts",
        "data.train_batch_size": settings.tasks_a_step,
        "data.max_prompt_length": shape.prompt_tokens,
        "data.max_response_length": shape.response_tokens,
        "data.return_raw_chat": True,
        "data.filter_overlong_prompts": True,
        "data.truncation": "error",
        "data.seed": spec.seed,
        "actor_rollout_ref.model.path": str(spec.model_in),
        "actor_rollout_ref.model.enable_gradient_checkpointing": settings.gradient_checkpointing,
        **{f"actor_rollout_ref.model.{key}": value for key, value in _lora(settings).items()},
        "actor_rollout_ref.model.use_remove_padding": True,
        **{f"actor_rollout_ref.actor.{key}": value for key, value in _actor(settings, shape).items()},
        **{f"actor_rollout_ref.rollout.{key}": value for key, value in _rollout(settings, shape, folder).items()},
        **_trainer(spec, shape, folder, settings.max_steps, settings.checkpoint_steps),
        "trainer.val_before_train": False,
        "trainer.max_actor_ckpt_to_keep": 2,
        "trainer.use_v1": True,
        "trainer.v1.trainer_mode": "sync",
    }


def _actor(settings: RLSettings, shape: ClusterShape) -> dict[str, Value]:
    """Loss, optimiser, and tokens per GPU."""
    return {
        "ppo_mini_batch_size": settings.tasks_a_step,
        "ppo_epochs": settings.updates_a_batch,
        "use_dynamic_bsz": True,
        "ppo_max_token_len_per_gpu": 2 * shape.context_tokens,
        "policy_loss.loss_mode": "gspo" if ratio_of(settings) == "sequence" else "vanilla",
        "loss_agg_mode": "token-mean",
        "clip_ratio_low": 0.2,
        "clip_ratio_high": 0.2,
        "use_kl_loss": settings.beta > 0,
        "kl_loss_coef": settings.beta,
        "kl_loss_type": "low_var_kl",
        "entropy_coeff": 0,
        **{f"optim.{key}": value for key, value in _optimiser(settings).items()},
        "checkpoint.save_contents": list(_SAVED),
        **rules_of(settings, _RULES_OF_LOSS, "verl"),
        **({"loss_scale_factor": shape.response_tokens} if settings.loss == "dr_grpo" else {}),
        **{f"clip_ratio_{end}": clip for end, clip in (("low", settings.clip_low), ("high", settings.clip_high)) if clip is not None},
    }


def _rollout(settings: RLSettings, shape: ClusterShape, folder: Path) -> dict[str, Value]:
    """The inference engine and our agent loop."""
    return {
        "name": "vllm",
        "n": settings.draws,
        "temperature": settings.temperature,
        "tensor_model_parallel_size": shape.tensor_parallel,
        "gpu_memory_utilization": MEMORY_SHARE,
        "max_model_len": shape.context_tokens,
        "max_num_batched_tokens": max(8192, shape.context_tokens),
        "multi_turn.enable": True,
        "multi_turn.max_assistant_turns": settings.max_turns,
        "agent.default_agent_loop": AGENT,
        "agent.agent_loop_config_path": str(folder / "agent_loop.yaml"),
    }


def _sft(spec: StageSpec, settings: SFTSettings, shape: ClusterShape, folder: Path, adapter: str) -> dict[str, Value]:
    module, _, name = adapter.rpartition(".")
    return {
        "data.train_files": [str(folder / "data" / f"{spec.split}.conversations.parquet")],
        "data.messages_key": "messages",
        "data.tools_key": "tools",
        "data.custom_cls.path": f"pkg://{module}",
        "data.custom_cls.name": name,
        "data.train_batch_size": settings.batch_size,
        "data.use_dynamic_bsz": True,
        "data.max_token_len_per_gpu": shape.context_tokens,
        "data.max_length": shape.context_tokens,
        "data.pad_mode": "no_padding",
        "data.truncation": "error",
        "model.path": str(spec.model_in),
        "model.enable_gradient_checkpointing": settings.gradient_checkpointing,
        **{f"model.{key}": value for key, value in _lora(settings).items()},
        "model.use_remove_padding": True,
        **{f"optim.{key}": value for key, value in _optimiser(settings).items()},
        "checkpoint.save_contents": list(_SAVED),
        **_trainer(spec, shape, folder, settings.max_steps, settings.checkpoint_steps),
        "trainer.max_ckpt_to_keep": 2,
        "trainer.seed": spec.seed,
    }


def _lora(settings: ModelSettings) -> dict[str, Value]:
    if settings.lora is None:
        return {}
    return {"lora_rank": settings.lora.rank, "lora_alpha": settings.lora.alpha, "target_modules": "all-linear"}


def _resamples(settings: RLSettings) -> bool:
    return settings.loss in _RESAMPLED if settings.resample_rounds is None else settings.resample_rounds > 0


def _optimiser(settings: SFTSettings | RLSettings) -> dict[str, Value]:
    return {
        "lr": settings.learning_rate,
        "lr_scheduler_type": "cosine",
        "lr_warmup_steps": settings.warmup_steps,
        "min_lr_ratio": settings.final_rate_share,
        "weight_decay": settings.weight_decay,
        "betas": [0.9, settings.adam_beta2],
        "clip_grad": settings.max_grad_norm,
    }


def _trainer(spec: StageSpec, shape: ClusterShape, folder: Path, steps: int, checkpoint_steps: int) -> dict[str, Value]:
    keys: dict[str, Value] = {
        "nnodes": shape.nodes,
        "n_gpus_per_node": shape.gpus_per_node,
        "total_training_steps": steps,
        "save_freq": checkpoint_steps or steps,
        "test_freq": -1,
        "default_local_dir": str(folder / "checkpoints"),
        "resume_mode": "auto",
        "logger": ["console", "file"],
        "project_name": "headrace",
        "experiment_name": spec.name,
    }
    return {f"trainer.{key}": value for key, value in keys.items()}


# ---- checks ---------------------------------------------------------------------------------------------------------------------


def _schema_folder() -> Path | None:
    """verl's configuration folder, located without importing verl, whose dependencies are not installed."""
    installed = importlib.util.find_spec("verl")
    folder = Path(installed.origin).parent if installed and installed.origin else SCHEMA / "verl"
    if not folder.is_dir() or importlib.util.find_spec("hydra") is None:
        return None
    version = (folder / "version" / "version").read_text().strip()
    if version != VERSION:
        raise BadInput(f"verl {version} is installed here, and this renders for {VERSION}: pip install --no-deps verl=={VERSION}")
    return folder / "trainer" / "config"


def _is_free(defaults: Any, key: str) -> bool:
    """Whether a key that verl lacks may be added: its nearest parent mapping is empty in verl's defaults."""
    from omegaconf import OmegaConf

    parent = key.rpartition(".")[0]
    while parent and (mapping := OmegaConf.select(defaults, parent)) is None:
        parent = parent.rpartition(".")[0]
    return bool(parent) and mapping == {}


def _check_type(key: str, default: Any, value: Value) -> None:
    """verl's schema has no types, so without this check a text in place of a number would fail only on the cluster."""
    if default is None or value is None or isinstance(default, str):
        return
    number = isinstance(default, int | float) and not isinstance(default, bool)
    fits = isinstance(value, int | float) and not isinstance(value, bool) if number else isinstance(value, bool | list | tuple)
    if not fits or (isinstance(default, bool) and not isinstance(value, bool)):
        raise BadInput(f"{key} is {value!r}, and verl {VERSION} has {default!r} there: give a value of that kind")


def _positive_int(values: Mapping[str, Value], key: str) -> int:
    value = values[key]
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise BadInput(f"{key} is {value!r}: give a whole number from 1 on")
    return value


def _check_divides(divisor: int, number: int, name: str, divisor_name: str) -> None:
    if number % divisor:
        raise BadInput(f"{name} is {number}, which {divisor_name} {divisor} does not divide")


def _hydra(value: Value) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{','.join(_hydra(one) for one in value)}]"
    if not isinstance(value, str) or _PLAIN.fullmatch(value):
        return str(value)
    escaped = re.sub(r"(\\*)('|\Z)", lambda match: match[1] * 2 + ("\\'" if match[2] else ""), value)
    return f"'{escaped}'"


def _yaml(content: dict[str, Any] | Sequence[Any]) -> str:
    return yaml.safe_dump(content, sort_keys=False, width=1000)

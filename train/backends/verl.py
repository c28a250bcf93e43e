"""A stage as configuration for verl 0.9.1: Hydra overrides, the command that starts it, and the list of its agent loops.

One idea: verl reads overrides, not our YAML, because only overrides are strict there: a key that its schema lacks is an error at start. So
they are what is rendered, and where Hydra and verl's wheel are (`SCHEMA`) they are composed with its own schema, here, as it would. verl
itself is never imported: its pins exclude ours.
Rules that its schema cannot know, and one that verl itself does not check (a mini-batch larger than the batch), are ours.

What it does not do: submit, or play. Two classes are named by the caller (`adapter`) and live in verl's image: for RL an `AgentLoopBase`
that plays `train/backends/environment.py` and sets `reward_score`; for SFT a `MultiTurnSFTDataset` that decodes the rows' column `tools`,
a JSON text, which verl 0.9.1 hands to the chat template as it is. Keys: verl's `trainer/config`.
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
from train.spec import LossName, RLSettings, SFTSettings, StageSpec

VERSION = "0.9.1"
AGENT = "headrace"
"""The name of our agent loop; column `agent_name` of exported rows."""
CHECKED = f"composed with the schema of verl {VERSION}, and our own rules hold"
SCHEMA = Path(sys.prefix) / f"verl-{VERSION}"
"""Where verl's wheel may lie, beside the packages of this environment: it also holds `tests` and `scripts`, which would hide others."""
UNCHECKED = (
    f"only our own rules hold: verl {VERSION} is not here to compose it with its schema "
    f"(pip install hydra-core; pip install --no-deps --target {SCHEMA} verl=={VERSION})"
)
_FOLDER_OF_CHECKPOINTS = "checkpoints"
_PLAIN = re.compile(r"(?!(?:null|true|false|nan|inf)\Z)[a-z/][a-z0-9_./:-]*", re.ASCII | re.IGNORECASE)
"""Texts that Hydra reads back as they are, and not as a number, a truth value or a list."""
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
"""What a loss changes of PPO with a token-level mean, below `actor_rollout_ref.actor`."""

_RESAMPLED: Sequence[LossName] = ("dapo", "gspo")
"""Losses that replace tasks whose rollouts do not differ, where the settings do not say."""


def overrides(
    spec: StageSpec, shape: ClusterShape, *, folder: Path, adapter: str, changes: Mapping[str, Value] | None = None
) -> dict[str, Value]:
    """Hydra key -> value, in the order in which they are rendered.

    folder: where everything rendered will lie, as the cluster sees it. adapter: dotted path, see above. changes: other values.

    verl ends after `total_training_steps`, or after `total_epochs` if that is sooner, and how many steps an epoch has is known only to
    verl, which leaves out prompts that are too long: so there are as many epochs as steps.

    Raises:
        BadInput: a change with a prefix of Hydra's (++, ~, or + before a key that is rendered) by which no rule would see its key.
    """
    values = _rl(spec, spec.rl, shape, folder) if spec.rl else _sft(spec, _sft_of(spec), shape, folder, adapter)
    for key in changes or {}:
        if key.startswith(("++", "~")) or (key.startswith("+") and key[1:] in values):
            raise BadInput(f"{key}: name a key as verl has it, without {key[: -len(key.lstrip('+~'))]}, so that it can be checked")
    values |= changes or {}
    return values | {"trainer.total_epochs": values.get("trainer.total_epochs", values["trainer.total_training_steps"])}


def check_rules(values: Mapping[str, Value]) -> None:
    """The rules that no schema knows, on what is finally rendered.

    Raises:
        BadInput: one that does not hold, with the keys that break it.
    """
    batch, mini = _whole(values, "data.train_batch_size"), "actor_rollout_ref.actor.ppo_mini_batch_size"
    node = _whole(values, "trainer.n_gpus_per_node")
    gpus = node * _whole(values, "trainer.nnodes")
    if mini not in values:
        _divides(gpus, batch, "data.train_batch_size", "the number of GPUs")
        return
    draws, updated = _whole(values, "actor_rollout_ref.rollout.n"), _whole(values, mini)
    if updated > batch:
        raise BadInput(f"{mini} {updated} is larger than data.train_batch_size {batch}; verl {VERSION} itself would take it")
    _divides(updated, batch, "data.train_batch_size", mini)
    _divides(gpus, batch * draws, "data.train_batch_size x rollout.n", "the number of GPUs")
    _divides(gpus, updated * draws, f"{mini} x rollout.n", "the number of GPUs")
    if draws < 2:
        raise BadInput(f"actor_rollout_ref.rollout.n is {draws}: a group of one has no baseline, and every advantage would be 0")
    parallel = "actor_rollout_ref.rollout.tensor_model_parallel_size"
    _divides(_whole(values, parallel), node, "trainer.n_gpus_per_node", parallel)
    length = _whole(values, "data.max_prompt_length") + _whole(values, "data.max_response_length")
    for key in ("actor_rollout_ref.actor.ppo_max_token_len_per_gpu", "actor_rollout_ref.rollout.max_model_len"):
        if _whole(values, key) < length:
            raise BadInput(f"{key} {values[key]} is less than the longest conversation, {length} tokens: raise it")


def compose(values: Mapping[str, Value], algorithm: str) -> str | None:
    """The whole configuration as verl will read it, as YAML; None where verl or Hydra is not installed.

    Raises:
        BadInput: verl's schema lacks a key, or has another type of value there.
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
        plain = hydra_compose(name)
    for key, value in values.items():
        if key.startswith("+") and not _is_free(plain, key[1:]):
            raise BadInput(f"{key[1:]} is no key of verl {VERSION}, which would ignore it: + adds to what verl leaves open and empty alone")
        _check_type(key, OmegaConf.select(plain, key), value)
    return str(OmegaConf.to_yaml(composed))


def line(key: str, value: Value) -> str:
    """One override in Hydra's grammar; text is quoted unless it is plain."""
    return f"{key}={_hydra(value)}"


def files(values: Mapping[str, Value], spec: StageSpec, folder: Path, adapter: str) -> dict[str, str]:
    """File name -> text: what is started, how it is submitted, and, for RL, the list of agent loops."""
    module = _ENTRY[spec.algorithm][0]
    command = " \\\n  ".join([f"exec python3 -m {module}", *(shlex.quote(line(key, value)) for key, value in values.items())])
    contents = {
        "entrypoint.sh": f"#!/usr/bin/env bash\n{command}\n",
        "runtime_env.yaml": _yaml({"env_vars": {"VERL_FILE_LOGGER_PATH": str(folder / "metrics.jsonl")}}),
    }
    if spec.rl is not None:
        loop: dict[str, Any] = {"name": AGENT, "_target_": adapter, "max_turns": spec.rl.max_turns, "max_tokens": spec.rl.max_tokens}
        contents["agent_loop.yaml"] = _yaml([loop | {"reward": spec.rl.reward, "collapse": spec.rl.collapse, "store": str(spec.store)}])
    return contents


def notes(spec: StageSpec) -> list[str]:
    """Where a stage is not, to the letter, what it is when it runs on this machine."""
    lines = ["the rate decays by a cosine to its final share (verl's FSDP optimiser has no linear decay)"]
    if spec.sft is not None and spec.sft.plateau_window:
        lines.append(f"verl has no plateau rule: it goes on for all of max_steps, {spec.sft.max_steps}")
    if spec.rl is None:
        return lines
    if spec.rl.loss == "lite_ppo":
        lines.append(
            "lite_ppo is verl's reinforce_plus_plus_baseline: group mean, then whitened over the batch's tokens, so long answers weigh "
            "more in the standard deviation than in ours, which is over rollouts"
        )
    if _resamples(spec.rl):
        lines.append("tasks whose rollouts all have the same reward are replaced as often as it takes, not in a number of rounds")
    if spec.rl.updates_a_batch > 1 and ratio_of(spec.rl) == "token":
        lines.append("where an advantage is negative, verl also bounds the ratio at 3 (clip_ratio_c)")
    return lines


# ---- what is rendered ------------------------------------------------------------------------------------------------------------


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
        "data.train_batch_size": settings.tasks_a_step,
        "data.max_prompt_length": shape.prompt_tokens,
        "data.max_response_length": shape.response_tokens,
        "data.return_raw_chat": True,
        "data.filter_overlong_prompts": True,
        "data.truncation": "error",
        "data.seed": spec.seed,
        "actor_rollout_ref.model.path": str(spec.model_in),
        "actor_rollout_ref.model.enable_gradient_checkpointing": True,
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
    """The loss, the optimiser, and what a GPU holds at once."""
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
    """The engine that answers, and our agent loop in it."""
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
        "model.use_remove_padding": True,
        **{f"optim.{key}": value for key, value in _optimiser(settings).items()},
        "checkpoint.save_contents": list(_SAVED),
        **_trainer(spec, shape, folder, settings.max_steps, settings.checkpoint_steps),
        "trainer.max_ckpt_to_keep": 2,
        "trainer.seed": spec.seed,
    }


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
    values: dict[str, Value] = {
        "nnodes": shape.nodes,
        "n_gpus_per_node": shape.gpus_per_node,
        "total_training_steps": steps,
        "save_freq": checkpoint_steps or steps,
        "test_freq": -1,
        "default_local_dir": str(folder / _FOLDER_OF_CHECKPOINTS),
        "resume_mode": "auto",
        "logger": ["console", "file"],
        "project_name": "headrace",
        "experiment_name": spec.name,
    }
    return {f"trainer.{key}": value for key, value in values.items()}


def _sft_of(spec: StageSpec) -> SFTSettings:
    assert spec.sft is not None
    return spec.sft


# ---- how it is checked -----------------------------------------------------------------------------------------------------------


def _schema_folder() -> Path | None:
    """verl's folder of configuration, found without importing verl, which needs all that it pins."""
    installed = importlib.util.find_spec("verl")
    folder = Path(installed.origin).parent if installed and installed.origin else SCHEMA / "verl"
    if not folder.is_dir() or importlib.util.find_spec("hydra") is None:
        return None
    version = (folder / "version" / "version").read_text().strip()
    if version != VERSION:
        raise BadInput(f"verl {version} is installed here, and this renders for {VERSION}: pip install --no-deps verl=={VERSION}")
    return folder / "trainer" / "config"


def _is_free(plain: Any, key: str) -> bool:
    """Whether the nearest mapping above a key that verl lacks is one that verl leaves empty, for others' settings."""
    from omegaconf import OmegaConf

    above = key.rpartition(".")[0]
    while above and (parent := OmegaConf.select(plain, above)) is None:
        above = above.rpartition(".")[0]
    return bool(above) and parent == {}


def _check_type(key: str, default: Any, value: Value) -> None:
    """verl's schema is YAML without types, so a text where a number stands would be found on the cluster only."""
    if default is None or value is None or isinstance(default, str):
        return
    number = isinstance(default, int | float) and not isinstance(default, bool)
    fits = isinstance(value, int | float) and not isinstance(value, bool) if number else isinstance(value, bool | list | tuple)
    if not fits or (isinstance(default, bool) and not isinstance(value, bool)):
        raise BadInput(f"{key} is {value!r}, and verl {VERSION} has {default!r} there: give a value of that kind")


def _whole(values: Mapping[str, Value], key: str) -> int:
    value = values[key]
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise BadInput(f"{key} is {value!r}: give a whole number from 1 on")
    return value


def _divides(part: int, whole: int, name: str, by: str) -> None:
    if whole % part:
        raise BadInput(f"{name} is {whole}, which {by} {part} does not divide")


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

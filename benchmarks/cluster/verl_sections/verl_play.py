"""Our adapters in verl's real classes: `.venv-verl/bin/python -m benchmarks.cluster.verl_sections.verl_play FOLDER`.

FOLDER is what `verl_stage.py` wrote: a rendered stage, its rows and a policy. The figures are printed as one line of JSON.

experts_accepted: share of tasks that end with reward 1 if the engine says what the expert said; a row that verl leaves out counts as not.
mask_errors: tokens of these rollouts whose mask, log-probability or id is wrong (`verl_masks.py`).
noop_accepted: share of tasks with a reward above 0 if the engine says nothing.
failure_counted: rollouts whose world broke that verl stored, as it hands all that it stored to training.
baselines_wrong: groups with such a rollout in which verl's trainer gives the other rollouts other advantages than theirs alone would have.
sft_mask_errors: as mask_errors, for conversations as `ExportedConversations` gives them.
config_rejected: configurations that verl refuses.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from omegaconf import DictConfig, OmegaConf
from verl.trainer.ppo.padding_utils import upsample_batch_to_divisible_size
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.utils.config import omega_conf_to_dataclass, validate_config
from verl.utils.dataset.rl_dataset import get_dataset_class

from benchmarks.cluster.verl_sections.verl_doubles import LOGPROB, MemoryQueue, ScriptedEngine
from benchmarks.cluster.verl_sections.verl_masks import mask_errors, sft_mask_errors
from benchmarks.cluster.verl_sections.verl_stubs import stubbed_imports
from storage.records import Message
from storage.releases.verl_dataset import ExportedConversations
from synth.rollouts.episode import Episode

_WORKER = AgentLoopWorkerTQ.__ray_metadata__.modified_class
"""The class itself, without the Ray actor around it."""


def main(folder: Path) -> dict[str, float]:
    config = _config(folder / "rl")
    experts = json.loads((folder / "experts.json").read_text())
    with MemoryQueue() as queue:
        stage = Stage(config, queue, experts)
        figures = {**play_experts(stage), **play_failures(stage)}
    sft = sft_errors(_config(folder / "sft"))
    rejected = [name for name, error in rejections(folder / "configurations").items() if error]
    return {**figures, "sft_mask_errors": float(sft), "config_rejected": float(len(rejected))}


def _config(stage: Path) -> DictConfig:
    config = OmegaConf.load(stage / "composed.yaml")
    assert isinstance(config, DictConfig)
    return config


# ---- reinforcement learning -----------------------------------------------------------------------------------------------------


class Stage:
    """A rendered RL stage: verl's agent-loop worker, and the rows as it is given them.

    experts: index of a row -> `answers`, the texts that its expert says; `whole`, its conversation as the chat template writes it.
    """

    def __init__(self, config: DictConfig, queue: MemoryQueue, experts: Mapping[str, Any]) -> None:
        self.config, self.queue = config, queue
        self.worker = _WORKER(config, ScriptedEngine([]))
        self.tokenizer = self.worker.tokenizer
        rows = get_dataset_class(config.data)(list(config.data.train_files), self.tokenizer, config.data)
        self.rows = {str(row["extra_info"]["index"]): row for row in (rows[place] for place in range(len(rows)))}
        self.wholes = {index: expert["whole"] for index, expert in experts.items()}
        self.scripts = {index: [self.ids(text) for text in expert["answers"]] for index, expert in experts.items()}
        self.nothing = [self.ids("<|im_end|>")]

    def ids(self, text: str) -> list[int]:
        found: list[int] = self.tokenizer.encode(text, add_special_tokens=False)
        return found

    def play(self, index: str, scripts: Sequence[Any]) -> list[dict[str, Any]]:
        """Plays a row once for each script, as a group; returns what verl stored."""
        self.queue.rows.clear()
        self.worker.llm_client = ScriptedEngine(scripts)
        self.queue.tags["train"] = {"u": {"is_prompt": True, "status": "pending", "global_steps": 3}}
        prompt = {**self.rows[index], "uid": "u", "global_steps": 3, "__rollout_n__": len(scripts)}
        trajectory = {"step": 3, "sample_index": 0, "rollout_n": 0, "validate": False}
        sampling = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "repetition_penalty": 1.0, "logprobs": True}
        asyncio.get_event_loop().run_until_complete(self.worker._run_prompt(prompt, sampling, trajectory=trajectory))
        return list(self.queue.rows["train"].values())


def play_experts(stage: Stage) -> dict[str, float]:
    accepted = errors = rewarded = 0
    for index in stage.rows:
        for played in stage.play(index, [stage.scripts[index]]):
            accepted += float(played["rm_scores"].sum()) == 1.0
            errors += mask_errors(stage.tokenizer, played, stage.wholes[index], LOGPROB)
        for idle in stage.play(index, [stage.nothing]):
            rewarded += float(idle["rm_scores"].sum()) > 0
    tasks = len(stage.scripts)
    return {"experts_accepted": accepted / tasks, "mask_errors": float(errors), "noop_accepted": rewarded / tasks}


def play_failures(stage: Stage) -> dict[str, float]:
    """Groups of three experts, of which the world of one breaks, and of one that says nothing; then groups whose worlds all break."""
    counted, groups = 0, list[list[float]]()
    for index in [index for index, script in stage.scripts.items() if len(script) > 1][:10]:
        expert = stage.scripts[index]
        with broken_worlds(2):
            counted += len(stage.play(index, [expert, expert, expert, stage.nothing])) != 3
        groups.append(_advantages(stage))
        with broken_worlds(1, 2):
            counted += len(stage.play(index, [expert, expert]))
    assert groups, "no expert calls a tool"
    right = [-1.155, 0.0, 0.577, 0.577]
    """Of rewards 1, 1 and 0, whose mean is 2/3 and standard deviation 0.577; the fourth row is verl's padding."""
    wrong = sum(sorted(round(each, 3) for each in group) != right for group in groups)
    return {"failure_counted": float(counted), "baselines_wrong": float(wrong)}


@contextmanager
def broken_worlds(*numbers: int) -> Iterator[None]:
    """The worlds of these conversations break at their first call; they are counted from 1 as they first call."""
    call, begun = Episode._call, list[Episode]()

    def counted(episode: Episode, message: Message) -> list[Message]:
        if not any(episode is each for each in begun):
            begun.append(episode)
        if next(place for place, each in enumerate(begun, 1) if each is episode) in numbers:
            raise OSError("the disk is gone")
        return call(episode, message)

    with patch.object(Episode, "_call", counted):
        yield


def _advantages(stage: Stage) -> list[float]:
    """What verl's replay buffer, padding and trainer make of the stored group: one advantage a row. The policy has not changed since."""
    buffer = ReplayBuffer("sync", stage.config.trainer, None, "drop", OmegaConf.create({}), poll_interval=0.01)
    batch, _ = buffer.sample(3, "train", 1)
    batch = upsample_batch_to_divisible_size(batch, 4, stage.tokenizer.eos_token_id)
    for row in stage.queue.rows["train"].values():
        row["old_log_probs"] = row["rollout_log_probs"]
    PPOTrainer._compute_advantage(SimpleNamespace(config=stage.config), batch, {})
    return [float(min(row["advantages"], key=lambda each: -abs(each))) for row in stage.queue.rows["train"].values()]


# ---- supervised fine-tuning, configurations -------------------------------------------------------------------------------------


def sft_errors(config: DictConfig) -> int:
    """Wrong tokens of all conversations."""
    tokenizer = omega_conf_to_dataclass(config.model).tokenizer
    rows = ExportedConversations(list(config.data.train_files), tokenizer, config.data)
    chosen = (rows[place] for place in range(len(rows)))
    return sum(sft_mask_errors(tokenizer, row["input_ids"].tolist(), row["loss_mask"].tolist()) for row in chosen)


def rejections(folder: Path) -> dict[str, str]:
    """Composed configuration -> why verl refuses it; empty if it takes it."""
    with stubbed_imports():
        return {path.stem: _rejection(OmegaConf.load(path)) for path in sorted(folder.glob("*.yaml"))}


def _rejection(config: Any) -> str:
    try:
        if "actor_rollout_ref" in config:
            validate_config(config, need_reference_policy(config), need_critic(config))
            for part in (config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout, config.actor_rollout_ref.model):
                omega_conf_to_dataclass(part)
        else:
            for part in (config.model, config.engine, config.optim, config.checkpoint, config.profiler):
                omega_conf_to_dataclass(part)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))), flush=True)

"""Plays a rendered stage with ROLL's real classes and a scripted policy:
`.venv-roll/bin/python -m benchmarks.cluster.roll_sections.roll_play FOLDER`.

One idea: everything between the scripted server and the batch is ROLL's own: `AgenticConfig` from the rendered file, `OpenAIProxy`,
`ProxyServer`, `ToolCallRunner`, `MessageTracker`, sglang's parser, the queue of groups, and our manager between them. The folder has
`pipeline.yaml`, the rows, the policy's folder, and `plays.json` (a list of `Play`); `played.json` gets the figures of each.

What it does not do: sample from a model, or train. Stand-ins: `roll_on_cpu.py`.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.cluster.roll_sections.roll_masks import Marks, mask_errors
from benchmarks.cluster.roll_sections.roll_on_cpu import DirectActor, call_actors_directly, load_sglang, pretend_gpus
from benchmarks.cluster.roll_sections.scripted_chat import ScriptedChat, key_of

load_sglang()


@dataclass(frozen=True)
class Play:
    """What to play.

    gpus: GPUs of a node, as in the rendered file.
    answers: task -> texts of the policy.
    openings: key of a conversation (`scripted_chat.key_of`) -> task.
    broken: task -> how many of its first rollouts meet a broken world; -1: all.
    unread: task -> at how many of its first rollouts the row is not read.
    filtered: whether our filter of groups decides; False lets every group through (a control).
    sequence_length: in place of the rendered one.
    """

    gpus: int
    answers: Mapping[str, Sequence[str]]
    openings: Mapping[str, str]
    broken: Mapping[str, int] = field(default_factory=dict)
    unread: Mapping[str, int] = field(default_factory=dict)
    filtered: bool = True
    sequence_length: int | None = None


def read_config(path: Path, gpus: int) -> Any:
    """ROLL's configuration of a rendered file, as ROLL's start script reads it, but with every unknown key refused."""
    from dacite import Config, from_dict
    from omegaconf import OmegaConf
    from roll.pipeline.agentic.agentic_config import AgenticConfig

    pretend_gpus(gpus)
    data = OmegaConf.to_container(OmegaConf.load(str(path)), resolve=True)
    return from_dict(data_class=AgenticConfig, data=data, config=Config(strict=True))


def break_worlds(broken: Mapping[str, int]) -> None:
    """Makes the worlds of these tasks raise when they are called, as a lost disk would."""
    from synth.rollouts.episode import Episode

    left, lock, call = dict(broken), threading.Lock(), getattr(Episode._call, "unbroken", Episode._call)

    def broken_call(self: Episode, message: Any) -> Any:
        with lock:
            fails = left.get(self.task.id, 0) != 0
            left[self.task.id] = left.get(self.task.id, 0) - fails
        if fails:
            raise OSError("the disk is gone")
        return call(self, message)

    broken_call.unbroken = call  # type: ignore[attr-defined]
    Episode._call = broken_call  # type: ignore[method-assign]


def lose_rows(unread: Mapping[str, int]) -> None:
    """Makes the environment raise before the conversations of these tasks, where ROLL's runner catches nothing."""
    from train.backends.roll.gem_environment import HeadraceEnvironment

    left, lock, reset = dict(unread), threading.Lock(), getattr(HeadraceEnvironment.reset, "unbroken", HeadraceEnvironment.reset)

    def broken_reset(self: HeadraceEnvironment, seed: int = 0) -> Any:
        opened = reset(self, seed)
        task = opened[1]["task_id"]
        with lock:
            fails = left.get(task, 0) > 0
            left[task] = left.get(task, 0) - fails
        if fails:
            raise OSError("the row is not there")
        return opened

    broken_reset.unbroken = reset  # type: ignore[attr-defined]
    HeadraceEnvironment.reset = broken_reset  # type: ignore[method-assign]


class _EveryGroup:
    def __init__(self, *_: Any) -> None:
        pass

    def filter(self, **_: Any) -> bool:
        return False


def play(folder: Path, job: Play) -> list[Any]:
    """One batch of ROLL's rollouts (`DataProto`, one row each), as its pipeline would learn from it."""
    from roll.distributed.scheduler.protocol import DataProto
    from roll.distributed.scheduler.rollout_scheduler import GroupQueueManager
    from roll.pipeline.agentic.agentic_config import LLMProxyConfig
    from roll.pipeline.agentic.proxy.proxy_server import ProxyServer
    from transformers import AutoTokenizer

    random.seed(0)
    config = read_config(folder / "pipeline.yaml", job.gpus)
    config.sequence_length = job.sequence_length or config.sequence_length
    call_actors_directly()
    break_worlds(job.broken)
    lose_rows(job.unread)
    tokenizer = AutoTokenizer.from_pretrained(config.pretrain)
    workers = config.train_env_manager
    queue = DirectActor(GroupQueueManager, config, workers, "train")
    if not job.filtered:
        for groups in queue.actor.group_queue.values():
            groups.group_filter = _EveryGroup()
    proxy = ProxyServer(host="127.0.0.1")
    proxy.start()
    answers = {key: job.answers[task] for key, task in job.openings.items()}
    with ScriptedChat(answers, lambda text: len(tokenizer(text)["input_ids"])) as server:
        workers.llm_proxy = LLMProxyConfig("openai", {"base_url": server.url, "api_key": "none", "model_name": "scripted"})
        managers = _managers(config, tokenizer, queue, proxy)
        queue.advance_step.remote(0)
        threads = [threading.Thread(target=one.run_rollout_loop, args=(DataProto(meta_info={"seed": 0}),)) for one in managers]
        for thread in threads:
            thread.start()
        batch: list[Any] = queue.get_batch.remote(config.rollout_batch_size, 0)
        queue.shutdown.remote()
        for thread in threads:
            thread.join()
    proxy.stop()
    return batch


def _managers(config: Any, tokenizer: Any, queue: DirectActor, proxy: Any) -> list[Any]:
    """A manager for each environment of the file, at rows that share out the file among its groups."""
    from roll.utils.import_utils import safe_import_class

    workers, lock, managers = config.train_env_manager, threading.Lock(), []
    for environments in workers.env_configs.values():
        for number, settings in environments.items():
            settings["proxy_port"] = proxy.port
            settings["group_seed"] = settings["group_id"] * workers.max_traj_per_env
            manager = safe_import_class(settings["env_manager_cls"])(
                worker_config=workers,
                pipeline_config=config,
                env_config=settings,
                tokenizer=tokenizer,
                generate_scheduler=None,
                output_queue=queue,
                thread_lock=lock,
                mode="train",
            )
            manager.update_step(0)
            proxy.register_handler(number, manager.process_request)
            managers.append(manager)
    return managers


def figures_of(batch: Sequence[Any], job: Play, tokenizer: Any) -> dict[str, Any]:
    """tasks, rollouts: how many were in the batch. accepted: tasks all of whose rollouts have score 1; accepted_tasks: their ids.
    mask_errors, unlike_template: tokens, and openings. failed: rollouts of tasks that are always broken, or whose column says so.
    mixed_groups: groups of more than one task."""
    prompt = tokenizer.apply_chat_template([{"role": "user", "content": ""}], tokenize=False)
    opened = tokenizer.apply_chat_template(
        [{"role": "user", "content": ""}], tokenize=False, add_generation_prompt=True, enable_thinking=False
    )
    marks = Marks(tokenizer(opened.removeprefix(prompt))["input_ids"], tokenizer.eos_token_id)
    scores: dict[str, list[float]] = {}
    groups: dict[str, set[str]] = {}
    counts: Counter[str] = Counter()
    for rollout in batch:
        columns = rollout.non_tensor_batch
        messages = [{**one, "content": "".join(part["text"] for part in one["content"])} for one in json.loads(columns["messages"][0])]
        task = job.openings[key_of(messages)]
        scores.setdefault(task, []).append(float(columns["episode_scores"][0]))
        groups.setdefault(columns["traj_group_id"][0], set()).add(task)
        ids, mask = rollout.batch["input_ids"][0].tolist(), rollout.batch["response_mask"][0].tolist()
        said = [tokenizer(text)["input_ids"] for text in job.answers[task]]
        counts["mask_errors"] += mask_errors(ids, mask, said, marks)
        counts["sampled"] += sum(mask)
        counts["failed"] += bool(columns["failure"][0]) or job.broken.get(task, 0) < 0
        counts["unlike_template"] += not _opens_as_template(ids, messages, json.loads(columns["tools"][0]), tokenizer)
    accepted = sorted(task for task, each in scores.items() if min(each) == 1)
    return {
        "tasks": len(scores),
        "rollouts": len(batch),
        "accepted": len(accepted),
        "accepted_tasks": accepted,
        "mixed_groups": sum(len(tasks) > 1 for tasks in groups.values()),
        **{name: counts[name] for name in ("mask_errors", "sampled", "failed", "unlike_template")},
    }


def _opens_as_template(ids: Sequence[int], messages: Sequence[Mapping[str, Any]], tools: Any, tokenizer: Any) -> bool:
    """Whether the tokens begin with what the chat template writes of the opening and the tools."""
    first = next(place for place, message in enumerate(messages) if message["role"] == "user")
    opening = [{"role": one["role"], "content": one["content"]} for one in messages[: first + 1]]
    rendered = tokenizer.apply_chat_template(opening, tools=tools, add_generation_prompt=True, enable_thinking=False, return_dict=False)
    return list(ids[: len(rendered)]) == list(rendered)


def stop(error: threading.ExceptHookArgs) -> None:
    """A manager that fails would leave the batch waiting; ROLL's pipeline ends then, and so does this process."""
    sys.__excepthook__(error.exc_type, error.exc_value or error.exc_type(), error.exc_traceback)
    os._exit(1)


def main(folder: Path) -> None:
    from transformers import AutoTokenizer

    threading.excepthook = stop
    tokenizer = AutoTokenizer.from_pretrained(folder / "policy")
    jobs = [Play(**fields) for fields in json.loads((folder / "plays.json").read_text())]
    (folder / "played.json").write_text(json.dumps([figures_of(play(folder, job), job, tokenizer) for job in jobs]))


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())

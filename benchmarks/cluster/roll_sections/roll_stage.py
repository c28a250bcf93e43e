"""A stage rendered for ROLL over given tasks, as `roll_play.py` and the checks of configurations take it, and the call of `.venv-roll`.

The policy's folder has the files that a renderer asks for and a real tokenizer: Qwen3's chat template, a vocabulary of the tasks' texts.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.cluster.drawn_tasks import write_release
from benchmarks.cluster.roll_sections.scripted_chat import key_of
from benchmarks.harness import ROOT
from storage.records import Message, Task
from storage.releases.export import export
from storage.store import Store
from synth.conversations.expert import expert_trajectory
from synth.worlds import WORLDS
from tests.synth.engines.local.chat_tokenizers import chat_tokenizer
from train.backends.cluster_shape import ClusterShape
from train.backends.render_stage import render
from train.spec import RLSettings, StageSpec

PYTHON = ROOT / ".venv-roll" / "bin" / "python"
PINNED = "8eb27cc2dc34c4d1310b169d9b86d339004d811a"
"""Commit of ROLL that `make roll` clones."""
MANAGER = "train.backends.roll.proxy_env_manager.HeadraceEnvManager"
_SHAPE = {"model_type": "qwen3", "hidden_size": 4096, "num_attention_heads": 32, "max_position_embeddings": 40960}
_END = "<|im_end|>"


def checkout() -> Path:
    """Absolute path of ROLL's checkout: ROLL_HOME, else that of `make roll`."""
    return Path(os.environ.get("ROLL_HOME") or ROOT / ".cache" / f"roll-{PINNED}").absolute()


def missing() -> str:
    """Why ROLL's classes cannot be run here; empty if they can."""
    if not PYTHON.exists():
        return "no .venv-roll: make roll"
    place = checkout()
    if not (place / "roll").is_dir():
        return f"no checkout of ROLL at {place}: make roll, or name one in ROLL_HOME"
    commit = _commit(place)
    if commit not in ("", PINNED):
        return f"the checkout of ROLL at {place} is at commit {commit[:7]}: check out {PINNED[:7]} there, or unset ROLL_HOME"
    return ""


def _commit(place: Path) -> str:
    """Commit of a checkout; empty if git cannot tell: it is a copy without `.git`, or git is not installed."""
    git = shutil.which("git")
    if git is None or not (place / ".git").exists():
        return ""
    words = [git, "-c", "safe.directory=*", "-C", str(place), "rev-parse", "HEAD"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return "" if done.returncode else done.stdout.strip()


def write_policy(folder: Path, tasks: Sequence[Task]) -> None:
    texts = [message.content or "" for task in tasks for message in task.messages]
    chat_tokenizer("qwen3", texts, size=2_000).save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(_SHAPE))
    (folder / "model.safetensors").write_bytes(b"")


def spec_of(store: Store, release: str, folder: Path, settings: RLSettings) -> StageSpec:
    places: dict[str, Any] = {"store": store.root, "model_in": folder / "policy", "model_out": folder / "model"}
    return StageSpec(name="rl", algorithm="rl", release_id=release, split="rl", rl=settings, **places)


def write_stage(folder: Path, tasks: Sequence[Task], *, groups: int, draws: int) -> None:
    """Renders the stage so that one batch has `draws` rollouts of each task; the number of tasks is a multiple of `groups`."""
    folder.mkdir(parents=True, exist_ok=True)
    write_policy(folder / "policy", tasks)
    store, release = write_release(folder / "store", tasks)
    export(store, release, folder / "data", "roll")
    settings = RLSettings(max_steps=1, tasks_a_step=groups, draws=draws, learning_rate=1e-6, max_turns=24, max_tokens=1024)
    shape, rows = ClusterShape(nodes=1, gpus_per_node=1, tensor_parallel=1, response_tokens=28672), len(tasks) * draws
    changes = {"rollout_batch_size": rows, "actor_train.training_args.gradient_accumulation_steps": rows}
    rendered = render("roll", spec_of(store, release, folder, settings), shape, adapter=MANAGER, overrides=changes)
    for name, text in rendered.files.items():
        (folder / name).write_text(text)


def openings(tasks: Sequence[Task]) -> dict[str, str]:
    """By which a scripted policy knows a task's conversation; no two tasks may open alike.

    Raises:
        ValueError: two do.
    """
    found = {key_of([message.to_openai() for message in task.messages]): task.id for task in tasks}
    if len(found) != len(tasks):
        raise ValueError(f"{len(tasks)} tasks have {len(found)} openings")
    return found


def expert_texts(task: Task) -> list[str]:
    """What the expert says, in Hermes form, each with the token that ends a turn."""
    messages = expert_trajectory(WORLDS[task.world], task).messages[len(task.messages) :]
    return [_text(message) + _END for message in messages if message.role == "assistant"]


def _text(message: Message) -> str:
    calls = [
        f'<tool_call>\n{{"name": {json.dumps(call.function.name)}, "arguments": {call.function.arguments}}}\n</tool_call>'
        for call in message.tool_calls
    ]
    return "\n".join([*([message.content] if message.content else []), *calls])


def run_in_roll(module: str, *arguments: str, scratch: Path) -> None:
    """Runs a module of the benchmarks in `.venv-roll`, in a folder of its own: ROLL writes logs where it is started.

    Raises:
        RuntimeError: it failed; the message has the end of what it said.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{checkout()}", "ROLL_LOG_DIR": str(scratch)}
    ran = subprocess.run(
        [str(PYTHON), "-m", module, *arguments], cwd=scratch, env=environment, capture_output=True, text=True, check=False, timeout=1800
    )
    if ran.returncode:
        raise RuntimeError(f"{module} failed: {(ran.stderr or ran.stdout)[-3000:]}")


def played(folder: Path, *jobs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Figures of a stage that `.venv-roll` plays, a play each; jobs: the fields of `roll_play.Play`."""
    (folder / "plays.json").write_text(json.dumps(jobs))
    run_in_roll("benchmarks.cluster.roll_sections.roll_play", str(folder), scratch=folder / "scratch")
    figures: list[dict[str, Any]] = json.loads((folder / "played.json").read_text())
    return figures

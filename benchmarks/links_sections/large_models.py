"""What large models need, on a small one: FSDP2 over two processes, and LoRA that is killed.

The base model is a folder of random weights in the shape of Qwen3, with Qwen2.5's template: it stands in for real weights, and the tools
that its prompts list make conversations of some 3,700 tokens. Each training is a stage of its own, in processes of its own (CPU, gloo).
fsdp_two_process_loss_gap: largest relative difference of a step's loss between two sharded processes and one with all weights.
lora_resume_equal: 1 if a stage that was killed (SIGKILL) after its first checkpoint, and run again, has the weights of an undisturbed one.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.harness import ROOT, Deadline, Figures
from storage.releases.release import ReleaseItem, make_release
from tests.train.base_folders import write_base
from tests.train.tiny_policies import expert_store, retail_tasks
from train.spec import CHECKPOINTS, METRICS, LoRASettings, SFTSettings, StageSpec

STEPS = 8
_SETTINGS = SFTSettings(max_steps=STEPS, batch_size=4, learning_rate=1e-2, warmup_steps=0)
_LORA = _SETTINGS.model_copy(update={"lora": LoRASettings(rank=4, alpha=8), "checkpoint_steps": 3})
_SHARDED = {"ACCELERATE_USE_FSDP": "true"}
_START_S = 300.0


def measure(_: Deadline) -> Figures:
    with tempfile.TemporaryDirectory(prefix="headrace-large-") as scratch:
        lab = _Lab(Path(scratch))
        one, two = lab.losses("one", _SETTINGS), lab.losses("two", _SETTINGS, processes=2)
        assert len(one) == len(two) == STEPS
        whole, killed = lab.weights("whole", _LORA), lab.weights("killed", _LORA, is_killed=True)
    gap = max(abs(other - loss) / loss for loss, other in zip(one, two, strict=True))
    return {"fsdp_two_process_loss_gap": gap, "lora_resume_equal": float(whole == killed)}


class _Lab:
    """Stages from one base model on one release."""

    def __init__(self, root: Path) -> None:
        self._root = root
        tasks = retail_tasks("order_status", "special_service", each=4)
        self._store, experts = expert_store(root / "store", tasks)
        items = [ReleaseItem("trajectory", expert.id, expert.task_id) for expert in experts]
        self._release = make_release(self._store, "seed", {"seed": items}, {})
        self._base = write_base(root / "base", [message.content or "" for expert in experts for message in expert.messages])

    def losses(self, name: str, settings: SFTSettings, *, processes: int = 1) -> list[float]:
        """Loss of each step."""
        folder = self._prepare(name, settings)
        self._run(folder, processes)
        return [json.loads(line)["loss"] for line in (folder / METRICS).read_text().splitlines()]

    def weights(self, name: str, settings: SFTSettings, *, is_killed: bool = False) -> str:
        """Hash of the weights of a finished stage."""
        folder = self._prepare(name, settings)
        if is_killed:
            self._kill_after_checkpoint(folder)
        self._run(folder, 1)
        return str(json.loads((folder / "result.json").read_text())["weights_hash"])

    def _prepare(self, name: str, settings: SFTSettings) -> Path:
        folder = self._root / name
        folder.mkdir()
        spec = StageSpec(
            name="sft1",
            algorithm="sft",
            store=self._store.root,
            release_id=self._release,
            split="seed",
            model_in=self._base,
            model_out=folder / "model",
            sft=settings,
        )
        (folder / "given.json").write_text(spec.model_dump_json())
        return folder

    def _run(self, folder: Path, processes: int) -> None:
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(processes)] if processes > 1 else []
        command = [sys.executable, *launcher, "-m", "train.run", str(folder / "given.json")]
        variables = os.environ | (_SHARDED if processes > 1 else {})
        subprocess.run(command, cwd=ROOT, env=variables, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def _kill_after_checkpoint(self, folder: Path) -> None:
        command = [sys.executable, "-m", "train.run", str(folder / "given.json")]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + _START_S
        while not any((folder / CHECKPOINTS).glob("step-*/stage.json")) and process.poll() is None and time.monotonic() < end:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, "the stage ended before it was killed"

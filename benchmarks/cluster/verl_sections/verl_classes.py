"""Our adapters in verl's real classes: 200 tasks through its agent-loop worker, its SFT dataset, and the checks of its configuration.

verl is in an environment of its own (`make verl`); `verl_play.py` runs there, and says what each figure means.

verl_experts_accepted, verl_noop_accepted, verl_mask_errors, verl_failure_counted, verl_baselines_wrong: of RL.
verl_sft_mask_errors: of SFT on the experts of the same tasks.
verl_config_rejected: of stages of all losses and of SFT, with and without LoRA, for two clusters.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.cluster.drawn_tasks import draw_tasks
from benchmarks.cluster.verl_sections.verl_stage import write_configurations, write_stage
from benchmarks.harness import ROOT, Deadline, Figures, fail

TASKS = 200
PYTHON = ROOT / ".venv-verl" / "bin" / "python"
KEYS = (
    *("verl_experts_accepted", "verl_mask_errors", "verl_noop_accepted", "verl_failure_counted", "verl_baselines_wrong"),
    *("verl_sft_mask_errors", "verl_config_rejected"),
)
MINUTES = 6


def measure(_: Deadline) -> Figures:
    if not PYTHON.exists():
        fail(f"verl is not installed in {PYTHON.parents[1]}: make verl")
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        release = write_stage(folder, draw_tasks(TASKS))
        print(f"    {write_configurations(folder, release)} configurations", flush=True)
        figures = play_stage(folder)
    return {f"verl_{name}": value for name, value in figures.items()}


def play_stage(folder: Path) -> Figures:
    """The figures of `verl_play.py`, called in verl's environment.

    Raises:
        RuntimeError: it failed; the message is the end of what it said.
    """
    command = [str(PYTHON), "-W", "ignore", "-m", "benchmarks.cluster.verl_sections.verl_play", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise RuntimeError(done.stderr[-2_000:])
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures

"""Whether a stage of verl or ROLL ends as a policy of the store, and what a killed launcher costs, by a scripted cluster.

fake_job_to_policy          1 if a cascade whose last two stages are one of verl and one of ROLL ends with both policies in the store,
                            evaluated and with a verdict of the gate
killed_launcher_finds_job   1 if a launcher process that is killed with SIGKILL while its job runs is followed by another process that
                            finds the job and ends the stage, with one submission in all

The cluster is a REST server whose jobs run nothing: they leave files in the layouts of verl 0.9.1 and ROLL (8eb27cc), with the weights of a
policy that was trained here. What the real engines do with the rendered stage, other figures say.
"""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness import ROOT, Deadline, fail

if TYPE_CHECKING:
    from storage.store import Store
    from tests.train.backends.fake_jobs import FakeJobs
    from train.spec import StageSpec

KEYS = ("fake_job_to_policy", "killed_launcher_finds_job")
MINUTES = 6
_TASKS, _LAUNCH_S = 240, 120.0
_SHAPE = {"prompt_tokens": 256, "response_tokens": 256}
_RL = {"algorithm": "rl", "split": "rl", "parent": "sft1", "max_steps": 2, "tasks_a_step": 2, "draws": 2}


def measure(deadline: Deadline) -> dict[str, float]:
    """Both figures. Raises SystemExit: a launcher does not submit its job in two minutes."""
    deadline.allows(MINUTES)
    with tempfile.TemporaryDirectory(prefix="headrace-engines-") as folder:
        store, spec = _cascade(Path(folder))
        return {"fake_job_to_policy": float(_are_judged(store)), "killed_launcher_finds_job": float(_is_found(spec, Path(folder)))}


def _cascade(folder: Path) -> tuple[Store, StageSpec]:
    """The store of a cascade (SFT here, then a stage of each engine), and the spec of the stage of verl."""
    from storage.record_rows import tasks_frame
    from storage.store import Store, part_id
    from synth.run.config import SynthesisConfig
    from synth.run.synthesize import synthesize
    from tests.train.backends.scripted_engines import ScriptedEngine
    from tests.train.data.test_task_pool import origin
    from train.cascade import run_cascade
    from train.config import CascadeConfig
    from train.spec import StageSpec

    rng, store = random.Random(0), Store(folder / "store")
    tasks = {task.id: task for number in range(_TASKS) if (task := origin(number, rng))}
    store.commit([store.write("tasks", part_id("tasks", ["origins"], {}, 1), tasks_frame(list(tasks.values())))])
    synthesis: dict[str, Any] = {"worlds": ("retail",), "accepted": 40, "calibration": 30, "chinese_share": 0.0, "drills": {}}
    synthesize(store, SynthesisConfig(**synthesis, veiled_share=0.0, subsample=20))
    fake = ScriptedEngine()
    with _served(fake) as address, warnings.catch_warnings(action="ignore"):
        stages = [
            {"name": "sft1", "max_steps": 200, "plateau_window": 0},
            *({"name": name, "skip": True} for name in ("sft2", "rl")),
            *({"name": f"by-{engine}", "backend": engine, **_RL} for engine in ("verl", "roll")),
        ]
        settings: dict[str, Any] = {"max_difficulty": 2, "expert_budget": 240, "synthesised_share": 0.25, "probe_tasks": 60}
        settings |= {"eval_tasks": 12, "eval_out_tasks": 12, "eval_samples": 2, "held_out": []}
        cluster = {"address": address, "gpus_per_node": 2, "engine": _SHAPE}
        run_cascade(store, CascadeConfig.model_validate({**settings, "stages": stages, "cluster": cluster}))
    text = store.query("SELECT spec FROM stages WHERE name = 'by-verl'").item()
    return store, StageSpec.model_validate_json(text)


def _are_judged(store: Store) -> bool:
    """Whether both engines' policies have rollouts on held-out tasks, and a verdict."""
    rows = store.query(
        """SELECT s.name, count(DISTINCT r.rollout_id) AS rollouts FROM stages s JOIN promotions p ON p.policy_id = s.output_policy_id
           JOIN rollouts r ON r.policy_id = s.output_policy_id WHERE s.backend IN ('verl', 'roll') AND r.purpose = 'eval_in' GROUP BY 1"""
    )
    print(f"    judged: {dict(rows.iter_rows())}", flush=True)
    return set(rows["name"]) == {"by-verl", "by-roll"}


def _is_found(spec: StageSpec, folder: Path) -> bool:
    from tests.train.backends.fake_jobs import RUNNING, SUCCEEDED
    from tests.train.backends.scripted_engines import ScriptedEngine

    stage = folder / "store" / "models" / "stage-killed"
    path = folder / "spec.json"
    path.write_text(spec.model_copy(update={"model_out": stage / "model"}).model_dump_json())
    fake = ScriptedEngine(RUNNING)
    with _served(fake) as address:
        launcher = _launcher(path, address)
        end = time.monotonic() + _LAUNCH_S
        while not fake.submitted and launcher.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
        if not fake.submitted:
            launcher.kill()
            fail("the launcher has submitted no job")
        launcher.send_signal(signal.SIGKILL)
        launcher.wait()
        fake.jobs = {name: [RUNNING, SUCCEEDED] for name in fake.jobs}
        code = _launcher(path, address).wait(_LAUNCH_S)
    print(f"    killed launcher: {len(fake.submitted)} submissions, the second launcher ended with {code}", flush=True)
    return code == 0 and len(fake.submitted) == 1 and (stage / "result.json").exists()


def _launcher(spec: Path, address: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "benchmarks.cluster.fake_jobs_run", str(spec), address], cwd=ROOT)


@contextmanager
def _served(fake: FakeJobs) -> Iterator[str]:
    """The address of a scripted cluster, which answers from a thread of its own."""
    from aiohttp import web

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    runner = web.AppRunner(fake.app(), access_log=None, shutdown_timeout=0.1)

    async def begin() -> str:
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}"

    try:
        yield asyncio.run_coroutine_threadsafe(begin(), loop).result()
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


def main() -> int:
    """`python -m benchmarks.cluster.fake_jobs_run SPEC ADDRESS`: launches the stage with verl and follows it."""
    from train.backends.base import run_stage
    from train.backends.cluster import ClusterConfig
    from train.backends.engines.engine_stage import VerlBackend
    from train.spec import StageSpec

    spec = StageSpec.model_validate_json(Path(sys.argv[1]).read_text())
    cluster = ClusterConfig.model_validate({"address": sys.argv[2], "gpus_per_node": 2, "engine": _SHAPE})
    result = run_stage(VerlBackend(cluster), spec, spec.model_out.parent)
    return 0 if result["weights_hash"] else 1


if __name__ == "__main__":
    sys.exit(main())

"""Training stages on a real Ray cluster, through its dashboard, from start to end: killed launchers, stopped jobs, several nodes."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from storage.errors import BadInput
from storage.health.weights import weights_hash
from storage.store import Store
from tests.conftest import RayHead
from tests.train.backends.small_stages import SFT, released, spec_of
from tests.waiting import eventually
from train.backends import job_backend, ray
from train.backends.base import StageFailed, run_stage
from train.backends.cluster import ClusterConfig, job
from train.backends.engines.engine_stage import check_gpus
from train.backends.local import LocalBackend
from train.backends.ray import RayBackend, describe_job
from train.backends.ray_jobs import Job, Jobs

pytestmark = pytest.mark.ray

LAUNCHER = """
import sys
from pathlib import Path
from train.backends.cluster import ClusterConfig
from train.backends.base import run_stage
from train.backends.ray import RayBackend
from train.spec import StageSpec
spec = StageSpec.model_validate_json(Path(sys.argv[1]).read_text())
run_stage(RayBackend(ClusterConfig(address=sys.argv[2])), spec, spec.model_out.parent)
"""


@pytest.fixture(scope="module", autouse=True)
def looked_at_often() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job_backend, "POLL_S", 0.3)
        yield


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, str]:
    return released(tmp_path_factory.mktemp("on ray") / "store")


@pytest.fixture(scope="module")
def locally(store: tuple[Store, str]) -> dict[str, Any]:
    """What the stage gives on this machine without Ray."""
    folder = store[0].root / "models" / "stage-local"
    return run_stage(LocalBackend(), spec_of(*store, folder), folder)


@pytest.fixture
def cluster(ray_head: RayHead) -> ClusterConfig:
    return ClusterConfig(address=ray_head.dashboard)


@pytest.fixture
def jobs(ray_head: RayHead) -> Jobs:
    return Jobs(ray_head.dashboard, 30.0)


def launcher_of(spec: Any, cluster: ClusterConfig, folder: Path) -> subprocess.Popen[bytes]:
    """Another process that launches the stage."""
    spec_file = folder.with_name(f"{folder.name}.json")
    spec_file.parent.mkdir(parents=True, exist_ok=True)
    spec_file.write_text(spec.model_dump_json())
    return subprocess.Popen([sys.executable, "-c", LAUNCHER, str(spec_file), str(cluster.address)], stderr=subprocess.DEVNULL)


def status(jobs: Jobs, name: str) -> str:
    found = jobs.find(name)
    return found.status if found else ""


def test_a_stage_whose_launcher_was_killed_is_found_again_and_gives_the_weights_it_gives_here(
    store: tuple[Store, str], locally: dict[str, Any], cluster: ClusterConfig, jobs: Jobs
) -> None:
    """Given a launcher that dies by SIGKILL while its job runs, when the stage is launched again, then there was one job in all."""
    folder = store[0].root / "models" / "stage-killed"
    spec = spec_of(*store, folder)
    name = describe_job(spec, folder, cluster)[1]["submission_id"]
    process = launcher_of(spec, cluster, folder)
    try:
        assert eventually(lambda: status(jobs, name) == "RUNNING")
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert status(jobs, name) == "RUNNING"
    reports: list[tuple[int, int]] = []
    result = run_stage(RayBackend(cluster), spec, folder, lambda done, most, _: reports.append((done, most)))
    assert result == locally
    assert reports[-1] == (SFT.max_steps, SFT.max_steps)
    assert weights_hash(folder / "model") == locally["weights_hash"]
    assert status(jobs, f"{name}-2") == ""
    log = (folder / "log.txt").read_text()
    assert log.count(f"Running entrypoint for job {name}: python -P -m train.run {shlex.quote(str(folder / 'spec.json'))}") == 1
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == SFT.max_steps


def test_a_stage_through_a_url_gives_the_same_weights(
    store: tuple[Store, str], locally: dict[str, Any], cluster: ClusterConfig, tmp_path: Path
) -> None:
    folder = store[0].root / "models" / "stage-url"
    through = cluster.model_copy(update={"checkpoints": f"file://{tmp_path}/bucket"})
    ray.check(through)
    assert run_stage(RayBackend(through), spec_of(*store, folder), folder) == locally
    assert sorted(path.name for path in folder.iterdir()) == ["job.json", "log.txt", "metrics.jsonl", "model", "result.json", "spec.json"]
    assert weights_hash(folder / "model") == locally["weights_hash"]


def test_a_cluster_tells_that_no_node_of_it_has_a_gpu(cluster: ClusterConfig, jobs: Jobs) -> None:
    assert jobs.gpus() == 0
    with pytest.raises(BadInput, match=r"no node of the Ray cluster http://\S+ has a GPU, and verl trains on GPUs"):
        check_gpus(cluster, "verl")


def test_a_launcher_that_is_interrupted_stops_its_job_and_the_next_call_begins_another(
    store: tuple[Store, str], cluster: ClusterConfig, jobs: Jobs
) -> None:
    folder = store[0].root / "models" / "stage-long"
    spec = spec_of(*store, folder, sft=SFT.model_copy(update={"max_steps": 100_000}))
    name = describe_job(spec, folder, cluster)[1]["submission_id"]
    process = launcher_of(spec, cluster, folder)
    assert eventually(lambda: status(jobs, name) == "RUNNING")
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == -signal.SIGINT
    assert status(jobs, name) == "STOPPED"
    assert eventually(lambda: not at_work("train.run", str(folder)), 20)

    # given a spec that the entry refuses, then the next job of this stage tells why, in the words of a stage that runs here
    broken = spec.model_copy(update={"split": "sed"})
    with pytest.raises(StageFailed, match=r"(?s)failed as Ray job .*log\.txt:.*has no split 'sed'") as failure:
        run_stage(RayBackend(cluster), broken, folder)
    assert failure.value.kind == "stage"
    assert json.loads((folder / "job.json").read_text())["status"] == "FAILED"


def at_work(*words: str) -> list[str]:
    """Processes with these words in their command line."""
    found = []
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            line = command.read_bytes().decode(errors="replace")
            found += [line] if all(word in line for word in words) else []
    return found


# ---- several nodes -----------------------------------------------------------------------------------------------------------


def spread(jobs: Jobs, name: str, command: list[str]) -> tuple[Job, str]:
    """The end of a job that runs a command on both nodes, and its log."""
    body = job(ClusterConfig(nodes=2, gpus_per_node=1), name, "test", "")
    nodes = shlex.split(body["entrypoint"])
    nodes[4] = json.dumps(json.loads(nodes[4]) | {"take": {"CPU": 1.0, "GPU": 0.0}})
    jobs.submit(body | {"entrypoint": shlex.join([*nodes[:5], *command])})
    assert eventually(lambda: (found := jobs.find(name)) and found.is_over, 120), jobs.log(name)
    ended = jobs.find(name)
    assert ended is not None
    return ended, jobs.log(name) or ""


def test_a_command_runs_on_every_node_once_and_ends_everywhere_when_it_fails_on_one(ray_head: RayHead, jobs: Jobs) -> None:
    ray_head.add_second()
    try:
        script = "import os; print('I am', os.environ['HEADRACE_NODE_RANK'], 'as', '{rank}', 'and meet', '{ip}:{port}', flush=True)"
        ended, log = spread(jobs, "test-both", [sys.executable, "-c", script])
        assert ended.status == "SUCCEEDED", log
        heard = [line.split("I am ")[1].split("\x1b")[0] for line in log.splitlines() if "I am " in line and "import os" not in line]
        assert sorted(line.split(" and ")[0] for line in heard) == ["0 as 0", "1 as 1"], log
        assert len({line.split(" and ")[1] for line in heard}) == 1

        fails = "import sys, time; {rank} or sys.exit(7); time.sleep(601.5)"
        ended, log = spread(jobs, "test-one", [sys.executable, "-c", fails])
        assert (ended.status, ended.exit_code) == ("FAILED", 7), log
        assert eventually(lambda: not at_work("time.sleep(601.5)"), 20)
    finally:
        ray_head.kill_second()

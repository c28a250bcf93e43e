"""The worker of `headrace up`, killed while a deployment of the whole pipeline works."""

from __future__ import annotations

import random
import re
import shutil
import time

import yaml

from benchmarks.harness import ROOT
from benchmarks.operations.kills.processes import Killed, kill, left_in
from benchmarks.operations.light_deployments import Installation, deployed, wait_for
from benchmarks.operations.whole_runs import CONFIG, FOLDER, undisturbed
from storage.store import Store

_KILLS = 6
_MARKED_WITHIN_S, _LONGEST_RUN_S = 150.0, 900.0


def kill_workers_of_deployments(picked: random.Random) -> Killed:
    """Kills the worker below each of six runs. Recovered: each run was marked as crashed, and the next ends as an undisturbed one."""
    _, expected = undisturbed()
    folder = FOLDER / "deployments"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    config = yaml.safe_load(CONFIG.read_text()) | {"store": str(folder / "store")}
    (folder / "prefect.yaml").write_text(re.sub(r"(slug: \w+, active:) true", r"\1 false", (ROOT / "prefect.yaml").read_text()))
    with deployed(folder) as installation:
        kills = sum(_run(installation, config, kill_after_s=picked.uniform(2.0, 20.0)) == "CRASHED" for _ in range(_KILLS))
        is_over = _run(installation, config) == "COMPLETED"
    is_equal = is_over and Store(folder / "store").content_hash() == expected
    print(f"    {kills} workers killed; {'equal hash' if is_equal else 'NOT equal'}", flush=True)
    left = left_in(folder)
    shutil.rmtree(folder)
    return Killed(_KILLS, kills * is_equal, left)


def _run(installation: Installation, config: dict[str, object], kill_after_s: float | None = None) -> str:
    """The type of the state in which a run of the pipeline ends; its worker is killed so many seconds after it began."""
    client = installation.client
    deployment = client.read_deployment_by_name("pipeline/pipeline-sample").id
    run = client.create_flow_run_from_deployment(deployment, parameters={"config": config}).id

    def state() -> str:
        found = client.read_flow_run(run).state_type
        return found.value if found else ""

    wait_for(lambda: state() not in ("SCHEDULED", "PENDING"), _MARKED_WITHIN_S)
    if kill_after_s is not None:
        time.sleep(kill_after_s)
        kill(installation.state("keeper")["worker"])
    wait_for(lambda: state() not in ("SCHEDULED", "PENDING", "RUNNING"), _LONGEST_RUN_S if kill_after_s is None else _MARKED_WITHIN_S)
    return state()

"""The deployments of prefect.yaml, for real: a server, a worker, schedules, events that start the next flow, and Ray for the training."""

from __future__ import annotations

import json
import os
import re
import time
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from prefect.client.orchestration import SyncPrefectClient, get_client

from flows.config import Config, read
from storage.store import Store
from tests.conftest import RayHead
from tests.e2e.conftest import CI, LIMIT_S, ROOT, headrace
from tests.waiting import eventually
from train.config import CascadeConfig

pytestmark = [pytest.mark.e2e, pytest.mark.server, pytest.mark.ray]


SMALLER: dict[str, Any] = {
    "synthesize": {"accepted": 10, "max_proposals": 80, "calibration": 12, "subsample": 10},
    "haystack": {"rows": 3000},
    "curate": {"coverage": {"keep": 30, "max_encoded": 300}},
    "train": {"probe_tasks": 16},
}
"""Changes to configs/ci.yaml: here it is enough that every flow does something, and a policy is promoted."""


def merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    return base | {key: merged(base[key], value) if isinstance(value, dict) else value for key, value in changes.items()}


def test_prefect_yaml_fits_the_flows() -> None:
    import importlib

    deployments = yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]
    assert Counter(each["entrypoint"].rsplit(".", 1)[1] for each in deployments) == Counter(
        ["synthesize", "curate", "tag", "train", "evaluate", "pipeline"]
    )
    for each in deployments:
        module, function = each["entrypoint"].rsplit(".", 1)
        flow = getattr(importlib.import_module(module), function)
        assert flow.name == function
        Config.model_validate(each["parameters"]["config"])
        assert each["concurrency_limit"] == {"limit": 1, "collision_strategy": "ENQUEUE"}


def test_a_curated_store_is_tagged_trained_on_ray_and_evaluated(prefect_server: str, ray_head: RayHead, tmp_path: Path) -> None:
    environment = os.environ | {"RAY_ADDRESS": ray_head.dashboard, "PREFECT_WORKER_QUERY_SECONDS": "1"}
    far_from_now = f'cron: "0 {(time.gmtime().tm_hour + 12) % 24} * * *"'
    (tmp_path / "prefect.yaml").write_text(re.sub(r'cron: "0 \d+ \* \* \*"', far_from_now, (ROOT / "prefect.yaml").read_text()))
    (tmp_path / "smaller.yaml").write_text(yaml.safe_dump(merged(yaml.safe_load(CI.read_text()), SMALLER)))
    small, cluster = read(tmp_path / "smaller.yaml", store=tmp_path / "chain" / "store"), read(ROOT / "configs" / "cluster.yaml").train
    stages = [*small.train.model_dump()["stages"][:1], {"name": "sft2", "skip": True}, {"name": "rl", "skip": True}]
    short = CascadeConfig.model_validate(small.train.model_dump() | {"stages": stages})
    here = cluster.cluster.model_copy(update={"gpus_per_node": 0, "cpus": 1.0})
    on_ray = short.model_copy(update={"backend": cluster.backend, "cluster": here})
    config = small.model_copy(update={"train": on_ray}).model_dump(mode="json")
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    store = Store(small.store)
    # given all deployments and a worker that knows the cluster (starting them twice does no harm)
    headrace("up", folder=tmp_path, environment=environment)
    try:
        headrace("up", folder=tmp_path, environment=environment)
        with get_client(sync_client=True) as client:
            # when trajectories are made, and then queries curated
            start(client, "synthesize/nightly", config)
            assert eventually(lambda: done(client)["tag"] == 1, LIMIT_S), states(client)
            start(client, "curate/nightly", config)
            # then the conversations alone are tagged, and no training starts; with queries tag, train and evaluate follow, each started by
            # the event of the one before
            assert eventually(lambda: done(client)["evaluate"] == 1, LIMIT_S), states(client)
            # and the cron schedules have put runs into the future
            assert eventually(lambda: scheduled(client) >= {"synthesize", "curate"}, 90), scheduled(client)
            # and a run of the whole pipeline trains nothing again (it tags the tasks that training made), and chains nothing
            again = headrace("run", "--config", "config.yaml", folder=tmp_path, environment=environment)
            assert "stage sft1" not in again
            time.sleep(8)
            # and nothing ran twice
            assert started(client) == Counter(["synthesize", "tag", "curate", "tag", "train", "evaluate"]), states(client)
            assert set(states(client)) == {"COMPLETED"}
    finally:
        headrace("down", folder=tmp_path, environment=environment)
    assert "nothing is running" in headrace("down", folder=tmp_path, environment=environment)
    # and the cluster ran one job for the one stage
    assert store.query("SELECT name, backend FROM stages").rows() == [("sft1", "ray")]
    with urllib.request.urlopen(f"{ray_head.dashboard}/api/jobs/") as answer:
        jobs = [job for job in json.load(answer) if str(store.root) in job["entrypoint"]]
    assert [job["status"] for job in jobs] == ["SUCCEEDED"]


def start(client: SyncPrefectClient, deployment: str, config: dict[str, Any]) -> None:
    client.create_flow_run_from_deployment(client.read_deployment_by_name(deployment).id, parameters={"config": config})


def deployed_runs(client: SyncPrefectClient) -> list[tuple[str, str]]:
    """(flow, state) of every run of a deployment."""
    names = {flow.id: flow.name for flow in client.read_flows()}
    return [(names[run.flow_id], run.state_type.value if run.state_type else "") for run in client.read_flow_runs() if run.deployment_id]


def scheduled(client: SyncPrefectClient) -> set[str]:
    return {flow for flow, state in deployed_runs(client) if state == "SCHEDULED"}


def started(client: SyncPrefectClient) -> Counter[str]:
    return Counter(flow for flow, state in deployed_runs(client) if state != "SCHEDULED")


def done(client: SyncPrefectClient) -> Counter[str]:
    found = Counter(flow for flow, state in deployed_runs(client) if state == "COMPLETED")
    assert not [each for each in deployed_runs(client) if each[1] in ("FAILED", "CRASHED")], deployed_runs(client)
    return found


def states(client: SyncPrefectClient) -> Counter[str]:
    return Counter(state for _, state in deployed_runs(client) if state != "SCHEDULED")

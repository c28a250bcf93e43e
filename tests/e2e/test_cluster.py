"""The deployments of prefect.yaml with a real Ray cluster behind them: an event starts `train`, and Ray runs every stage of it."""

from __future__ import annotations

import json
import os
import urllib.request
from pathlib import Path

import pytest
import yaml
from prefect.client.orchestration import get_client
from prefect.events import emit_event

from flows.config import read
from flows.runtime.events import RESOURCE, TASKS_TAGGED
from flows.runtime.run_flow import flush_to_server
from storage.store import Store
from tests.conftest import RayHead
from tests.e2e.conftest import CI, LIMIT_S, ROOT, headrace
from tests.e2e.test_deployments import done, states, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.server, pytest.mark.ray]


def test_a_tagged_store_is_trained_on_the_cluster_and_its_policy_promoted(prefect_server: str, ray_head: RayHead, tmp_path: Path) -> None:
    environment = os.environ | {"RAY_ADDRESS": ray_head.dashboard}
    small, cluster = read(CI, store=tmp_path / "chain" / "store"), read(ROOT / "configs" / "cluster.yaml").train
    config = small.model_copy(update={"train": small.train.model_copy(update={"backend": cluster.backend, "cluster": cluster.cluster})})
    told = tmp_path / "config.yaml"
    told.write_text(yaml.safe_dump(config.model_dump(mode="json")))
    (tmp_path / "prefect.yaml").write_text((ROOT / "prefect.yaml").read_text().replace("active: true", "active: false"))
    # given a store with tasks, and the deployments with a worker that knows the cluster
    headrace("synthesize", "--config", str(told), folder=tmp_path, environment=environment)
    headrace("curate", "--config", str(told), folder=tmp_path, environment=environment)
    headrace("up", folder=tmp_path, environment=environment)
    try:
        with get_client(sync_client=True) as client:
            before = done(client)
            # when it is told that its tasks are tagged
            resource = {"prefect.resource.id": RESOURCE, "prefect.resource.name": str(config.store)}
            emit_event(TASKS_TAGGED, resource=resource, payload={"config": config.model_dump(mode="json")})
            flush_to_server()
            # then that starts the training, once
            assert wait_for(lambda: done(client)["train"] > before["train"], LIMIT_S), states(client)
            assert done(client)["train"] == before["train"] + 1
    finally:
        headrace("down", folder=tmp_path, environment=environment)
    store = Store(config.store)
    assert store.query("SELECT name, backend FROM stages ORDER BY name").rows() == [("rl", "ray"), ("sft1", "ray"), ("sft2", "ray")]
    assert store.query("SELECT count(*) FROM promotions WHERE passed").item() >= 1
    # and Ray ran one job a stage
    with urllib.request.urlopen(f"{ray_head.dashboard}/api/jobs/") as answer:
        jobs = json.load(answer)
    ran = [job["status"] for job in jobs if str(config.store) in job["entrypoint"]]
    assert ran == ["SUCCEEDED"] * 3

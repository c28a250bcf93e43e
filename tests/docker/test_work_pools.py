"""docker/work_pools: the templates of Prefect's Docker and Kubernetes work pools, by Prefect's own checks.

Without containers: where prefect-docker and prefect-kubernetes are installed, their own classes read the templates too.
"""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.workers.base import BaseJobConfiguration

ROOT = Path(__file__).parents[2]
TEMPLATES = {name: json.loads((ROOT / "docker" / "work_pools" / f"{name}.json").read_text()) for name in ("docker", "kubernetes")}
VARIABLES = yaml.safe_load((ROOT / "prefect.yaml").read_text())["definitions"]["worker"]["job_variables"]
"""Those of the deployments, which a template gets."""
OWN = {
    "docker": ("prefect_docker.worker", "DockerWorkerJobConfiguration"),
    "kubernetes": ("prefect_kubernetes.worker", "KubernetesWorkerJobConfiguration"),
}


def configuration(kind: type[BaseJobConfiguration], name: str, **values: Any) -> Any:
    """What a worker makes of the template. The client that it gets is asked nothing: no variable is a reference to a block."""
    client: Any = object()
    return asyncio.run(kind.from_template_and_values(TEMPLATES[name], VARIABLES | values, client=client))


@pytest.mark.parametrize("name", TEMPLATES)
def test_prefect_takes_the_template_and_the_deployments_variables_fit_it(name: str) -> None:
    template = TEMPLATES[name]
    WorkPoolCreate(name=f"headrace-{name}", type=name, base_job_template=template)
    jsonschema.Draft202012Validator.check_schema(template["variables"])
    jsonschema.validate(VARIABLES, template["variables"])
    made = configuration(BaseJobConfiguration, name)
    assert made.command == VARIABLES["command"] and made.env["DO_NOT_TRACK"] == "1"


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_variable_is_used_and_has_a_default_unless_the_deployment_gives_it(name: str) -> None:
    properties = TEMPLATES[name]["variables"]["properties"]
    assert set(re.findall(r"{{ (\w+) }}", json.dumps(TEMPLATES[name]["job_configuration"]))) == set(properties)
    assert {key for key, about in properties.items() if "default" not in about} == {"name", "command"}
    assert not any("additionalProperties" not in about for about in properties.values() if about["type"] == "object")


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_workers_own_class_takes_the_template(name: str) -> None:
    module, kind = OWN[name]
    package = pytest.importorskip(module, reason=f"{module.partition('.')[0]} is not installed: the worker's own class is not tried")
    if name == "docker":
        made = configuration(getattr(package, kind), name, memory="4g", device_requests=[{"Driver": "nvidia", "Count": 1}])
        assert (made.image, made.volumes, made.mem_limit) == ("headrace-worker:1", ["headrace_runs:/headrace/runs"], "4g")
        wanted = {"init": True, "nano_cpus": 2_000_000_000, "shm_size": "2g", "device_requests": [{"Driver": "nvidia", "Count": 1}]}
        assert made.container_create_kwargs == wanted
        return
    made = configuration(getattr(package, kind), name, gpus=1, claim="team")
    pod = made.job_manifest["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["resources"]["limits"] == {"cpu": "2", "memory": "8Gi", "nvidia.com/gpu": 1}
    assert pod["volumes"] == [{"name": "runs", "persistentVolumeClaim": {"claimName": "team"}}]


def test_the_default_volumes_are_where_the_image_and_compose_have_the_stores() -> None:
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())
    volume, _, path = TEMPLATES["docker"]["variables"]["properties"]["volumes"]["default"][0].partition(":")
    assert volume == f"{compose['name']}_runs" and "runs" in compose["volumes"]
    assert path == TEMPLATES["kubernetes"]["variables"]["properties"]["runs_path"]["default"] == "/headrace/runs"
    assert TEMPLATES["docker"]["variables"]["properties"]["networks"]["default"] == [f"{compose['name']}_default"]
    dockerfile = (ROOT / "docker" / "worker.Dockerfile").read_text()
    assert "/headrace/runs" in dockerfile and "--uid 10001" in dockerfile
    pod = TEMPLATES["kubernetes"]["job_configuration"]["job_manifest"]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsUser"] == 10001
    assert not {"completions", "parallelism", "backoffLimit"} & set(pod), "fields of a job, which a pod does not have"
    assert pod["containers"][0]["name"] == "prefect-job", "Prefect's worker knows the run's container by this name"


def test_the_worker_of_the_pools_has_the_prefect_of_the_runs() -> None:
    dockerfile = (ROOT / "docker" / "pool_worker.Dockerfile").read_text()
    (pinned,) = re.findall(r"prefect==(\S+)", dockerfile)
    assert f"\nprefect=={pinned}\n" in (ROOT / "constraints.txt").read_text()

"""compose.yaml, as far as it can be tried without its images: that it is valid, and that all it names is there."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from flows.cli.main import app
from flows.runtime.daemon import POOL
from flows.runtime.server import BATCHED, DEPLOYMENTS

ROOT = Path(__file__).parents[2]
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
MAKEFILE = (ROOT / "Makefile").read_text()


def commands_of(service: str) -> list[list[str]]:
    """The programs that a service calls, with their arguments: the lines of its shell, or its one command."""
    command = SERVICES[service].get("command", [])
    if "exec" not in str(command):
        return [command]
    lines = command[-1].replace("\\\n", " ").strip().splitlines()
    return [[word for word in shlex.split(re.sub(r'^\w+="\$\$\([^)]*\)" exec ', "", line)) if word != "exec"] for line in lines]


CALLS = {service: commands_of(service) for service in SERVICES if "command" in SERVICES[service]}


def test_compose_itself_takes_the_file_or_its_published_schema_does(tmp_path: Path) -> None:
    """When Compose reads the file, then it finds no error; where Compose is not, its schema decides, which check-jsonschema brings."""
    plugin = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False) if which("docker") else None
    if plugin is not None and plugin.returncode == 0:
        done = subprocess.run(
            ["docker", "compose", "--profile", "gpu", "config", "--quiet"], cwd=ROOT, capture_output=True, text=True, check=False
        )
    else:
        done = check_schema(ROOT / "compose.yaml")
        (tmp_path / "compose.yaml").write_text("services: {one: {image: a, restarts: always}}")
        assert "restarts" in check_schema(tmp_path / "compose.yaml").stdout
    assert done.returncode == 0, done.stdout + done.stderr


def which(program: str) -> bool:
    return subprocess.run(["which", program], capture_output=True, check=False).returncode == 0


def check_schema(file: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_restarts_is_watched_and_listens_on_loopback_alone(name: str) -> None:
    service = SERVICES[name]
    assert service["restart"] == "unless-stopped"
    assert service["healthcheck"]["test"][0] == "CMD"
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
    for other, how in service.get("depends_on", {}).items():
        assert how == {"condition": "service_healthy"} and "healthcheck" in SERVICES[other]


def test_the_server_has_the_settings_of_that_of_headrace_up() -> None:
    """So slots of deployments outlive a killed server, and task runs are written in batches."""
    server = SERVICES["prefect"]
    assert (BATCHED | DEPLOYMENTS).items() <= server["environment"].items()
    assert f"prefect:{server['environment']['PREFECT_HOME']}" in server["volumes"]


def test_secrets_are_files_that_make_team_makes_and_no_variable_holds_one() -> None:
    files = {name: secret["file"] for name, secret in COMPOSE["secrets"].items()}
    made = subprocess.run(["make", "-n", "team", "--always-make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert all(f" {file}" in made for file in files.values())
    assert "secrets/" in (ROOT / ".gitignore").read_text().splitlines()
    assert "secrets" not in (ROOT / "docker/worker.Dockerfile.dockerignore").read_text()
    for name, service in SERVICES.items():
        assert set(service.get("secrets", [])) <= set(files), name
        for variable, value in service.get("environment", {}).items():
            if re.search(r"PASSWORD|TOKEN|KEY|CREDENTIALS", variable):
                assert str(value).removeprefix("/run/secrets/") in service["secrets"], (name, variable)
        for secret in re.findall(r"/run/secrets/(\w+)", str(service)):
            assert secret in service["secrets"], (name, secret)


def test_images_are_ours_or_of_the_versions_that_the_project_names() -> None:
    ours = [service for service in SERVICES.values() if "build" in service]
    assert {service["image"] for service in ours} == {"headrace-worker:1"}
    assert all((ROOT / service["build"]["dockerfile"]).exists() for service in ours)
    assert set(ours[0]["build"]["args"]) <= set(re.findall(r"^ARG (\w+)", (ROOT / "docker/worker.Dockerfile").read_text(), re.MULTILINE))
    version = re.search(r"^VLLM := (\S+)", MAKEFILE, re.MULTILINE)
    assert version and SERVICES["vllm"]["image"] == f"vllm/vllm-openai:v{version[1]}"


def test_vllm_is_started_as_our_own_engine_starts_it() -> None:
    """The module and every flag are among those of `synth/engines/vllm.py`, whose tests start a server."""
    (call,) = CALLS["vllm"]
    source = (ROOT / "synth/engines/vllm.py").read_text()
    module = call[call.index("-m") + 1]
    assert module in source
    assert all(f'"{word}"' in source for word in call if word.startswith("--"))


def test_what_ray_is_called_with_is_there() -> None:
    from ray.dashboard.http_server_agent import PUBLIC_EXACT_PATHS
    from ray.scripts.scripts import start

    known = {name for parameter in start.params for name in parameter.opts}
    for service in ("ray-head", "ray-worker"):
        ((program, verb, *options),) = CALLS[service]
        assert (program, verb) == ("ray", "start")
        assert {option.partition("=")[0] for option in options} <= known
    assert "/api/local_raylet_healthz" in PUBLIC_EXACT_PATHS  # answers without the token
    assert "52365/api/local_raylet_healthz" in str(SERVICES["ray-worker"]["healthcheck"])
    assert "52365" in str(next(parameter.default for parameter in start.params if parameter.name == "dashboard_agent_listen_port"))


def test_every_setting_of_prefects_is_one() -> None:
    from prefect.settings.legacy import _get_settings_fields
    from prefect.settings.models.root import Settings

    known = _get_settings_fields(Settings)
    named = re.findall(r"\bPREFECT_\w+", (ROOT / "compose.yaml").read_text() + (ROOT / "docker/worker.Dockerfile").read_text())
    assert named and set(named) <= set(known)


@pytest.mark.slow
def test_prefects_own_parser_takes_every_command_of_prefects() -> None:
    from prefect.cli._app import _app

    (call,) = CALLS["prefect"]
    command, bound, _ = _app.parse_args(call[1:], exit_on_error=False, print_error=False)[:3]
    assert bound.arguments, command


def test_the_worker_is_that_of_headrace_up_with_what_it_needs() -> None:
    # its command is one of ours, and serves the pool of prefect.yaml
    (call,) = CALLS["worker"]
    commands = vars(typer.main.get_command(app))["commands"]
    assert call[:2] == ["headrace", "up"] and commands["up"].make_context("up", call[2:]).params["foreground"]
    deployments = yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]
    assert {deployment["work_pool"]["name"] for deployment in deployments} == {POOL}
    # workers of several containers see each other's locks, which a new container keeps, and their user may write them
    image = (ROOT / "docker/worker.Dockerfile").read_text()
    (mounted,) = [volume.partition(":")[2] for volume in SERVICES["worker"]["volumes"] if volume.startswith("workers:")]
    assert mounted == "/headrace/.prefect/workers" and mounted in re.findall(r"install -d -o headrace (.*)", image)[0].split()
    assert "workers" in COMPOSE["volumes"]
    # and the files that it deploys are in the image
    copied = [name for line in re.findall(r"^COPY (?!--from)(.+) \S+$", image, re.MULTILINE) for name in line.split()]
    assert {"prefect.yaml", "automations.yaml", "configs"} <= set(copied)
    kept = (ROOT / "docker/worker.Dockerfile.dockerignore").read_text()
    assert set(re.findall("!.*", (ROOT / "docker/train.Dockerfile.dockerignore").read_text())) <= set(re.findall("!.*", kept))
    assert all(f"!{name}\n" in kept for name in copied if name != ".")

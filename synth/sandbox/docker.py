"""Boxes by a Docker engine, through the `docker` SDK (extra `sandbox`).

A box is one container: no network, no IPC, read-only root, an empty /sys, a tmpfs as work folder, no capabilities, no new privileges,
an unprivileged user, Docker's filter of system calls and ours. A container removes itself when its stdin closes. A container that remains
after a kill of its engine or owner has the owner's mark in a label, and the next sandbox removes it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from storage.records import JSON
from synth.sandbox.base import Limits, Protection, SandboxError
from synth.sandbox.box import (
    ENVIRONMENT,
    NOBODY,
    Connection,
    is_orphan,
    new_name,
    raised_limits,
    supervisor_command,
    wait_until_ready,
    work_folder,
)
from synth.sandbox.supervisor import WORK_DIR

if TYPE_CHECKING:
    import docker

IMAGE = "headrace-sandbox:1"
LABEL = "headrace.sandbox"
BUILD = f"docker build -t {IMAGE} -f docker/sandbox.Dockerfile docker"
CALL_S = 60
EMPTY = "ro,size=4096,nr_inodes=2,mode=0555"


class DockerBox:
    def __init__(self, client: docker.APIClient, name: str, config: dict[str, JSON]) -> None:
        self.name, self._client, self.has_runner = name, client, False
        created = client.create_container(name=name, **config)
        self._id: str = created["Id"]
        try:
            lost = [warning for warning in created.get("Warnings") or [] if "discarded" in warning]
            if lost:
                raise SandboxError(f"this Docker engine cannot hold its boxes to their limits: {' '.join(lost)}")
            self._socket: Any = client.attach_socket(self._id, params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1})
            self.connection = Connection(self._socket.fileno(), self._socket.fileno(), is_framed=True)
            client.start(self._id)
        except BaseException:
            _remove(client, self._id)
            raise

    def complaints(self) -> str:
        return bytes(self.connection.stderr).decode(errors="replace")

    def close(self) -> None:
        self.connection.close()
        if not self._socket.closed:
            try:
                _remove(self._client, self._id)  # before the socket, whose end then wakes a thread that waits for an answer
            finally:
                self._socket._response.close()
                self._socket.close()


class Docker:
    """url: of the engine; by default DOCKER_HOST, else `unix:///var/run/docker.sock`."""

    name = "docker"
    limits_whole_box = True

    def __init__(self, url: str | None = None) -> None:
        self.url = url
        self.shown: Path | None = None
        self._connected: docker.APIClient | None = None

    def missing(self) -> str:
        try:
            client = self.client()
            with _asking("list its images"):
                images = client.images(name=IMAGE)
        except SandboxError as error:
            return str(error)
        return "" if images else f"the Docker engine has no image {IMAGE}: {BUILD}"

    def client(self) -> docker.APIClient:
        """A client whose engine has answered. Raises SandboxError if the SDK is not installed or no engine answers."""
        if self._connected is not None:
            return self._connected
        try:
            import docker
        except ImportError as error:
            raise SandboxError("the Docker SDK is not installed: pip install 'headrace[sandbox]'") from error
        try:
            kwargs = {"base_url": self.url} if self.url else docker.utils.kwargs_from_env()
            self._connected = docker.APIClient(version="auto", timeout=CALL_S, num_pools=32, **kwargs)
        except docker.errors.DockerException as error:
            where = self.url or os.environ.get("DOCKER_HOST") or "/var/run/docker.sock"
            raise SandboxError(f"no Docker engine answers at {where}: {_reason(error)}") from error
        return self._connected

    def open(self, limits: Limits, *, without: frozenset[Protection] = frozenset()) -> DockerBox:
        client, name = self.client(), new_name()
        with _asking(f"start {name}"):
            box = DockerBox(client, name, self._container(client, raised_limits(limits, without), without, name))
        wait_until_ready(box)
        return box

    def reap(self) -> int:
        client = self.client()
        with _asking("list its containers"):
            containers = client.containers(all=True, filters={"label": LABEL})
        orphans = [each["Id"] for each in containers if is_orphan(each["Labels"].get(LABEL, ""))]
        for orphan in orphans:
            _remove(client, orphan)
        return len(orphans)

    def _container(self, client: docker.APIClient, limits: Limits, without: frozenset[Protection], name: str) -> dict[str, JSON]:
        shows_host = "mounts" in without
        security = ([] if "new_privileges" in without else ["no-new-privileges"]) + (["seccomp=unconfined"] if "seccomp" in without else [])
        host = client.create_host_config(
            auto_remove=True,
            binds={str(self.shown): {"bind": str(self.shown), "mode": "rw"}} if shows_host and self.shown else None,
            cap_drop=None if "capabilities" in without else ["ALL"],
            ipc_mode="none",
            log_config={"Type": "none"},
            mem_limit=limits.memory_bytes,
            memswap_limit=limits.memory_bytes,
            nano_cpus=int(limits.cpus * 1e9),
            network_mode="host" if "network" in without else "none",
            pid_mode="host" if "pids" in without else None,
            pids_limit=limits.processes,
            read_only="read_only" not in without,
            security_opt=security or None,
            tmpfs={WORK_DIR: work_folder(limits), "/dev/mqueue": EMPTY} | ({} if shows_host else {"/sys": EMPTY}),
        )
        is_root = "user" in without or "capabilities" in without
        return {
            "image": IMAGE,
            "command": supervisor_command("python3", name, without),
            "user": "0:0" if is_root else f"{NOBODY}:{NOBODY}",
            "environment": ENVIRONMENT,
            "labels": {LABEL: name},
            "hostname": "box" if "network" not in without else None,
            "stdin_open": True,
            "entrypoint": [],
            "working_dir": "/",
            "host_config": host,
        }


@contextmanager
def _asking(action: str) -> Iterator[None]:
    """Turns errors of the engine and of its client into a SandboxError that names the action."""
    import docker

    try:
        yield
    except (docker.errors.DockerException, OSError) as error:
        advice = f" ({BUILD})" if isinstance(error, docker.errors.ImageNotFound) else ""
        raise SandboxError(f"Docker could not {action}: {error}{advice}") from error


def _remove(client: docker.APIClient, container: str) -> None:
    """Removes a container, running or not, and waits until it is gone. It may be removing itself already."""
    import docker

    ends = time.monotonic() + CALL_S
    while time.monotonic() < ends:
        with _asking(f"remove the container {container[:12]}"):
            try:
                client.remove_container(container, force=True)
            except docker.errors.NotFound:
                return
            except docker.errors.APIError as error:
                if error.status_code != 409:
                    raise
        time.sleep(0.01)
    raise SandboxError(f"Docker has not removed the container {container[:12]} in {CALL_S} s")


def _reason(error: Exception) -> str:
    """The reason in the innermost exception: `no such file or directory`, `connection refused`."""
    seen: Any = error
    while True:
        inner = seen.__cause__ or getattr(seen, "reason", None) or next((each for each in seen.args if isinstance(each, Exception)), None)
        if not isinstance(inner, Exception):
            break
        seen = inner
    if isinstance(seen, OSError) and seen.strerror:
        return seen.strerror.lower()
    first = next(iter(str(seen).splitlines()), type(seen).__name__)
    return first.rpartition(": ")[2][:200]

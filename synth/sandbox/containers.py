"""Boxes by a Docker engine, through the `docker` SDK (extra `sandbox`).

A box is one container: no network, no IPC, read-only root, an empty /sys, a tmpfs as work folder, no capabilities, no new privileges,
nobody as user, Docker's own filter of system calls with ours on top. Containers carry their owner's mark in name and label, remove
themselves when their stdin closes, and what a killed engine or owner leaves all the same is reaped at the next start.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from storage.records import JSON
from synth.sandbox.base import WORK_DIR, Limits, Protection, SandboxError
from synth.sandbox.owner import is_orphan, new_name
from synth.sandbox.start import GUEST_ENVIRONMENT, NOBODY, guest_command, lifted, wait_until_ready, work_folder
from synth.sandbox.wire import Wire

if TYPE_CHECKING:
    import docker

IMAGE = "headrace-sandbox:1"
LABEL = "headrace.sandbox"
BUILD = f"docker build -t {IMAGE} -f docker/sandbox.Dockerfile docker"
CALL_S = 60
EMPTY = "ro,size=4096,nr_inodes=2,mode=0555"


class DockerBox:
    def __init__(self, client: docker.APIClient, name: str, config: dict[str, JSON]) -> None:
        self.name, self._client = name, client
        made = client.create_container(name=name, **config)
        self._id: str = made["Id"]
        try:
            lost = [warning for warning in made.get("Warnings") or [] if "discarded" in warning]
            if lost:
                raise SandboxError(f"this Docker engine cannot hold its boxes to their limits: {' '.join(lost)}")
            ways = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
            self._socket: Any = client.attach_socket(self._id, params=ways)
            self.wire = Wire(self._socket.fileno(), self._socket.fileno(), is_framed=True)
            client.start(self._id)
        except BaseException:
            _remove(client, self._id)
            raise

    def said(self) -> str:
        return bytes(self.wire.stderr).decode(errors="replace")

    def close(self) -> None:
        self.wire.close()
        if not self._socket.closed:
            self._socket._response.close()
            self._socket.close()
            _remove(self._client, self._id)


class Docker:
    """url: the engine's, e.g. `unix:///var/run/docker.sock`; by default what DOCKER_HOST says, else that one.
    shown: the one folder of the host that a box without the protection `mounts` sees."""

    name = "docker"
    limits_whole_box = True

    def __init__(self, url: str | None = None, *, image: str = IMAGE, shown: Path | None = None) -> None:
        self._url, self._image, self._shown = url, image, shown
        self._connected: docker.APIClient | None = None

    def showing(self, folder: Path) -> Docker:
        """The same provider with another `shown`."""
        return Docker(self._url, image=self._image, shown=folder)

    def missing(self) -> str:
        """What Docker needs and this machine has not; empty if nothing."""
        try:
            client = self.client()
            with _asking("list its images"):
                found = client.images(name=self._image)
        except SandboxError as error:
            return str(error)
        return "" if found else f"the Docker engine has no image {self._image}: {BUILD}"

    def client(self) -> docker.APIClient:
        """A client whose engine has answered.

        Raises:
            SandboxError: the SDK is not installed, or no engine answers.
        """
        if self._connected is not None:
            return self._connected
        try:
            import docker
        except ImportError as error:
            raise SandboxError("the Docker SDK is not installed: pip install 'headrace[sandbox]'") from error
        try:
            kwargs = {"base_url": self._url} if self._url else docker.utils.kwargs_from_env()
            client = docker.APIClient(version="auto", timeout=CALL_S, num_pools=32, **kwargs)
        except docker.errors.DockerException as error:
            where = self._url or "DOCKER_HOST or /var/run/docker.sock"
            raise SandboxError(f"no Docker engine answers at {where}: {str(error).splitlines()[0][:200]}") from error
        self._connected = client
        return client

    def open(self, limits: Limits, *, without: frozenset[Protection] = frozenset()) -> DockerBox:
        client, name = self.client(), new_name()
        with _asking(f"start {name}"):
            box = DockerBox(client, name, self._container(client, limits, without, name))
        wait_until_ready(box)
        return box

    def reap(self) -> int:
        client = self.client()
        with _asking("list its containers"):
            found = client.containers(all=True, filters={"label": LABEL})
        orphans = [each["Id"] for each in found if is_orphan(each["Labels"].get(LABEL, ""))]
        for orphan in orphans:
            _remove(client, orphan)
        return len(orphans)

    def _container(self, client: docker.APIClient, limits: Limits, without: frozenset[Protection], name: str) -> dict[str, JSON]:
        limits = lifted(limits, without)
        security = ([] if "new_privileges" in without else ["no-new-privileges"]) + (["seccomp=unconfined"] if "seccomp" in without else [])
        shown = {str(self._shown): {"bind": str(self._shown), "mode": "rw"}} if "mounts" in without and self._shown else None
        empty = ["/dev/mqueue", *([] if "mounts" in without else ["/sys"])]
        host = client.create_host_config(
            auto_remove=True,
            binds=shown,
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
            tmpfs={WORK_DIR: work_folder(limits)} | dict.fromkeys(empty, EMPTY),
        )
        is_root = "user" in without or "capabilities" in without
        return {
            "image": self._image,
            "command": guest_command("python3", name, without),
            "user": "0:0" if is_root else f"{NOBODY}:{NOBODY}",
            "environment": GUEST_ENVIRONMENT,
            "labels": {LABEL: name},
            "hostname": "box" if "network" not in without else None,
            "stdin_open": True,
            "entrypoint": [],
            "working_dir": "/",
            "host_config": host,
        }


@contextmanager
def _asking(what: str) -> Iterator[None]:
    """What an engine says no to, and that it does not answer, as a SandboxError."""
    import docker

    try:
        yield
    except (docker.errors.DockerException, OSError) as error:
        advice = f" ({BUILD})" if isinstance(error, docker.errors.ImageNotFound) else ""
        raise SandboxError(f"Docker could not {what}: {error}{advice}") from error


def _remove(client: docker.APIClient, container: str) -> None:
    """Removes a container, whatever it does, and returns when it is gone: it may be removing itself already."""
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

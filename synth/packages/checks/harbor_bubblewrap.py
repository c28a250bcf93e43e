"""A Harbor environment without Docker: each service of a task in bubblewrap, for `harbor run --env MODULE:BubblewrapEnvironment`.

One idea: what a task of this package says in its Dockerfiles and its docker-compose.yaml, with the machine's own files in place of images.
The agent's service `main`, the service `world` and the verifier each have a root folder of their own; `main` and `world` share a network
namespace without any way out, in which the name `world` is loopback. The agent sees neither the world's files nor the tests.

It is for checks with the agents `oracle` and `nop`, as root on Linux. It builds no image, enforces no limits of resources, and knows only
tasks that Headrace wrote: of a Dockerfile it reads COPY and CMD of `world`, and the folder of the tests.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities

import synth

MAIN, WORLD = "main", "world"
SYSTEM = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/etc/alternatives",
    "/etc/ssl",
    "/etc/passwd",
    "/etc/group",
    "/etc/nsswitch.conf",
)
HEADRACE = Path(synth.__file__).parents[1]
START_S = 60.0
FOLDERS = ("tmp", "app", "log", "logs/agent", "logs/verifier", "logs/artifacts", "tests", "solution", "root", "run", "etc")


class BubblewrapEnvironment(BaseEnvironment):
    """The agent's environment of a task, or that of its verifier."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        self._folder = Path()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._network_pid = 0
        super().__init__(*arguments, **keywords)

    @staticmethod
    def type() -> str:
        return "bubblewrap"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities(docker_compose=True, disable_internet=True)

    @property
    def _is_verifier(self) -> bool:
        return not (self.environment_dir / "docker-compose.yaml").is_file()

    def _validate_definition(self) -> None:
        if shutil.which("bwrap") is None:
            raise FileNotFoundError("bubblewrap is not installed: apt-get install bubblewrap")
        if not (self.environment_dir / "Dockerfile").is_file():
            raise FileNotFoundError(f"{self.environment_dir} has no Dockerfile")

    async def start(self, force_build: bool) -> None:
        del force_build
        self._folder = Path(tempfile.mkdtemp(prefix="headrace-harbor-"))
        for service in (MAIN,) if self._is_verifier else (MAIN, WORLD):
            for folder in (*FOLDERS, *(str(mount["target"]).lstrip("/") for mount in self._mounts)):
                (self._root(service) / folder).mkdir(parents=True, exist_ok=True)
            (self._root(service) / "etc" / "hosts").write_text("127.0.0.1 localhost world main\n")
        if self._is_verifier:
            shutil.copytree(self.environment_dir, self._root(MAIN) / "tests", dirs_exist_ok=True)
        self._network_pid = self._start_network()
        if not self._is_verifier:
            await self._start_world()

    def _root(self, service: str) -> Path:
        return self._folder / service

    def _start_network(self) -> int:
        """The process whose network namespace all services of this environment have."""
        read, write = os.pipe()
        command = ["bwrap", "--unshare-net", "--ro-bind", "/", "/", "--die-with-parent", "--info-fd", str(write), "sleep", "infinity"]
        self._processes.append(subprocess.Popen(command, pass_fds=(write,), stdin=subprocess.DEVNULL, start_new_session=True))
        os.close(write)
        with os.fdopen(read) as info:
            return int(json.load(info)["child-pid"])

    async def _start_world(self) -> None:
        folder = self.environment_dir / WORLD
        lines = (folder / "Dockerfile").read_text().splitlines()
        source, target = next(line.split()[1:3] for line in lines if line.startswith("COPY "))
        shutil.copytree(folder / source, self._root(WORLD) / target.lstrip("/"))
        command = json.loads(next(line.removeprefix("CMD ") for line in lines if line.startswith("CMD ")))
        log = (self._folder / "world.log").open("wb")
        self._processes.append(
            subprocess.Popen(self._sandbox(WORLD, command), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        )
        log.close()
        check = ["python3", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/health', timeout=5)"]
        for _ in range(int(START_S * 4)):
            if self._processes[-1].poll() is not None:
                break
            done = await asyncio.create_subprocess_exec(
                *["nsenter", f"--net=/proc/{self._network_pid}/ns/net", *check], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            if await done.wait() == 0:
                return
            await asyncio.sleep(0.25)
        raise RuntimeError(f"the service world did not start: {(self._folder / 'world.log').read_text()[-1000:]}")

    def _sandbox(self, service: str, command: list[str], cwd: str = "/app", env: dict[str, str] | None = None) -> list[str]:
        """The command line that runs a command in a service."""
        has_headrace = service == WORLD or self._is_verifier
        homes = [sys.base_prefix, *((sys.prefix, str(HEADRACE)) if has_headrace else ())]
        path = f"{sys.prefix if has_headrace else sys.base_prefix}/bin:/usr/local/bin:/usr/bin:/bin"
        variables = {
            "PATH": path,
            "HOME": "/root",
            "PYTHONDONTWRITEBYTECODE": "1",
            **({"PYTHONPATH": str(HEADRACE)} if has_headrace else {}),
        }
        binds = [("--bind", str(self._root(service)), "/"), *(("--ro-bind-try", each, each) for each in (*SYSTEM, *homes))]
        return [
            "nsenter", f"--net=/proc/{self._network_pid}/ns/net", "bwrap", *(word for bind in binds for word in bind), "--proc", "/proc",
            "--dev", "/dev", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--die-with-parent", "--clearenv", "--chdir", cwd,
            *(word for name, value in {**variables, **(env or {})}.items() for word in ("--setenv", name, value)), "--", *command,
        ]  # fmt: skip

    async def stop(self, delete: bool) -> None:
        for process in reversed(self._processes):
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            process.wait()
        self._processes.clear()
        if delete and self._folder != Path():
            shutil.rmtree(self._folder, ignore_errors=True)

    async def stop_service(self, service: str) -> None:
        """Nothing of `main` outlives its commands: each is a process namespace that ends with it."""

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        return await self._run(MAIN, command, cwd, self._merge_env(env), timeout_sec)

    async def service_exec(
        self,
        command: str,
        *,
        service: str | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        return await self._run(service or MAIN, command, cwd, env, timeout_sec)

    async def _run(self, service: str, command: str, cwd: str | None, env: dict[str, str] | None, timeout_s: float | None) -> ExecResult:
        arguments = self._sandbox(service, ["/bin/sh", "-c", command], cwd or "/app", env)
        process = await asyncio.create_subprocess_exec(
            *arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
        try:
            out, err = await asyncio.wait_for(process.communicate(), timeout_s)
        except TimeoutError:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            return ExecResult(stdout="", stderr=f"timed out after {timeout_s} s", return_code=124)
        return ExecResult(stdout=out.decode(errors="replace"), stderr=err.decode(errors="replace"), return_code=process.returncode or 0)

    def _path(self, service: str | None, path: str) -> Path:
        """A path in a service as a path of the machine. Raises ValueError: it leads out of the service's root, by a link or by `..`."""
        root = self._root(service or MAIN).resolve()
        found = (root / str(path).lstrip("/")).resolve()
        if not found.is_relative_to(root):
            raise ValueError(f"{path} leads out of service {service or MAIN}")
        return found

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        target = self._path(MAIN, target_path)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source_path, target)

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        shutil.copytree(source_dir, self._path(MAIN, target_dir), dirs_exist_ok=True)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        await self.service_download_file(source_path, target_path)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        await self.service_download_dir(source_dir, target_dir)

    async def service_download_file(self, source_path: str, target_path: Path | str, *, service: str | None = None) -> None:
        Path(target_path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(self._path(service, source_path), target_path)

    async def service_download_dir(self, source_dir: str, target_dir: Path | str, *, service: str | None = None) -> None:
        shutil.copytree(self._path(service, source_dir), target_dir, dirs_exist_ok=True, symlinks=True)

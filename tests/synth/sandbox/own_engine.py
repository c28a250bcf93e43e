"""A Docker engine and a base image of our own, for tests and measurements on a machine that has neither running.

As root on Debian or Ubuntu, with the packages docker.io and debootstrap: the engine listens on a socket of its own, makes no bridge and
touches no firewall, and ends with the `with` block. The image is the distribution's minimal system with Python, made by debootstrap
from the mirror that this machine's own apt uses, and kept as a tar file, since no registry can be relied on. A user's machine builds
`docker/sandbox.Dockerfile` instead.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import platform
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from synth.sandbox.base import SandboxError
from synth.sandbox.box import is_orphan, new_name
from synth.sandbox.docker import IMAGE, Docker

PACKAGES = ("docker.io", "bubblewrap", "debootstrap")
APT = f"apt-get install -y --no-install-recommends {' '.join(PACKAGES)}"
START_S = 60.0
RUN = "headrace-docker"
PR_SET_PDEATHSIG = 1


def missing() -> str:
    """Why no engine of our own can be started here; empty if it can."""
    if platform.system() != "Linux" or os.geteuid() != 0:
        return f"a Docker engine of our own needs root on Linux; use one that runs, or as root: {APT}"
    lacking = [program for program in ("dockerd", "containerd", "runc", "debootstrap") if shutil.which(program) is None]
    return f"{', '.join(lacking)} not installed: {APT}" if lacking else ""


@contextmanager
def docker_engine(cache: Path) -> Iterator[Docker]:
    """A provider that works: the machine's own engine where it answers and has the image, else one that lives as long as the block.

    cache: a folder where the image, and the engine's data, are kept for the next time.

    Raises:
        SandboxError: neither is possible; the message says what to install.
    """
    theirs = Docker()
    if not theirs.missing():
        yield theirs
        return
    if missing():
        raise SandboxError(f"{theirs.missing()}; {missing()}")
    cache.mkdir(parents=True, exist_ok=True)
    with _run_folder() as run, _data_folder(cache) as data, _engine(data, run) as url:
        ours = Docker(url)
        if ours.missing():
            import_image(ours, base_system(cache))
        yield ours
        ours.client().close()


def base_system(cache: Path) -> Path:
    """The tar file of the minimal system, made if it is not there: about a minute of CPU, 260 MB."""
    made = cache / "base-system.tar"
    with (cache / "base-system.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if made.exists():
            return made
        release = platform.freedesktop_os_release()
        suite, mirror = release["VERSION_CODENAME"], _mirror()
        with tempfile.TemporaryDirectory(prefix="base-system-", dir=cache) as folder:
            root, log = Path(folder) / "root", cache / "base-system.log"
            with log.open("wb") as out:
                options = ["--variant=minbase", "--include=python3"]
                done = subprocess.run(["debootstrap", *options, suite, str(root), mirror], stdout=out, stderr=out, check=False)
            if done.returncode:
                raise SandboxError(f"debootstrap {suite} from {mirror} failed, see {log}")
            for leftover in (root / "var/cache/apt/archives").glob("*.deb"):
                leftover.unlink()
            partial = Path(folder) / "system.tar"
            subprocess.run(["tar", "-C", str(root), "--exclude=./proc/*", "--exclude=./sys/*", "-cf", str(partial), "."], check=True)
            partial.rename(made)
    return made


def import_image(docker: Docker, system: Path) -> None:
    """Makes the image of the tar file."""
    name, tag = IMAGE.split(":")
    docker.client().import_image(src=str(system), repository=name, tag=tag)
    if docker.missing():
        raise SandboxError(f"importing {system} did not give the image {IMAGE}")


def _mirror() -> str:
    """The first mirror that apt uses for the distribution itself."""
    files = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    lines = [line.strip() for file in files if file.is_file() for line in file.read_text(errors="replace").splitlines()]
    found = [re.match(r"(?:URIs:\s*|deb\s+(?:\[[^]]*\]\s+)?)(https?://\S*(?:debian|ubuntu)\S*)", line) for line in lines]
    return next((match[1] for match in found if match), "http://deb.debian.org/debian")


@contextmanager
def _run_folder() -> Iterator[Path]:
    """The engine's sockets and mounts: a short path, since a socket's may have 107 characters. Those of dead owners go first."""
    for left in Path("/tmp").glob(f"{RUN}-*"):
        if is_orphan(left.name, RUN):
            _remove(left)
    folder = Path("/tmp", new_name(RUN))
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        _remove(folder)


@contextmanager
def _data_folder(cache: Path) -> Iterator[Path]:
    """The engine's data: kept in the cache for one engine at a time, a second one gets a folder of its own for the time being."""
    with (cache / "engine.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with tempfile.TemporaryDirectory(prefix="engine-", dir=cache, ignore_cleanup_errors=True) as folder:
                yield Path(folder)
            return
        yield cache / "engine"


@contextmanager
def _engine(data: Path, run: Path) -> Iterator[str]:
    """A running `dockerd`; it gets the signal to end when this process dies."""
    url = f"unix://{run}/docker.sock"
    network = ["--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-masq=false", "--ip-forward=false"]
    folders = ["--data-root", str(data), "--exec-root", str(run / "exec"), "--pidfile", str(run / "pid")]
    log = run / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            ["dockerd", *folders, "--host", url, *network],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            preexec_fn=_die_with_parent,  # noqa: PLW1509
        )
    try:
        ends = time.monotonic() + START_S
        while "has no image" not in (lacks := Docker(url).missing()) and lacks:
            if process.poll() is not None or time.monotonic() > ends:
                last = log.read_text(errors="replace").strip().splitlines()[-1:]
                raise SandboxError(f"dockerd does not come up: {' '.join(last) or lacks}")
            time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _remove(folder: Path) -> None:
    """The folder, and what is mounted in it: the engine forgets its network namespaces when it ends."""
    mounted = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for path in sorted((path for path in mounted if path.startswith(f"{folder}/")), reverse=True):
        subprocess.run(["umount", "--lazy", path], check=False)
    shutil.rmtree(folder)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)

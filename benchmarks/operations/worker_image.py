"""Whether docker/worker.Dockerfile and docker/pool_worker.Dockerfile build, on a Docker engine of our own with Debian's minimal system as
base, and what is in them works.

Without PyTorch and Ray (EXTRAS=s3), which are gigabytes. The base has the certificates of this machine, so that the package index is
reached as from here. Needs root on Debian or Ubuntu, as the sandbox's tests do, the package index, and minutes: called by hand.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks.harness import ROOT
from synth.sandbox.docker import IMAGE
from tests.synth.sandbox.own_engine import docker_engine

_FILE = ROOT / "docker" / "worker.Dockerfile"
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_BASE, _BUILT, _OF_POOL = "headrace-base:1", "headrace-worker:1", "headrace-pool-worker:1"


def measure() -> dict[str, float]:
    """`worker_image_works`: 1 if the image is built and its user can deploy and has `headrace`; `worker_image_build_s`; its bytes.
    `pool_worker_image_works`: 1 if that of the pools' worker is built and knows both types of pools.

    Raises:
        SandboxError: no Docker engine can be had here.
    """
    with docker_engine(ROOT / ".cache" / "sandbox") as engine, tempfile.TemporaryDirectory(prefix="headrace-image-") as scratch:
        docker = ["docker", *(["--host", engine.url] if engine.url else [])]
        _build_base([*docker, "build"], Path(scratch, "base"))
        begun = time.monotonic()
        settings = ["--build-arg", f"BASE={_BASE}", "--build-arg", "EXTRAS=s3"]
        _run(
            [*docker, "build", "--network", "host", "-t", _BUILT, "-f", "worker.Dockerfile", *settings, "."],
            _context(Path(scratch, "context")),
        )
        build_s = time.monotonic() - begun
        look = "id -un && ls && touch runs/written && headrace --help > /dev/null && prefect version"
        shown = _run([*docker, "run", "--rm", "--network", "none", _BUILT, "sh", "-ec", look], Path(scratch))
        size = _run([*docker, "image", "inspect", "--format", "{{.Size}}", _BUILT], Path(scratch))
        knows_both = _build_pool_worker(docker, Path(scratch))
        _run([*docker, "image", "rm", "--force", _BUILT, _OF_POOL, _BASE], Path(scratch))
    works = all(word in shown for word in ("headrace", "prefect.yaml", "configs", "3.8.8"))
    about = {"worker_image_works": float(works), "worker_image_build_s": build_s, "worker_image_bytes": float(size)}
    return about | {"pool_worker_image_works": float(knows_both)}


def _build_pool_worker(docker: list[str], folder: Path) -> bool:
    """Whether the image of the pools' worker is built, and Prefect in it knows both types of pools."""
    file = str(_FILE.with_name("pool_worker.Dockerfile"))
    empty = folder / "empty"
    empty.mkdir()
    _run([*docker, "build", "--network", "host", "-t", _OF_POOL, "-f", file, "--build-arg", f"BASE={_BASE}", str(empty)], folder)
    look = "id -un && python -c 'from prefect.workers.base import BaseWorker as w; print(sorted(w.get_all_available_worker_types()))'"
    shown = _run([*docker, "run", "--rm", "--network", "none", _OF_POOL, "sh", "-ec", look], folder)
    return all(word in shown for word in ("headrace", "'docker'", "'kubernetes'"))


def _context(folder: Path) -> Path:
    """What the ignore file lets through: the engine's own builder reads no ignore file of that name."""
    folder.mkdir()
    for name in re.findall(r"^!(\S+)$", _FILE.with_name(f"{_FILE.name}.dockerignore").read_text(), re.MULTILINE):
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, folder / name)
    shutil.copy(_FILE, folder)
    return folder


def _build_base(build: list[str], folder: Path) -> None:
    folder.mkdir()
    shutil.copy(_CERTIFICATES, folder / "certificates.crt")
    (folder / "Dockerfile").write_text(
        f"FROM {IMAGE}\nCOPY certificates.crt /etc/ssl/certificates.crt\nENV PIP_CERT=/etc/ssl/certificates.crt\n"
    )
    _run([*build, "-t", _BASE, "."], folder)


def _run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, env={**os.environ, "DOCKER_BUILDKIT": "0"}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stdout[-1000:]} {done.stderr[-2000:]}")
    return done.stdout


if __name__ == "__main__":
    print(json.dumps(measure(), indent=1))

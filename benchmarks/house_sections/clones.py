"""Clones of the repository at one commit, with the environments of the checkout linked in, and the environment variables to run in them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from benchmarks.harness import ROOT, code_mark

CACHE = ROOT / ".cache" / "bench" / "house"
WORK = CACHE / code_mark()
ENVIRONMENTS = (".venv", ".venv-vllm")
OF_MAKE = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Variables that `make bench` sets, and that a user's shell does not have."""


def clone_commit(commit: str, target: Path) -> Path:
    """A fresh clone at that commit. Nothing in it asks make to install the environments again: its pyproject.toml counts as old."""
    shutil.rmtree(target, ignore_errors=True)
    _git("clone", "--quiet", "--shared", "--no-checkout", str(ROOT), str(target))
    _git("-C", str(target), "checkout", "--quiet", "--detach", commit)
    for name in ENVIRONMENTS:
        if (ROOT / name).exists():
            (target / name).symlink_to((ROOT / name).resolve())
    (target / ".git" / "info").mkdir(exist_ok=True)
    (target / ".git" / "info" / "exclude").write_text("\n".join(ENVIRONMENTS) + "\n")
    for name in ("pyproject.toml", "constraints.txt"):
        os.utime(target / name, (0, 0))
    return target


def shell_environment() -> dict[str, str]:
    """This process's variables without those that `make bench` sets."""
    return {name: value for name, value in os.environ.items() if name not in OF_MAKE}


def clone_environment(clone: Path) -> dict[str, str]:
    """shell_environment(), with the clone's code ahead of the installed checkout's."""
    return shell_environment() | {"PYTHONPATH": str(clone)}


def _git(*arguments: str) -> None:
    subprocess.run(["git", *arguments], check=True, capture_output=True)

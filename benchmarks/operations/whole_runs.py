"""Runs of the whole pipeline on `configs/ci.yaml` that other sections damage and kill."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks.harness import ROOT, code_mark
from storage.store import Store

CONFIG = ROOT / "configs" / "ci.yaml"
FOLDER = ROOT / ".cache" / "bench" / "operations"
LIMIT_S = 900.0


@dataclass(frozen=True)
class Ended:
    """A command that ended. code: its exit code; -1: it was killed because it did not end."""

    code: int
    output: str
    seconds: float

    @property
    def is_unexpected(self) -> bool:
        """Whether the message is none of ours: a traceback, `unexpected`, or no end at all."""
        return self.code not in (0, 1, 2) or "unexpected " in self.output or "Traceback (most recent call last)" in self.output

    @property
    def last_line(self) -> str:
        return next((line for line in reversed(self.output.splitlines()) if line.strip()), "")


def headrace(
    *arguments: str,
    folder: Path,
    kill_when: Callable[[], bool] | None = None,
    limit_s: float = LIMIT_S,
    environment: Mapping[str, str] | None = None,
) -> Ended:
    """Calls the command in `folder`. kill_when: asked ten times a second; once true, the command's process gets SIGKILL."""
    began, log = time.monotonic(), folder / "command.log"
    folder.mkdir(parents=True, exist_ok=True)
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200", **(environment or {})}
    with log.open("wb") as out:
        command = [sys.executable, "-P", "-m", "flows.cli.main", *arguments]
        process = subprocess.Popen(
            command, cwd=folder, env=variables, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )
        while process.poll() is None:
            if time.monotonic() - began > limit_s or (kill_when is not None and kill_when()):
                process.kill()
                process.wait()
                break
            time.sleep(0.1)
    code = -1 if process.returncode == -signal.SIGKILL else process.returncode
    return Ended(code, log.read_text(errors="replace"), time.monotonic() - began)


def run(folder: Path, **how: Callable[[], bool] | float | None) -> Ended:
    """`headrace run` in `folder`, on the store `folder/store`."""
    return headrace("run", "--config", str(CONFIG), "--store", str(folder / "store"), folder=folder, **how)  # type: ignore[arg-type]


@cache
def undisturbed() -> tuple[Path, str]:
    """The folder and the content hash of a run that nobody disturbed; made once for this code."""
    folder = FOLDER / f"whole-{code_mark()}"
    if not (folder / "done").exists():
        shutil.rmtree(FOLDER, ignore_errors=True)
        ended = run(folder)
        if ended.code:
            raise RuntimeError(f"the undisturbed run failed: {ended.last_line}")
        (folder / "done").touch()
    return folder, Store(folder / "store").content_hash()


class Pieces:
    """Figures of a section's pieces by name, kept on disk, so that a section that ran out of time goes on where it was."""

    def __init__(self, section: str) -> None:
        self._path = FOLDER / f"{section}-{code_mark()}.jsonl"
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        self.kept: dict[str, dict[str, int]] = dict(map(json.loads, lines))

    def keep(self, name: str, **figures: int) -> None:
        self.kept[name] = figures
        with self._path.open("a") as file:
            file.write(json.dumps([name, figures]) + "\n")

    def total(self, figure: str) -> int:
        return sum(piece[figure] for piece in self.kept.values())


def copy_of(folder: Path, name: str) -> Path:
    """A fresh copy of a run's folder."""
    target = FOLDER / name
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(folder, target, ignore=shutil.ignore_patterns("*.lock"))
    return target

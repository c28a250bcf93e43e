"""What a check of a package is: its folder, the ecosystem's environment, and the rewards that its tool gave."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storage.errors import BadInput, HeadraceError
from storage.records import Task
from synth.packages.runtime import WORLDS_FILE, Package

Rewards = Mapping[str, float]
"""Task id -> reward. A task without one was not scored."""
TIMEOUT_S = 3600.0


@dataclass(frozen=True)
class PackageFolder:
    """A written package.

    form: name of the ecosystem. name: of its module. tasks: by split, from the data that verdicts use.
    """

    folder: Path
    form: str
    name: str
    tasks: Mapping[str, Sequence[Task]]

    @property
    def task_ids(self) -> set[str]:
        return {task.id for tasks in self.tasks.values() for task in tasks}


@dataclass(frozen=True)
class Tool:
    """The ecosystem's environment, and a folder for logs.

    programs: folder of its commands (`bin` of a virtual environment).
    model_url: of the scripted model.
    jobs: tasks side by side.
    """

    programs: Path
    scratch: Path
    model_url: str
    jobs: int

    def environment(self, package: PackageFolder, **more: str) -> dict[str, str]:
        """Variables of the ecosystem's processes: the package can be imported, and nothing asks for a key or the network."""
        path = f"{self.programs}{os.pathsep}{os.environ['PATH']}"
        inherited = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONHOME")}
        python_path = os.pathsep.join(filter(None, (str(package.folder), os.environ.get("PYTHONPATH"))))
        return {**inherited, "PATH": path, "PYTHONPATH": python_path, "HF_HUB_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1", **more}

    def run(self, command: Sequence[str], package: PackageFolder, log: str, cwd: Path | None = None, **more: str) -> None:
        """Runs a command of the ecosystem to its end. cwd: the folder for logs if none is given.

        Raises:
            HeadraceError: it failed; the message has the end of its output.
        """
        path = self.scratch / f"{log}.log"
        with path.open("wb") as output:
            done = subprocess.run(
                [str(self.programs / command[0]), *command[1:]], cwd=cwd or self.scratch, env=self.environment(package, **more),
                stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=TIMEOUT_S, check=False,
            )  # fmt: skip
        if done.returncode:
            raise HeadraceError(f"{command[0]} failed (exit code {done.returncode}): {_last_line(path)}; all of it: {path}")

    @contextmanager
    def started(
        self, command: Sequence[str], package: PackageFolder, log: str, cwd: Path, **more: str
    ) -> Iterator[subprocess.Popen[bytes]]:
        """A program that runs beside, with its children in a group of their own; it is ended at the end."""
        with (self.scratch / f"{log}.log").open("wb") as output:
            process = subprocess.Popen(
                [str(self.programs / command[0]), *command[1:]], cwd=cwd, env=self.environment(package, **more), stdout=output,
                stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
            try:
                yield process
            finally:
                end_group(process)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Ends a process that was started as the first of its group, and its group."""
    import signal

    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
            process.wait(10)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def _last_line(path: Path) -> str:
    lines = [line for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1].strip()[:300] if lines else "it printed nothing"


def open_package(folder: Path) -> PackageFolder:
    """Raises BadInput: the folder holds no package."""
    folder = folder.resolve()
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        form, name = str(manifest["package_for"]), str(manifest["name"])
    except (OSError, ValueError, KeyError):
        raise BadInput(f"{folder} holds no package; write one with `headrace package --for NAME --out {folder.name}`") from None
    tasks: dict[str, list[Task]] = {}
    for worlds in sorted(folder.rglob(WORLDS_FILE)):
        if form == "harbor" and worlds.parent.parent.name == "world":  # what Harbor's service sees: a task without its plan
            continue
        package = Package(worlds.parent)
        for split in package.splits:
            tasks.setdefault(split, []).extend(package.tasks(split))
    return PackageFolder(folder, form, name, tasks)


def json_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSON Lines file; none if there is no file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()] if path.is_file() else []

"""Checks a package by its ecosystem's own tool: the expert must score 1 and an idle policy 0, for every task."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from storage.errors import BadInput
from synth.packages.checks import check_harbor, check_inspect, check_nemo_gym, check_openenv, check_verifiers
from synth.packages.checks.ecosystem_tool import PackageFolder, Rewards, Tool, open_package
from synth.packages.forms.forms_by_name import FORMS
from synth.packages.scripted_model import IDLE, ORACLE, ScriptedModel, serve_model


@dataclass(frozen=True)
class Check:
    """How a form is checked.

    command: the ecosystem's command that must be there. tool: what is run, in words. rewards: runs it with a policy.
    """

    command: str
    tool: str
    rewards: Callable[[PackageFolder, str, Tool], Rewards]


CHECKS: Mapping[str, Check] = {
    "verifiers": Check("vf-eval", "vf-validate, and vf-eval with harness null", check_verifiers.rewards),
    "inspect": Check("inspect", "inspect eval", check_inspect.rewards),
    "openenv": Check("openenv", "openenv validate --url, and OpenEnv's client", check_openenv.rewards),
    "harbor": Check("harbor", "harbor run -a oracle and -a nop, in bubblewrap", check_harbor.rewards),
    "nemo-gym": Check("gym", "gym eval run", check_nemo_gym.rewards),
}


@dataclass(frozen=True)
class Report:
    """What a check found.

    expert, idle: task id -> reward; a task that is missing was not scored.
    """

    package: PackageFolder
    tool: str
    expert: Rewards
    idle: Rewards
    seconds: float

    @property
    def wrong(self) -> list[str]:
        """The tasks that the expert does not pass, or that idling does."""
        return sorted(task for task in self.package.task_ids if self.expert.get(task) != 1.0 or self.idle.get(task) != 0.0)


def check_package(folder: Path, scratch: Path, *, programs: Path | None = None, jobs: int = 2) -> Report:
    """Runs the ecosystem's tool twice over a package.

    Args:
        scratch: an empty folder for logs; what an ecosystem prints is there.
        programs: folder of the ecosystem's commands; None: `.venv-package-NAME/bin`, else this environment's.
        jobs: tasks side by side.

    Raises:
        BadInput: the folder holds no package, or the ecosystem is not installed.
        HeadraceError: its tool failed.
    """
    package = open_package(folder)
    check = CHECKS[package.form]
    found = find_programs(package.form, programs)
    tasks = [task for tasks in package.tasks.values() for task in tasks]
    started = time.monotonic()
    scratch.mkdir(parents=True, exist_ok=True)
    with serve_model(ScriptedModel(tasks)) as url:
        tool = Tool(found, scratch.resolve(), url, jobs)
        expert, idle = (check.rewards(package, policy, tool) for policy in (ORACLE, IDLE))
    return Report(package, check.tool, expert, idle, time.monotonic() - started)


def find_programs(form: str, programs: Path | None = None) -> Path:
    """The folder of an ecosystem's commands. Raises BadInput: it is not installed."""
    command = CHECKS[form].command
    candidates = [programs] if programs else [Path(f".venv-package-{form}/bin"), Path(sys.executable).parent]
    for folder in candidates:
        if shutil.which(command, path=str(folder)):
            return folder.absolute()
    requirement, python = FORMS[form].requirement, FORMS[form].python
    raise BadInput(f"{form} is not installed: `make packages` does it, or: pip install '{requirement}' headrace (Python {python})")

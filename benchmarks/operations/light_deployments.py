"""An installation of `headrace up` with light flows, which import what our flows import, and do next to nothing."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun

FLOWS = '''
import os, subprocess, sys
from pathlib import Path

import flows.tag  # as long to import as any flow of ours
from prefect import flow

@flow
def light(folder: str = "."):
    """Writes the time for which it was scheduled."""
    from prefect.runtime import flow_run
    with open(Path(folder, "ran.txt"), "a") as ran:
        ran.write(f"{flow_run.get_scheduled_start_time().isoformat()}\\n")

@flow
def parent(folder: str = "."):
    """Starts a child process and waits for it."""
    child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(3600)"])
    Path(folder, "child.txt").write_text(str(child.pid))
    child.wait()
'''
DEPLOYMENTS = """
name: light
pull: [{{prefect.deployments.steps.set_working_directory: {{directory: "{folder}"}}}}]
definitions:
  worker: &worker {{name: headrace, job_variables: {{command: python -P -m flows.runtime.deployed.run_process}}}}
deployments:
  - name: on-event
    entrypoint: light.py:light
    parameters: {{folder: "{folder}"}}
    triggers:
      - {{type: event, name: light, match: {{prefect.resource.id: headrace.store}}, expect: [headrace.tasks.tagged], threshold: 1}}
    concurrency_limit: {{limit: 1, collision_strategy: ENQUEUE}}
    work_pool: *worker
  - name: by-hand
    entrypoint: light.py:parent
    parameters: {{folder: "{folder}"}}
    work_pool: *worker
  - name: often
    entrypoint: light.py:light
    parameters: {{folder: "{folder}"}}
    schedules: [{{interval: {every_s}, slug: often, active: {is_scheduled}}}]
    concurrency_limit: {{limit: 1, collision_strategy: ENQUEUE}}
    work_pool: *worker
"""


@dataclass(frozen=True)
class Installation:
    """A folder where `headrace up` runs, and a client of its server."""

    folder: Path
    client: SyncPrefectClient

    def state(self, process: str) -> dict[str, Any]:
        """What the `keeper` or the `server` has written about itself, such as process ids."""
        found: dict[str, Any] = json.loads((self.folder / ".prefect" / f"{process}.json").read_text())
        return found

    def runs(self, deployment: str) -> list[FlowRun]:
        """All flow runs of a deployment, 200 a request, in the order of their schedule."""
        from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterId
        from prefect.client.schemas.sorting import FlowRunSort

        wanted = DeploymentFilter(id=DeploymentFilterId(any_=[self.client.read_deployment_by_name(deployment).id]))
        found: dict[UUID, FlowRun] = {}
        offset = 0
        while page := self.client.read_flow_runs(
            deployment_filter=wanted, sort=FlowRunSort.EXPECTED_START_TIME_ASC, limit=200, offset=offset
        ):
            found |= {run.id: run for run in page}
            offset += len(page)
        return list(found.values())


@contextlib.contextmanager
def installed(folder: Path, *, every_s: float | None = None) -> Iterator[Installation]:
    """`deployed` with the light flows. every_s: of the schedule of light/often; None: it is off."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "light.py").write_text(FLOWS)
    (folder / "prefect.yaml").write_text(
        DEPLOYMENTS.format(folder=folder, every_s=every_s or 3600, is_scheduled=str(every_s is not None).lower())
    )
    with deployed(folder) as installation:
        yield installation


@contextlib.contextmanager
def deployed(folder: Path) -> Iterator[Installation]:
    """Call `headrace up` in a folder with a prefect.yaml, and `headrace down` at the end.

    Raises CalledProcessError if `up` fails.
    """
    from prefect.client.orchestration import SyncPrefectClient

    environment = {key: value for key, value in os.environ.items() if not key.startswith("PREFECT_")}
    headrace = [sys.executable, "-P", "-m", "flows.cli.main"]
    try:
        subprocess.run([*headrace, "up"], cwd=folder, env=environment, stdout=subprocess.DEVNULL, check=True)
        url = json.loads((folder / ".prefect" / "server.json").read_text())["url"]
        with SyncPrefectClient(url) as client:
            yield Installation(folder, client)
    finally:
        subprocess.run([*headrace, "down"], cwd=folder, env=environment, stdout=subprocess.DEVNULL, check=False)


def wait_for(holds: Callable[[], bool], within_s: float) -> None:
    """Raises TimeoutError."""
    end = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {within_s:g} s")
        time.sleep(0.2)

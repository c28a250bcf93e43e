"""The script of a stage's Slurm job.

One idea: a stage is one array job of `attempts` tasks that run one after another (`--array=1-N%1`). A task that the time limit, a
preemption or a lost node has ended is followed by the next, which continues from the last checkpoint; one that ends by itself, well or by
an error, cancels the others. This needs no launcher.
`--dependency=singleton` makes Slurm run one job of a name at a time, so two submissions train nothing twice.

The nodes see the store, this Python and the working directory under the same paths. Of this process's environment only `_EXPORTED` goes
along, so no secret does.
What it does not do: talk to Slurm (`train/backends/schedulers/slurm_client.py`). Source: Slurm's manual, sbatch(1).
"""

from __future__ import annotations

import hashlib
import math
import shlex
import sys
from pathlib import Path

from storage.errors import BadInput
from train.backends.base import LOG, RESULT
from train.backends.cluster import ClusterConfig, entry_command, resources_of, stage_variables
from train.spec import StageSpec

_EXPORTED = "HOME,USER,LANG,PATH,LD_LIBRARY_PATH,PYTHONPATH"
_RAYS = ("resources", "labels", "image", "working_dir", "pip", "checkpoints")
"""Keys of `train.cluster` that have no meaning for Slurm."""
_PORTS = 20_000
_NO_OTHERS = (
    "# The stage is done, or has failed by itself: the other tasks are not needed. A task that Slurm ends is followed by the next.",
    '[ $code -eq 143 ] || [ -n "$ended" ] || scancel --state=PENDING "$SLURM_ARRAY_JOB_ID"',
)


def job_name(spec: StageSpec, folder: Path) -> str:
    """Name of the stage's job: equal for every launcher of the stage, other for another spec."""
    return f"headrace-{folder.name}-{hashlib.sha256(spec.model_dump_json().encode()).hexdigest()[:8]}"


def check_section(cluster: ClusterConfig) -> None:
    """Raises BadInput if a key is set that the backend slurm does not use."""
    for key in _RAYS:
        if getattr(cluster, key):
            raise BadInput(
                f"train.cluster.{key} is for Ray, and the backend slurm does not use it: remove it; sbatch takes `slurm.options`, and the "
                "nodes see the store and this Python under the same paths"
            )


def script(spec: StageSpec, folder: Path, cluster: ClusterConfig) -> str:
    """Text of the stage's script, for `sbatch`.

    Raises:
        BadInput: as `check_section`.
    """
    check_section(cluster)
    folder, resources = folder.absolute(), resources_of(cluster, spec)
    result, variables = shlex.quote(str(folder / RESULT)), stage_variables(cluster).items()
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH {option}" for option in _options(spec, folder, resources)),
        f"# Stage {spec.name} of Headrace, by {spec.algorithm}.",
        f"[ -e {result} ] && exit 0",
        *(f"export {name}={shlex.quote(value)}" for name, value in variables),
        *cluster.slurm.setup,
        "trap 'ended=1' TERM",
        *_start(resources, str(folder / "spec.json")),
        "code=$?",
        *(_NO_OTHERS if cluster.slurm.attempts > 1 else ()),
        "exit $code",
    ]
    return "\n".join(lines) + "\n"


def _options(spec: StageSpec, folder: Path, resources: ClusterConfig) -> list[str]:
    slurm, gpus = resources.slurm, resources.gpus_per_node
    given = {
        "job-name": job_name(spec, folder),
        "array": f"1-{slurm.attempts}%1",
        "dependency": "singleton",
        "output": shlex.quote(str(folder / LOG).replace("%", "%%")),
        "open-mode": "append",
        "chdir": shlex.quote(str(Path.cwd())),
        "export": _EXPORTED,
        "nodes": str(resources.nodes),
        "ntasks-per-node": "1",
        "cpus-per-task": str(math.ceil(resources.cpus)),
        "gpus-per-node": str(gpus) if gpus else None,
        "partition": slurm.partition,
        "account": slurm.account,
        "time": slurm.time_limit,
    }
    return ["--requeue", *(f"--{name}={value}" for name, value in given.items() if value is not None), *slurm.options]


def _start(resources: ClusterConfig, spec: str) -> list[str]:
    """Lines that train: one command, or by srun one launcher on each of several nodes, which meet at the first."""
    command = _with_this_python(entry_command(resources, spec))
    if resources.nodes == 1:
        return [shlex.join(command)]
    filled = shlex.join(command).replace("'{rank}'", '"$SLURM_NODEID"').replace("'{ip}'", '"$first"').replace("'{port}'", '"$port"')
    return [
        'export first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        f"export port=$(({_PORTS} + SLURM_JOB_ID % {_PORTS}))",
        f"srun --export=ALL --kill-on-bad-exit=1 bash -c {shlex.quote('exec ' + filled)}",
    ]


def _with_this_python(command: list[str]) -> list[str]:
    """The command with this process's Python, which the nodes have under the same path."""
    if command[0] == "python":
        return [sys.executable, *command[1:]]
    return [sys.executable, "-P", "-m", "accelerate.commands.launch", *command[2:]]

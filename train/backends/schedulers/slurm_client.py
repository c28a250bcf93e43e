"""Client for the jobs of a Slurm cluster, by its commands sbatch, squeue, sacct and scancel.

One idea: squeue knows at once which jobs wait or run, and for some minutes how others ended; sacct knows it later and for ever. So squeue
says whether a job is over, and sacct how, where the cluster keeps accounts; without accounts, squeue and what the job left in its folder.
Jobs are found by their name, for all users, because a team may share a store.

Source: Slurm's manual, "Job state codes" of squeue(1) and sacct(1). Tried with Slurm 22.05.8 (Debian 12).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from storage.errors import BadInput, OutOfReach
from train.backends.schedulers.scheduler_commands import Answer, Tools

ENDS = ("COMPLETED", "FAILED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "BOOT_FAIL", "PREEMPTED", "CANCELLED", "DEADLINE", "REVOKED")
"""States of a job that is over; in any other it waits or runs."""
_KEPT = "now-90days"
_SACCT = ("sacct", "--allocations", "--parsable2", "--noheader", "--allusers", f"--starttime={_KEPT}")
_SQUEUE = ("squeue", "--noheader", "--array", "--states=all", "--Format=JobArrayID:|,State:|,exit_code:|,Partition:|,Reason:|")
_TASK = re.compile(r"(\d+)(?:_(\d+))?")
_UNCLEAR = re.compile(r"timed out|zero bytes|unable to contact|connect|i/o error", re.IGNORECASE)
"""What sbatch says where Slurm may have taken the job all the same."""
_HINTS = {
    "account": "`sacctmgr show associations user=$USER` lists yours: set train.cluster.slurm.account",
    "partition": "`sinfo` lists the partitions: set train.cluster.slurm.partition",
    "node configuration": "no node has so many GPUs, CPU cores or so much memory (`sinfo -o '%P %D %c %m %G'`): change train.cluster",
    "generic resource": "no node has such GPUs (`sinfo -o '%P %D %G'`): change train.cluster.gpus_per_node, or the partition",
    "node count": "the partition has fewer nodes: change train.cluster.nodes, or the partition",
    "time limit": "the partition allows less (`sinfo -o '%P %l'`): change train.cluster.slurm.time_limit",
}


@dataclass(frozen=True)
class Task:
    """One task of an array job. exit_code: 128 + N if signal N ended it. reason: why it waits."""

    number: int
    state: str
    exit_code: int = 0
    partition: str = ""
    reason: str = ""

    @property
    def is_over(self) -> bool:
        return self.state in ENDS


@dataclass(frozen=True)
class SlurmArray:
    """A stage's job. number: its id. tasks: in order."""

    number: int
    tasks: tuple[Task, ...]

    @property
    def is_over(self) -> bool:
        return all(task.is_over for task in self.tasks)

    @property
    def is_running(self) -> bool:
        return any(not task.is_over and task.state != "PENDING" for task in self.tasks)

    @property
    def end(self) -> Task:
        """The task that says how the job ended: the last one that was not cancelled, if there is any."""
        return max(self.tasks, key=lambda task: (task.state != "CANCELLED", task.number))


class Slurm:
    """The cluster that this machine's Slurm commands know.

    patience_s: how long a command is repeated while the cluster does not answer.

    Raises, all methods:
        BadInput: Slurm is not installed here. OutOfReach: it has not answered for `patience_s`.
    """

    def __init__(self, patience_s: float) -> None:
        self._tools = Tools("Slurm", "on a login node of the Slurm cluster, or choose another train.backend", patience_s)

    def check(self, script: str) -> None:
        """Checks that Slurm would take a script. Raises BadInput: it would not."""
        self._refuse(self._tools.call("sbatch", "--test-only", given=script))

    def find(self, name: str) -> SlurmArray | None:
        """The latest job of this name; None if there is none."""
        current, known = _latest(self._ask_squeue(name)), _latest(self._ask_sacct(name))
        if current is None or (known is not None and known.number > current.number):
            return known
        if known is None or known.number < current.number:
            return current
        states = {task.number: task.state for task in known.tasks}
        tasks = [replace(task, state=states.get(task.number, task.state)) if task.is_over else task for task in current.tasks]
        return SlurmArray(current.number, tuple(tasks))

    def submit(self, name: str, script: str) -> int:
        """Submits a script and returns the job's id; if an answer is lost, that of the job that was submitted.

        Raises:
            BadInput: Slurm refuses it.
        """
        before = self.find(name)
        answer = self._tools.try_once("sbatch", "--parsable", given=script)
        deadline = time.monotonic() + self._tools.patience_s
        while answer.code and _UNCLEAR.search(answer.error):
            found = self.find(name)
            if found is not None and not found.is_over and (before is None or found.number > before.number):
                return found.number
            if time.monotonic() >= deadline:
                raise OutOfReach(f"Slurm does not answer sbatch ({answer.reason}); the same command finds the job, or submits it")
            time.sleep(1.0)
            answer = self._tools.try_once("sbatch", "--parsable", given=script)
        self._refuse(answer)
        return int(answer.output.strip().partition(";")[0])

    def cancel(self, number: int) -> None:
        """Ends a job; does nothing if it is over."""
        self._tools.call("scancel", "--quiet", str(number), patience_s=0)

    def _refuse(self, answer: Answer) -> None:
        if answer.code:
            hint = next((hint for words, hint in _HINTS.items() if words in answer.reason.casefold()), "see train.cluster.slurm")
            raise BadInput(f"Slurm does not take the stage ({answer.reason}): {hint}")

    def _ask_squeue(self, name: str) -> list[tuple[int, Task]]:
        answer = self._tools.call(*_SQUEUE, f"--name={name}")
        if answer.code:
            raise OutOfReach(f"squeue failed ({answer.reason}); a stage that runs goes on, and the same command finds it again")
        return _rows(answer.output, _of_squeue)

    def _ask_sacct(self, name: str) -> list[tuple[int, Task]]:
        """Empty if the cluster keeps no accounts, or their database does not answer."""
        answer = self._tools.try_once(*_SACCT, f"--name={name}", "--format=JobID,State,ExitCode,Partition,Reason")
        return [] if answer.code else _rows(answer.output, _of_sacct)


def _latest(rows: Sequence[tuple[int, Task]]) -> SlurmArray | None:
    """The job with the highest number."""
    number = max((number for number, _ in rows), default=0)
    tasks = sorted((task for each, task in rows if each == number), key=lambda task: task.number)
    return SlurmArray(number, tuple(tasks)) if tasks else None


def _rows(output: str, read: Callable[[str], int]) -> list[tuple[int, Task]]:
    """Each task with the number of its job. read: turns the exit code that the command prints into a shell's."""
    rows = []
    for line in output.splitlines():
        task_id, state, code, partition, reason = line.split("|")[:5]
        if match := _TASK.match(task_id):
            first_word = state.split()[0]  # sacct: CANCELLED by 1000
            rows.append((int(match[1]), Task(int(match[2] or 0), first_word, read(code), partition, reason)))
    return rows


def _of_squeue(status: str) -> int:
    """squeue prints what wait(2) gave."""
    raw = int(status or 0)
    return 128 + (raw & 127) if raw & 127 else raw >> 8


def _of_sacct(text: str) -> int:
    """sacct prints CODE:SIGNAL, and takes 128 off a code that is above it."""
    code, _, number = text.partition(":")
    return 128 + int(number) if number not in ("", "0") else int(code or 0) + (128 if code in ("9", "15") else 0)

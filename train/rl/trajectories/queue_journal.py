"""Journal of asynchronous RL: every group that was opened, every trajectory that arrived or was dropped, and what each step learned from.

One idea: a stage is a function of its journal. A stage that finds one of the same spec and code learns from the same batches, in the same
order, to the same weights, and plays only what comes after it. So a killed stage loses no trajectory that had arrived, and a finished one
can be repeated from its journal, although the order of arrivals depends on the speed of processes and tools.

The file `queue.jsonl` is beside the model folder: a line a record; the first names what it belongs to. A torn last line is cut off. A file
of another spec or code, or with a damaged line, is kept as `queue.jsonl.old`. A step is on the disk before it is learned from.
`python -P -m train.rl.trajectories.queue_journal FILE [GROUP ...]` prints the life of groups.
What it does not do: decide (`train/rl/trajectories/queue_ledger.py`).
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from storage.files import disk_errors
from storage.records import Outcome, Task
from synth.rollouts.episode import Trace
from train.rl.rollout_batches import Row
from train.rl.trajectories.queue_ledger import ATTEMPTS, Ticket, Trajectory

JOURNAL = "queue.jsonl"
Reason = Literal["stale", "failed", "slow"]
"""Why a ticket is dropped: it is too old, the infrastructure or the judge failed, or it was open for too long."""


@dataclass(frozen=True)
class StepRecord:
    """What a step learned from: numbers of groups, and its metrics of the queue."""

    step: int
    groups: tuple[int, ...]
    left_out: tuple[int, ...]
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class OpenedRecord:
    """A group. block: number of the draw of tasks that it came from."""

    number: int
    block: int
    task: Task
    parent: str


@dataclass(frozen=True)
class DroppedRecord:
    """A ticket that no step learns from. step: that was learned from next. failure: what went wrong, if it has failed."""

    ticket: Ticket
    step: int
    reason: Reason = "stale"
    failure: str = ""


Record = OpenedRecord | Trajectory | DroppedRecord | StepRecord


class QueueJournal:
    """The journal of one stage; a context manager.

    Args:
        made_by: hash of spec and code; the file is begun anew if it names another. Says so on standard error.
    """

    def __init__(self, path: Path, made_by: str) -> None:
        self._path = path
        self.records: list[Record] = []
        """What an earlier run of the stage wrote."""
        lines, is_damaged = _whole_lines(path)
        is_ours = bool(lines) and lines[0] == {"journal": made_by}
        self.records = [_read(line) for line in lines[1:]] if is_ours else []
        with disk_errors("writing the queue's journal", path.parent):
            if is_damaged or (lines and not is_ours):
                _keep_old(path, f"is damaged at line {len(lines) + 1}: {len(lines)} lines are kept" if is_ours else "")
            if not is_ours:
                path.unlink(missing_ok=True)
            self._file = path.open("r+b" if is_ours else "wb")
            self._file.truncate(sum(len(_line(line)) for line in lines) if is_ours else 0)
            self._file.seek(0, os.SEEK_END)
            if not is_ours:
                self._file.write(_line({"journal": made_by}))

    def add(self, record: Record) -> None:
        """Writes a record; that of a step reaches the disk before this returns."""
        with disk_errors("writing the queue's journal", self._path.parent):
            self._file.write(_line(_written(record)))
            self._file.flush()
            if isinstance(record, StepRecord):
                os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def read_journal(path: Path) -> list[Record]:
    """All records of a file."""
    return [_read(line) for line in _whole_lines(path)[0][1:]]


def _line(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, ensure_ascii=False).encode() + b"\n"


def _keep_old(path: Path, damage: str) -> None:
    old = path.with_name(f"{path.name}.old")
    shutil.copyfile(path, old)
    what = damage or "is of another spec or code: begun anew"
    print(f"{path.name} {what}; the old one is {old.name}", file=sys.stderr, flush=True)


def _whole_lines(path: Path) -> tuple[list[dict[str, Any]], bool]:
    """Lines up to the first that is torn or damaged, and whether one is damaged: it is no record, although it has its end."""
    lines = list[dict[str, Any]]()
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return lines, False
    for line in text.split(b"\n")[:-1]:
        try:
            content = json.loads(line)
        except ValueError:
            return lines, True
        if not isinstance(content, dict) or _line(content) != line + b"\n":
            return lines, True
        lines.append(content)
    return lines, False


def _written(record: Record) -> dict[str, Any]:
    match record:
        case OpenedRecord():
            task = record.task.model_dump(mode="json")
            return {"opened": record.number, "block": record.block, "parent": record.parent, "task": task}
        case Trajectory():
            row = asdict(record.row)
            rest = {"versions": record.versions, "workers": record.workers, "seconds": round(record.seconds, 3), "failure": record.failure}
            return {"arrived": str(record.ticket), **rest, "row": row}
        case DroppedRecord():
            return {"dropped": str(record.ticket), "next_step": record.step, "reason": record.reason, "failure": record.failure}
        case StepRecord():
            return {"step": record.step, "groups": record.groups, "left_out": record.left_out, "metrics": dict(record.metrics)}


def _read(line: Mapping[str, Any]) -> Record:
    if "opened" in line:
        return OpenedRecord(line["opened"], line["block"], Task.model_validate(line["task"]), line["parent"])
    if "arrived" in line:
        row = dict(line["row"])
        row |= {"outcome": Outcome(row["outcome"]), "trace": Trace(**row["trace"]), "erred": tuple(row["erred"])}
        versions = tuple((version, tokens) for version, tokens in line["versions"])
        return Trajectory(Ticket.parse(line["arrived"]), Row(**row), versions, tuple(line["workers"]), line["seconds"], line["failure"])
    if "dropped" in line:
        return DroppedRecord(Ticket.parse(line["dropped"]), line["next_step"], line["reason"], line["failure"])
    return StepRecord(line["step"], tuple(line["groups"]), tuple(line["left_out"]), line["metrics"])


def life_of(records: Sequence[Record], group: int) -> list[str]:
    """What happened to a group, a line an event, in its order."""
    lines, step = [], 0
    for record in records:
        match record:
            case OpenedRecord() if record.number == group:
                lines.append(f"before step {step}: opened, a task of world {record.task.world}")
            case Trajectory() if record.ticket.group == group:
                lines.append(f"before step {step}: {_arrival(record)}")
            case DroppedRecord() if record.ticket.group == group:
                lines.append(f"before step {step}: {_drop(record)}")
            case StepRecord():
                if group in (*record.groups, *record.left_out):
                    lines.append(f"step {record.step}: {'learned from' if group in record.groups else 'left out: equal rewards'}")
                step = record.step + 1
            case _:
                pass
    return lines


def _arrival(record: Trajectory) -> str:
    """Says by which versions and workers a trajectory was played, and how it ended."""
    tokens = " + ".join(f"{count} tokens by version {version}" for version, count in record.versions if count) or "no tokens"
    workers = ", then ".join(f"worker {worker}" for worker in record.workers) or "no worker finished it"
    what = f"draw {record.ticket.draw}" + f", attempt {record.ticket.attempt + 1}" * bool(record.ticket.attempt)
    end = record.row.outcome.value + f" ({record.failure})" * bool(record.failure)
    return f"{what}: {tokens}; {workers}; {record.seconds:.1f} s; {end}"


def _drop(record: DroppedRecord) -> str:
    """Says why a trajectory is dropped, and what follows."""
    why = {"stale": "is too old", "failed": "has failed", "slow": "is open for too long"}[record.reason]
    why += f" ({record.failure})" * bool(record.failure)
    attempt = record.ticket.attempt + 1
    return f"draw {record.ticket.draw} {why}, " + (
        "and is dropped" if attempt < ATTEMPTS else f"at attempt {attempt}: the group is given up"
    )


def main(arguments: Sequence[str]) -> int:
    if not arguments:
        print("usage: python -P -m train.rl.trajectories.queue_journal FILE [GROUP ...]", file=sys.stderr)
        return 2
    file, *wanted = arguments
    try:
        is_journal = next(iter(_whole_lines(Path(file))[0]), {}).keys() == {"journal"}
    except OSError:
        is_journal = False
    if not is_journal:
        print(f"{file} is no journal: give the {JOURNAL} beside a model folder", file=sys.stderr)
        return 2
    records = read_journal(Path(file))
    groups = {str(one.number): one.number for one in records if isinstance(one, OpenedRecord)}
    if unknown := [name for name in wanted if name not in groups]:
        print(f"{file} has no group {unknown[0]}", file=sys.stderr)
        return 2
    for group in [groups[name] for name in wanted] or sorted(groups.values()):
        print(f"group {group}", *life_of(records, group), sep="\n  ")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

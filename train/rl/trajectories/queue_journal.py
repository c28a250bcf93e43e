"""Journal of asynchronous RL: every group that was opened, every trajectory that arrived or was dropped, and what each step learned from.

One idea: a stage is a function of its journal. A stage that finds one of the same spec and code learns from the same batches, in the same
order, to the same weights, and plays only what comes after it. So a killed stage loses no trajectory that had arrived, and a finished one
can be repeated from its journal, although the order of arrivals depends on the speed of processes and tools.

The file `queue.jsonl` is beside the model folder: a line a record; the first names what it belongs to. A torn last line is cut off. A step
is on the disk before it is learned from.
`python -P -m train.rl.trajectories.queue_journal FILE [GROUP ...]` prints the life of groups.
What it does not do: decide (`train/rl/trajectories/queue_ledger.py`).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from storage.files import disk_errors
from storage.records import Outcome, Task
from synth.rollouts.episode import Trace
from train.rl.rollout_batches import Row
from train.rl.trajectories.queue_ledger import Ticket, Trajectory

JOURNAL = "queue.jsonl"


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
    """A ticket that was too stale. step: that was learned from next."""

    ticket: Ticket
    step: int


Record = OpenedRecord | Trajectory | DroppedRecord | StepRecord


class QueueJournal:
    """The journal of one stage; a context manager.

    Args:
        made_by: hash of spec and code; the file is begun anew if it names another.
    """

    def __init__(self, path: Path, made_by: str) -> None:
        self._path = path
        self.records: list[Record] = []
        """What an earlier run of the stage wrote."""
        lines = list(_whole_lines(path))
        is_ours = bool(lines) and lines[0] == {"journal": made_by}
        self.records = [_read(line) for line in lines[1:]] if is_ours else []
        with disk_errors("writing the queue's journal", path.parent):
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
    return [_read(line) for line in list(_whole_lines(path))[1:]]


def _line(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, ensure_ascii=False).encode() + b"\n"


def _whole_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Lines up to the first that is torn or damaged."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return
    for line in text.split(b"\n")[:-1]:
        try:
            content = json.loads(line)
        except ValueError:
            return
        if not isinstance(content, dict) or _line(content) != line + b"\n":
            return
        yield content


def _written(record: Record) -> dict[str, Any]:
    match record:
        case OpenedRecord():
            task = record.task.model_dump(mode="json")
            return {"opened": record.number, "block": record.block, "parent": record.parent, "task": task}
        case Trajectory():
            row = asdict(record.row)
            rest = {"versions": record.versions, "workers": record.workers, "seconds": round(record.seconds, 3)}
            return {"arrived": str(record.ticket), **rest, "row": row}
        case DroppedRecord():
            return {"dropped": str(record.ticket), "next_step": record.step}
        case StepRecord():
            return {"step": record.step, "groups": record.groups, "left_out": record.left_out, "metrics": dict(record.metrics)}


def _read(line: Mapping[str, Any]) -> Record:
    if "opened" in line:
        return OpenedRecord(line["opened"], line["block"], Task.model_validate(line["task"]), line["parent"])
    if "arrived" in line:
        row = dict(line["row"])
        row |= {"outcome": Outcome(row["outcome"]), "trace": Trace(**row["trace"]), "erred": tuple(row["erred"])}
        versions = tuple((version, tokens) for version, tokens in line["versions"])
        return Trajectory(Ticket.parse(line["arrived"]), Row(**row), versions, tuple(line["workers"]), line["seconds"])
    if "dropped" in line:
        return DroppedRecord(Ticket.parse(line["dropped"]), line["next_step"])
    return StepRecord(line["step"], tuple(line["groups"]), tuple(line["left_out"]), line["metrics"])


def life_of(records: Sequence[Record], group: int) -> list[str]:
    """What happened to a group, a line an event, in its order."""
    lines, step = [], 0
    for record in records:
        match record:
            case OpenedRecord() if record.number == group:
                lines.append(f"before step {step}: opened, a task of world {record.task.world}")
            case Trajectory() if record.ticket.group == group:
                tokens = " + ".join(f"{count} tokens by version {version}" for version, count in record.versions)
                workers = ", then ".join(f"worker {worker}" for worker in record.workers)
                what = f"draw {record.ticket.draw}" + f", attempt {record.ticket.attempt + 1}" * bool(record.ticket.attempt)
                lines.append(f"before step {step}: {what}: {tokens}; {workers}; {record.seconds:.1f} s; {record.row.outcome.value}")
            case DroppedRecord() if record.ticket.group == group:
                lines.append(f"before step {step}: draw {record.ticket.draw} is too old, and dropped")
            case StepRecord():
                if group in (*record.groups, *record.left_out):
                    lines.append(f"step {record.step}: {'learned from' if group in record.groups else 'left out: equal rewards'}")
                step = record.step + 1
            case _:
                pass
    return lines


def main(arguments: Sequence[str]) -> int:
    if not arguments:
        print("usage: python -P -m train.rl.trajectories.queue_journal FILE [GROUP ...]", file=sys.stderr)
        return 2
    records = read_journal(Path(arguments[0]))
    for group in map(int, arguments[1:]) if arguments[1:] else sorted({one.number for one in records if isinstance(one, OpenedRecord)}):
        print(f"group {group}", *life_of(records, group), sep="\n  ")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

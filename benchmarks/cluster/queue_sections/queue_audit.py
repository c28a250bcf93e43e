"""Lost and doubled trajectories of a finished stage, by its journal.

One idea: the audit counts the records and trusts no ledger. A finished stage leaves no group open (no more are opened than the steps need),
so every opened group must be learned from, left out, or given up, with an arrival of each draw.

What it does not do: compare two states of a journal (`queue_faults.py` does), or repeat the stage.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from storage.records import Outcome
from train.rl.trajectories.queue_journal import DroppedRecord, OpenedRecord, Record, StepRecord
from train.rl.trajectories.queue_ledger import ATTEMPTS, Trajectory


def audit(records: Sequence[Record], draws: int) -> tuple[int, int]:
    """(lost, doubled) trajectories.

    lost: all draws of a group that was never opened, or is neither taken by a step nor given up; draws of a taken group without an arrival;
        arrivals that failed for the infrastructure before their first token, as only the death of workers explains.
    doubled: tickets that arrived, and groups and steps that were taken, more often than once.
    """
    opened, given_up = set[int](), set[int]()
    arrived, taken, steps = Counter[str](), Counter[int](), Counter[int]()
    live: dict[int, set[int]] = defaultdict(set)
    dead = 0
    for record in records:
        match record:
            case OpenedRecord():
                opened.add(record.number)
            case Trajectory():
                arrived[str(record.ticket)] += 1
                live[record.ticket.group].add(record.ticket.draw)
                dead += record.row.outcome is Outcome.INFRA_FAILURE and not sum(tokens for _, tokens in record.versions)
            case DroppedRecord():
                live[record.ticket.group].discard(record.ticket.draw)
                if record.ticket.attempt + 1 == ATTEMPTS:
                    given_up.add(record.ticket.group)
            case StepRecord():
                steps[record.step] += 1
                taken.update((*record.groups, *record.left_out))
    every = opened | set(live) | set(taken)
    unopened = set(range(max(every, default=-1) + 1)) - opened
    unended = opened - set(taken) - given_up
    incomplete = sum(draws - len(live[number]) for number in taken if number in opened)
    doubled = sum(count - 1 for counts in (arrived, taken, steps) for count in counts.values())
    return draws * len(unopened | unended) + incomplete + dead, doubled

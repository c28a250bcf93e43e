"""What a team can leave alone: kills, damage, backups, hostile input, long series of runs. `make bench operations`.

Each section says in its own module what its figures mean. All of them call the command or the flows as users do, on `configs/ci.yaml`.
"""

from __future__ import annotations

from benchmarks.harness import Section, run_sections
from benchmarks.operations import backup_beside, damage, kills


def sections() -> list[Section]:
    return [
        Section("damage", damage.KEYS, damage.measure, minutes=damage.MINUTES),
        Section("backup beside a run", backup_beside.KEYS, backup_beside.measure, minutes=backup_beside.MINUTES),
        Section("kills", kills.KEYS, kills.measure, minutes=kills.MINUTES),
    ]


if __name__ == "__main__":
    raise SystemExit(run_sections("operations", sections()))

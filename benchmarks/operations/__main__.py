"""What a team can leave alone: kills, damage, hostile input, secrets, budgets, backups, long series of runs. `make bench operations`.

Each section says in its own module what its figures mean. All of them call the command or the flows as users do, on `configs/ci.yaml`.
"""

from __future__ import annotations

from benchmarks.harness import Section, run_sections
from benchmarks.operations import (
    backup_beside,
    client,
    damage,
    hostile_input,
    object_store,
    prefect_chain,
    prefect_share,
    secrets,
    soak,
)
from benchmarks.operations.kills import section as kills

SEED = 35


def sections() -> list[Section]:
    return [
        Section("damage", damage.KEYS, damage.measure, minutes=damage.MINUTES),
        Section("hostile input", hostile_input.KEYS, hostile_input.measure, minutes=hostile_input.MINUTES),
        Section(
            "a client among faults",
            ("client_calls", "client_lost", "client_double_paid", "budget_overrun", "ledger_below_bill", "budget_billed_share"),
            lambda _: client.measure(SEED),
            minutes=10,
        ),
        Section("planted secrets", ("secrets_found", "secrets_commands", "secrets_files"), lambda _: secrets.measure(), minutes=10),
        Section("backup beside a run", backup_beside.KEYS, backup_beside.measure, minutes=backup_beside.MINUTES),
        Section("object store", ("object_store_equal",), lambda _: _only("object_store_equal", object_store.measure()), minutes=15),
        Section("events and cancellation", ("chain_s", "cancel_s"), lambda _: prefect_chain.measure(), minutes=12),
        Section("Prefect's share", prefect_share.KEYS, prefect_share.measure, minutes=prefect_share.MINUTES),
        Section("kills", kills.KEYS, kills.measure, minutes=kills.MINUTES),
        Section(
            "a series of scheduled runs",
            ("soak_runs", "soak_memory_growth_mib", "soak_missed", "soak_doubled"),
            lambda _: soak.measure(),
            minutes=72,
        ),
    ]


def _only(key: str, figures: dict[str, float]) -> dict[str, float]:
    return {key: figures[key]}


if __name__ == "__main__":
    raise SystemExit(run_sections("operations", sections()))

"""The near step and the rules against other libraries, over the same rows, in one run.

Each contestant (`contestants.py`) works in a process of its own on one thread, in turn with ours; the figure is the CPU time of the work
alone, the median of three runs. Ratios are rows a CPU-second, ours over theirs, on the same rows: short queries in both languages,
distinct and normalised (`rows.py`). Slow peers are compared on fewer rows, which favours those that slow down as their index
grows.

`near_vs_rensa` and `near_vs_datasketch` are against the same work as ours: exact verification of every candidate, the first of its kind
kept. `near_vs_datatrove` and `near_vs_fastsketchlsh` are against peers that only hash, as are `..._flags`, which do not even say which
row of a group to keep. Ours is without the guards (numbers, terms) that no peer has; `headrace_guarded`, in the tables, is what the funnel
runs. The rules are five that all can express; ours do eight, and mask four kinds of personal data where theirs mask
one.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.funnel_sections.rows import WORK, Rows, near_rows, needs_lost, recall, unmasked_rows
from benchmarks.harness import ROOT, Deadline, Figures, Section, fail

PEERS = ROOT / ".venv-peers" / "bin" / "python"
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "RAYON_NUM_THREADS", "POLARS_MAX_THREADS"), "1")
ROUNDS = 3
FAST_ROWS, SLOW_ROWS, RULE_ROWS = 200_000, 50_000, 50_000
FAST = {
    "near_vs_rensa": "rensa_verified",
    "near_vs_rensa_estimated": "rensa_estimated",
    "near_vs_rensa_flags": "rensa_flags",
    "near_vs_fastsketchlsh": "fastsketchlsh",
    "near_vs_fastsketchlsh_flags": "fastsketchlsh_flags",
}
SLOW = {"near_vs_datasketch": "datasketch", "near_vs_datatrove": "datatrove"}
RULES = {"rules_vs_datatrove": "datatrove_rules", "rules_vs_data_juicer": "data_juicer_rules"}
VERIFIED = {
    "headrace": "exactly",
    "headrace_guarded": "exactly",
    "rensa_verified": "exactly (by us)",
    "datasketch": "exactly (by us)",
    "rensa_estimated": "by estimate",
}


def sections() -> list[Section]:
    return [
        Section("peers: near duplicates, fast", tuple(FAST), lambda _: _near(FAST, FAST_ROWS), minutes=10),
        Section("peers: near duplicates, slow", tuple(SLOW), lambda _: _near(SLOW, SLOW_ROWS), minutes=8),
        Section("peers: rules", tuple(RULES), measure_rules, minutes=4),
    ]


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a contestant; kept: positions."""

    rows: int
    cpu_s: float
    peak_mib: float
    version: str
    kept: list[int]


def _near(peers: dict[str, str], rows: int) -> Figures:
    found = near_rows(rows)
    runs = _interleaved(["headrace", "headrace_guarded", *peers.values()], found.rows, rows)
    _print(runs, found)
    return {key: _ratio(runs, "headrace", name) for key, name in peers.items()}


def measure_rules(_: Deadline) -> Figures:
    runs = _interleaved(["headrace_rules", *RULES.values()], unmasked_rows(RULE_ROWS), RULE_ROWS)
    _print(runs)
    return {key: _ratio(runs, "headrace_rules", name) for key, name in RULES.items()}


def _interleaved(names: Sequence[str], path: Path, rows: int) -> dict[str, list[Run]]:
    """Runs of each contestant: one of each in turn, ROUNDS times. What was run before is not run again."""
    runs: dict[str, list[Run]] = {name: [] for name in names}
    for number in range(ROUNDS):
        for name in names:
            out = WORK / "peers" / f"{name}-{rows}-{number}.json"
            if not out.exists():
                _run(name, path, rows, out)
            runs[name].append(Run(**json.loads(out.read_text())))
    return runs


def _run(name: str, path: Path, rows: int, out: Path) -> None:
    is_ours = name.startswith("headrace")
    if not is_ours and not PEERS.exists():
        fail("the peers' environment .venv-peers is not there: call `make bench funnel`")
    out.parent.mkdir(parents=True, exist_ok=True)
    python = sys.executable if is_ours else str(PEERS)
    command = [python, "-m", "benchmarks.funnel_sections.contestants", name, str(path), str(rows), str(out)]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **ONE_THREAD}, capture_output=True, text=True, check=False)
    if done.returncode:
        fail(f"{name} failed on {path}:\n{done.stderr[-2000:]}")


def _ratio(runs: dict[str, list[Run]], ours: str, peer: str) -> float:
    return _cpu_s(runs[peer]) / _cpu_s(runs[ours])


def _cpu_s(runs: Sequence[Run]) -> float:
    return statistics.median(run.cpu_s for run in runs)


def _print(runs: dict[str, list[Run]], found: Rows | None = None) -> None:
    """The table of a comparison; recall and lost needs where the rows have planted pairs."""
    heads = ["peer", "version", "rows", "CPU-s", "rows/CPU-s", "peak MiB", "kept"] + ["verified", "recall", "needs lost"] * bool(found)
    lines = [heads, ["---"] * len(heads)]
    for name, own in runs.items():
        run, spent_s = own[0], _cpu_s(own)
        rate = f"{run.rows / spent_s:,.0f}"
        line = [name, run.version, f"{run.rows:,}", f"{spent_s:.2f}", rate, f"{run.peak_mib:,.0f}", f"{len(run.kept):,}"]
        if found:
            share = recall(found, run.kept)["pair_recall"]
            line += [VERIFIED.get(name, "no"), f"{share:.4f}", f"{needs_lost(found, run.kept):.4f}"]
        lines.append(line)
    for line in lines:
        print("    | " + " | ".join(line) + " |", flush=True)

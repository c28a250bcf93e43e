"""The client of model servers: calls a CPU-second, ours alone and against those of other libraries.

A scripted server of its own process (`mock_openai.py`) answers after 200 ms; at most 250 calls are in flight; ours looks every answer up
and keeps it in a store's journal. What counts is user and system CPU time of the client's process tree. A call's is the slope between a run
with FEW calls and one with MANY, each in a process of its own, so imports, connections and what a library does once count in neither.

In each round every client has its two runs, one client after the other. Rates and ratios are medians over the rounds; a round's ratio is
their CPU time a call over ours, measured within the same minute or two. What each client does is in `client_peers.py`. Each peer
has an environment of its own, .venv-peers-NAME (curator and Data Designer demand different releases of pandas), and works offline.

`client_calls_per_cpu_s_threads` is ours when each of IN_FLIGHT threads asks for one answer at a time, as conversations do, and not for all
at once as the peers are asked.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
from collections.abc import Mapping, Sequence

from benchmarks.harness import ROOT, Deadline, Figures, Section, fail, run_tree
from benchmarks.synthesis_sections.client_peers import CONTESTANTS
from benchmarks.synthesis_sections.mock_openai import started

WORK = ROOT / ".cache" / "bench" / "synthesis"
LATENCY_MS = 200
ROUNDS = 5
FEW, MANY = 300, 2_300
OURS_MANY = 10_300
LONGEST_S = 300
"""What a run may take before it is taken for hung."""
OURS = {"client_calls_per_cpu_s": "headrace", "client_calls_per_cpu_s_threads": "headrace_threads"}
PEERS = {"client_vs_distilabel": "distilabel", "client_vs_data_designer": "data_designer", "client_vs_curator": "curator"}


def sections() -> list[Section]:
    return [
        Section("client", tuple(OURS), lambda _: _rates(), minutes=4),
        Section("client against its peers", tuple(PEERS), measure_peers, minutes=15),
    ]


def _rates() -> Figures:
    spent = _interleaved(list(OURS.values()), OURS_MANY)
    return {key: 1 / statistics.median(spent[name]) for key, name in OURS.items()}


def measure_peers(_: Deadline) -> Figures:
    spent = _interleaved(["headrace", *PEERS.values()], MANY)
    return {key: ratio(spent["headrace"], spent[name]) for key, name in PEERS.items()}


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median over the rounds of what a call takes there over what it takes here."""
    return statistics.median(their / our for our, their in zip(ours, theirs, strict=True))


def _interleaved(names: Sequence[str], many: int) -> Mapping[str, list[float]]:
    """CPU seconds a call by client, one number a round."""
    spent: dict[str, list[float]] = {name: [] for name in names}
    with started(latency_ms=LATENCY_MS) as server:
        for number in range(ROUNDS):
            for name in names:
                few_s, many_s = (_cpu_s(name, server.url, calls) for calls in (FEW, many))
                spent[name].append((many_s - few_s) / (many - FEW))
                rates = f"{FEW} calls {few_s:.2f} CPU-s, {many} calls {many_s:.2f}: {1 / spent[name][-1]:,.0f} calls/CPU-s"
                print(f"    round {number + 1} {name}: {rates}; load {os.getloadavg()[0]:.1f}", flush=True)
    return spent


def _cpu_s(name: str, url: str, calls: int) -> float:
    """CPU seconds of a client's whole run, which has to get every answer."""
    folder = WORK / f"client-{name}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    log = WORK / f"client-{name}.log"
    command = [_python(name), "-m", "benchmarks.synthesis_sections.client_peers", name, url, str(calls), str(folder)]
    environment = {key: value for key, value in os.environ.items() if key != "OPENAI_API_KEY"} | {"PYTHONPATH": str(ROOT)}
    usage = run_tree(["timeout", str(LONGEST_S), *command], cwd=folder, log=log, environment=environment)
    if usage.returncode or f"answered {calls}\n" not in log.read_text(errors="replace"):
        fail(f"{name} did not get its {calls} answers (code {usage.returncode}); its output is in {log}")
    shutil.rmtree(folder)
    return usage.cpu_s


def _python(name: str) -> str:
    if name in OURS.values():
        return sys.executable
    python = ROOT / f".venv-peers-{name}" / "bin" / "python"
    if not python.exists():
        fail(f"the environment {python.parent.parent.name} is not there: call `make bench synthesis`")
    assert name in CONTESTANTS
    return str(python)

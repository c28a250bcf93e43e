"""What faults cost: conversations that are lost, answers that are paid twice, calls beyond a budget.

The mock server (`mock_openai.py`) fails tries in every way it knows; it is killed and started again once, and so is the client, which is a
child process that runs synthesis (`converse`), THREADS conversations at once, with the mock as the assistant and all else scripted.

Three journals of three parties say what happened, by the hash of a request's body and the machine's clock: the server's, of each try that
came in and how it ended; the client's own (`Answers`), of what arrived; and the notes that the child makes when an answer is in the
journal and when the budget is spent. A try that reaches the server after its request's answer was in the journal is paid twice. A try
after one that may have cost something and whose answer never arrived (time-out, cut short, malformed, one of the two was killed) is sent
again, and counted apart; one after a status 429 or 500 costs nothing and is neither.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness import ROOT, Deadline, Figures, Section, fail
from benchmarks.synthesis_sections.mock_openai import MODEL, Running, started

if TYPE_CHECKING:
    from synth.engines.cache import Answered

WORK = ROOT / ".cache" / "bench" / "synthesis"
CONVERSATIONS = 2_000
PROPOSALS = 2_000
PER_ROUND = 1_000
THREADS = 250
LATENCY_MS = 20
TIMEOUT_S = 2.0
LONGEST_WAIT_S = 4.0
"""Between tries, in place of the client's own minute, so that a benchmark does not wait for its unluckiest request; how often one is tried
is the client's own setting (of all tries .27 fail)."""
FAULTS = {"rate_limited": 0.1, "error": 0.05, "hang": 0.05, "cut": 0.02, "malformed": 0.05}
FREE = ("rate_limited", "error")
SERVER_ENDS_AT, CLIENT_ENDS_AT = 1_500, 4_000
"""Answers that are in the client's journal when they are killed."""
TOKENS = 30_000
LONGEST_S = 300


def sections() -> list[Section]:
    return [
        Section("faults", ("faults_lost", "faults_double_paid", "faults_resent"), measure_faults, minutes=6),
        Section("budget", ("budget_overrun", "budget_overrun_again"), measure_budget, minutes=3),
    ]


# ---- the client, a process of its own ------------------------------------------------------------------------------------------


def main() -> int:
    """`python -m benchmarks.synthesis_sections.faults URL FOLDER PROPOSALS TOKENS`. FOLDER: of all that it keeps; TOKENS: 0 for no
    budget."""
    from synth.engines import http

    url, folder, proposals, tokens = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    http.LONGEST_WAIT_S = LONGEST_WAIT_S
    _take_notes(folder)
    converse(folder / "store", url, proposals, tokens or None)
    return 0


def converse(path: Path, url: str, proposals: int, tokens: int | None) -> None:
    """What the child runs: synthesis whose assistant is the mock, all else scripted. No conversation is accepted, so none ends it early."""
    from storage.store import Store
    from synth.engines.budget import Budget
    from synth.engines.cache import Answers
    from synth.engines.openai import OpenAIConfig, OpenAIEngine
    from synth.roles.role_engines import RoleEngines, RolesConfig
    from synth.run.config import SynthesisConfig
    from synth.run.evolution.controller import EvolutionConfig
    from synth.run.synthesize import synthesize

    store = Store(path)
    roles = RolesConfig(assistant=f"openai:{MODEL}", in_flight=THREADS, max_tokens=tokens)
    config = SynthesisConfig(
        worlds=("retail",), drills={}, accepted=proposals, max_proposals=proposals, patience=None, calibration=24, subsample=12,
        roles=roles, evolution=EvolutionConfig(proposals_per_round=PER_ROUND, stop_idle_rounds=proposals),
    )  # fmt: skip
    asked = OpenAIConfig(model=MODEL, base_url=url, in_flight=THREADS, timeout_s=TIMEOUT_S)
    answers, budget = Answers(store), Budget(tokens=tokens)
    with OpenAIEngine(asked, answers=answers, budget=budget) as engine:
        result = synthesize(store, config, engines=RoleEngines(roles, assistant=engine, answers=answers, budget=budget))
        print(result.proposals, dict(engine.counts), *result.notes, flush=True)


def _take_notes(folder: Path) -> None:
    """From here on this process notes, in `kept`, every request whose answer is in the journal, and when; in `spent`, how many tries
    had been allowed when the budget was spent."""
    from synth.engines.budget import Budget, BudgetSpent
    from synth.engines.cache import Answers

    kept, allowed = (folder / "kept").open("ab", buffering=0), Counter[str]()
    keep, check, add = Answers.keep, Budget.check, Budget.add

    def noting_keep(self: Answers, engine: str, answered: Sequence[Answered]) -> None:
        keep(self, engine, answered)
        kept.write("".join(f"{hashlib.sha256(body).hexdigest()} {time.monotonic()}\n" for _, body, _ in answered).encode())

    def noting_check(self: Budget) -> None:
        check(self)
        allowed["tries"] += 1

    def noting_add(self: Budget, prompt_tokens: int, completion_tokens: int) -> None:
        add(self, prompt_tokens, completion_tokens)
        try:
            check(self)
        except BudgetSpent:
            if not (folder / "spent").exists():
                (folder / "spent").write_text(str(allowed["tries"]))

    Answers.keep, Budget.check, Budget.add = noting_keep, noting_check, noting_add  # type: ignore[method-assign]


# ---- what happened to it -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Try:
    """A try as the server saw it. at_s: when it came in; ended: as `mock_openai.py` says, `` where the server was killed first."""

    request: str
    at_s: float
    ended: str


def tries(journal: Path) -> list[Try]:
    """In the order in which they came in. A request's tries follow each other: its client waits for one before it sends the next."""
    found: list[Try] = []
    open_tries: dict[str, int] = {}
    for line in journal.read_text().splitlines():
        request, what, at_s = json.loads(line)
        if what == "received":
            open_tries[request] = len(found)
            found.append(Try(request, at_s, ""))
        else:
            position = open_tries[request]
            found[position] = Try(request, found[position].at_s, what)
    return found


def paid_twice(sent: Sequence[Try], kept_at_s: Mapping[str, float]) -> int:
    """Tries that came in after the answer was kept."""
    return sum(one.at_s > kept_at_s.get(one.request, float("inf")) for one in sent)


def sent_again(sent: Sequence[Try]) -> Counter[str]:
    """Tries after one of the same request, by how that one had ended."""
    last: dict[str, str] = {}
    found = Counter[str]()
    for one in sent:
        if one.request in last:
            found[last[one.request] or "server killed"] += 1
        last[one.request] = one.ended
    return found


def measure_faults(_: Deadline) -> Figures:
    folder = _fresh("faults")
    server = partial(started, latency_ms=LATENCY_MS, faults=FAULTS, journal=folder / "served")
    with server() as first:
        client = _client(first, folder)
        wait_until(client, lambda: len(kept_answers(folder)) >= SERVER_ENDS_AT)
        first.kill()
        with server(port=first.port) as second:
            wait_until(client, lambda: len(kept_answers(folder)) >= CLIENT_ENDS_AT)
            client.send_signal(signal.SIGKILL)
            client.wait()
            killed_at_s, arrived = time.monotonic(), _journalled(folder)
            _finish(_client(second, folder))
    kept = dict.fromkeys(arrived, killed_at_s) | kept_answers(folder)
    sent, outcomes = tries(folder / "served"), played(folder)
    again, asked = sent_again(sent), {one.request for one in sent}
    if len(outcomes) < CONVERSATIONS:
        fail(f"only {len(outcomes)} conversations were planned; raise PROPOSALS")
    print(f"    {len(sent):,} tries of {len(asked):,} requests; conversations by outcome: {dict(Counter(outcomes))}")
    print(f"    tries after one that ended as: {dict(again)}", flush=True)
    resent = sum(count for ended, count in again.items() if ended not in FREE)
    return {"faults_lost": lost(folder, outcomes, asked), "faults_double_paid": paid_twice(sent, kept), "faults_resent": resent}


def played(folder: Path) -> list[str]:
    """The outcome of every conversation that was planned after calibration; `missing` where none is in the store."""
    from storage.store import Store

    rows = Store(folder / "store").query(
        "SELECT coalesce(t.outcome, 'missing') AS outcome FROM decisions d LEFT JOIN trajectories t USING (blueprint_id) "
        "WHERE d.status <> 'unplanned'"
    )
    return list(rows["outcome"])


def lost(folder: Path, outcomes: Sequence[str], asked: set[str]) -> int:
    """Conversations that came to no end of their own, and requests whose answer is not in the store."""
    from storage.records import Outcome
    from storage.store import Store

    rows = Store(folder / "store").query("SELECT request FROM answers")
    answered = {hashlib.sha256(request.encode()).hexdigest() for request in rows["request"]}
    return sum(outcome in ("missing", Outcome.INFRA_FAILURE.value) for outcome in outcomes) + len(asked - answered)


def measure_budget(_: Deadline) -> Figures:
    """With a budget that ends among them, tries that reach the server beyond those that were allowed by the time it was spent (which are in
    flight then, and may end or never come in); and those that do so when the same is started again."""
    folder = _fresh("budget")
    with started(latency_ms=LATENCY_MS, faults=FAULTS, journal=folder / "served") as server:
        reached = []
        for _attempt in range(2):
            _finish(_client(server, folder, TOKENS))
            reached.append(len(tries(folder / "served")))
    allowed = int((folder / "spent").read_text())
    print(f"    {allowed:,} tries allowed by the time {TOKENS:,} tokens were spent; came in: {reached[0]:,}, started again {reached[1]:,}")
    if allowed - reached[0] > THREADS:
        fail(f"{allowed - reached[0]:,} tries that were allowed never came in: more than can have been in flight")
    return {"budget_overrun": max(0, reached[0] - allowed), "budget_overrun_again": reached[1] - reached[0]}


# ---- processes and files -------------------------------------------------------------------------------------------------------


def _fresh(name: str) -> Path:
    folder = WORK / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _client(server: Running, folder: Path, tokens: int = 0, proposals: int = PROPOSALS) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "benchmarks.synthesis_sections.faults", server.url, str(folder), str(proposals), str(tokens)]
    with (folder / "client.log").open("ab") as log:
        return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def wait_until(client: subprocess.Popen[bytes], until: Callable[[], bool]) -> None:
    end = time.monotonic() + LONGEST_S
    while not until():
        if client.poll() is not None or time.monotonic() > end:
            client.kill()
            fail(f"the client ended before it was to be killed, or took longer than {LONGEST_S} s; its log lies under {WORK}")
        time.sleep(0.02)


def _finish(client: subprocess.Popen[bytes]) -> None:
    try:
        code = client.wait(LONGEST_S)
    except subprocess.TimeoutExpired:
        client.kill()
        fail(f"the client took longer than {LONGEST_S} s; its log lies under {WORK}")
    if code:
        fail(f"the client ended with code {code}; its log lies under {WORK}")


def kept_answers(folder: Path) -> dict[str, float]:
    """Requests whose answers are in the client's journal, and since when, as it noted itself."""
    path = folder / "kept"
    pairs = (line.split() for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")) if path.exists() else ()
    found: dict[str, float] = {}
    for request, at_s in pairs:
        found.setdefault(request, float(at_s))
    return found


def _journalled(folder: Path) -> set[str]:
    """The requests whose answers the client's journal holds."""
    from storage.store import Store

    entries: dict[str, Any] = dict(Store(folder / "store").journal("answers").entries())
    return {hashlib.sha256(entry["request"].encode()).hexdigest() for entry in entries.values()}


if __name__ == "__main__":
    sys.exit(main())

"""What faulty model servers and kills cost: answers that are lost, calls that are paid twice, months' budgets that are overrun.

A mock server in a process of its own fails three tries of ten, in every way it knows. Its journal is its bill: it charges each try whose
answer it made, whether or not that arrived. The client is a child process that asks REQUESTS requests through `OpenAIEngine` with the
answers and the ledger of a store; it is killed with SIGKILL several times and started again.

- lost: requests that have no answer in the store at the end.
- double paid: tries that reached the server after their request's answer was in the client's journal.
- overrun: tokens on the bill beyond a month's budget, with two clients on one store at once, one of them killed and started again.
- below bill: tokens on the bill that the ledger does not count.
"""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.harness import ROOT, fail
from benchmarks.synthesis_sections import faults
from benchmarks.synthesis_sections.mock_openai import MODEL, started

REQUESTS = 2_000
FAULTS = {"rate_limited": 0.1, "error": 0.08, "hang": 0.02, "cut": 0.05, "malformed": 0.05}
FREE = ("rate_limited", "error")
KILLS = 3
IN_FLIGHT, TIMEOUT_S, LONGEST_WAIT_S, LATENCY_MS = 64, 1.0, 0.5, 10
ANSWER_TOKENS = 16
TOKENS_PER_CALL = 5 + 1 + 10
"""What the mock charges for a call: the words of its prompt and one more, and its answer."""
MONTH_TOKENS = 60_000
LONGEST_S = 240


def measure(seed: int) -> dict[str, float]:
    """Figures by name. seed: of the texts that are asked, so of the faults, and of the moments of the kills.

    Raises SystemExit: a client ended by itself, or took longer than LONGEST_S seconds.
    """
    folder = Path(tempfile.mkdtemp(prefix="headrace-client-"))
    try:
        return {**_measure_kills(folder / "kills", seed), **_measure_budget(folder / "budget", seed)}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measure_kills(folder: Path, seed: int) -> dict[str, float]:
    folder.mkdir(parents=True)
    rng = random.Random(seed)
    kept: dict[str, float] = {}
    with started(latency_ms=LATENCY_MS, faults=FAULTS, journal=folder / "served") as server:
        for place in range(KILLS):
            client, asked = _client(server.url, folder, seed), REQUESTS * (place + rng.random()) / (KILLS + 1)
            faults.wait_until(client, lambda asked=asked: len(faults.kept_answers(folder)) >= asked)  # type: ignore[misc]
            client.send_signal(signal.SIGKILL)
            client.wait()
            killed_at_s = time.monotonic()
            kept |= {request: killed_at_s for request in faults._journalled(folder) if request not in kept}
        _finish(_client(server.url, folder, seed))
        sent = faults.tries(folder / "served")
    bill = sum(one.ended not in FREE for one in sent) * TOKENS_PER_CALL
    return {
        "client_calls": len(sent),
        "client_lost": len(_asked(seed) - _answered(folder)),
        "client_double_paid": faults.paid_twice(sent, {**kept, **faults.kept_answers(folder)}),
        "ledger_below_bill": max(0, bill - sum(_counted(folder))),
    }


def _measure_budget(folder: Path, seed: int) -> dict[str, float]:
    from synth.engines.budget import MonthlyBudget
    from synth.engines.spending.ledger import Ledger

    folder.mkdir(parents=True)
    Ledger(folder / "store").set_budgets({f"openai:{MODEL}": MonthlyBudget(tokens=MONTH_TOKENS)})
    with started(latency_ms=LATENCY_MS, faults=FAULTS, journal=folder / "served") as server:
        first, second = _client(server.url, folder, seed), _client(server.url, folder, seed + 1)
        faults.wait_until(first, lambda: sum(_counted(folder)) > MONTH_TOKENS / 3)
        first.send_signal(signal.SIGKILL)
        first.wait()
        _finish(_client(server.url, folder, seed))
        _finish(second)
        sent = faults.tries(folder / "served")
    if len(sent) >= 2 * REQUESTS:
        fail("the budget never ended; lower MONTH_TOKENS")
    bill = sum(one.ended not in FREE for one in sent) * TOKENS_PER_CALL
    return {"budget_overrun": max(0, bill - MONTH_TOKENS), "budget_billed_share": bill / MONTH_TOKENS}


def _texts(seed: int) -> list[str]:
    """Five words each."""
    return [f"request {number} of seed {seed}" for number in range(REQUESTS)]


def _asked(seed: int) -> set[str]:
    return {text[::-1] for text in _texts(seed)}


def _answered(folder: Path) -> set[str]:
    """The texts of all answers in the store; the mock turns a request around."""
    from storage.store import Store

    return {json.loads(answer)["message"]["content"] for answer in Store(folder / "store").query("SELECT answer FROM answers")["answer"]}


def _counted(folder: Path) -> tuple[int, int]:
    """Tokens in the ledger: of answers, and of calls that have none."""
    from synth.engines.spending.ledger import Ledger

    months = Ledger(folder / "store").months()
    return sum(one.prompt_tokens + one.completion_tokens for one in months), sum(one.open_tokens for one in months)


# ---- the client, a process of its own ------------------------------------------------------------------------------------------


def _client(url: str, folder: Path, seed: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "benchmarks.operations.client", url, str(folder), str(seed)]
    with (folder / "client.log").open("ab") as log:
        return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def _finish(client: subprocess.Popen[bytes]) -> None:
    try:
        code = client.wait(LONGEST_S)
    except subprocess.TimeoutExpired:
        client.kill()
        fail("the client took too long")
    if code:
        fail(f"the client ended with code {code}")


def main() -> int:
    """`python -m benchmarks.operations.client URL FOLDER SEED`: asks all requests, as far as the month's budget goes."""
    from storage.records import Message
    from storage.store import Store
    from synth.engines import http
    from synth.engines.base import ChatRequest
    from synth.engines.budget import BudgetSpent
    from synth.engines.cache import Answers
    from synth.engines.openai import OpenAIConfig, OpenAIEngine

    url, folder, seed = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    http._LONGEST_WAIT_S = LONGEST_WAIT_S
    faults._take_notes(folder)
    answers = Answers(Store(folder / "store"))
    config = OpenAIConfig(model=MODEL, base_url=url, in_flight=IN_FLIGHT, timeout_s=TIMEOUT_S)
    requests = [ChatRequest((Message(role="user", content=text),), max_tokens=ANSWER_TOKENS) for text in _texts(seed)]
    try:
        with OpenAIEngine(config, answers=answers) as engine:
            engine.chat(requests)
    except BudgetSpent as spent:
        print(spent, flush=True)
    answers.commit()
    answers.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())

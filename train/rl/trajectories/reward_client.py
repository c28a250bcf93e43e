"""Client of the reward service: batches conversations, repeats what failed, and counts calls, retries and billed seconds.

One idea: the service has no state, so every error of the connection or of the server (5xx, or 429 and 408, if it is busy) has one answer:
send the same batch again, later and later, until `patience_s` is over. Only a request that the service calls bad (4xx) is an error at once.
The service is the one that `url` names, or a child process that is started here, and started again if it ends.

What it does not do: judge (`train/rl/trajectories/reward_service.py`).
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any

from filters.code_hash import code_hash
from storage.errors import HeadraceError, OutOfReach
from storage.records import Outcome
from train.child_process import THREADS

READY = {"status": "ready"}
"""What a service answers to GET, with the hash of its code."""
BATCH = 32
"""Most conversations of a request."""
PATIENCE_S = 120.0
_BUSY = frozenset({408, 425, 429})
_TO_CHILD = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""A child is on this machine, so no proxy is between."""
_FIRST_WAIT_S, _LONGEST_WAIT_S, _ANSWER_WITHIN_S = 0.1, 5.0, 60.0


@dataclass(frozen=True)
class Judged:
    """A verdict of the service: outcome, the verifier's reward, what RL learns from (None: nothing), and why it could not judge."""

    outcome: Outcome
    reward: float | None
    learned: float | None
    failure: str = ""


@dataclass
class Bill:
    """What the service was asked so far: requests that were answered, conversations in them, requests sent again, seconds it computed."""

    calls: int = 0
    conversations: int = 0
    retries: int = 0
    seconds: float = 0.0


def health() -> dict[str, str]:
    """What a service of this code answers to GET. code: hash of what a verdict depends on."""
    return READY | {"code": code_hash("filters", "synth", "train")}


def check_service(url: str, timeout_s: float | None = None) -> None:
    """Raises OutOfReach unless a reward service of this code answers at this URL."""
    try:
        with urllib.request.urlopen(url, timeout=timeout_s or _ANSWER_WITHIN_S) as response:
            found = json.loads(response.read())
    except (OSError, HTTPException, ValueError) as error:
        raise OutOfReach(f"no reward service answers at {url} ({error}): start one, or set rl.reward_url to null") from None
    if found == health():
        return
    if isinstance(found, dict) and READY.items() <= found.items():
        raise OutOfReach(f"the reward service at {url} runs other code: start it from this version")
    raise OutOfReach(f"{url} answers, but it is no reward service of Headrace: correct rl.reward_url")


class RewardClient:
    """Sends conversations to the service in a thread of its own; a context manager.

    Args:
        url: of the service; None: a child process is started.
        store: with the user's worlds, for the child.
        scoring: `weights` and `collapse` of the request.
        on_verdict: called in the client's thread with a conversation's key and verdict.
        patience_s: how long a batch is sent again before the stage fails.
    """

    def __init__(
        self,
        url: str | None,
        *,
        store: Path,
        scoring: dict[str, Any],
        on_verdict: Callable[[str, Judged], None],
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._url, self._store, self._scoring, self._on_verdict, self._patience_s = url, store, scoring, on_verdict, patience_s
        self.bill = Bill()
        self.failure: HeadraceError | None = None
        """Why the client has stopped; None while it works."""
        self._closing = threading.Event()
        self._child: subprocess.Popen[str] | None = None
        self._waiting: queue.Queue[tuple[str, dict[str, Any]] | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run, name="rewards", daemon=True)
        self._thread.start()

    def ask(self, key: str, conversation: dict[str, Any]) -> None:
        """Queues a conversation, in the form that the service takes."""
        self._waiting.put((key, conversation))

    def close(self) -> None:
        """Ends the thread, after the request that it is at, and the child."""
        self._closing.set()
        self._waiting.put(None)
        self._thread.join(_ANSWER_WITHIN_S)
        self._stop_child()

    def _run(self) -> None:
        try:
            while (batch := self._next_batch()) is not None:
                verdicts = self._send([conversation for _, conversation in batch])
                for (key, _), verdict in zip(batch, verdicts, strict=True):
                    self._on_verdict(key, verdict)
        except HeadraceError as error:
            self.failure = error
        except Exception as error:  # anything else is a fault of ours, told by the trainer's thread
            self.failure = HeadraceError(f"the client of the reward service failed: {type(error).__name__}: {error}")

    def _next_batch(self) -> list[tuple[str, dict[str, Any]]] | None:
        """All that wait, at most `BATCH`; None at the end."""
        batch = [self._waiting.get()]
        with suppress(queue.Empty):
            while batch[-1] is not None and len(batch) < BATCH:
                batch.append(self._waiting.get_nowait())
        return None if batch[-1] is None else [one for one in batch if one is not None]

    def _send(self, conversations: Sequence[dict[str, Any]]) -> list[Judged]:
        body = json.dumps({"conversations": conversations} | self._scoring).encode()
        started, wait_s = time.monotonic(), _FIRST_WAIT_S
        while True:
            try:
                return self._post(body, len(conversations))
            except (OSError, HTTPException, ValueError, KeyError, TypeError) as error:
                name, reason = self._url or "of this stage", _reason(error)
                if isinstance(error, urllib.error.HTTPError) and error.code < 500 and error.code not in _BUSY:
                    raise HeadraceError(f"the reward service {name} refuses a request: {reason}") from error
                if time.monotonic() - started > self._patience_s:
                    raise OutOfReach(
                        f"the reward service {name} has given no verdict for {self._patience_s:g} s ({reason}); the "
                        "same command goes on from the journal once it answers"
                    ) from error
            if self._closing.wait(wait_s):
                raise OutOfReach("the stage has ended before the reward service answered")
            self.bill.retries += 1
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    def _post(self, body: bytes, count: int) -> list[Judged]:
        opener = urllib.request.build_opener() if self._url else _TO_CHILD
        request = urllib.request.Request(self._url or self._child_url(), body, {"Content-Type": "application/json"})
        with opener.open(request, timeout=_ANSWER_WITHIN_S) as response:
            content = json.loads(response.read())
        verdicts = [Judged(Outcome(one["outcome"]), one["reward"], one["learned"], one.get("failure", "")) for one in content["verdicts"]]
        if len(verdicts) != count:
            raise ValueError(f"it gave {len(verdicts)} verdicts on {count} conversations")
        seconds = float(content["seconds"])
        self.bill.calls += 1
        self.bill.conversations += count
        self.bill.seconds += seconds
        return verdicts

    def _child_url(self) -> str:
        """Starts the child, or starts it again, and waits for its address."""
        if self._child is None or self._child.poll() is not None:
            self._stop_child()
            command = [sys.executable, "-P", "-m", "train.rl.trajectories.reward_service", "--port", "0", "--dies-with-parent"]
            self._child = subprocess.Popen(
                [*command, "--store", str(self._store)],
                stdout=subprocess.PIPE,
                stdin=subprocess.DEVNULL,
                text=True,
                env=os.environ | THREADS,
            )
            assert self._child.stdout is not None
            self._child_address = self._child.stdout.readline().strip()
        if not self._child_address:
            raise OSError("the process of the reward service ended at its start")
        return self._child_address

    @property
    def child_pid(self) -> int | None:
        """Process id of the service, if it is a child."""
        return self._child.pid if self._child is not None else None

    def _stop_child(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            if self._child.stdout is not None:
                self._child.stdout.close()


def _reason(error: Exception) -> str:
    """What the service says about an error of its own; else the error, in one line."""
    if isinstance(error, urllib.error.HTTPError):
        with suppress(ValueError, KeyError, TypeError, OSError, HTTPException):
            return str(json.loads(error.read())["error"])
    return " ".join(str(error).split()) or type(error).__name__

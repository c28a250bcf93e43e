"""Reward as a separate service: conversations in, verdicts and rewards out, over HTTP.

One idea: the service has no state, as a serverless function: a request says all that its answer depends on, so it may be repeated,
batched, and sent to any of many copies. `answer` is the function; `python -P -m train.rl.trajectories.reward_service` serves it (`POST /`,
JSON; `--store` names the store with the user's worlds). The answer says how long it computed, which is what such a service bills.

A conversation comes with the difference that it made to its world's state. One whose outcome is known already (it was cut short, or its
simulated user judged it) is only scored.
What it does not do: play a conversation again, except for a mark that needs it (`train/rl/rewards.py`); decide about failures of the
infrastructure, which are not sent here.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import inf
from pathlib import Path
from typing import Any

from storage.errors import BadInput
from storage.records import Message, Outcome, Task
from storage.store import Store
from synth.rollouts.episode import sound_verdict
from synth.tasks.verify import judge
from synth.worlds import WORLDS
from synth.worlds.stored_worlds import register_stored
from train.child_process import dying_with_parent
from train.rl.rewards import AGGREGATES, SCORERS, score_rated
from train.rl.trajectories.reward_client import health
from train.spec import AggregateName, ScorerName


@dataclass(frozen=True)
class Conversation:
    """A finished conversation, as `train.rl.rewards.Rated`. outcome, reward: None until it is judged."""

    task: Task
    messages: Sequence[Message]
    outcome: Outcome | None
    reward: float | None


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Verdicts on conversations.

    request: `conversations` (each with task, messages, changes, outcome and reward, the last two null unless they are known), `weights`
        (scorer -> weight) and `collapse`, as in `RLSettings`.
    Returns `verdicts`, one for each, with outcome, reward, learned (what RL learns from; null: none) and failure (why it could not be
    judged), and `seconds` of computing. An exception of the verifier or a scorer is the outcome `judge_failure`, never the policy's.

    Raises:
        BadInput: this is no such request.
    """
    started = time.thread_time()  # other threads compute for other callers
    try:
        weights = _read_weights(request["weights"])
        collapse: AggregateName = request["collapse"]
        if collapse not in AGGREGATES:
            raise ValueError(f"unknown collapse {collapse!r}: {', '.join(AGGREGATES)}")
        given = [_read(one) for one in request["conversations"]]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadInput(f"this is no request for rewards ({type(error).__name__}: {' '.join(str(error).split())[:200]})") from None
    verdicts = [_verdict_on(conversation, changes, weights, collapse) for conversation, changes in given]
    return {"verdicts": verdicts, "seconds": time.thread_time() - started}


def _read_weights(given: Mapping[ScorerName, Any]) -> dict[ScorerName, float]:
    if unknown := [name for name in given if name not in SCORERS]:
        raise ValueError(f"unknown scorer {unknown[0]!r}: {', '.join(SCORERS)}")
    weights = {name: float(weight) for name, weight in given.items()}
    if not weights or not all(0 < weight < inf for weight in weights.values()):
        raise ValueError("give a finite weight above 0 to at least one scorer")
    return weights


def _read(given: Mapping[str, Any]) -> tuple[Conversation, Mapping[str, Any]]:
    outcome, reward = given["outcome"], given["reward"]
    messages = tuple(Message.model_validate(message) for message in given["messages"])
    task = Task.model_validate(given["task"])
    if task.world not in WORLDS:
        raise ValueError(f"world {task.world} is unknown here: start the service with --store of this stage")
    changes = dict(given["changes"] or {})
    return Conversation(task, messages, None if outcome is None else Outcome(outcome), None if reward is None else float(reward)), changes


def _verdict_on(
    given: Conversation, changes: Mapping[str, Any], weights: Mapping[ScorerName, float], collapse: AggregateName
) -> dict[str, Any]:
    """The verdict on one conversation; an error concerns this one alone."""
    try:
        one = _judge(given, changes)
        return {"outcome": one.outcome, "reward": one.reward, "learned": score_rated(one.task, one, weights, collapse), "failure": ""}
    except Exception as error:  # no exception of a verifier or a scorer counts as the policy's failure
        failure = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        return {"outcome": Outcome.JUDGE_FAILURE, "reward": None, "learned": None, "failure": failure}


def _judge(one: Conversation, changes: Mapping[str, Any]) -> Conversation:
    if one.outcome is not None:
        return one
    verdict = sound_verdict(judge(WORLDS[one.task.world], one.task, one.messages, changes))
    outcome = Outcome.SUCCESS if verdict.success else Outcome.POLICY_FAILURE
    return Conversation(one.task, one.messages, outcome, verdict.reward)


class Handler(BaseHTTPRequestHandler):
    """`POST /`: an `answer`; with a text, 400 if the request is bad, and 500 for any other error."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        try:
            body = self.rfile.read(max(0, int(self.headers.get("Content-Length", 0))))
            request = json.loads(body)
        except ValueError as error:
            self._send(400, {"error": f"this is no JSON ({error})"})
            return
        try:
            content = answer(request)
        except BadInput as error:
            self._send(400, {"error": str(error)})
        except Exception as error:  # the caller asks again, perhaps another copy
            self._send(500, {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"})
        else:
            self._send(200, content)

    def do_GET(self) -> None:
        """Health."""
        self._send(200, health())

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing: the client counts."""

    def _send(self, status: int, content: Mapping[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def serve(host: str, port: int) -> ThreadingHTTPServer:
    """A server at this address; port 0: any free one. The caller calls `serve_forever`."""
    return ThreadingHTTPServer((host, port), Handler)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("train.rl.trajectories.reward_service", description=__doc__.partition("\n")[0])
    parser.add_argument("--store", type=Path, help="store with the user's worlds; without it, Headrace's own worlds are known")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at")
    parser.add_argument("--port", type=int, default=8700, help="port; 0: any free one, which is printed")
    parser.add_argument("--dies-with-parent", action="store_true", help="end when the process that started it ends")
    options = parser.parse_args(arguments)
    if options.dies_with_parent:
        dying_with_parent(os.getppid())()
    if options.store is not None:
        register_stored(Store(options.store))
    server = serve(options.host, options.port)
    print(f"http://{options.host}:{server.server_address[1]}", flush=True)
    server.serve_forever()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

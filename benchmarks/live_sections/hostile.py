"""A hostile server: whether it gets out of its box, and whether its failures are blamed on the policy.

The attacks are those of the tests (`tests/synth/worlds/live/test_hostile_server.py`), which try without a box what can be tried so.
"""

from __future__ import annotations

import json
import os
import socket
import tempfile
from pathlib import Path

from benchmarks.harness import Deadline, Figures
from storage.records import JSON, Message, Outcome, Plan, Success, Task, ToolCall
from synth.engines.base import ChatAnswer
from synth.rollouts.episode import Episode
from synth.worlds.base import Observation
from synth.worlds.live.live_world import make_live_world
from synth.worlds.live.lock import LiveTool, Lock
from tests.synth.live_servers.specs import hostile_spec
from tests.synth.worlds.live.test_hostile_server import ATTACKS, SECRET, run_attack

KEYS = ("live_escapes_tried", "live_escapes_missed", "crash_or_hang_tried", "crash_or_hang_blamed_on_policy")
FAILING = ("crash", "never_answer", "huge_answer", "use_memory", "fill_disk")
TIMES = 5
MINUTES = 4


def measure_hostile(deadline: Deadline) -> Figures:
    deadline.allows(MINUTES)
    missed = escapes_missed()
    print(f"    attacks that were missed: {', '.join(missed) or 'none'}", flush=True)
    outcomes = [outcome_of(attack) for attack in FAILING for _ in range(TIMES)]
    blamed = sum(outcome is Outcome.POLICY_FAILURE for outcome in outcomes)
    return {
        "live_escapes_tried": len(ATTACKS),
        "live_escapes_missed": len(missed),
        "crash_or_hang_tried": len(outcomes),
        "crash_or_hang_blamed_on_policy": blamed,
    }


def escapes_missed() -> list[str]:
    missed = []
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        Path(folder).chmod(0o755)
        secret = Path(folder) / "secret.txt"
        secret.write_text(SECRET)
        abstract.bind(f"\0headrace-bench-{os.getpid()}")
        abstract.listen()
        host: dict[str, JSON] = {"pid": os.getpid(), "port": listening.getsockname()[1], "secret_file": str(secret)}
        host["abstract"] = f"headrace-bench-{os.getpid()}"
        os.environ["HEADRACE_TEST_PLANTED"] = SECRET
        for attack in ATTACKS:
            done = run_attack(attack, host)
            told = done.told.content if isinstance(done.told, Observation) else str(done.told)
            if "escaped" in told or SECRET in told + done.state or "\x1b" in told or done.left:
                missed.append(attack)
        del os.environ["HEADRACE_TEST_PLANTED"]
    return missed


def outcome_of(attack: str) -> Outcome | None:
    """The outcome of a conversation whose only call makes the server fail; None where the server told that as an error, and it goes on."""
    spec = hostile_spec(limits={"call_s": 1, "memory_mib": 200, "answer_mib": 4, "disk_mib": 16})
    tool = LiveTool(name="attack", description="", parameters={"type": "object", "properties": {}}, changes_state=True)
    kind = make_live_world(spec, Lock(spec=spec.id, tools=(tool,), restore="live"))
    task = Task(
        id="task-1", world=kind.name, world_seed=0, intent="x", leaf="x", frame_id="x", slots={}, language="en",
        messages=(Message(role="user", content="go"),), tools=("attack",), plan=Plan(), success=Success(), difficulty=1, division="seed",
    )  # fmt: skip
    episode = Episode(task, 0, 8, kind=kind)
    call = ToolCall.model_validate({"id": "c", "function": {"name": "attack", "arguments": json.dumps({"attack": attack, "host": {}})}})
    episode.step(ChatAnswer(message=Message(role="assistant", tool_calls=(call,)), finish_reason="tool_calls"))
    return episode.outcome

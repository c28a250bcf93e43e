"""`openenv validate --url` on the running server, and every task played by OpenEnv's own client (`play_openenv.py`, in its environment)."""

from __future__ import annotations

import json
import socket
import time
import urllib.request
from pathlib import Path

from storage.errors import HeadraceError
from storage.records import JSON, Task
from synth.packages.checks.ecosystem_tool import PackageFolder, Rewards, Tool
from synth.packages.runtime import expert_turns
from synth.packages.scripted_model import IDLE_ANSWER, ORACLE

_PLAYER = Path(__file__).with_name("play_openenv.py")
START_S = 120.0


def rewards(package: PackageFolder, policy: str, tool: Tool) -> Rewards:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    plans, out = tool.scratch / f"plans-{policy}.json", tool.scratch / f"rewards-{policy}.json"
    plans.write_text(json.dumps({task.id: _actions(task, policy) for tasks in package.tasks.values() for task in tasks}))
    server = ["python", "-m", "server.app", "--host", "127.0.0.1", "--port", str(port)]
    with tool.started(server, package, f"openenv-server-{policy}", package.folder):
        wait_until_up(f"{url}/health")
        tool.run(["openenv", "validate", "--url", url], package, f"openenv-validate-{policy}")
        tool.run(["python", "-P", str(_PLAYER), url, str(plans), str(out)], package, f"openenv-play-{policy}")
    found: dict[str, float] = json.loads(out.read_text())
    return found


def _actions(task: Task, policy: str) -> list[dict[str, JSON]]:
    """What a policy does, as the arguments of OpenEnv's call action."""
    turns = expert_turns(task) if policy == ORACLE else []
    calls = [call.function for turn in turns for call in turn.tool_calls]
    answer = turns[-1].content if turns else IDLE_ANSWER
    actions = [{"tool_name": call.name, "arguments": json.loads(call.arguments)} for call in calls]
    return [*actions, {"tool_name": "answer", "arguments": {"text": answer}}]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_up(url: str) -> None:
    """Raises HeadraceError: nothing answers at the URL in two minutes."""
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(0.2)
    raise HeadraceError(f"the server did not start in {START_S:.0f} s: nothing answers at {url}")

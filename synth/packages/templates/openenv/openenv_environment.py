"""Tasks of Headrace as an OpenEnv environment: `reset` gives a request and the tools, `step` calls one, `answer` ends the episode.

Actions are OpenEnv's own: `{"type": "list_tools"}` and `{"type": "call_tool", "tool_name": ..., "arguments": {...}}`. `reset` takes
`task_id`, or `seed`, the number of the task in its split, and `split` (default: the package's first, `train` if it has that).
"""

from pathlib import Path
from typing import Any
from uuid import uuid4

from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation, ListToolsAction, ListToolsObservation, Tool
from openenv.core.env_server.types import Action, EnvironmentMetadata, Observation, State
from pydantic import Field

from synth.packages.episode_server import ANSWER, ANSWER_TOOL
from synth.packages.runtime import Episode, Package, request, system_prompt, tool_schemas

PACKAGE = Package(Path(__file__).parents[1] / "data")


class TaskObservation(Observation):
    """What an episode starts with."""

    task_id: str = Field(description="id of the task")
    system: str = Field(default="", description="instructions of the world")
    request: str = Field(description="the user's request")
    tools: list[dict[str, Any]] = Field(default_factory=list, description="the tools on offer, JSON schemas")


class HeadraceEnvironment(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._state, self._is_over = State(episode_id=str(uuid4()), step_count=0), True
        self._episode: Episode | None = None

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, split: str = "", task_id: str = "", **_: Any
    ) -> TaskObservation:
        tasks = PACKAGE.tasks(split or PACKAGE.splits[0])
        task = PACKAGE.task(task_id) if task_id else tasks[(seed or 0) % len(tasks)]
        self.close()
        self._episode, self._is_over = Episode(task), False
        self._state = State(episode_id=episode_id or str(uuid4()), step_count=0)
        tools = [*tool_schemas(task), ANSWER_TOOL]
        return TaskObservation(
            task_id=task.id, system=system_prompt(task) or "", request=request(task), tools=tools, done=False, reward=0.0
        )

    def step(self, action: Action, timeout_s: float | None = None, **_: Any) -> Observation:
        if isinstance(action, ListToolsAction):
            schemas = [*(tool_schemas(self._episode.task) if self._episode else ()), ANSWER_TOOL]
            tools = [Tool(name=tool["name"], description=tool["description"], input_schema=tool["parameters"]) for tool in schemas]
            return ListToolsObservation(tools=tools, done=self._is_over and self._episode is not None)
        self._state.step_count += 1
        if not isinstance(action, CallToolAction):
            return _observe("", {"error": "an action is list_tools or call_tool"})
        if self._episode is None or self._is_over:
            return _observe(action.tool_name, {"error": "there is no running episode; reset first"}, done=True)
        if action.tool_name == ANSWER:
            self._is_over = True
            verdict = self._episode.judge(str(action.arguments.get("text", "")))
            failed = [name for name, holds in verdict.checks.items() if not holds]
            about = {"failed_checks": failed, "r": verdict.reward}
            return _observe(ANSWER, {"ok": True}, done=True, reward=float(verdict.success), metadata=about)
        return _observe(action.tool_name, self._episode.call(action.tool_name, action.arguments).content)

    @property
    def state(self) -> State:
        return self._state

    def get_metadata(self) -> EnvironmentMetadata:
        return EnvironmentMetadata(name="headrace", description="Tool-use tasks of Headrace, judged by a replay", version="1.0.0")

    def close(self) -> None:
        if self._episode is not None:
            self._episode.close()
            self._episode = None


def _observe(tool: str, result: Any, *, done: bool = False, reward: float = 0.0, metadata: dict[str, Any] | None = None) -> Observation:
    return CallToolObservation(tool_name=tool, result=result, done=done, reward=reward, metadata=metadata or {})

"""The world's tools for all rollouts: one server. A rollout's tools and world are those of its task.

The server keeps no episode: a rollout's state holds its calls, and each call is made after these in a fresh world. So an episode ends with
its rollout, and none is ever lost. Calls of one rollout are executed one after the other.
"""

import json
from asyncio import Lock
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import verifiers.v1 as vf
from mcp.server.mcpserver import Context, MCPServer
from mcp.types import CallToolResult, TextContent, Tool
from pydantic import Field

from synth.packages.runtime import Package, resume, tool_schemas


class HeadraceState(vf.State):
    """task_id: of the task that a rollout plays; `HeadraceTask.setup` sets it. calls: those so far, tool and arguments as JSON text."""

    task_id: str = ""
    calls: list[tuple[str, str]] = Field(default_factory=list)


class HeadraceTools(vf.Toolset[vf.SharedToolsetConfig, HeadraceState]):
    TOOL_PREFIX = None

    async def setup(self) -> None:
        self._package = Package(Path(__file__).parent / "data")
        self._turns: WeakValueDictionary[str, Lock] = WeakValueDictionary()

    def register(self, mcp: MCPServer) -> None:
        """Tools differ from task to task, so both handlers ask for the rollout's task."""
        server: Any = mcp
        server.list_tools, server.call_tool = self._with_state(self.list_tools), self.call_tool

    async def list_tools(self) -> list[Tool]:
        tools = tool_schemas(self._package.task(self.state.task_id))
        return [Tool(name=tool["name"], description=tool["description"], input_schema=tool["parameters"]) for tool in tools]

    async def call_tool(self, name: str, arguments: dict[str, Any], context: Context | None = None) -> CallToolResult:
        request = context.request_context.request if context is not None else None
        rollout = request.url.query if request is not None else ""  # it holds the rollout's address in the state channel
        async with self._turns.setdefault(rollout, Lock()):  # a call takes the whole state and gives it back
            result: CallToolResult = await self._with_state(self._call)(name, arguments)
        return result

    def _call(self, name: str, arguments: dict[str, Any]) -> CallToolResult:
        text = json.dumps(arguments, ensure_ascii=False)
        episode = resume(self._package.task(self.state.task_id), self.state.calls)
        observation = episode.call(name, text)
        episode.close()
        self.state.calls.append((name, text))
        return CallToolResult(content=[TextContent(type="text", text=observation.content)], is_error=observation.is_error)


def text_of(content: Any) -> str | None:
    """The text of a message's content, which may be a list of parts."""
    if content is None or isinstance(content, str):
        return content
    return "".join(getattr(part, "text", None) or "" for part in content)


if __name__ == "__main__":
    HeadraceTools.run()

"""The world's tools for all rollouts: one server, an episode a rollout. A rollout's tools and world are those of its task."""

from pathlib import Path
from typing import Any

import verifiers.v1 as vf
from mcp.server.mcpserver import Context, MCPServer
from mcp.types import CallToolResult, TextContent, Tool

from synth.packages.runtime import Episodes, Package, tool_schemas


class HeadraceState(vf.State):
    """Which episode a rollout plays; `HeadraceTask.setup` sets it."""

    episode: str = ""
    task_id: str = ""


class HeadraceTools(vf.Toolset[vf.SharedToolsetConfig, HeadraceState]):
    TOOL_PREFIX = None

    async def setup(self) -> None:
        self._package, self._episodes = Package(Path(__file__).parent / "data"), Episodes()

    def register(self, mcp: MCPServer) -> None:
        """Tools differ from task to task, so both handlers ask for the rollout's task."""
        server: Any = mcp
        server.list_tools, server.call_tool = self._with_state(self.list_tools), self._with_state(self.call_tool)

    async def list_tools(self) -> list[Tool]:
        tools = tool_schemas(self._package.task(self.state.task_id))
        return [Tool(name=tool["name"], description=tool["description"], input_schema=tool["parameters"]) for tool in tools]

    async def call_tool(self, name: str, arguments: dict[str, Any], context: Context | None = None) -> CallToolResult:
        try:
            episode = self._episodes.get(self.state.episode)
        except KeyError:
            episode = self._episodes.start(self.state.episode, self._package.task(self.state.task_id))
        text = episode.call(name, arguments)
        return CallToolResult(content=[TextContent(type="text", text=text)], is_error=text.startswith('{"error"'))


def text_of(content: Any) -> str | None:
    """The text of a message's content, which may be a list of parts."""
    if content is None or isinstance(content, str):
        return content
    return "".join(getattr(part, "text", None) or "" for part in content)


if __name__ == "__main__":
    HeadraceTools.run()

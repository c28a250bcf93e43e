"""A served world as an MCP server, on the low-level server of the official SDK; it knows no transport.

Every request says its episode (`find_episode`):

| transport | protocol | episode |
|---|---|---|
| stdio | both | the process |
| HTTP | with sessions (initialize, Mcp-Session-Id) | `?episode=NAME` of the URL, else the session |
| HTTP | 2026-07-28, without sessions | `?episode=NAME` of the URL; without one the protocol is refused, and clients fall back to sessions |

The last refusal is what keeps two clients apart that named no episode. `?seed=N` is the seed of the episode.

A refused or failed call of a tool is a tool error (`isError`) whose text is the world's observation, so a client sees what a policy sees in
training. An episode that cannot be entered, a world that failed (its episode ends), and a call that cannot be logged are errors of the
protocol.

Source: https://modelcontextprotocol.io/specification, versions 2025-11-25 and 2026-07-28.
"""

from __future__ import annotations

import re
import secrets
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    UNSUPPORTED_PROTOCOL_VERSION,
    CallToolRequestParams,
    CallToolResult,
    GetPromptRequestParams,
    GetPromptResult,
    ListPromptsResult,
    ListToolsResult,
    PaginatedRequestParams,
    Prompt,
    PromptMessage,
    TextContent,
    ToolAnnotations,
)
from mcp_types import Tool as McpTool
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from starlette.requests import Request

from storage.records import Tool, parse_arguments, plain_json
from synth.serving.call_log import LogFailed
from synth.serving.episodes import EpisodeKey, EpisodeRefused, Episodes, describe_failure
from synth.worlds.arguments import without_marks

SESSION_HEADER = "mcp-session-id"
PROCESS = EpisodeKey("process", secrets.token_hex(4))
"""The episode of a server on stdio; several processes may write one log."""
_NAME = re.compile(r"[\w.:@+-]{1,200}", re.ASCII)
_SEED = re.compile(r"\d{1,12}", re.ASCII)
_TASK = "task"
Context = ServerRequestContext[Any, Any]


def build_server(episodes: Episodes) -> Server[Any]:
    """The MCP server of these episodes, which are ended when it stops."""
    served = episodes.served
    tools = [describe_tool(tool) for tool in served.tools]
    schemas = {tool.name: tool.input_schema for tool in tools}
    prompt = Prompt(name=_TASK, description=f"The request of task {served.task_id}.")

    async def list_tools(_: Context, __: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=tools)

    async def call_tool(context: Context, params: CallToolRequestParams) -> CallToolResult:
        return await _call(episodes, context, params)

    async def list_prompts(_: Context, __: PaginatedRequestParams | None) -> ListPromptsResult:
        return ListPromptsResult(prompts=[prompt])

    async def get_prompt(_: Context, params: GetPromptRequestParams) -> GetPromptResult:
        if params.name != _TASK:
            raise MCPError(INVALID_PARAMS, f"no prompt {params.name!r}; there is {_TASK!r}")
        return GetPromptResult(messages=[PromptMessage(role="user", content=TextContent(text=served.request))])

    @asynccontextmanager
    async def lifespan(_: Server[Any]) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(episodes.keep_ending_idle)
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    await episodes.end_all()

    server: Server[Any] = Server(
        f"headrace-{served.world.name}",
        version=str(served.world.version),
        instructions=served.instructions or None,
        lifespan=lifespan,
        get_tool_input_schema=schemas.get,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_prompts=list_prompts if served.request else None,
        on_get_prompt=get_prompt if served.request else None,
    )
    server.middleware.append(_refuse_early)
    return server


def describe_tool(tool: Tool) -> McpTool:
    """A tool as MCP clients read it, without Headrace's own marks in its schema."""
    hints = ToolAnnotations(
        read_only_hint=not tool.changes_state, destructive_hint=tool.changes_state, open_world_hint=False
    )  # a world is a closed one, and what changes it may overwrite
    return McpTool(name=tool.name, description=tool.description, input_schema=without_marks(tool.parameters), annotations=hints)


async def _call(episodes: Episodes, context: Context, params: CallToolRequestParams) -> CallToolResult:
    key, seed = find_episode(context)
    arguments = parse_arguments(plain_json(params.arguments or {}))
    if arguments is None:
        raise MCPError(INVALID_PARAMS, f"{params.name}: the arguments are nested too deeply")
    try:
        observation = await episodes.call(key, seed, params.name, arguments, _session_of(context))
    except EpisodeRefused as refused:
        raise MCPError(INVALID_PARAMS, str(refused)) from None
    except LogFailed as failed:  # the log has said it on stderr
        raise MCPError(INTERNAL_ERROR, str(failed)) from None
    except Exception as error:
        print(f"headrace: {params.name} in episode {key}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        raise MCPError(INTERNAL_ERROR, f"{describe_failure(error)}; the episode has ended") from error
    return CallToolResult(content=[TextContent(text=observation.content)], is_error=observation.is_error)


async def _refuse_early(ctx: Context, call_next: CallNext) -> HandlerResult:
    """Refuses a client without an episode when it connects, not at its first call."""
    find_episode(ctx)
    return await call_next(ctx)


def find_episode(context: Context) -> tuple[EpisodeKey, int | None]:
    """The episode of a request, and the seed that it names.

    Raises:
        MCPError: a name or seed that is none, or a protocol without sessions and no name.
    """
    request = context.request
    if not isinstance(request, Request):
        return PROCESS, None
    name, seed = request.query_params.get("episode"), request.query_params.get("seed")
    if seed is not None and not _SEED.fullmatch(seed):
        raise MCPError(INVALID_PARAMS, f"seed {seed[:40]!r} of the URL is no whole number from 0 on")
    if name is not None:
        return named_episode(name), seed if seed is None else int(seed)
    if context.protocol_version in MODERN_PROTOCOL_VERSIONS:
        message = f"protocol {context.protocol_version} has no sessions: add ?episode=NAME to the URL, a new name for every episode"
        data = {"supported": list(HANDSHAKE_PROTOCOL_VERSIONS), "requested": context.protocol_version}
        raise MCPError(UNSUPPORTED_PROTOCOL_VERSION, message, data)
    # Before `initialize` is answered there is no session, and no tool can be called.
    session = request.headers.get(SESSION_HEADER, "")
    return EpisodeKey("session", session), seed if seed is None else int(seed)


def _session_of(context: Context) -> str | None:
    """The MCP session of a request; None over stdio, and in a protocol that has none."""
    request = context.request
    if not isinstance(request, Request) or context.protocol_version in MODERN_PROTOCOL_VERSIONS:
        return None
    return request.headers.get(SESSION_HEADER)


def named_episode(name: str) -> EpisodeKey:
    """Raises MCPError: it is no name."""
    if not _NAME.fullmatch(name):
        raise MCPError(INVALID_PARAMS, "the episode of the URL must have 1 to 200 letters, digits or . : @ + - _")
    return EpisodeKey("named", name)

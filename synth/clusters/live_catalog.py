"""Asks a live MCP server for its tools: all pages of `tools/list`, through the official SDK (extra `live`).

One idea: only the list is asked for; no tool is called. The command runs as it is, with the environment of the SDK's default and without a
sandbox, so name a server only that you trust.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from storage.errors import BadInput
from storage.records import JSON

_TIMEOUT_S = 60.0
_MAX_PAGES = 1000


def live_tools(server: str) -> tuple[str, list[Mapping[str, JSON]]]:
    """Name of a server, and its tools as rows of a catalogue. server: a command that speaks MCP on stdin and stdout, or a URL.

    Raises:
        BadInput: the SDK is not installed; the server does not start, or does not answer as MCP in a minute.
    """
    try:
        import mcp
    except ImportError:
        raise BadInput("reading a live server needs the extra `live`: pip install 'headrace[live]'") from None
    is_url = server.startswith(("http://", "https://"))
    words = [] if is_url else _words(server)
    target: Any = server if is_url else mcp.StdioServerParameters(command=words[0], args=words[1:])
    try:
        return asyncio.run(asyncio.wait_for(_ask(mcp.Client, target, words[0] if words else server), _TIMEOUT_S))
    except TimeoutError:
        why = f"no answer in {_TIMEOUT_S:.0f} s"
    except FileNotFoundError:
        why = "there is no such command"
    except Exception as error:  # the SDK raises what the transport raises, in groups
        why = _reason(error)
    raise BadInput(f"{server}: no MCP server answers there ({why}); check that it runs by itself, and speaks MCP on stdin and stdout")


def _words(server: str) -> list[str]:
    try:
        words = shlex.split(server)
    except ValueError as error:
        raise BadInput(f"--server {server}: cannot be read as a command ({error})") from None
    if not words:
        raise BadInput("--server is empty; give a command or a URL")
    return words


async def _ask(client_of: Any, target: Any, fallback: str) -> tuple[str, list[Mapping[str, JSON]]]:
    async with client_of(target) as client:
        info = getattr(client, "server_info", None)
        name = getattr(info, "name", None) or Path(fallback).name
        rows: list[Mapping[str, JSON]] = []
        cursor: str | None = None
        for _ in range(_MAX_PAGES):
            page = await client.list_tools(cursor=cursor)
            rows += [{**tool.model_dump(mode="json", by_alias=True, exclude_none=True), "server": name} for tool in page.tools]
            cursor = page.next_cursor
            if cursor is None:
                return name, rows
        raise ValueError(f"more than {_MAX_PAGES} pages of tools")


def _reason(error: BaseException) -> str:
    """The innermost message of an error, on one line."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return " ".join(str(error).split())[:120] or type(error).__name__

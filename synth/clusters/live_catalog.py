"""Asks a live MCP server for its tools, as rows of a catalogue.

One idea: the server runs in the box of a live world (`synth/worlds/live/`), without network. Only its list is asked for; no tool is called.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from storage.errors import BadInput
from storage.records import JSON
from synth.worlds.live.copies.copy_errors import ServerFailed
from synth.worlds.live.copies.live_server import LiveServer
from synth.worlds.live.live_spec import LiveSpec


def live_tools(server: str) -> tuple[str, list[Mapping[str, JSON]]]:
    """Name of a server, and its tools as rows of a catalogue. server: a command that speaks MCP on stdin and stdout, or a URL.

    Raises:
        BadInput: the SDK or bubblewrap is not installed; the server does not start, or does not answer as MCP in a minute.
    """
    is_url = server.startswith(("http://", "https://"))
    words = [] if is_url else _words(server)
    spec = LiveSpec(live="catalogue", url=server) if is_url else LiveSpec(live="catalogue", command=tuple(words))
    try:
        running = LiveServer(spec)
    except ServerFailed as failure:
        raise BadInput(f"{server}: no MCP server answers there: {failure}") from None
    try:
        name = running.name or Path(words[0] if words else server).name
        tools = running.tools()
    except ServerFailed as failure:
        raise BadInput(f"{server}: it does not list its tools: {failure}") from None
    finally:
        running.close()
    return name, [
        {
            "name": tool.name,
            "description": tool.description,
            "inputSchema": tool.parameters,
            "server": name,
            **({"outputSchema": tool.output} if tool.output else {}),
            **({"annotations": {"readOnlyHint": tool.is_read_only}} if tool.is_read_only is not None else {}),
        }
        for tool in tools
    ]


def _words(server: str) -> list[str]:
    try:
        words = shlex.split(server)
    except ValueError as error:
        raise BadInput(f"--server {server}: cannot be read as a command ({error})") from None
    if not words:
        raise BadInput("--server is empty; give a command or a URL")
    return words

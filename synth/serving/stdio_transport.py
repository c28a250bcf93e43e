"""Serves over stdin and stdout: one client, one episode, until the client closes stdin or the process is asked to end."""

from __future__ import annotations

import asyncio
import os
import signal

from mcp.server.stdio import stdio_server

from synth.serving.episodes import Episodes
from synth.serving.mcp_server import build_server


def serve_stdio(episodes: Episodes) -> None:
    """Serves until stdin ends. SIGTERM and SIGINT end the process with exit code 0."""
    asyncio.run(_serve(episodes))


async def _serve(episodes: Episodes) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, lambda: loop.create_task(_leave(episodes)))
    server = build_server(episodes)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


async def _leave(episodes: Episodes) -> None:
    """Ends the process at once: a thread of the SDK waits for stdin, which nothing can interrupt."""
    await episodes.end_all()
    os._exit(0)

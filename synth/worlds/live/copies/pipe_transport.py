"""A transport of the MCP SDK over the pipes of a box: lines of JSON in, lines of JSON out, with a bound on what is read.

One idea: nothing of the server is parsed before its length is known to be allowed. What is no message is counted; the end of stderr is
kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from storage.outside.safe_text import safe_text
from synth.worlds.live.copies.copy_errors import ServerFailed, ServerSpoke
from synth.worlds.live.copies.server_box import Pipes

STDERR_BYTES = 16_384
READ_BYTES, MOST_WAITING = 1 << 20, 10_000
"""Bytes of one read; messages that wait to be handled, beyond which they are dropped."""


@dataclass
class ServerNotes:
    """What a server said beside its answers. noise: lines of its stdout that are no messages. stderr: the end of it."""

    noise: int = 0
    tools_changed: bool = False
    stderr: bytearray = field(default_factory=bytearray)

    def stderr_tail(self, characters: int = 300) -> str:
        """The end of its stderr in one line, safe to show."""
        return " ".join(safe_text(bytes(self.stderr)).split())[-characters:]


class PipeTransport:
    """Use it in the thread of the event loop. fail: called with what ends the session."""

    def __init__(self, pipes: Pipes, notes: ServerNotes, most_bytes: int, fail: Callable[[ServerFailed], None]) -> None:
        self._pipes, self._notes, self._most_bytes, self._fail = pipes, notes, most_bytes, fail
        self._buffer = bytearray()

    async def __aenter__(self) -> Any:
        import anyio

        self._loop = asyncio.get_running_loop()
        self._received, read_stream = anyio.create_memory_object_stream[Any](MOST_WAITING)
        write_stream, self._to_send = anyio.create_memory_object_stream[Any](0)
        self._streams = (self._received, read_stream, write_stream, self._to_send)
        for descriptor, reader in ((self._pipes.stdout, self._read_stdout), (self._pipes.stderr, self._read_stderr)):
            os.set_blocking(descriptor, False)
            self._loop.add_reader(descriptor, reader)
        os.set_blocking(self._pipes.stdin, False)
        self._writer = asyncio.create_task(self._write_stdin())
        return read_stream, write_stream

    async def __aexit__(self, *error: Any) -> None:
        self._writer.cancel()
        for descriptor in (self._pipes.stdout, self._pipes.stderr):
            self._loop.remove_reader(descriptor)
        for stream in self._streams:
            stream.close()
        self._pipes.close()

    def _read_stdout(self) -> None:
        data = _read(self._pipes.stdout)
        if data is None:
            return
        self._buffer.extend(data)
        if b"\n" in data:
            *lines, rest = bytes(self._buffer).split(b"\n")
            self._buffer[:] = rest
            for line in lines:
                self._deliver(line)
        if len(self._buffer) > self._most_bytes:
            self._refuse(len(self._buffer))
        elif not data:
            self._loop.remove_reader(self._pipes.stdout)
            self._received.close()

    def _read_stderr(self) -> None:
        data = _read(self._pipes.stderr)
        if data == b"":
            self._loop.remove_reader(self._pipes.stderr)
        self._notes.stderr.extend(data or b"")
        del self._notes.stderr[:-STDERR_BYTES]

    def _deliver(self, line: bytes) -> None:
        """Parses a line, and hands the message on; what is none is counted."""
        import mcp_types
        from mcp.shared.message import SessionMessage

        if len(line) > self._most_bytes:
            self._refuse(len(line))
        elif line.strip():
            try:
                message = mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError:
                self._notes.noise += 1
                return
            with contextlib.suppress(Exception):
                self._received.send_nowait(SessionMessage(message))

    def _refuse(self, size: int) -> None:
        self._loop.remove_reader(self._pipes.stdout)
        self._fail(ServerSpoke(f"the server sent an answer of {size:,} bytes or more; the most is {self._most_bytes:,}"))
        self._received.close()

    async def _write_stdin(self) -> None:
        async for message in self._to_send:
            data = memoryview(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
            while data:
                try:
                    data = data[os.write(self._pipes.stdin, data) :]
                except BlockingIOError:
                    await self._until_writable()
                except OSError:
                    self._received.close()
                    return

    async def _until_writable(self) -> None:
        ready = self._loop.create_future()

        def set_ready() -> None:
            if not ready.done():
                ready.set_result(None)

        self._loop.add_writer(self._pipes.stdin, set_ready)
        try:
            await ready
        finally:
            self._loop.remove_writer(self._pipes.stdin)


def _read(descriptor: int) -> bytes | None:
    """What can be read now; b"" at the end, None where nothing is there yet."""
    try:
        return os.read(descriptor, READ_BYTES)
    except BlockingIOError:
        return None
    except OSError:
        return b""

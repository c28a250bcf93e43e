"""The host's end of the wire to a box's guest: length-prefixed messages over two descriptors, each read and write with a deadline.

A message is two 4-byte big-endian lengths, a header (marshal's version 2 on the way in, JSON on the way out) and a body of raw bytes.
What comes from the guest is not trusted: lengths are bounded before a byte is read, and whatever does not fit the framing is a
SandboxError. Docker wraps what a container writes in frames of its own (a byte for the stream, 4 for the length); `is_framed` takes
them off.
"""

from __future__ import annotations

import contextlib
import json
import marshal
import os
import select
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from storage.records import JSON
from synth.sandbox.base import SandboxError

HEADER_BYTES = 2**22
STDERR_BYTES = 4_096


class Wire:
    """to_guest, from_guest: non-blocking descriptors (one and the same for a socket); whoever made them closes them."""

    def __init__(self, to_guest: int, from_guest: int, *, is_framed: bool = False) -> None:
        self._out, self._in = to_guest, from_guest
        self._is_framed = is_framed
        self._buffer = bytearray()
        self.stderr = bytearray()
        """The beginning of what the guest itself wrote to stderr (framed wires only)."""
        self._is_open, self._lock = True, threading.Lock()
        for fd in {to_guest, from_guest}:
            os.set_blocking(fd, False)

    def close(self) -> None:
        """Before its descriptors are closed, whose numbers may then be somebody else's: no thread reads or writes them any more."""
        with self._lock:
            self._is_open = False

    def send(self, header: dict[str, JSON], body: bytes, deadline: float) -> None:
        text = marshal.dumps(header, 2)
        data = memoryview(struct.pack(">II", len(text), len(body)) + text + body)
        while data:
            self._wait(self._out, select.POLLOUT, deadline)
            with contextlib.suppress(BlockingIOError), self._in_use():
                data = data[os.write(self._out, data[: 1 << 16]) :]

    def receive(self, body_bytes: int, deadline: float) -> tuple[dict[str, JSON], bytes]:
        """The next message, its body at most `body_bytes` long.

        Raises:
            SandboxError: the deadline passed, the box died, or what came is no message.
        """
        header_size, body_size = struct.unpack(">II", self._exactly(8, deadline))
        if header_size > HEADER_BYTES or body_size > body_bytes:
            raise SandboxError(f"the box announced a message of {header_size} and {body_size} bytes; somebody tampered with its wire")
        header_text, body = self._exactly(header_size, deadline), self._exactly(body_size, deadline)
        try:
            header = json.loads(header_text)
        except ValueError as error:
            raise SandboxError("the box sent something that is no message; somebody tampered with its wire") from error
        if not isinstance(header, dict):
            raise SandboxError("the box sent something that is no message; somebody tampered with its wire")
        return header, body

    def _exactly(self, count: int, deadline: float) -> bytes:
        while len(self._buffer) < count:
            if self._is_framed:
                stream, size = struct.unpack(">BxxxI", self._raw(8, deadline))
                data = self._raw(size, deadline)
                if stream == 1:
                    self._buffer += data
                else:
                    self.stderr += data[: STDERR_BYTES - len(self.stderr)]
            else:
                self._buffer += self._some(1 << 16, deadline)
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    def _raw(self, count: int, deadline: float) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            parts += self._some(count - len(parts), deadline)
        return bytes(parts)

    def _some(self, at_most: int, deadline: float) -> bytes:
        while True:
            self._wait(self._in, select.POLLIN, deadline)
            with contextlib.suppress(BlockingIOError), self._in_use():
                data = os.read(self._in, at_most)
                if not data:
                    raise SandboxError("the box ended")
                return data

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        with self._lock:
            if not self._is_open:
                raise SandboxError("the box is closed")
            try:
                yield
            except BlockingIOError:
                raise
            except OSError as error:
                raise SandboxError(f"the box hung up: {error}") from error

    def _wait(self, fd: int, event: int, deadline: float) -> None:
        poll = select.poll()
        poll.register(fd, event)
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise SandboxError("the box stopped answering")

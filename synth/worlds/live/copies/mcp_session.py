"""The MCP session with a server: calls and lists through the official SDK, from any thread.

One idea: one event loop, in a thread of its own, serves all sessions of the process; a caller waits for it. The bytes of a server in a box
come over pipes, and are bounded before they are parsed. Whatever goes wrong with the server is a `ServerFailed`, never the caller's fault.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import logging
import os
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from storage.errors import BadInput
from storage.outside.safe_text import safe_text
from storage.records import JSON
from synth.worlds.live.copies.copy_errors import ServerDied, ServerFailed, ServerHung, ServerSpoke
from synth.worlds.live.copies.pipe_transport import PipeTransport, ServerNotes
from synth.worlds.live.copies.server_box import Pipes

if TYPE_CHECKING:
    from mcp.client.client import Client

T = TypeVar("T")
MOST_PAGES, MOST_TOOLS = 200, 10_000
PROGRESS_FACTOR = 10
"""A call that reports progress may last this many times as long."""
CLOSE_S = 3.0
TICK_S = 0.05
INSTALL = "live worlds need the MCP SDK: pip install 'headrace[live]'"


@dataclass(frozen=True, slots=True)
class RawTool:
    """A tool as the server lists it. is_read_only, is_destructive: its hints; None if it has none."""

    name: str
    description: str
    parameters: dict[str, JSON]
    output: dict[str, JSON] | None = None
    is_read_only: bool | None = None
    is_destructive: bool | None = None


@dataclass(frozen=True, slots=True)
class RawResult:
    """What a call returned: texts in order (an image or a resource as its type and digest), the structured content, and whether the server
    says that it is an error."""

    texts: tuple[str, ...]
    structured: JSON | None
    is_error: bool


class Loop:
    """An event loop in a thread that lives as long as the process."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._pid = os.getpid()
        threading.Thread(target=self._serve, name="live-servers", daemon=True).start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()


@cache
def _loop_of(pid: int) -> Loop:
    return Loop()


def loop() -> Loop:
    """The loop of this process; a forked process has one of its own."""
    return _loop_of(os.getpid())


def require_sdk() -> None:
    """Raises BadInput where the MCP SDK is not installed."""
    logging.getLogger("mcp").setLevel(logging.ERROR)
    try:
        import mcp.client.client  # noqa: F401
    except ImportError:
        raise BadInput(INSTALL) from None


class Connection:
    """A session with a running server.

    Args:
        where: pipes of a server in a box, which are closed with the connection; or a URL (streamable HTTP), with headers for every request.
        answer_bytes: of the longest answer.

    Raises:
        ServerFailed: the server does not begin a session in time.
    """

    def __init__(
        self, where: Pipes | str, *, start_s: float, call_s: float, answer_bytes: int, headers: Mapping[str, str] | None = None
    ) -> None:
        require_sdk()
        self._where, self._headers, self.call_s, self._answer_bytes = where, dict(headers or {}), call_s, answer_bytes
        self.notes = ServerNotes()
        self.instructions = self.server_name = ""
        self._loop = loop()
        self._failure: ServerFailed | None = None
        self._client: Client | None = None
        self._ready: Future[None] = Future()
        self._closing: asyncio.Event | None = None
        self._ended = threading.Event()
        self.on_tick: Callable[[], None] = lambda: None
        """Called every 50 ms while an answer is awaited; what it raises ends the wait."""
        asyncio.run_coroutine_threadsafe(self._serve(start_s), self._loop.loop)
        try:
            self._ready.result(start_s + 5)
        except TimeoutError:
            self.close()
            raise ServerHung(self._explain(f"the server began no session within {start_s:g} s (`limits: {{start_s}}`)")) from None

    def tools(self) -> list[RawTool]:
        """All tools, of all pages. Raises ServerFailed; a name that is listed twice is kept once."""
        return self._ask(self._list_tools(), self.call_s * 3)

    def call(self, name: str, arguments: Mapping[str, JSON]) -> RawResult:
        """Raises ServerFailed: it died, hung or sent what is no answer. An error of the tool is a result."""
        return self._ask(self._call(name, arguments), self.call_s)

    def close(self) -> None:
        """Ends the session; may be called again."""
        if self._closing is not None:
            self._loop.loop.call_soon_threadsafe(self._closing.set)
            self._ended.wait(CLOSE_S)

    # ---- in the loop's thread ---------------------------------------------------------------------------------------------

    async def _serve(self, start_s: float) -> None:
        self._closing = asyncio.Event()
        try:
            await self._hold_session(start_s)
        except BaseException as error:
            failure = self._as_failure(error)
            if not self._ready.done():
                self._ready.set_exception(failure)
            self._failure = self._failure or failure
        finally:
            self._client = None
            self._ended.set()

    async def _hold_session(self, start_s: float) -> None:
        from mcp.client.client import Client
        from mcp.client.streamable_http import streamable_http_client
        from mcp.shared._httpx_utils import create_mcp_http_client

        async with contextlib.AsyncExitStack() as stack:
            server: Any
            if isinstance(self._where, str):
                http = await stack.enter_async_context(create_mcp_http_client(headers=self._headers))
                server, mode = streamable_http_client(self._where, http_client=http), "auto"
            else:
                server, mode = PipeTransport(self._where, self.notes, self._answer_bytes, self.fail), "legacy"
            await self._hold_client(Client(server, mode=mode, cache=None, message_handler=self._note_message), start_s)

    async def _hold_client(self, client: Client, start_s: float) -> None:
        async with asyncio.timeout(start_s) as limit, client:
            limit.reschedule(None)
            self._client, self.instructions = client, client.instructions or ""
            self.server_name = client.server_info.name if client.server_info is not None else ""
            self._ready.set_result(None)
            assert self._closing is not None
            await self._closing.wait()

    async def _note_message(self, message: Any) -> None:
        self.notes.tools_changed |= "ToolListChanged" in type(getattr(message, "root", message)).__name__

    async def _list_tools(self) -> list[RawTool]:
        client = self._session()
        tools: dict[str, RawTool] = {}
        cursor: str | None = None
        self.notes.tools_changed = False
        for _ in range(MOST_PAGES):
            page = await client.list_tools(cursor=cursor)
            for tool in page.tools:
                hints = tool.annotations
                tools.setdefault(
                    tool.name,
                    RawTool(
                        name=tool.name,
                        description=safe_text((tool.description or tool.title or "").encode()),
                        parameters=dict(tool.input_schema or {}),
                        output=dict(tool.output_schema) if tool.output_schema else None,
                        is_read_only=hints.read_only_hint if hints else None,
                        is_destructive=hints.destructive_hint if hints else None,
                    ),
                )
            cursor = page.next_cursor
            if not cursor:
                return list(tools.values())
            if len(tools) > MOST_TOOLS:
                raise ServerSpoke(f"the server lists more than {MOST_TOOLS:,} tools")
        raise ServerSpoke(f"the server's list of tools has more than {MOST_PAGES} pages")

    async def _call(self, name: str, arguments: Mapping[str, JSON]) -> RawResult:
        from mcp.shared.exceptions import MCPError

        client = self._session()
        try:
            result = await client.session.call_tool(name, dict(arguments), progress_callback=self._note_progress)
        except MCPError as error:
            if self._failure is not None or "Connection closed" in str(error):
                raise
            return RawResult((error.message,), None, True)
        except RuntimeError as error:
            if "structured content" not in str(error) and "output schema" not in str(error):
                raise
            return RawResult(("the tool's answer does not fit the output schema that it declares",), None, True)
        return RawResult(tuple(_shown(block) for block in result.content), result.structured_content, bool(result.is_error))

    async def _note_progress(self, progress: float, total: float | None, message: str | None) -> None:
        self._last_progress = time.monotonic()

    def _session(self) -> Client:
        if self._client is None:
            raise self._failure or ServerDied(self._explain("the server is not running"))
        return self._client

    # ---- asking, and what went wrong --------------------------------------------------------------------------------------

    def _ask(self, work: Awaitable[T], timeout_s: float) -> T:
        began = self._last_progress = time.monotonic()

        async def awaited() -> T:
            return await work

        asked = asyncio.run_coroutine_threadsafe(awaited(), self._loop.loop)
        while True:
            left = min(self._last_progress + timeout_s, began + PROGRESS_FACTOR * timeout_s) - time.monotonic()
            try:
                return asked.result(min(max(0.0, left), TICK_S))
            except TimeoutError:
                self.on_tick()
                has_failed = asked.done() and isinstance(asked.exception(), TimeoutError)
                if has_failed or time.monotonic() >= min(self._last_progress + timeout_s, began + PROGRESS_FACTOR * timeout_s):
                    asked.cancel()
                    raise ServerHung(self._explain(f"the server did not answer within {timeout_s:g} s (`limits: {{call_s}}`)")) from None
            except ServerFailed:
                raise
            except Exception as error:
                raise self._as_failure(error) from error

    def fail(self, failure: ServerFailed) -> None:
        """Ends the session for this reason. Called in the loop's thread."""
        self._failure = self._failure or failure
        if self._closing is not None:
            self._closing.set()

    def _as_failure(self, error: BaseException) -> ServerFailed:
        if self._failure is not None:
            return self._failure
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        if isinstance(error, ServerFailed):
            return error
        if isinstance(error, TimeoutError):
            return ServerHung(self._explain("the server began no session in time"))
        text = " ".join(str(error).split())
        if "Connection closed" in text or isinstance(error, OSError):
            return ServerDied(self._explain("the server closed the connection"))
        if "Unsupported protocol version" in text:
            return ServerSpoke(self._explain(f"the server speaks a version of MCP that the SDK does not: {text[:200]}"))
        return ServerSpoke(self._explain(f"the server's answer is not of the protocol ({type(error).__name__}: {text[:200]})"))

    def _explain(self, what: str) -> str:
        tail = self.notes.stderr_tail()
        noise = f"; {self.notes.noise} lines of its stdout are no MCP messages" if self.notes.noise else ""
        return f"{what}{noise}{f'; its stderr ends: {tail}' if tail else ''}"


def _shown(block: Any) -> str:
    """A block of content as text: an image, a sound or a binary resource by its type and digest."""
    if block.type == "text":
        return str(block.text)
    if block.type in ("image", "audio"):
        return _digest(block.type, block.mime_type, block.data)
    if block.type == "resource":
        resource = block.resource
        text = getattr(resource, "text", None)
        return str(text) if text is not None else _digest("resource", resource.mime_type, resource.blob)
    return f"[{block.type} {getattr(block, 'uri', '')}]"


def _digest(kind: str, mime_type: str | None, data: str) -> str:
    with contextlib.suppress(ValueError):
        raw = base64.b64decode(data, validate=False)
        return f"[{kind} {mime_type or 'unknown'}, {len(raw)} bytes, sha256 {hashlib.sha256(raw).hexdigest()[:16]}]"
    return f"[{kind} {mime_type or 'unknown'}]"

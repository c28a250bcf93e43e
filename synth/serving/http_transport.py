"""Serves over streamable HTTP: many clients, each in an episode of its own (`synth/serving/mcp_server.py` says how it is found).

One idea: a door stands before the SDK's application. It lets in requests with the token, and sees when a client ends its episode: by
`DELETE` with the header of its session, or of a URL with `?episode=NAME` without one. Where a session called in a named episode, its end
is not that of the episode (`synth/serving/episodes.py`).

It speaks no TLS: on a network, put a proxy before it that does. The SDK refuses requests that a web page sends to this machine (by the
headers Host and Origin) where the server listens on loopback.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import secrets
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import uvicorn
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from storage.errors import BadInput
from synth.serving.episodes import EpisodeKey, Episodes
from synth.serving.mcp_server import SESSION_HEADER, build_server, named_episode

PATH = "/mcp"
TOKEN_VARIABLE = "HEADRACE_SERVE_TOKEN"
LEAST_TOKEN_CHARS = 16
LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""The addresses for which the SDK checks the headers Host and Origin."""
_GRACE_S = 2
"""Seconds that a stopping server gives to requests that are being answered."""
_BACKLOG = 2048
_SPARE_SESSIONS = 1_000
"""Open MCP sessions beyond the episodes: those that have not called yet, and those that share a named episode."""


def serve_http(episodes: Episodes, host: str, port: int, token: str | None, ready: Callable[[str], None]) -> None:
    """Serves until SIGTERM or SIGINT, which end it cleanly.

    port: 0 for any free one.
    token: the bearer token that every request must carry; None: none.
    ready: called with the server's URL once it accepts connections.

    Raises:
        BadInput: nothing can listen on this host and port.
    """
    listening = listen(host, port)
    with listening:
        asyncio.run(_serve(build_app(episodes, host, token), listening, lambda: ready(url_of(listening))))


def token_for(host: str, environment: Mapping[str, str]) -> tuple[str | None, bool]:
    """The token that clients must send, and whether it was made here: that of the environment; on loopback none; else a new one.

    Raises:
        BadInput: the environment's token is too short.
    """
    token = environment.get(TOKEN_VARIABLE)
    if token is not None and (len(token) < LEAST_TOKEN_CHARS or not token.isascii() or not token.isprintable() or " " in token):
        raise BadInput(f"{TOKEN_VARIABLE} must hold {LEAST_TOKEN_CHARS} or more ASCII characters, no spaces; unset it, and a token is made")
    if token is None and not is_loopback(host):
        return secrets.token_urlsafe(32), True
    return token, False


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach what listens there."""
    return host in LOOPBACK


def listen(host: str, port: int) -> socket.socket:
    """Raises BadInput: the port is in use, or the host is none of this machine's."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except (OSError, OverflowError) as error:
        number = getattr(error, "errno", None) or 0
        reason = os.strerror(number) if number > 0 else getattr(error, "strerror", None) or error
        raise BadInput(f"cannot listen on {host}, port {port}: {reason}; name others with --host and --port (0: any free port)") from None
    # Connections inherit it. asyncio sets it only on sockets made with an explicit protocol, and without it an answer takes 40 ms more.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def url_of(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}{PATH}"


def build_app(episodes: Episodes, host: str, token: str | None) -> ASGIApp:
    """The ASGI application, with its door."""
    server = build_server(episodes)
    app = server.streamable_http_app(
        streamable_http_path=PATH,
        json_response=True,
        session_idle_timeout=episodes.idle_s,
        max_sessions=episodes.most + _SPARE_SESSIONS,
        transport_security=None if is_loopback(host) else TransportSecuritySettings(enable_dns_rebinding_protection=False),
        host="127.0.0.1" if is_loopback(host) else host,
    )
    return _Door(app, episodes, token)


class _Door:
    def __init__(self, app: ASGIApp, episodes: Episodes, token: str | None) -> None:
        self._app, self._episodes = app, episodes
        self._credential = None if token is None else f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if not self._has_credential(headers):
            refusal = PlainTextResponse(
                "this server needs its token: Authorization: Bearer TOKEN", 401, headers={"WWW-Authenticate": "Bearer"}
            )
            await refusal(scope, receive, send)
        elif scope["method"] == "DELETE" and SESSION_HEADER in headers and not _is_sessionless(headers):
            await self._end_session(headers[SESSION_HEADER], scope, receive, send)
        elif scope["method"] == "DELETE" and scope["path"] == PATH:
            await (await self._end_named(Request(scope)))(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _has_credential(self, headers: Headers) -> bool:
        if self._credential is None:
            return True
        kind, _, token = headers.get("authorization", "").partition(" ")
        sent = f"Bearer {token.strip()}".encode("latin-1", "replace") if kind.lower() == "bearer" else b""
        return hmac.compare_digest(sent, self._credential)

    async def _end_session(self, session: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Lets the SDK end the session, and frees the episode if it did."""
        statuses: list[int] = []

        async def watch(message: Message) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
            await send(message)

        await self._app(scope, receive, watch)
        if statuses and statuses[0] < 300:
            await self._episodes.end(EpisodeKey("session", session))
            if (name := Request(scope).query_params.get("episode")) is not None:
                self._episodes.leave(EpisodeKey("named", name), session)

    async def _end_named(self, request: Request) -> Response:
        name = request.query_params.get("episode")
        if name is None:
            return PlainTextResponse("name the episode that ends: ?episode=NAME", 400)
        try:
            key = named_episode(name)
        except MCPError as error:
            return PlainTextResponse(str(error), 400)
        return Response(status_code=204) if await self._episodes.end(key) else PlainTextResponse("no such episode is open", 404)


def _is_sessionless(headers: Headers) -> bool:
    """Whether a request is of a protocol without sessions, in which a session's header means nothing."""
    return headers.get(MCP_PROTOCOL_VERSION_HEADER) in MODERN_PROTOCOL_VERSIONS


class _Uvicorn(uvicorn.Server):
    """Tells when it is ready. SIGTERM and SIGINT stop it, a second one at once; the process goes on then, and can end with code 0."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop, numbers = asyncio.get_running_loop(), (signal.SIGTERM, signal.SIGINT)
        for number in numbers:
            loop.add_signal_handler(number, self._stop)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    def _stop(self) -> None:
        self.force_exit = self.should_exit
        self.should_exit = True


async def _serve(app: ASGIApp, listening: socket.socket, ready: Callable[[], None]) -> None:
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, lifespan="on", timeout_graceful_shutdown=_GRACE_S, server_header=False
    )
    await _Uvicorn(config, ready).serve([listening])

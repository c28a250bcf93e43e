"""The server of the viewer: one process, on loopback unless asked, until it is stopped."""

from __future__ import annotations

import errno
import secrets
import socket
from collections.abc import Callable
from contextlib import suppress

from flows.viewer.by_hand.write_access import WriteAccess
from flows.viewer.viewed_store import ViewedStore
from flows.viewer.web_app import LOOPBACK_NAMES, create_app
from storage.errors import BadInput


def open_listener(host: str, port: int) -> socket.socket:
    """A socket that listens. port: 0 takes any free one.

    Raises:
        BadInput: the port is taken, or the machine has no such address.
    """
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        taken = "is taken: name another with --port, or 0 for any free one"
        reason = taken if error.errno == errno.EADDRINUSE else f"cannot be used: {error.strerror}"
        raise BadInput(f"port {port} of {host} {reason}") from None
    listener.listen(128)
    return listener


def serve(
    viewed: ViewedStore, listener: socket.socket, on_ready: Callable[[str], object], *, write_access: WriteAccess | None = None
) -> None:
    """Serves until stopped.

    on_ready: gets the address to open, with a token if others than this machine can reach it.
    write_access: in whose name pages may write; None: they only read.
    """
    import uvicorn

    host, port = listener.getsockname()[:2]
    is_local = host in (*LOOPBACK_NAMES, "::1")
    token = None if is_local else secrets.token_urlsafe(24)
    app = create_app(viewed, token=token, write_access=write_access)
    name = socket.getfqdn() if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
    on_ready(f"http://{name}:{port}/" + (f"?token={token}" if token else ""))
    config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=2)
    with suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listener])

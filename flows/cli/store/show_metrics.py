"""`headrace metrics`: metrics of stores for Prometheus."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows import validation
from flows.cli.shared import Debug
from flows.cli.terminal import handle_errors, print_text
from storage.errors import BadInput

Stores = Annotated[
    list[Path] | None, typer.Argument(metavar="[STORE]...", help="Stores (default: the newest under runs/).", show_default=False)
]
Port = Annotated[
    int | None,
    typer.Option("--port", metavar="N", min=1, max=65_535, help="Serve them at this port until Ctrl-C."),
]
Host = Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Address to serve at; by default this machine alone.")]


def metrics(stores: Stores = None, port: Port = None, host: Host = "127.0.0.1", debug: Debug = False) -> None:
    """Print metrics of stores in Prometheus' format, or serve them: rows, verdicts, conversations, draws, tokens, dollars, work, failures.

    They are what the stores have committed and what works on them at that moment, so killed and short runs are counted as well.

    Examples:

      headrace metrics runs/sample/store

      headrace metrics runs/nightly/store --port 9108
    """
    with handle_errors(debug):
        from flows.runtime.watched.store_metrics import as_text, registry

        roots = [validation.open_store(None, store).root for store in stores] if stores else [validation.open_store(None, None).root]
        if port is None:
            typer.echo(as_text(roots), nl=False)
            return
        from prometheus_client import start_http_server

        try:
            server, thread = start_http_server(port, addr=host, registry=registry(roots))
        except OSError as error:
            raise BadInput(f"--port {port} at {host} cannot be served: {error.strerror or error}; name another") from None
        print_text(f"metrics of {', '.join(map(str, roots))} at http://{host}:{port}/metrics, until Ctrl-C")
        try:
            thread.join()
        finally:
            server.shutdown()

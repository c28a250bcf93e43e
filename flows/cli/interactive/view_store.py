"""`headrace view`: a local web page over a store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows import validation
from flows.cli.shared import Debug
from flows.cli.terminal import handle_errors, out, print_text
from storage.errors import BadInput
from storage.report import VIEWER_PORT

Folder = Annotated[Path | None, typer.Argument(metavar="STORE", show_default=False, help="Default: the newest under runs/.")]
Host = Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Any but loopback needs the token that is printed; there is no TLS.")]
Port = Annotated[int, typer.Option("--port", metavar="N", min=0, max=65535, help="0: any free port.")]
Browser = Annotated[bool, typer.Option("--browser/--no-browser", help="Whether to open the page in a browser.")]

Write = Annotated[bool, typer.Option("--write", help="Lets pages keep, drop, relabel and comment on items; without it they only read.")]
Author = Annotated[
    str | None, typer.Option("--author", metavar="NAME", show_default=False, help="With --write: who says it. Default: the system's user.")
]


def view(
    store: Folder = None,
    host: Host = "127.0.0.1",
    port: Port = VIEWER_PORT,
    browser: Browser = True,
    write: Write = False,
    author: Author = None,
    debug: Debug = False,
) -> None:
    """Look at a store in the browser: its figures, raw requests, conversations, and anything by its id. It only reads, without --write.

    Pages show what is committed, also while a run works on the store. Addresses can be shared. Ctrl-C ends it.

    With --write, verdicts by hand count from the next run: a dropped request makes no task, a dropped conversation is in no later release.

    Examples:

      headrace view runs/sample/store

      headrace view --port 0 --no-browser

      headrace view runs/sample/store --write --author "Ada L."
    """
    with handle_errors(debug):
        import webbrowser

        from flows.viewer.by_hand.write_access import allow_writes
        from flows.viewer.view_server import open_listener, serve
        from flows.viewer.viewed_store import ViewedStore

        if author is not None and not write:
            raise BadInput("--author names who writes; give --write too")
        access = allow_writes(author) if write else None
        viewed = ViewedStore(validation.open_store(None, store).root)

        def announce(address: str) -> None:
            print_text(f"{viewed.root} is shown at {address}")
            if access is not None:
                print_text(f"pages may write, as {access.author}")
            print_text("Ctrl-C ends it", style="dim")
            out.file.flush()
            if browser:
                webbrowser.open(address)

        serve(viewed, open_listener(host, port), announce, write_access=access)

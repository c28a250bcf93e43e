"""Where the flow runs of a store are recorded: the databases of Prefect servers, of which each folder may have its own.

One idea: a store keeps the list, `STORE/.headrace/recorded_in`, one line a server: the folder of a project's own server, or the address
of the server of PREFECT_API_URL. It is a help for the user, not data of the store.
"""

from __future__ import annotations

import os
import shlex
import sys
import webbrowser
from collections.abc import Iterable
from pathlib import Path

from storage.outside.known_secrets import mask_logins


def notes_folder(store: Path) -> Path:
    """The folder of a store for files of the flows that are not data."""
    return store.absolute() / ".headrace"


def add_record(store: Path, server: str) -> None:
    """Note that runs of the store are recorded by a server. server: folder of its `.prefect`, or API URL."""
    server = mask_logins(server)
    if server not in read_records(store):
        with (notes_folder(store) / "recorded_in").open("a", encoding="utf-8") as lines:
            lines.write(f"{server}\n")


def read_records(store: Path) -> list[str]:
    """Folders and URLs of all servers that recorded runs of the store, oldest first."""
    try:
        return (notes_folder(store) / "recorded_in").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


def describe_others(stores: Iterable[Path], server: str) -> list[str]:
    """A sentence for each other server that recorded runs of these stores, and how to see them."""
    sentences = []
    for store in stores:
        for other in read_records(store):
            if other == mask_logins(server):
                continue
            place = Path(other).parent
            how = f"`cd {shlex.quote(str(place))} && headrace up` shows them" if other.startswith("/") else "that server shows them"
            is_gone = other.startswith("/") and not Path(other).is_dir()
            sentences.append(f"other runs of {store} are recorded in {other}{'; that folder is gone' if is_gone else f': {how}'}")
    return sentences


def page_of(url: str, run_id: str) -> str:
    """Address of a flow run's page in the UI of the server at this API URL."""
    return f"{mask_logins(url).removesuffix('/api')}/runs/flow-run/{run_id}"


def open_page(page: str) -> None:
    """Open a page in the user's browser, if this machine has a display."""
    if sys.platform in ("darwin", "win32") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(page)

"""Runs a flow for the `headrace` command: finds a server, marks a killed earlier run as crashed, shows the outcome.

One idea: the store's files are the truth about a killed run (existing parts are not made again); Prefect only records it.
While a flow works on a store, it holds the store's lock (`store_lock.py`) and writes its run id to a file beside the lock. If that file
exists while the lock was free, the run is dead, and the next call marks it CRASHED.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from flows.runtime.deployed.dead_runs import end_run
from flows.runtime.interrupts import as_keyboard_interrupt, note_interrupts
from flows.runtime.notes.run_records import add_record, describe_others, notes_folder, open_page, page_of
from flows.runtime.progress import show_on_console
from flows.runtime.server import client_environment, home, is_healthy, named_server, own_server
from flows.runtime.store_lock import hold_store
from flows.runtime.time_left import Planned
from flows.runtime.watched.traces import flush_traces, start_traces
from storage.errors import BadInput, HeadraceError

if TYPE_CHECKING:
    from rich.console import Console

    from flows.config import Config

CRASHED_MESSAGE = "the process was killed; a later run of the command continued its work"


@contextlib.contextmanager
def use_server(console: Console, folder: Path) -> Iterator[str]:
    """Yield the API URL of the server to use, and set the environment for it.

    The server is the one in PREFECT_API_URL, else the project's own server in `folder`.
    """
    if url := named_server():
        own_home = os.environ.get("PREFECT_HOME", str(folder))
        os.environ.update({**client_environment(folder, url), "PREFECT_HOME": own_home})
        try:
            yield url
        finally:
            flush_to_server()
        return
    with contextlib.ExitStack() as stack:
        stack.enter_context(_restore_environment(("PREFECT_API_URL", "PREFECT_HOME")))
        with console.status("starting Prefect's server"):
            url = stack.enter_context(own_server(folder))
        os.environ.update(client_environment(folder, url))
        try:
            yield url
        finally:
            flush_to_server()


@contextlib.contextmanager
def _restore_environment(names: tuple[str, ...]) -> Iterator[None]:
    """Restore these environment variables at the end of the context."""
    before = {name: os.environ.get(name) for name in names}
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def run_flow(
    name: str,
    config: Config,
    console: Console,
    *,
    show: Callable[[Any, str], None],
    opening: Sequence[str] = (),
    plan: Sequence[Planned] = (),
    keep_ui: bool = False,
    **parameters: Any,
) -> Any:
    """Run the flow `name` on `config` in this process, show its progress, and return its result.

    Args:
        name: `module:function`.
        show: called after the flow, with its result and the place where Prefect recorded the run: its page on the server of
            PREFECT_API_URL, else the folder of the project's own server, which ends with this call.
        opening: lines to print when the flow begins.
        plan: its steps, to say after each how long the later ones will take.
        keep_ui: print the run's page at the start and open it in a browser; keep the server open after the flow, until Ctrl-C.
        parameters: further arguments of the flow.

    Raises:
        BadInput: the server of PREFECT_API_URL does not answer, or `.prefect` is not a folder; nothing is written.
        HeadraceError: another process works on the store, or the server stopped answering for longer than Prefect tries again.
        KeyboardInterrupt: Ctrl-C, also if a library turned it into another error.
        Exception: any exception of the flow.
    """
    folder, external_url = home(), named_server()
    if external_url and not is_healthy(external_url, timeout_s=10.0):
        raise BadInput(f"PREFECT_API_URL is {external_url}, but no Prefect server answers there; start it, or unset the variable")
    module, function = name.split(":")
    with note_interrupts(), as_keyboard_interrupt(), contextlib.ExitStack() as server_stack:
        with contextlib.ExitStack() as stack:
            stack.enter_context(hold_store(function, config.store))
            url = server_stack.enter_context(use_server(console, folder))
            if os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL") == "CRITICAL":
                os.environ.setdefault("PREFECT_LOGGING_INTERNAL_LEVEL", "CRITICAL")
                logging.raiseExceptions = False  # else a server that is gone costs two lines for each batch of log lines
            start_traces()
            flow = getattr(importlib.import_module(f"flows.{module}"), function)
            run_file = notes_folder(config.store) / "run.json"
            _mark_crashed(run_file)

            server = external_url or str(folder)
            add_record(config.store, server)

            def write_run_id(_flow: Any, run: Any, _state: Any) -> None:
                run_file.write_text(json.dumps({"flow_run_id": str(run.id)}))
                if keep_ui:
                    _show_page(console, page_of(url, str(run.id)), config.store, server)

            for line in opening:
                console.print(line, style="dim", markup=False, soft_wrap=True)
            try:
                with show_on_console(console, plan), _named_loss(url):
                    result = flow.with_options(on_running=[*flow.on_running_hooks, write_run_id])(config, **parameters)
            finally:
                run_id = json.loads(run_file.read_text())["flow_run_id"] if run_file.exists() else ""
                link = page_of(url, run_id) if run_id else ""
                run_file.unlink(missing_ok=True)
            show(result, link if external_url else f"recorded in {folder}; `headrace up` in {folder.parent} shows it")
        if keep_ui:
            _keep_open(console, link, is_own=external_url is None)
    return result


@contextlib.contextmanager
def _named_loss(url: str) -> Iterator[None]:
    """Name the server in place of an error of the connection to it; those of engines have names of their own."""
    from httpx import TransportError

    try:
        yield
    except TransportError as error:
        raise HeadraceError(
            f"Prefect's server at {url} does not answer any more ({type(error).__name__}: {error}); "
            "what was committed is kept, and the same command goes on from there once it answers"
        ) from error


def _show_page(console: Console, page: str, store: Path, server: str) -> None:
    """Print the address of a run's page, and where other runs of the store are; open the page if there is a display."""
    console.print(f"Prefect's UI shows this run: [bold]{page}[/bold]", soft_wrap=True)
    for sentence in describe_others([store], server):
        console.print(sentence, soft_wrap=True, markup=False)
    open_page(page)


def _keep_open(console: Console, link: str, *, is_own: bool) -> None:
    flush_to_server()
    if not is_own:
        console.print(f"\nPrefect's UI, on the server of PREFECT_API_URL: [bold]{link}[/bold]", soft_wrap=True)
        return
    console.print(f"\nPrefect's UI is open at [bold]{link}[/bold]; press Ctrl-C to stop its server.", soft_wrap=True)
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            time.sleep(3600)


def flush_to_server() -> None:
    """Send the log lines and events that Prefect's background threads still hold. Call it while the server still runs."""
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    for worker in (APILogWorker, EventsWorker):
        worker.drain_all(timeout=5)
    flush_traces()


def _mark_crashed(run_file: Path) -> None:
    """Mark the flow run in `run_file`, its tasks and its child runs as crashed on the server, if they have not ended."""
    try:
        run_id = UUID(json.loads(run_file.read_text())["flow_run_id"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # damaged: it says nothing of a run
        run_file.unlink(missing_ok=True)
        return
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound
    from prefect.states import Crashed

    with contextlib.suppress(ObjectNotFound), get_client(sync_client=True) as client:
        end_run(client, run_id, Crashed(message=CRASHED_MESSAGE))
    run_file.unlink(missing_ok=True)

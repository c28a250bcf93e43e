"""One call of a flow by the `headrace` command: a server to record it, its dead predecessor, its outcome.

One idea: the store's own files say what a killed run left (parts that are there are not made again); Prefect is only told about it.
While a flow works on a store it holds the store's lock (`store_lock.py`) and notes its run's id beside it, so the next call knows that a
run whose note is there while the lock was free is dead, and marks it CRASHED before it starts.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from flows.runtime.progress import on_console
from flows.runtime.server import client_environment, home, is_healthy, named_server, own_server
from flows.runtime.store_lock import holding, notes_of
from storage.errors import BadInput

if TYPE_CHECKING:
    from rich.console import Console

    from flows.config import Config

CRASHED_MESSAGE = "the process was killed; a later call of the same command took over"


@contextlib.contextmanager
def server(console: Console, folder: Path) -> Iterator[str]:
    """The API URL of the server to use: the one that PREFECT_API_URL names, else the project's own in `folder`.

    The environment is set for it.
    """
    if url := named_server():
        own_home = os.environ.get("PREFECT_HOME", str(folder))
        os.environ.update({**client_environment(folder, url), "PREFECT_HOME": own_home})
        yield url
        send_what_is_left()
        return
    with contextlib.ExitStack() as stack:
        stack.enter_context(_without(("PREFECT_API_URL", "PREFECT_HOME")))
        with console.status("starting Prefect's server"):
            url = stack.enter_context(own_server(folder))
        os.environ.update(client_environment(folder, url))
        try:
            yield url
        finally:
            send_what_is_left()


@contextlib.contextmanager
def _without(names: tuple[str, ...]) -> Iterator[None]:
    """Put these environment variables back as they are now, afterwards."""
    before = {name: os.environ.get(name) for name in names}
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def run_flow(name: str, config: Config, console: Console, *, show: Callable[[str], None], keep_ui: bool = False, **parameters: Any) -> Any:
    """Run the flow `flows.NAME` on `config` in this process, showing progress, wait for it, and return what it returned.

    name: `module:function`. show: called once it is done, with the link of the run's page on the server that PREFECT_API_URL names, or
    "" where none is named: our own ends with this call. keep_ui: keep that one open afterwards, until Ctrl-C.
    Raises what the flow raised; BadInput where PREFECT_API_URL names a server that does not answer, or `.prefect` is no folder, before
    anything is written; HeadraceError where another process works on the store.
    """
    folder, named = home(), named_server()
    if named and not is_healthy(named, timeout_s=10.0):
        raise BadInput(f"PREFECT_API_URL is {named}, but no Prefect server answers there; start it, or unset the variable")
    module, function = name.split(":")
    with contextlib.ExitStack() as served:
        with contextlib.ExitStack() as stack:
            stack.enter_context(holding(function, config.store))
            url = served.enter_context(server(console, folder))
            os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
            flow = getattr(importlib.import_module(f"flows.{module}"), function)
            note = notes_of(config.store) / "run.json"
            _mark_crashed(note)

            def began(_flow: Any, run: Any, _state: Any) -> None:
                note.write_text(json.dumps({"flow_run_id": str(run.id)}))

            try:
                with on_console(console):
                    returned = flow.with_options(on_running=[*flow.on_running_hooks, began])(config, **parameters)
            finally:
                link = f"{url.removesuffix('/api')}/runs/flow-run/{json.loads(note.read_text())['flow_run_id']}" if note.exists() else ""
                note.unlink(missing_ok=True)
            show(link if named else "")
        if keep_ui:
            _stay_open(console, link, own=named is None)
    return returned


def _stay_open(console: Console, link: str, *, own: bool) -> None:
    send_what_is_left()
    if not own:
        console.print(f"\nPrefect's UI, on the server that PREFECT_API_URL names: [bold]{link}[/bold]", soft_wrap=True)
        return
    console.print(f"\nPrefect's UI is open at [bold]{link}[/bold]; press Ctrl-C to stop its server.", soft_wrap=True)
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            time.sleep(3600)


def send_what_is_left() -> None:
    """Send the log lines and events that Prefect's background threads still hold, while there is a server to take them."""
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    for worker in (APILogWorker, EventsWorker):
        worker.drain_all(timeout=5)


def _mark_crashed(note: Path) -> None:
    """Tell the server that the run in `note` and everything it had running is dead."""
    try:
        dead = UUID(json.loads(note.read_text())["flow_run_id"])
    except (OSError, ValueError, KeyError):
        return
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterParentFlowRunId, TaskRunFilter, TaskRunFilterFlowRunId
    from prefect.exceptions import ObjectNotFound
    from prefect.states import Crashed

    with contextlib.suppress(ObjectNotFound), get_client(sync_client=True) as client:
        waiting = [client.read_flow_run(dead)]
        while waiting:
            run = waiting.pop()
            for child in client.read_task_runs(task_run_filter=TaskRunFilter(flow_run_id=TaskRunFilterFlowRunId(any_=[run.id]))):
                if child.state is None or not child.state.is_final():
                    client.set_task_run_state(child.id, Crashed(message=CRASHED_MESSAGE), force=True)
            waiting += client.read_flow_runs(flow_run_filter=FlowRunFilter(parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=[run.id])))
            if run.state is None or not run.state.is_final():
                client.set_flow_run_state(run.id, Crashed(message=CRASHED_MESSAGE), force=True)
    note.unlink(missing_ok=True)

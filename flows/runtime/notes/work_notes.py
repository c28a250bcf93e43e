"""What works on a store now, and which flow runs worked on it: two files beside the store's lock, for people who look at the store.

`working.json` has the flows at work, innermost last, and the last step reports; `runs.jsonl` has a line when a run begins and one when it
ends. Both are a help for the user, not data of the store: without them, nothing is lost.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flows.runtime.locks import is_held
from flows.runtime.notes.run_records import page_of
from flows.runtime.progress import watch_progress
from flows.runtime.server import home, named_server
from storage.files import replace_atomically
from storage.outside.known_secrets import shown

WRITE_EVERY_S = 0.5
MOST_STEPS = 12
"""Steps that are kept in `working.json`, the last ones."""
_MOST_BYTES = 1_000_000
"""Of `runs.jsonl` that are read, from its end."""


@dataclass(frozen=True)
class WorkStep:
    """A step of a flow at work. total: 0 if unknown. note: a current figure, such as a loss."""

    label: str
    done: int
    total: int
    note: str


@dataclass(frozen=True)
class Work:
    """What works on a store. flows: innermost last. page: of the outermost run, in Prefect's UI; empty without one."""

    flows: tuple[str, ...]
    page: str
    started: str
    steps: tuple[WorkStep, ...]


@dataclass(frozen=True)
class PastRun:
    """A flow run on a store.

    page: in Prefect's UI. server: folder of the project's own server, or API URL of another.
    started, ended: ISO times in UTC; ended is empty while it runs, and of a run that was killed.
    outcome: "completed", "failed: why", or empty.
    """

    flow: str
    name: str
    page: str
    server: str
    started: str
    ended: str = ""
    outcome: str = ""


@dataclass
class _Noted:
    """The flows of this process that work on one store."""

    folder: Path
    flows: list[str] = field(default_factory=list)
    page: str = ""
    started: str = ""
    steps: dict[str, WorkStep] = field(default_factory=dict)
    written: float = 0.0

    def report(self, label: str, done: int, total: int, note: str = "", /) -> None:
        with _mutex:
            self.steps.pop(label, None)
            self.steps[label] = WorkStep(label, done, total, note)
            while len(self.steps) > MOST_STEPS:
                del self.steps[next(iter(self.steps))]
            if time.monotonic() - self.written >= WRITE_EVERY_S or 0 < total <= done:
                self.write()

    def write(self) -> None:
        """Call with the mutex held. A disk that is full does not stop the work."""
        self.written = time.monotonic()
        text = json.dumps(
            {
                "flows": self.flows,
                "page": self.page,
                "started": self.started,
                "steps": [[step.label, step.done, step.total, step.note] for step in self.steps.values()],
            }
        )
        with contextlib.suppress(OSError):
            replace_atomically(self.folder / "working.json", lambda draft: draft.write_text(text))


_mutex = threading.Lock()
_noted: dict[Path, _Noted] = {}


@contextlib.contextmanager
def note_work(flow: str, folder: Path) -> Iterator[None]:
    """Notes that a flow works on the store of this notes folder, its progress, and how it ends. Flows inside a flow add their names."""
    run = _current_run()
    line = {"flow": flow, "run": run["id"], "name": run["name"], "page": run["page"], "server": named_server() or str(home())}
    with _mutex:
        is_outermost = folder not in _noted
        noted = _noted.setdefault(folder, _Noted(folder))
        noted.flows.append(flow)
        if is_outermost:
            noted.page, noted.started = run["page"], _now()
        noted.write()
    _append(folder, line | {"started": _now()})
    outcome = "completed"
    try:
        with watch_progress(noted.report) if is_outermost else contextlib.nullcontext():
            yield
    except BaseException as error:
        outcome = f"failed: {_first_line(error)}"
        raise
    finally:
        _append(folder, {"run": run["id"], "flow": flow, "ended": _now(), "outcome": outcome})
        with _mutex:
            noted.flows.pop()
            if is_outermost:
                del _noted[folder]
                (folder / "working.json").unlink(missing_ok=True)
            else:
                noted.write()


def read_work(folder: Path) -> Work | None:
    """What works on the store of this notes folder now; None if nothing does."""
    try:
        if not is_held(folder / "flow.lock"):
            return None
        found = json.loads((folder / "working.json").read_text())
        return Work(tuple(found["flows"]), found["page"], found["started"], tuple(WorkStep(*step) for step in found["steps"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def read_runs(folder: Path, most: int) -> list[PastRun]:
    """The last flow runs on the store of this notes folder, the latest first."""
    try:
        with (folder / "runs.jsonl").open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _MOST_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return []
    runs: dict[tuple[str, str], dict[str, str]] = {}
    for line in lines:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            found = json.loads(line)
            key = (found["run"], found["flow"])
            if "started" in found:
                runs.pop(key, None)
                runs[key] = {name: str(found[name]) for name in ("flow", "name", "page", "server", "started")}
            elif key in runs:
                runs[key] |= {"ended": str(found["ended"]), "outcome": str(found["outcome"])}
    return [PastRun(**run) for run in reversed(runs.values())][:most]


def _current_run() -> Mapping[str, str]:
    """Id, name and page of the flow run at work; of work without one, a new id."""
    from prefect.context import FlowRunContext

    context = FlowRunContext.get()
    run = context.flow_run if context else None
    if run is None:
        return {"id": f"{os.getpid()}-{time.time_ns()}", "name": "", "page": ""}
    url = os.environ.get("PREFECT_API_URL", "")
    return {"id": str(run.id), "name": run.name or "", "page": page_of(url, str(run.id)) if url else ""}


def _append(folder: Path, line: Mapping[str, Any]) -> None:
    with contextlib.suppress(OSError), (folder / "runs.jsonl").open("a", encoding="utf-8") as file:
        file.write(shown(json.dumps(line)) + "\n")


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]

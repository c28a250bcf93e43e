"""Interface of all backends, and `run_stage`, which runs a stage with any of them.

One idea: a backend gets a stage's spec and folder and starts its training somewhere: our own trainer runs as `python -P -m train.run SPEC`;
verl and ROLL run their own programs. The folder is the contract: while the stage runs, the backend copies log.txt and metrics.jsonl into
it; when the stage is done, the model folder and result.json. The cascade does not know which backend it uses.
A backend holds no state. `launch` finds a stage that a killed launcher started, so nothing is trained twice.

What it does not do: list the backends (`train/backends/named.py`).
"""

from __future__ import annotations

import json
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from storage.errors import HeadraceError
from storage.files import file_lock, replace_atomically
from train.backends.cluster import ClusterConfig, resources_of
from train.spec import CHECKPOINTS, METRICS, StageSpec

RESULT, FAILURE, LOG, TAGS = "result.json", "failure.json", "log.txt", "tags.jsonl"
_LONGEST_WAIT_S = 86_400.0
_MEMORY = ("out of memory", "outofmemory", "cannot allocate memory", "bad_alloc", "memory pressure")
"""Texts in a log that mean out of memory."""

FailureKind = Literal["start", "resources", "memory", "lost", "version", "killed", "stopped", "stage"]
"""Why a stage failed. killed: by signal 9, and nothing says for what; stopped: by another signal, or by its cluster on request."""
StepProgress = Callable[[int, int, str], None]
"""Called with the finished steps, the maximum of steps, and the latest metric ("loss 0.41")."""


class StageFailed(HeadraceError):
    """A stage ended without a result. kind: the cause; `stage` if only the log can explain it."""

    def __init__(self, message: str, kind: FailureKind = "stage") -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True)
class Need:
    """A requirement of a stage.

    name: short name, for a table.
    requirement: as a sentence.
    check: raises HeadraceError if the requirement is not met; its argument is the time-out in seconds (None: that of the configuration).
        None if only the start of the stage can tell.
    """

    name: str
    requirement: str
    check: Callable[[float | None], None] | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Handle:
    """A running stage. name: the backend's id for it."""

    spec: StageSpec
    folder: Path
    name: str


HandleT = TypeVar("HandleT", bound=Handle)


class Backend(ABC, Generic[HandleT]):
    """Runs stages. cluster: the section `train.cluster`; a backend may ignore it."""

    def __init__(self, cluster: ClusterConfig | None = None) -> None:
        self.cluster = cluster or ClusterConfig()

    @abstractmethod
    def launch(self, spec: StageSpec, folder: Path) -> HandleT | None:
        """Starts a stage, or finds it if it runs already. None: the result is in the folder.

        Raises:
            BadInput: the backend does not accept the stage. HeadraceError: the backend cannot be reached.
        """

    @abstractmethod
    def follow(self, handle: HandleT, progress: StepProgress = lambda *_: None) -> None:
        """Waits until the stage has ended and its result is in the folder; meanwhile copies log and metrics there.

        Raises:
            StageFailed: the stage ended without a result. HeadraceError: the backend lost it, or cannot be reached.
        """

    @abstractmethod
    def cancel(self, handle: HandleT) -> None:
        """Ends the stage if it still runs."""

    @abstractmethod
    def needs(self, spec: StageSpec) -> Sequence[Need]:
        """Requirements of this stage, for `doctor`, dry runs and flows."""

    def processes(self, spec: StageSpec) -> int:
        """Number of processes that share a batch of this stage."""
        return 1

    def gpus(self, spec: StageSpec) -> int:
        """Number of GPUs that this stage uses."""
        return 0

    def is_sharded(self, spec: StageSpec) -> bool:
        """Whether each process of this stage holds a part of the weights."""
        return False

    def render(self, spec: StageSpec, folder: Path) -> Mapping[str, str]:
        """File name -> text of what the backend would send to another system, for a dry run; empty if there is none."""
        return {}


class ClusterBackend(Backend[HandleT]):
    """A backend whose stages run on the nodes and GPUs of the section `train.cluster`."""

    def processes(self, spec: StageSpec) -> int:
        """One per GPU."""
        return max(1, self.gpus(spec))

    def gpus(self, spec: StageSpec) -> int:
        resources = resources_of(self.cluster, spec)
        return resources.nodes * resources.gpus_per_node

    def is_sharded(self, spec: StageSpec) -> bool:
        return resources_of(self.cluster, spec).sharding == "fsdp"


@contextmanager
def cancel_on_exit(backend: Backend[HandleT], handle: HandleT) -> Iterator[None]:
    """Cancels the stage if this process is asked to end (Ctrl-C, SystemExit); an error does not cancel it."""
    try:
        yield
    except Exception:
        raise
    except BaseException:
        backend.cancel(handle)
        raise


def run_stage(backend: Backend[Any], spec: StageSpec, folder: Path, progress: StepProgress = lambda *_: None) -> dict[str, Any]:
    """Runs a stage to its end and returns its result.json; a stage with a result is not run again.

    If two callers run the same stage, the second waits for the first. Ctrl-C and other exits of this process cancel the stage; an error of
    the backend does not.

    Raises:
        StageFailed, BadInput, HeadraceError: see `Backend`. HeadraceError: another process has been training the stage for a day.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with file_lock(folder.with_name(f".{folder.name}.lock"), wait_s=_LONGEST_WAIT_S):
        if not _has_result(folder):
            (folder / RESULT).unlink(missing_ok=True)
        handle = None if (folder / RESULT).exists() else backend.launch(spec, folder)
        if handle is not None:
            with cancel_on_exit(backend, handle):
                backend.follow(handle, progress)
        (folder / FAILURE).unlink(missing_ok=True)
        shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
    result: dict[str, Any] = json.loads((folder / RESULT).read_text())
    return result


def _has_result(folder: Path) -> bool:
    """Whether the stage has a result that can be read."""
    try:
        return isinstance(json.loads((folder / RESULT).read_bytes()), dict)
    except (OSError, ValueError):
        return False


class Steps:
    """Progress of a stage, read from its metrics file."""

    def __init__(self, handle: Handle) -> None:
        spec = handle.spec
        self._metrics, self._most, self._figure = handle.folder / METRICS, spec.settings.max_steps, "loss" if spec.sft else "reward"

    def now(self) -> tuple[int, int, str]:
        """Arguments of a `StepProgress`; before the first step, 0 and no metric."""
        try:
            rows = self._metrics.read_bytes().split(b"\n")[:-1]
        except FileNotFoundError:
            rows = []
        return len(rows), self._most, f"{self._figure} {json.loads(rows[-1])[self._figure]:.3g}" if rows else ""


def summary(metrics: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Number of steps, and each metric's mean over those of the last tenth of them that have it, except times."""
    tail = metrics[-max(1, len(metrics) // 10) :]
    names = sorted(name for name in {name for row in tail for name in row} - {"step"} if not name.endswith("_s"))
    values = {name: [row[name] for row in tail if name in row] for name in names}
    return {"steps": float(len(metrics))} | {name: sum(found) / len(found) for name, found in values.items()}


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Writes a JSONL file of a stage, whole or not at all."""
    text = "".join(json.dumps(row) + "\n" for row in rows)
    replace_atomically(path, lambda draft: draft.write_text(text) and None)


def is_out_of_memory(log: str) -> bool:
    """Whether a stage's log says that it ran out of memory."""
    return any(words in log.casefold() for words in _MEMORY)

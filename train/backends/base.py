"""What runs a training stage: the interface of all backends, and the one way to run a stage by any of them.

One idea: a backend is told a stage's spec and folder, and starts `python -P -m train.run SPEC` somewhere. The folder is the contract: the
backend brings log.txt and metrics.jsonl into it while the stage runs, and the model folder and result.json when it is done. The cascade
never asks which backend it has.
A backend keeps no state of its own. `launch` finds a stage that a killed launcher has left running, so nothing is trained twice.

What it does not do: name the backends (`train/backends/named.py`). verl and ROLL train with programs of their own; today they only offer
what `render` does here (`train/backends/render_stage.py`), and become backends once `launch` and `follow` are written for them.
"""

from __future__ import annotations

import json
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from storage.errors import HeadraceError
from storage.files import file_lock
from train.backends.cluster import ClusterConfig
from train.spec import CHECKPOINTS, METRICS, StageSpec

RESULT, FAILURE, LOG = "result.json", "failure.json", "log.txt"
_LONGEST_WAIT_S = 86_400.0
_MEMORY = ("out of memory", "outofmemory", "cannot allocate memory", "bad_alloc", "memory pressure", "signal 9 (sigkill)")
"""The last is how `accelerate launch` tells of a process of its own that was killed."""

FailureKind = Literal["start", "resources", "memory", "lost", "version", "stopped", "stage"]
StepProgress = Callable[[int, int, str], None]
"""Called with the number of steps that are done, the most that there can be, and the latest figure ("loss 0.41")."""


class StageFailed(HeadraceError):
    """A stage has ended without a result. kind: in which way; `stage` for all that only its log can explain."""

    def __init__(self, message: str, kind: FailureKind = "stage") -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True)
class Need:
    """One thing that must be there before a stage can run.

    name: for a table. wanted: a sentence for people. check: raises HeadraceError where it is missing, after so many seconds of asking
    (None: as many as the configuration allows); None: only the backend itself finds out, when the stage starts.
    """

    name: str
    wanted: str
    check: Callable[[float | None], None] | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Handle:
    """A stage that runs. name: by which the backend finds it."""

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
        """Starts a stage, or finds it where it runs already. None: its result is in the folder.

        Raises:
            BadInput: the backend does not take such a stage. HeadraceError: the backend cannot be reached.
        """

    @abstractmethod
    def follow(self, handle: HandleT, progress: StepProgress = lambda *_: None) -> None:
        """Waits until the stage has ended and its result is in the folder. Log and metrics are brought there meanwhile.

        Raises:
            StageFailed: the stage ended without a result. HeadraceError: the backend lost it, or cannot be reached.
        """

    @abstractmethod
    def cancel(self, handle: HandleT) -> None:
        """Ends the stage; nothing happens where it has ended."""

    @abstractmethod
    def needs(self, spec: StageSpec) -> Sequence[Need]:
        """What must be there for this stage. `doctor`, dry runs and the flows read it."""

    def processes(self, spec: StageSpec) -> int:
        """Number of processes that share a batch of this stage."""
        return 1

    def render(self, spec: StageSpec, folder: Path) -> Mapping[str, str]:
        """Name -> text of the files that the backend would hand to another system, for a dry run; none where there is no such system."""
        return {}


def run_stage(backend: Backend[Any], spec: StageSpec, folder: Path, progress: StepProgress = lambda *_: None) -> dict[str, Any]:
    """Runs a stage to its end and returns its result.json; a stage whose result is there is not run again.

    Two callers that want the same stage get one training: the second waits for the first. Ctrl-C, and every other request to end that
    this process can still act on, cancels the stage; an error of the backend's does not.

    Raises:
        StageFailed, BadInput, HeadraceError: see `Backend`. HeadraceError: another process has trained the stage for a day.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with file_lock(folder.with_name(f".{folder.name}.lock"), wait_s=_LONGEST_WAIT_S):
        handle = None if (folder / RESULT).exists() else backend.launch(spec, folder)
        if handle is not None:
            try:
                backend.follow(handle, progress)
            except Exception:
                raise
            except BaseException:
                backend.cancel(handle)
                raise
        (folder / FAILURE).unlink(missing_ok=True)
        shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
    result: dict[str, Any] = json.loads((folder / RESULT).read_text())
    return result


class Steps:
    """How far a stage is, by the file of its metrics."""

    def __init__(self, metrics: Path, spec: StageSpec) -> None:
        settings = spec.sft or spec.rl
        assert settings is not None
        self._metrics, self._most, self._figure = metrics, settings.max_steps, "loss" if spec.sft else "reward"

    @classmethod
    def of(cls, handle: Handle) -> Steps:
        return cls(handle.folder / METRICS, handle.spec)

    def now(self) -> tuple[int, int, str]:
        """Arguments of a `StepProgress`; 0 steps and no figure before the first."""
        try:
            rows = self._metrics.read_bytes().split(b"\n")[:-1]
        except FileNotFoundError:
            rows = []
        return len(rows), self._most, f"{self._figure} {json.loads(rows[-1])[self._figure]:.3g}" if rows else ""


def tells_of_memory(log: str) -> bool:
    """Whether a stage ended because memory ran out, by what it has printed."""
    return any(words in log.casefold() for words in _MEMORY)

"""Copies a stage's inputs and outputs through a URL, for clusters whose nodes do not see the store's folder.

One idea: the files under the URL have the layout of the store, so a stage runs in the copy with relative paths, as in the store. The flow
sends the catalogue, the parts of the tables that a stage reads, the spec and the input policy (parts and policies only once). The job
(`python -P -m train.backends.remote_sync URL FOLDER COMMAND`) copies them to its disk, runs the command there, and sends the outputs:
metrics and complete checkpoints while it runs; the model and, last, `result.json` when it is done.

What it does not do: start jobs (`train/backends/ray_jobs.py`, `train/backends/job_backend.py`), or remove inputs under the URL.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from storage.errors import BadInput, HeadraceError
from storage.files import replace_atomically
from storage.object_store.url_files import UrlFiles
from storage.store import Store
from train.child_process import dying_with_parent
from train.spec import CHECKPOINTS, METRICS, StageSpec

_READ = ("trajectories", "rollouts")
"""Tables of the lake that a stage reads; only these are sent."""
_CATALOGUE = "catalog.read.duckdb"
_WHOLE = "stage.json"
"""File that marks a complete checkpoint; sent last."""
_RESULT = "result.json"
_LOOK_S, _SEEN_AGAIN_S = 5.0, 0.5
RANK = "HEADRACE_NODE_RANK"
"""Environment variable with the number of the node; only node 0 sends files."""


def inside(root: Path, path: Path | None) -> Path | None:
    """The path relative to the store; a path outside the store, which the nodes must have, is returned unchanged."""
    return path.relative_to(root) if path is not None and path.is_relative_to(root) else path


class RemoteStore:
    """The files under one URL. Names are relative to the URL, as paths are to the store.

    Raises:
        BadInput: the driver for this kind of URL is not installed.
    """

    def __init__(self, url: str) -> None:
        self._files = UrlFiles(url)

    def check(self) -> None:
        """Raises BadInput if the URL cannot be written."""
        self._files.check()

    def has(self, name: str) -> bool:
        return self._files.has(name)

    # ---- where the flow runs -------------------------------------------------------------------------------------------

    def send_inputs(self, spec: StageSpec, place: str, spec_file: Path) -> None:
        """Sends what the stage reads, with a copy of the catalogue from the start: parts that are committed meanwhile are not sent.

        place: folder of the stage. spec_file: the spec for the job.
        """
        store = Store(spec.store)
        with tempfile.TemporaryDirectory(prefix="headrace-sent-") as scratch:
            catalogue = Path(shutil.copyfile(store.root / _CATALOGUE, Path(scratch, _CATALOGUE)))
            for name in _parts(Store(scratch)):
                self._files.send_once(store.root / name, name)
            self._files.send(catalogue, f"{place}/input/{_CATALOGUE}")
        policy = inside(store.root, spec.model_in)
        if policy is not None and not policy.is_absolute() and not self.has(f"{policy}.whole"):
            self._files.send_folder(store.root / policy, str(policy))
            self._files.write(f"{policy}.whole", b"")
        self._files.send(spec_file, f"{place}/input/spec.json")

    def fetch_metrics(self, place: str, folder: Path) -> None:
        """Fetches the metrics so far, if any."""
        with suppress(FileNotFoundError):
            self._files.fetch_whole(f"{place}/{METRICS}", folder / METRICS)

    def fetch_result(self, place: str, folder: Path) -> None:
        """Fetches the outputs of a finished stage; `result.json` last."""
        draft = folder / ".model.new"
        shutil.rmtree(draft, ignore_errors=True)
        self._files.fetch_folder(f"{place}/model", draft)
        shutil.rmtree(folder / "model", ignore_errors=True)
        draft.rename(folder / "model")
        for name in (METRICS, "tags.jsonl", _RESULT):
            if self.has(f"{place}/{name}"):
                self._files.fetch_whole(f"{place}/{name}", folder / name)

    # ---- where the stage runs ------------------------------------------------------------------------------------------

    def fetch_inputs(self, place: str, root: Path) -> None:
        """Copies what the stage needs of the store to `root`."""
        self._files.fetch(f"{place}/input/{_CATALOGUE}", root / _CATALOGUE)
        self._files.fetch(f"{place}/input/spec.json", root / "spec.json")
        spec = StageSpec.model_validate_json((root / "spec.json").read_text())
        for name in _parts(Store(root)):
            self._files.fetch(name, root / name)
        if spec.model_in is not None and not spec.model_in.is_absolute():
            self._files.fetch_folder(str(spec.model_in), root / spec.model_in)
        for name in self._files.folders(f"{place}/{CHECKPOINTS}"):
            if self.has(f"{name}/{_WHOLE}"):
                self._files.fetch_folder(name, root / name)

    def send_progress(self, place: str, root: Path) -> None:
        """Sends the metrics so far and new complete checkpoints; removes checkpoints that no longer exist here."""
        if (root / place / METRICS).exists():
            self._files.send(root / place / METRICS, f"{place}/{METRICS}")
        with suppress(FileNotFoundError):  # a checkpoint that another one has just replaced
            here = {f"{place}/{CHECKPOINTS}/{path.parent.name}" for path in (root / place / CHECKPOINTS).glob(f"*/{_WHOLE}")}
            for name in sorted(here):
                if not self.has(f"{name}/{_WHOLE}"):
                    self._files.send_folder(root / name, name, last=_WHOLE)
            for name in set(self._files.folders(f"{place}/{CHECKPOINTS}")) - here if here else ():
                self._files.remove(name)

    def send_result(self, place: str, root: Path) -> None:
        """Sends the outputs of the stage; `result.json` last."""
        folder = root / place
        self._files.send_folder(folder / "model", f"{place}/model")
        self._files.write(f"{place}/model.whole", b"")
        for name in (METRICS, "tags.jsonl", _RESULT):
            if (folder / name).exists():
                self._files.send(folder / name, f"{place}/{name}")
        self._files.remove(f"{place}/{CHECKPOINTS}")


class StageFiles:
    """A stage's folder as launcher and nodes share it: the same folder, or its copy under a URL.

    url: `train.cluster.checkpoints`; None: the nodes see the folder itself.
    """

    def __init__(self, spec: StageSpec, folder: Path, url: str | None) -> None:
        self._spec, self._folder = spec, folder
        self._remote = None if url is None else RemoteStore(url)
        self._place = str(inside(spec.store, folder)) if self._remote else ""

    def has_arrived(self, within_s: float) -> bool:
        """Whether the result is in the folder; fetches it if it is under the URL. Waits so long for a file system to show it."""
        end = time.monotonic() + within_s
        while not (self._folder / _RESULT).exists():
            if self._remote and self._remote.has(f"{self._place}/{_RESULT}"):
                self._remote.fetch_result(self._place, self._folder)
            elif (left_s := end - time.monotonic()) <= 0:
                return False
            else:
                time.sleep(min(_SEEN_AGAIN_S, left_s))
        return True

    def send_inputs(self, spec_text: str) -> None:
        """Removes what an earlier attempt left, writes the spec, and sends what the stage reads, if there is a URL."""
        (self._folder / METRICS).unlink(missing_ok=True)
        replace_atomically(self._folder / "spec.json", lambda path: path.write_text(spec_text) and None)
        if self._remote:
            self._remote.send_inputs(self._spec, self._place, self._folder / "spec.json")

    def fetch_metrics(self) -> None:
        """Fetches the metrics so far, if there is a URL; what fails now is fetched by the next call."""
        if self._remote:
            with suppress(HeadraceError):
                self._remote.fetch_metrics(self._place, self._folder)


def _parts(store: Store) -> list[str]:
    """Paths of the lake's files that a stage may read, relative to the store."""
    return store.query("SELECT path FROM parts WHERE table_name IN (SELECT unnest(?)) ORDER BY path", [list(_READ)])["path"].to_list()


def run(url: str, place: str, command: Sequence[str]) -> int:
    """Runs a stage's command in a copy of its inputs and sends its outputs; returns the exit code.

    The command ends with this process. If progress cannot be sent, it is sent later; if the result cannot be sent, that is an error.
    """
    remote, sends = RemoteStore(url), os.environ.get(RANK, "0") == "0"
    with tempfile.TemporaryDirectory(prefix="headrace-job-") as scratch:
        root = Path(scratch)
        remote.fetch_inputs(place, root)
        process = subprocess.Popen(command, cwd=root, preexec_fn=dying_with_parent())  # noqa: PLW1509 (it execs at once)
        code = None
        while code is None:
            with suppress(subprocess.TimeoutExpired):
                code = process.wait(_LOOK_S)
            if sends:
                try:
                    remote.send_progress(place, root)
                except (HeadraceError, FileNotFoundError) as error:
                    print(f"{error}; the stage goes on", file=sys.stderr, flush=True)
        if code == 0 and sends:
            remote.send_result(place, root)
    return code if code >= 0 else 128 - code


def main(arguments: Sequence[str]) -> int:
    """The command's exit code; 1 if the URL failed, 2 if it cannot be used."""
    url, place, *command = arguments
    try:
        return run(url, place, command)
    except HeadraceError as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, BadInput) else 1
    except FileNotFoundError as error:
        print(f"{url} does not have {error.filename or error} (any more): call the command that trains again", file=sys.stderr)
        return 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

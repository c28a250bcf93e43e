"""Runs a training stage with verl or ROLL as a Ray Job, and brings back the policy.

One idea: the stage's folder has a folder of the engine's own files: rendered configuration, rows, checkpoints. The job runs the start
script there, which first compares the installed version with the one that was rendered for. The launcher reads metrics while the job runs;
when it has succeeded, it checks the last saved policy and moves it to the stage's model folder, and writes result.json last. So the policy
is evaluated and gated as any other.
A job's id is made from the stage's spec and the engine, not from nodes and GPUs: a stage that runs is followed, not started again, after
`train.cluster` was changed. All nodes and the launcher see the store under the same path.

What it does not do: submit and follow jobs (`train/backends/job_backend.py`), render (`train/backends/render_stage.py`), or know the
engines' files (`train/backends/verl/verl_results.py`, `train/backends/roll/roll_results.py`).
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from filters.code_hash import code_hash
from storage.errors import BadInput
from storage.files import disk_errors, replace_atomically
from storage.health.weights import weights_hash
from storage.releases.export import export
from storage.store import Store
from train.backends import job_backend
from train.backends.base import LOG, RESULT, TAGS, FailureKind, Need, StageFailed, summary, write_rows
from train.backends.cluster import ClusterConfig, engine_job
from train.backends.cluster_shape import ClusterShape
from train.backends.engines.engine_results import Engine, Saved, check_policy
from train.backends.job_backend import ADVICE, NEWEST, OLDEST, JobBackend, JobFiles, RayJob, check_ray, failure_kind, jobs_of
from train.backends.ray_jobs import Job, last_line
from train.backends.render_stage import draft, render
from train.backends.roll.roll_results import ROLL
from train.backends.rollout_lines import forget_after, rollout_figures
from train.backends.verl.verl_results import VERL
from train.spec import METRICS, StageSpec

OTHER_VERSION = 78
"""Exit code of the start script where another version of the engine is installed."""
LOG_EVERY_S = 20.0
"""An engine's log grows by some kilobytes a step."""
_SCRIPT, _DATA, _ROLLOUTS = "start.sh", "data", "rollouts"
_NOT_RUN = ("submit.sh", "runtime_env.yaml")
"""Rendered files that submit the stage without a launcher."""
_FOLDER = "headrace_folder"
"""Metadata of a job: name of the engine's folder in the stage's."""


class EngineBackend(JobBackend):
    """Runs stages with one engine. A stage's folder gets the engine's folder, job.json, log.txt, metrics.jsonl, model and result.json."""

    engine: ClassVar[Engine]

    def describe(self, spec: StageSpec, folder: Path, *, attempt: int = 1) -> dict[str, Any]:
        engine = self.engine
        made_of = hashlib.sha256(f"{engine.name}\n{spec.model_dump_json()}".encode()).hexdigest()[:8]
        name = f"headrace-{folder.name}-{made_of}{f'-{attempt}' if attempt > 1 else ''}"
        place = folder.absolute() / (engine.name if engine.resumes or attempt == 1 else f"{engine.name}-{attempt}")
        variables, about = engine.variables(place), {_FOLDER: place.name}
        return engine_job(self.cluster, name, spec.name, str(place / _SCRIPT), variables=variables, about=about)

    def files(self, job: RayJob) -> JobFiles:
        return _EngineFiles(job, self.cluster, self.engine)

    def launch(self, spec: StageSpec, folder: Path) -> RayJob | None:
        check_fits(self.engine, spec, self.cluster)
        return super().launch(spec, folder)

    def needs(self, spec: StageSpec) -> Sequence[Need]:
        """The cluster answers and has GPUs. Whether the engine is in the image, the job checks when it starts."""
        title, gpus = self.engine.title, self.gpus(spec)

        def check(patience_s: float | None) -> None:
            check_fits(self.engine, spec, self.cluster)
            check_ray(self.cluster, patience_s)
            check_gpus(self.cluster, title)

        return [
            Need("cluster", f"a Ray cluster (version {OLDEST} up to {NEWEST}) with GPUs, whose dashboard answers, for {title}", check),
            Need("GPUs", f"{gpus} GPUs for {title}, free when a stage of {spec.algorithm} starts"),
            Need(title, f"{title} {self.engine.version} and Headrace in the image of the nodes; the job checks the version when it starts"),
        ]

    def gpus(self, spec: StageSpec) -> int:
        return self.cluster.nodes * self.cluster.gpus_per_node

    def is_sharded(self, spec: StageSpec) -> bool:
        """Both engines train with FSDP."""
        return self.gpus(spec) > 1

    def render(self, spec: StageSpec, folder: Path) -> Mapping[str, str]:
        check_fits(self.engine, spec, self.cluster)
        body = self.describe(spec, folder)
        place = folder.absolute() / body["metadata"][_FOLDER]
        drafted = draft(self.engine.name, move_output(spec, place), cluster_shape(self.cluster))
        return {
            **rendered_files(drafted.files, self.engine),
            "spec.json": spec.model_dump_json(indent=1),
            "job.json": json.dumps(body, indent=1),
        }


class VerlBackend(EngineBackend):
    """Runs stages of SFT and RL with verl."""

    engine = VERL


class RollBackend(EngineBackend):
    """Runs stages of RL with ROLL's agentic pipeline."""

    engine = ROLL


def check_fits(engine: Engine, spec: StageSpec, cluster: ClusterConfig) -> None:
    """Checks what can be told of a stage without asking the cluster.

    Raises:
        BadInput: no GPUs are configured, the store is not shared, the stage starts from no policy, or the engine cannot train it.
    """
    if not cluster.gpus_per_node:
        raise BadInput(f"stage {spec.name} runs with {engine.title}, which trains on GPUs: set train.cluster.gpus_per_node (and nodes)")
    if cluster.checkpoints is not None:
        raise BadInput(
            f"train.cluster.checkpoints: {engine.title} reads and writes the store's folder, so all nodes must see it under the same path: "
            "leave `checkpoints` out"
        )
    if spec.model_in is None:
        raise BadInput(
            f"stage {spec.name} starts from a fresh tiny policy, which only the backends local and ray make: give it a parent, or name "
            "train.model"
        )
    engine.check(spec)


def check_gpus(cluster: ClusterConfig, title: str) -> None:
    """Raises BadInput if no node of the cluster has a GPU. A cluster that does not tell passes: the job waits for GPUs, or fails."""
    jobs = jobs_of(cluster, 0.0)
    if jobs.gpus() == 0:
        raise BadInput(f"no node of the Ray cluster {jobs.address} has a GPU, and {title} trains on GPUs: add such nodes to it")


class _EngineFiles(JobFiles):
    """Files of a stage and of the engine."""

    def __init__(self, job: RayJob, cluster: ClusterConfig, engine: Engine) -> None:
        super().__init__(job, cluster)
        self._engine, self._place = engine, job.folder.absolute() / job.body["metadata"][_FOLDER]
        self.log_every_s = LOG_EVERY_S

    def has_arrived(self) -> bool:
        return (self.folder / RESULT).exists()

    def prepare(self) -> None:
        """Renders the stage and exports its rows. An engine that goes on finds its last whole checkpoint, if the files are the same.

        Raises:
            BadInput: the stage cannot be rendered, or the cluster has no GPUs.
        """
        engine, place = self._engine, self._place
        spec = move_output(self.spec, place)
        files = rendered_files(render(engine.name, spec, cluster_shape(self.cluster)).files, engine)
        check_gpus(self.cluster, engine.title)
        self.clear()
        for stale in (self.folder / TAGS, place / RESULT):
            stale.unlink(missing_ok=True)
        for earlier in [self.folder / engine.name, *self.folder.glob(f"{engine.name}-[0-9]*")]:
            if earlier.is_dir() and (earlier.name != place.name or not engine.resumes or not _is_same(place, files)):
                shutil.rmtree(earlier)
        with disk_errors("preparing a stage", self.folder):
            if not (place / _DATA).exists():
                export(Store(self.spec.store), self.spec.release_id, place / _DATA, engine.name)
            for name, text in files.items():
                (place / name).write_text(text, encoding="utf-8")
            replace_atomically(self.folder / "spec.json", lambda path: path.write_text(self.spec.model_dump_json(indent=1)))
        done = 0
        for saved in engine.list_saved(place) if engine.resumes else ():
            if not self._problem(saved):
                done = saved.step
                break
            engine.remove_saved(place, saved)
        forget_after(place / _ROLLOUTS, done)

    def bring(self, log: str | None) -> None:
        super().bring(log)
        path = self.folder / LOG
        rows = self._engine.metrics(self._place, path.read_text() if path.exists() else "")
        if rows:
            write_rows(self.folder / METRICS, rows)

    def fetch(self) -> bool:
        """Waits for the files of the last saved policy to be seen here; a policy that was moved before a launcher was killed is kept.

        Raises:
            StageFailed: the newest policy is not whole, or it is older than the last step of the metrics: a later one may lie where the
                launcher cannot see it yet, so nothing is removed.
        """
        end = time.monotonic() + job_backend.ARRIVAL_S
        while True:
            ready = self._ready()
            if ready is not None:
                return self._publish(ready)
            saved = next(iter(self._engine.list_saved(self._place)), None)
            problem = self._problem(saved) if saved is not None else ""
            is_late = time.monotonic() >= end
            if saved is not None and not problem and saved.step >= self.spec.settings.max_steps:
                return self._publish(self._take(saved))
            if is_late:
                break
            time.sleep(min(job_backend.ARRIVAL_S / 10, 0.5))
        if saved is None:
            return False
        if problem:
            raise StageFailed(f"stage {self.spec.name}: {self._engine.title} saved no whole policy at step {saved.step}: {problem}")
        self.bring(None)
        done = max((int(json.loads(line)["step"]) for line in _lines(self.folder / METRICS)), default=0)
        if saved.step < done:
            raise StageFailed(
                f"stage {self.spec.name}: the newest policy under {self._place} is of step {saved.step}, and {self._engine.title} finished "
                f"step {done}: is the folder seen as on the nodes?"
            )
        return self._publish(self._take(saved))

    def missing(self) -> str:
        return f"{self._engine.title} has left no policy under {self._place}: all nodes must see the store under the same path"

    def kind(self, ended: Job, log: str) -> FailureKind:
        if ended.exit_code == OTHER_VERSION:
            return "version"
        known = failure_kind(ended, log, last_line(log))
        return next((kind for words, kind in self._engine.failure_signs.items() if words in log), known) if known == "stage" else known

    def advice(self, kind: FailureKind) -> str:
        title, version = self._engine.title, self._engine.version
        where = "its last checkpoint" if self._engine.resumes else "its input policy"
        own: dict[FailureKind, str] = {
            "start": f"it did not start: are {title} and Headrace in the image, or on the nodes?",
            "memory": "it ran out of memory: fewer tokens or draws, more tensor_parallel, or more GPUs in `train.cluster`",
            "lost": f"a node was lost; the same command goes on from {where}",
            "stopped": f"it was stopped; the same command goes on from {where}",
            "version": f"the image has another {title} than {version}, which it was rendered for: use an image with that one",
        }
        return own.get(kind, ADVICE[kind])

    def _problem(self, saved: Saved) -> str:
        """What a saved policy lacks; empty if it is whole."""
        assert self.spec.model_in is not None
        try:
            check_policy(saved.folder, self.spec.model_in)
        except (BadInput, OSError, ValueError) as error:
            return str(error).partition(": ")[0] if isinstance(error, BadInput) else str(error)
        return ""

    def _take(self, saved: Saved) -> dict[str, Any]:
        """Notes the result in the engine's folder, then moves the policy to the stage's model folder; returns the result."""
        metrics = [json.loads(line) for line in _lines(self.folder / METRICS)]
        notes = [line.removeprefix("- ") for line in _lines(self._place / "notes.txt")[1:]]
        if saved.step < self.spec.settings.max_steps:
            notes.append(f"{self._engine.title} ended after step {saved.step} of {self.spec.settings.max_steps}")
        result = {
            "weights_hash": weights_hash(saved.folder),
            "metrics": summary(metrics) | rollout_figures(self._place / _ROLLOUTS),
            "notes": notes,
            "code_hash": code_hash("filters", "synth", "train"),
            "engine": f"{self._engine.title} {self._engine.version}",
        }
        replace_atomically(self._place / RESULT, lambda path: path.write_text(json.dumps(result)))
        shutil.rmtree(self.spec.model_out, ignore_errors=True)
        saved.folder.rename(self.spec.model_out)
        return result

    def _ready(self) -> dict[str, Any] | None:
        """The noted result, if the policy that it describes has been moved."""
        try:
            result: dict[str, Any] = json.loads((self._place / RESULT).read_bytes())
            return result if weights_hash(self.spec.model_out) == result["weights_hash"] else None
        except (OSError, ValueError, KeyError, BadInput):
            return None

    def _publish(self, result: Mapping[str, Any]) -> bool:
        """Writes result.json, and removes the checkpoints."""
        replace_atomically(self.folder / RESULT, lambda path: path.write_text(json.dumps(result)))
        for name in self._engine.removed_at_end:
            shutil.rmtree(self._place / name, ignore_errors=True)
        return True


def move_output(spec: StageSpec, place: Path) -> StageSpec:
    """The spec whose files are rendered for the engine's folder."""
    return spec.model_copy(update={"model_out": place / "model"})


def cluster_shape(cluster: ClusterConfig) -> ClusterShape:
    return ClusterShape(nodes=cluster.nodes, gpus_per_node=cluster.gpus_per_node, **cluster.engine.model_dump())


def rendered_files(rendered: Mapping[str, str], engine: Engine) -> dict[str, str]:
    """The rendered files that a job runs, and its start script."""
    pattern = f"{engine.version}*" if engine.is_prefix else f'"{engine.version}"'
    script = f"""#!/usr/bin/env bash
found="$({engine.version_command} 2> /dev/null)"
if [[ "$found" != {pattern} ]]; then
  echo "headrace: the stage was rendered for {engine.title} {engine.version}, and this node has ${{found:-none}}" >&2
  exit {OTHER_VERSION}
fi
exec bash "$(dirname "$0")/entrypoint.sh"
"""
    return {name: text for name, text in rendered.items() if name not in _NOT_RUN} | {_SCRIPT: script}


def _is_same(place: Path, files: Mapping[str, str]) -> bool:
    """Whether a folder has these files already: then its checkpoints are of this stage on this cluster."""
    return all((place / name).is_file() and (place / name).read_text(encoding="utf-8") == text for name, text in files.items())


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

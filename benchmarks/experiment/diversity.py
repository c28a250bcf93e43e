"""Does diversity beat quantity? Arms that differ in how their conversations were come by, at equal tokens and with the same teacher.

One idea: every arm's conversations train the same tiny policy for the same number of tokens, and all policies are measured on the same
tasks of domains that no arm has seen. Sizes give curves with a ceiling, seeds and tasks give intervals; a policy trained on the held-out
domains says whether the tasks can be learnt at all, and a control with shuffled answers that nothing comes of nothing (definition P12).
Every pool, base policy and training is a file in a folder that is named by the configuration and by the code that decides what they are
(`home_of`); a killed experiment, called again, makes what is missing.

What it does not do: claim anything without power (`result.py`), or draw on a terminal.
"""

from __future__ import annotations

import hashlib
import json
import math
import multiprocessing
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.experiment.arms import prompts_of
from benchmarks.experiment.base import make_base, practice, practice_worlds
from benchmarks.experiment.cells import Job, Trained, held_out_tasks, power_tasks, read_cell, run_cell
from benchmarks.experiment.code_tasks import draw_code_tasks
from benchmarks.experiment.config import POOL_OF, Arm, DiversityExperimentConfig, PoolName
from benchmarks.experiment.domains import DomainSeeds, choose_domains, domains_of
from benchmarks.experiment.pools import PoolJob, make_pool, read_pool
from benchmarks.experiment.result import ExperimentResult, as_json, summarise
from storage.files import replace_atomically
from storage.records import content_id
from synth.blueprints import planner
from synth.roles import simulate
from synth.run import controller
from synth.tasks.solver import expert_messages
from synth.worlds import WORLDS
from train import tiny
from train.child_process import start_worker

_READERS = frozenset({"result.py", "curves.py", "show.py", "__main__.py"})
"""Modules of the experiment that only read what there is."""
Progress = Callable[[str, int, int], None]
_SPARE = 1.15
"""Conversations of a pool beyond those that arms look at: some are too long."""
_TOKENS_PER_S, _MEASURING_S, _BASE_S, _TALKS_PER_S = 14_000, 12.0, 30.0, 80
_JobT = TypeVar("_JobT")


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run would do. minutes: estimated, on `processes` idle cores."""

    cells: tuple[tuple[Arm, int, int], ...]
    talks: int
    minutes: float


def plan(config: DiversityExperimentConfig) -> Plan:
    """Arms x sizes x seeds, conversations to be made, and about how long all of it takes."""
    talks = sum(size for _, size in _pool_sizes(config)) * len(config.seeds)
    trainings = len(config.cells()) + 1
    read = sum(config.tokens_at(size) for _, size, _ in config.cells()) + config.learning.tokens
    work_s = talks / _TALKS_PER_S + len(config.seeds) * (config.base.tokens / _TOKENS_PER_S + _BASE_S)
    work_s += read / _TOKENS_PER_S + trainings * _MEASURING_S
    return Plan(tuple(config.cells()), talks, work_s / config.processes / 60 + 1)


def home_of(folder: Path, config: DiversityExperimentConfig) -> Path:
    """The experiment's folder, named by its configuration and by the code that decides what is in it: the modules of the experiment that
    make something, the controller and its selection, and the versions of the planner and of the simulation.

    What these build on (generated domains, the solver, the tiny policy's shape) is not in the name.
    """
    makers = sorted(path for path in Path(__file__).parent.glob("*.py") if path.name not in _READERS)
    files = [*makers, Path(controller.__file__)]
    code = [[f"{path.parent.name}/{path.name}", hashlib.sha256(path.read_bytes()).hexdigest()] for path in files]
    return folder / f"diversity-{content_id('experiment', config.model_dump(mode='json'), code, planner.VERSION, simulate.VERSION)[11:]}"


def run_experiment(
    folder: Path, config: DiversityExperimentConfig, *, minutes: float | None = None, progress: Progress | None = None
) -> tuple[ExperimentResult, Path]:
    """Runs the experiment, or what is left of it; the result, and the folder that has `results.json`, `table.md` and `curves.html`.

    folder: of all experiments; this one's is `home_of`.
    minutes: after so many no further training is begun; what there is then is summarised, and the next call goes on.

    Raises:
        HeadraceError: the themes do not give the domains or the tasks that the configuration asks for.
    """
    home = home_of(folder, config)
    home.mkdir(parents=True, exist_ok=True)
    return _Run(home, config, minutes, progress or (lambda label, done, total: None)).result(), home


class _Run:
    def __init__(self, home: Path, config: DiversityExperimentConfig, minutes: float | None, progress: Progress) -> None:
        self.home, self.config, self.progress = home, config, progress
        self.begun = time.monotonic()
        self.deadline = math.inf if minutes is None else self.begun + 60 * minutes
        self.before_s = float(json.loads((home / "elapsed.json").read_text())) if (home / "elapsed.json").exists() else 0.0

    def result(self) -> ExperimentResult:
        self.domains = self._domains()
        with _workers(self.config.processes) as workers:
            self.pools = self._pools(workers)
            self.bases = self._bases(workers)
            cells = [read_cell(path) for path in self._cells(workers)]
        result = summarise(cells, self.config, minutes=self._clock() / 60)
        self._write(result)
        return result

    def _domains(self) -> DomainSeeds:
        path = self.home / "domains.json"
        if not path.exists():
            self.progress("domains", 0, 0)
            _write_json(path, asdict(choose_domains(self.config.domains)))
        return DomainSeeds(**{name: tuple(seeds) for name, seeds in json.loads(path.read_text()).items()})

    def _pools(self, workers: ProcessPoolExecutor) -> dict[int, tuple[tuple[str, Path], ...]]:
        """By seed, the files of its pools."""
        jobs = [
            PoolJob(name, size, seed, self.config, self.domains, self.home / "pools")
            for seed in self.config.seeds
            for name, size in _pool_sizes(self.config)
        ]
        self._all(workers, make_pool, jobs, [job.path for job in jobs], "pools of conversations")
        return {seed: tuple((job.name, job.path) for job in jobs if job.seed == seed) for seed in self.config.seeds}

    def _bases(self, workers: ProcessPoolExecutor) -> dict[int, Path]:
        """By seed, the model folder that all arms of it start from."""
        folders = {seed: self.home / "bases" / str(seed) for seed in self.config.seeds}
        missing = [_BaseJob(self.config, seed, folder, self.home / "texts.json") for seed, folder in folders.items() if not folder.exists()]
        if missing:
            _write_json(self.home / "texts.json", self._texts())
        self._all(workers, _base, missing, [job.folder for job in missing], "base policies")
        return folders

    def _texts(self) -> list[str]:
        """Everything that a policy may have to read or write: the vocabulary is that of all arms and seeds.

        But for the pool `even`, whose words are those of the others: of its numbers, one that no other pool says is read digit by digit.
        """
        domains = domains_of(self.domains)
        pools = [read_pool(path) for files in self.pools.values() for name, path in files if name != "even"]
        tasks = [*held_out_tasks(self.config, self.domains), *power_tasks(self.config, self.domains, self.config.seeds[0])]
        conversations = [
            *(messages for pool in pools for messages in prompts_of(pool, self.config)),
            *(expert_messages(WORLDS[task.world], task) for task in tasks),
            *(messages for seed in self.config.seeds for messages in practice(self.config, seed)),
            *(task.conversation() for task in draw_code_tasks(200, "words")),
        ]
        worlds = [*domains.training, *domains.held_out, *practice_worlds(self.config)]
        texts = {tiny.render(messages) for messages in conversations} | set(tiny.vocabulary_texts(worlds, ["en"]))
        return sorted(texts | {str(number) for number in range(1000)})

    def _cells(self, workers: ProcessPoolExecutor) -> list[Path]:
        """The files of all trainings that were done in time; the checks come first."""
        first = self.config.seeds[0]
        places: list[tuple[Trained, int, int]] = [
            ("power", 0, first),
            *(("base", 0, seed) for seed in self.config.seeds),
            *self.config.cells(),
        ]
        jobs = [
            Job(
                arm,
                size,
                seed,
                self.config,
                self.domains,
                self.pools[seed],
                self.bases[seed],
                self.home / "cells" / f"{arm}-{size}-{seed}.json",
            )
            for arm, size, seed in places
        ]
        self._all(workers, run_cell, jobs, [job.out for job in jobs], "trainings", stops=True)
        return [job.out for job in jobs if job.out.exists()]

    def _all(
        self,
        workers: ProcessPoolExecutor,
        work: Callable[[_JobT], Path],
        jobs: Sequence[_JobT],
        outs: Sequence[Path],
        label: str,
        *,
        stops: bool = False,
    ) -> None:
        """Has all jobs done whose file is missing, `processes` at once; with `stops`, begins none after the deadline."""
        waiting = deque(job for job, out in zip(jobs, outs, strict=True) if not out.exists())
        done, running = len(jobs) - len(waiting), set[Future[Path]]()
        self.progress(label, done, len(jobs))
        while waiting or running:
            while waiting and len(running) < self.config.processes and not (stops and time.monotonic() > self.deadline):
                running.add(workers.submit(work, waiting.popleft()))
            if not running:
                return
            ended, running = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                future.result()
            done += len(ended)
            _write_json(self.home / "elapsed.json", self._clock())
            self.progress(label, done, len(jobs))

    def _clock(self) -> float:
        """Seconds of all calls together."""
        return self.before_s + time.monotonic() - self.begun

    def _write(self, result: ExperimentResult) -> None:
        from benchmarks.experiment.show import curves_page, table

        _write_json(self.home / "results.json", as_json(result))
        replace_atomically(self.home / "table.md", lambda draft: draft.write_text(table(result)) and None)
        replace_atomically(self.home / "curves.html", lambda draft: draft.write_text(curves_page(result)) and None)


def _pool_sizes(config: DiversityExperimentConfig) -> list[tuple[PoolName, int]]:
    """Pools and the conversations that each must have for the largest size of its arms."""
    sizes: dict[PoolName, int] = {"native": max(config.sizes)}
    for arm, size, _ in config.cells():
        sizes[POOL_OF[arm]] = max(size, sizes.get(POOL_OF[arm], 0))
    return [(name, math.ceil(_SPARE * config.oversample * size)) for name, size in sizes.items()]


@dataclass(frozen=True, slots=True)
class _BaseJob:
    config: DiversityExperimentConfig
    seed: int
    folder: Path
    texts: Path


def _base(job: _BaseJob) -> Path:
    tokenizer = tiny.build_tokenizer(json.loads(job.texts.read_text()), splits_names=True)
    draft = job.folder.with_name(f".{job.folder.name}.new")
    make_base(tokenizer, job.config, job.seed, draft)
    draft.rename(job.folder)
    return job.folder


@contextmanager
def _workers(count: int) -> Iterator[ProcessPoolExecutor]:
    """Fresh processes of one thread each."""
    os.environ.update({"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"})
    context = multiprocessing.get_context("spawn")
    workers = ProcessPoolExecutor(count, mp_context=context, initializer=start_worker, initargs=(os.getpid(),))
    try:
        yield workers
    finally:
        workers.shutdown(wait=False, cancel_futures=True)


def _write_json(path: Path, value: Any) -> None:
    replace_atomically(path, lambda draft: draft.write_text(json.dumps(value, indent=1)) and None)

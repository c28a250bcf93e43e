"""The fixed policy of `make bench tags`, and the tasks that it is probed on.

The policy is a tiny one after the seed SFT of the sample's cascade, on its worlds, but on more experts, of all difficulties, and for
longer: until it does about a third of the tasks. One that can do hardly anything, or everything, puts no tasks in an order. It is trained
once for the code that is measured, and kept under `.cache/bench/tags/`; folders of other code are removed.
It is probed on siblings of frames that it has not practised, in the shares of difficulties that the funnel draws tasks in
(`filters.steps.selection.coverage.QUOTAS`, as far as the worlds have such tasks).
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness import ROOT, code_mark
from synth.worlds import WORLDS

if TYPE_CHECKING:
    from storage.records import Division, Task
    from synth.engines.local.hf import HFEngine
    from train.data.task_pool import Source

KEPT = ROOT / ".cache" / "bench" / "tags"
SAMPLE = ROOT / "configs" / "sample.yaml"
DRILLS: Mapping[str, int] = {"retail": 300, "library": 300}
"""Frames a world, of all divisions."""
EXPERTS, STEPS = 2_000, 600
MINUTES = 4
"""At most, where it is not there yet."""


@cache
def policy() -> Path:
    """The model folder."""
    work = KEPT / code_mark()
    model = work / "sft" / "model"
    if not model.exists():
        work.mkdir(parents=True, exist_ok=True)
        for other in KEPT.iterdir():
            if other != work:
                shutil.rmtree(other) if other.is_dir() else other.unlink()
        train(work)
    return model


@cache
def engine() -> HFEngine:
    """The policy in process, on one thread."""
    import torch

    from synth.engines.local.hf import HFEngine
    from train.device import keep_freed_memory

    keep_freed_memory()
    torch.set_num_threads(1)
    return HFEngine(policy())


def train(work: Path) -> None:
    """Leaves the model in `sft/model` under the folder, beside the store that it was trained from."""
    from flows.config import read
    from storage.record_rows import tasks_frame
    from storage.releases.release import ReleaseItem, make_release
    from storage.store import Store, part_id
    from synth.conversations.expert import expert_trajectory
    from synth.roles.simulate import trajectories_frame
    from train.backends.base import run_stage
    from train.backends.local import LocalBackend
    from train.data.task_pool import draw
    from train.spec import StageSpec

    os.environ.setdefault("OMP_NUM_THREADS", "1")
    cascade = read(SAMPLE).train
    store = Store(work / "store")
    tasks = draw(sources("seed"), EXPERTS, use="train", language=cascade.language)
    experts = [expert_trajectory(WORLDS[task.world], task) for task in tasks]
    ids = [task.id for task in tasks]
    store.commit(
        [
            store.write("tasks", part_id("tasks", ids, {}, 1), tasks_frame(tasks)),
            store.write("trajectories", part_id("trajectories", ids, {}, 1), trajectories_frame(experts, tasks)),
        ]
    )
    items = [ReleaseItem("trajectory", expert.id, task.id) for expert, task in zip(experts, tasks, strict=True)]
    spec = StageSpec(
        name="sft1",
        algorithm="sft",
        store=store.root,
        release_id=make_release(store, "seed", {"seed": items}, {}),
        split="seed",
        model_out=work / "sft" / "model",
        worlds=tuple(DRILLS),
        language=cascade.language,
        seed=cascade.seed,
        sft=cascade.stage("sft1").settings.model_copy(update={"max_steps": STEPS, "plateau_window": 0}),
    )
    run_stage(LocalBackend(), spec, work / "sft")


def sources(division: Division) -> list[Source]:
    """Frames of that division, in an order of chance, so that any number of them has its share of each world and intent."""
    from storage.records import Frame
    from synth.blueprints.single_goal import draw_drills
    from synth.tasks.split import DivisionConfig
    from train.data.task_pool import Source

    drawn = [drill.task for world, count in DRILLS.items() for drill in draw_drills(WORLDS[world], count, [], DivisionConfig(), seed=0)]
    found = [
        Source(Frame(world=task.world, intent=task.intent, slots=task.slots), task.division, task.difficulty, None, task.blueprint_id)
        for task in drawn
        if task.division == division
    ]
    random.Random(0).shuffle(found)
    return found


def probe_tasks(count: int, *, worlds: Collection[str] = tuple(DRILLS)) -> list[Task]:
    """About so many tasks of these worlds; fewer where a difficulty has no more to give."""
    from filters.steps.selection.coverage import QUOTAS
    from train.data.task_pool import draw

    by_level: dict[int, list[Source]] = {}
    for source in sources("probe"):
        if source.frame.world in worlds:
            by_level.setdefault(source.difficulty, []).append(source)
    whole = sum(QUOTAS[level] for level in by_level)
    return [
        task
        for level, found in sorted(by_level.items())
        for task in draw(found, round(count * QUOTAS[level] / whole), use="train", language="en", fewest=0)
    ]

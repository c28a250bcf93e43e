"""One training of the experiment, and what it leaves: a small JSON file, so that a killed experiment trains nothing twice.

One idea: a cell is a function of files (pools, base policy) and of a few numbers, so any process may work on it, beside any other; its file
is named by arm, size and seed, in the experiment's folder, which is named by the rest (`benchmarks/experiment/diversity.py: home_of`).
A worker is a fresh process with one thread that dies with its parent.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from benchmarks.experiment.arms import Shelf, chosen, shelf_of, shuffled
from benchmarks.experiment.code_tasks import draw_code_tasks, passed
from benchmarks.experiment.config import POOL_OF, Arm, DiversityExperimentConfig
from benchmarks.experiment.domains import DomainSeeds, domains_of, draw_tasks
from benchmarks.experiment.learn import Example, examples_of, train
from benchmarks.experiment.pools import read_pool
from benchmarks.experiment.prompts import prompted_task
from storage.errors import HeadraceError
from storage.files import replace_atomically
from storage.records import Outcome, Task
from synth.blueprints.diversity import domain_diversity, mode_entropy
from synth.rollouts.draws import rollout
from synth.tasks.solver import expert_messages
from synth.worlds import WORLDS

_ANSWER_TOKENS = 48
_MODE_SAMPLE = 100
_POWER_TASKS = 1200
Trained = Arm | Literal["power", "base"]


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker is told. pools: files by name.

    arm: or `power`, trained on tasks of the held-out domains themselves, or `base`, what all arms start from, as it is."""

    arm: Trained
    size: int
    seed: int
    config: DiversityExperimentConfig
    seeds: DomainSeeds
    pools: tuple[tuple[str, Path], ...]
    base: Path
    out: Path


@dataclass(frozen=True, slots=True)
class Cell:
    """What came of a training. tasks, code: success by task, greedy, in the fixed order of the held-out and of the code tasks.

    domain_bits, mode_bits, complexity: H_dom, H_mode^1 (of 100 conversations) and mean CAC of what was trained on; tokens of it.
    proposals_per_talk: with a scripted teacher, what an accepted conversation costs. Null where there are no conversations.
    """

    arm: str
    size: int
    seed: int
    tasks: dict[str, bool]
    code: list[bool]
    conversations: int
    tokens: int
    domain_bits: float | None
    mode_bits: float | None
    complexity: float | None
    proposals_per_talk: float | None
    loss: float | None
    cpu_s: float


def read_cell(path: Path) -> Cell:
    return Cell(**json.loads(path.read_text()))


def run_cell(job: Job) -> Path:
    """Trains and measures, unless the cell's file is there."""
    if job.out.exists():
        return job.out
    from transformers import AutoModelForCausalLM, AutoTokenizer

    begun = time.process_time()
    tokenizer = AutoTokenizer.from_pretrained(job.base)
    model = AutoModelForCausalLM.from_pretrained(job.base)
    examples, about = _material(job, tokenizer)
    learning = job.config.learning
    if job.size:
        learning = learning.model_copy(update={"tokens": job.config.tokens_at(job.size)})
    losses = train(model, examples, learning, seed=job.seed) if examples else []
    tasks, code = measured(model, tokenizer, held_out_tasks(job.config, job.seeds), job.config)
    cell = Cell(
        arm=job.arm,
        size=job.size,
        seed=job.seed,
        tasks=tasks,
        code=code,
        conversations=len(examples),
        tokens=sum(example.tokens for example in examples),
        loss=float(np.mean(losses[-max(1, len(losses) // 10) :])) if losses else None,
        cpu_s=time.process_time() - begun,
        **about,
    )
    replace_atomically(job.out, lambda draft: draft.write_text(json.dumps(asdict(cell))) and None)
    return job.out


def measured(model: Any, tokenizer: Any, tasks: Sequence[Task], config: DiversityExperimentConfig) -> tuple[dict[str, bool], list[bool]]:
    """Greedy success of every held-out task and of every code task.

    Raises:
        HeadraceError: a task was not rated, for it failed through no fault of the policy.
    """
    from synth.engines.local.hf import HFEngine

    engine = HFEngine(model, tokenizer, policy_version="experiment")
    rated = rollout(engine, tasks, 1, temperature=0.0, max_tokens=_ANSWER_TOKENS)
    if failed := [one for one in rated if not one.outcome.is_rated]:
        raise HeadraceError(f"{len(failed)} of {len(rated)} held-out tasks failed through no fault of the policy: {failed[0].outcome}")
    code = passed(engine, draw_code_tasks(config.code_tasks, "measured"))
    return {one.task_id: one.outcome is Outcome.SUCCESS for one in rated}, code


@lru_cache(maxsize=2)
def held_out_tasks(config: DiversityExperimentConfig, seeds: DomainSeeds) -> tuple[Task, ...]:
    """The tasks that every policy is measured on: tools that no training domain has, of words that they have."""
    domains = domains_of(seeds)
    drawn = draw_tasks(domains.held_out, config.held_out_tasks, use="eval_out", seed=0, unknown_to=domains.known_tools)
    return tuple(prompted_task(task, config.shown_tools) for task in drawn)


def power_tasks(config: DiversityExperimentConfig, seeds: DomainSeeds, seed: int) -> tuple[Task, ...]:
    """Other tasks of the held-out domains, in worlds of other seeds."""
    domains = domains_of(seeds)
    drawn = draw_tasks(domains.held_out, _POWER_TASKS, use="train", seed=seed, unknown_to=domains.known_tools)
    return tuple(prompted_task(task, config.shown_tools) for task in drawn)


def _material(job: Job, tokenizer: Any) -> tuple[list[Example], dict[str, Any]]:
    """What a policy is trained on, and the figures of it."""
    if job.arm == "base":
        tasks: tuple[Task, ...] = ()
    elif job.arm == "power":
        tasks = power_tasks(job.config, job.seeds, job.seed)
    else:
        return _of_arm(job, job.arm, tokenizer)
    figures = dict.fromkeys(("domain_bits", "mode_bits", "complexity", "proposals_per_talk"))
    return examples_of(tokenizer, [expert_messages(WORLDS[task.world], task) for task in tasks]), figures


def _of_arm(job: Job, arm: Arm, tokenizer: Any) -> tuple[list[Example], dict[str, Any]]:
    domains_of(job.seeds)
    shelf, unit = _shelf(job, POOL_OF[arm]), _shelf(job, "native").mean_tokens
    taken = chosen(arm, shelf, job.size, unit, job.config.oversample)
    talks = [shelf.talks[position] for position in taken]
    examples = [shelf.examples[position] for position in taken]
    if arm == "shuffled":
        examples = examples_of(tokenizer, shuffled([shelf.prompted[position] for position in taken], job.seed))
    names = {world.intents[intent].domain for world in domains_of(job.seeds).training for intent in world.intents}
    return examples, {
        "domain_bits": domain_diversity([talk.domain for talk in talks], names).entropy_bits,
        "mode_bits": mode_entropy([talk.mode for talk in talks], size=_MODE_SAMPLE)[0],
        "complexity": float(np.mean([talk.complexity for talk in talks])),
        "proposals_per_talk": shelf.proposals_per_talk,
    }


def _shelf(job: Job, pool: str) -> Shelf:
    return _shelf_of(dict(job.pools)[pool], job.base, job.config)


@lru_cache(maxsize=3)
def _shelf_of(pool: Path, base: Path, config: DiversityExperimentConfig) -> Shelf:
    from transformers import AutoTokenizer

    return shelf_of(read_pool(pool), AutoTokenizer.from_pretrained(base), config)

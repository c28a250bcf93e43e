"""Expert conversations by an engine: verified answers to tasks, each the shortest of a few tries.

A teacher plays tasks as a policy does: it sees the opening and the tools, and its conversations are judged by the verifier. Its rollouts
are parts of the store, and a server's answers are cached there, so nothing is paid for twice. Source: P7 (STAgent's oracle synthesis): the
tries of a task are in proportion to its learnability potential. A task that the policy never solved has none; the prior of its need
(`filters/certainty/difficulty_prior.py`) says whether it is worth a try.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence

import polars as pl

from filters.certainty.certainty import Region
from filters.certainty.difficulty_prior import Basis
from storage.errors import HeadraceError
from storage.records import Message, Task, content_id
from storage.releases.release import ReleaseItem
from storage.store import Store
from synth.rollouts.draws import Draws
from train.config import CascadeConfig
from train.data.seed_split import rough_tokens
from train.measure.probe import Prober, Progress
from train.policies import engine_policy, open_policy_engine

PURPOSE = "experts"
MOST_POTENTIAL = 4 / 27
"""Greatest learnability potential: variance x mean of a reward in [0, 1]."""
HOPELESS = 0.95
"""Prior from which on a need counts as unsolved. Of the tiny policy's tasks without a success in 8 draws, 24 more draws solved one in five
of those with a lower prior, and one in thirty of the others (`benchmarks/links_sections/difficulty.py`)."""


def teach(
    store: Store,
    config: CascadeConfig,
    tasks: Sequence[Task],
    tries: Mapping[str, int],
    progress: Progress,
    *,
    window: int,
    is_needed: bool = True,
) -> list[ReleaseItem]:
    """One verified conversation of the configured engine for each task that it solves; in the order of the tasks.

    Args:
        tries: task id -> most tries.
        window: longest conversation that is taken, in words and signs.
        is_needed: whether it is an error if the engine solves none.

    Raises:
        HeadraceError: the engine solved none of the tasks within the window, and some are needed.
        BadInput, BudgetSpent, EngineFailure: see `train.policies.open_policy_engine` and `Prober.rollouts`; what was answered is kept.
    """
    experts = config.experts
    assert experts.engine is not None
    teacher = engine_policy(experts.engine)
    run = content_id(
        "run", PURPOSE, teacher.id, config.model_dump(mode="json", exclude={"engine", "cluster", "backend", "stages", "rollouts"})
    )
    found: list[pl.DataFrame] = []
    with open_policy_engine(store, teacher, experts, run) as engine:
        prober = Prober(store, config.model_copy(update={"engine": experts}), progress, engine)
        for most in sorted(set(tries.values())):
            batch = [task for task in tasks if tries[task.id] == most]
            found.append(prober.rollouts(teacher, batch, _until_success(most), PURPOSE, temperature=experts.temperature))
    if not found:
        return []
    rollouts = pl.concat(found)
    solved = (
        rollouts.filter(pl.col("outcome") == "success")
        .with_columns(size=pl.col("messages").str.len_bytes())
        .sort("task_id", "size", "draw")
        .unique("task_id", keep="first", maintain_order=True)
    )
    by_task = {
        task: rollout
        for task, rollout, messages in solved.select("task_id", "rollout_id", "messages").iter_rows()
        if rough_tokens([Message.model_validate(message) for message in json.loads(messages)]) <= window
    }
    if is_needed and not by_task:
        if solved.height:
            problem = (
                f"every conversation in which {experts.engine} solves a task is longer than the window of the policy, {window:,} tokens"
            )
            raise HeadraceError(f"{problem}: take a model with a longer window, or a lower max_difficulty")
        first = rollouts["rollout_id"][0]
        raise HeadraceError(
            f"{experts.engine} solved none of {len(tasks)} tasks in {max(tries.values())} tries; `headrace explain {first}` shows the "
            "first. Choose a stronger engine, or leave it out for the scripted solver (and train.experts.oracle)"
        )
    return [ReleaseItem("rollout", by_task[task.id], task.id) for task in tasks if task.id in by_task]


def oracle_tries(tags: pl.DataFrame, best_of: int) -> dict[str, int]:
    """Task id -> tries, from 1 to `best_of`: of the tasks that a probe found uncertain in proportion to their learnability potential, and
    one of each task without a success whose need is partly solved (`HOPELESS`).

    tags: columns task_id, region, learnability, successes, difficulty_prior, prior_basis.
    """
    uncertain = tags.filter(pl.col("region") == Region.UNCERTAIN).sort("task_id")
    partly_solved = (pl.col("prior_basis") == Basis.NEED) & (pl.col("difficulty_prior") < HOPELESS)
    unsolved = tags.filter((pl.col("successes") == 0) & partly_solved).sort("task_id")
    return dict.fromkeys(unsolved["task_id"], 1) | {
        task: min(best_of, max(1, math.ceil(best_of * potential / MOST_POTENTIAL)))
        for task, potential in uncertain.select("task_id", "learnability").iter_rows()
    }


def _until_success(most: int) -> Draws:
    looks = [*(look for look in (1, 2, 4) if look < most), most]
    return Draws(looks, lambda successes, rated, left: successes > 0, {"until": "success", "most": most})

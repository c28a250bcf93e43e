"""Two policies are compared on the same tasks of every store; what cannot be compared is refused, and luck is not called a gain."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from storage.errors import BadInput
from storage.record_rows import tasks_frame
from storage.records import Task
from storage.store import Part, Store, part_id
from storage.tables import TABLES
from tests.train.tiny_policies import retail_tasks
from train.measure.compare import Comparison, Difference, compare

Rates = Mapping[str, Mapping[str, float]]
"""By stage and intent, the chance of success."""
STAGES = ("sft1", "rl")
FLAT: Rates = {stage: {"close_order": 0.5, "order_status": 0.5, "stock_question": 0.5} for stage in STAGES}
BETTER: Rates = FLAT | {"rl": {"close_order": 0.9, "order_status": 0.5, "stock_question": 0.1}}


@pytest.fixture(scope="module")
def tasks() -> list[Task]:
    """Fifty of one intent and two of another two; the three have two modes and two difficulties."""
    return [*retail_tasks("close_order", each=50), *retail_tasks("order_status", each=50), *retail_tasks("stock_question", each=5)]


def part(store: Store, table: str, rows: Iterable[Mapping[str, object]], key: object) -> Part:
    columns = TABLES[table].columns
    frame = pl.DataFrame([dict.fromkeys(columns) | dict(row) for row in rows], schema=columns)
    return store.write(table, part_id(table, [str(key)], {}, 1), frame)


def training(store: Store, tasks: list[Task], rates: Rates, seed: int, purposes: Sequence[str]) -> list[Part]:
    """Both policies of one training with four rollouts of each of these tasks, a policy's luck its own."""
    made = []
    for number, stage in enumerate(STAGES):
        policy, about = f"policy-{stage}-{seed}", {"stage_id": f"stage-{stage}-{seed}"}
        made.append(part(store, "stages", [about | {"name": stage, "output_policy_id": policy}], policy))
        made.append(part(store, "policies", [about | {"policy_id": policy, "path": f"models/{stage}"}], policy))
        rng = np.random.default_rng([seed, number])
        rows = [
            {
                "rollout_id": f"{policy}-{purpose}-{task.id}-{draw}",
                "task_id": task.id,
                "policy_id": policy,
                "purpose": purpose,
                "draw": draw,
                "outcome": "success" if rng.random() < rates[stage][task.intent] else "policy_failure",
            }
            for purpose, task, draw in itertools.product(purposes, tasks, range(4))
        ]
        made.append(part(store, "rollouts", rows, policy))
    return made


def trained(root: Path, tasks: list[Task], rates: Rates, *seeds: int, purposes: Sequence[str] = ("eval_in",)) -> Store:
    """A store with a training a seed."""
    store = Store(root)
    made = [store.write("tasks", part_id("tasks", [task.id for task in tasks], {}, 1), tasks_frame(tasks))]
    store.commit(made + [each for seed in seeds for each in training(store, tasks, rates, seed, purposes)])
    return store


def of(found: Comparison, facet: str = "all", value: str = "all", use: str = "eval_in", decoding: str = "sampled") -> Difference:
    (one,) = [each for each in found.differences if (each.facet, each.value, each.use, each.decoding) == (facet, value, use, decoding)]
    return one


def test_a_gain_is_found_where_it_is_and_a_loss_beside_it(tasks: list[Task], tmp_path: Path) -> None:
    """Given one store in which the second policy is better at one intent, the same at another and worse at a third that has few tasks,
    then the first is flagged, the second is not, and of the third nothing is said."""
    found = compare([trained(tmp_path / "s", tasks, BETTER, 0)], "sft1", "rl")
    gain, same, few = (of(found, "intent", intent) for intent in ("close_order", "order_status", "stock_question"))
    assert gain.is_clear and gain.interval is not None and gain.interval.low < 0.4 < gain.interval.high
    assert not same.is_clear and same.interval is not None and same.interval.low < 0 < same.interval.high
    assert (few.tasks, few.interval, few.is_clear) == (5, None, False) and few.second < few.first
    assert of(found).tasks == 105 and of(found).second - of(found).first == pytest.approx(of(found).by_seed[0])
    assert {each.facet for each in found.differences} == {"all", "kind", "intent", "difficulty", "mode"}, (
        "one world and one language: the total"
    )
    assert found.policies == (("policy-sft1-0", "policy-rl-0"),)


@pytest.mark.slow
def test_policies_that_are_alike_are_seldom_told_apart(tasks: list[Task], tmp_path: Path) -> None:
    """Given twenty pairs of equal policies, then hardly one is flagged: with intervals of 95 %, more than four are (P < .003)."""
    store = trained(tmp_path / "s", tasks[:100:4], FLAT, *range(20))
    assert sum(of(compare([store], f"policy-sft1-{seed}", f"policy-rl-{seed}")).is_clear for seed in range(20)) <= 4


def test_seeds_that_disagree_are_no_clear_gain(tasks: list[Task], tmp_path: Path) -> None:
    """Given three seeds, of which two gain and one loses as much, then each alone is clear, all together are not, and the three differences
    stand beside the interval."""
    worse: Rates = FLAT | {"rl": dict.fromkeys(FLAT["rl"], 0.1)}
    better: Rates = FLAT | {"rl": dict.fromkeys(FLAT["rl"], 0.9)}
    stores = [trained(tmp_path / f"s{seed}", tasks, rates, seed) for seed, rates in enumerate((better, better, worse))]
    assert all(of(compare([store], "sft1", "rl")).is_clear for store in stores)
    together = of(compare(stores, "sft1", "rl"))
    assert not together.is_clear
    assert [round(each, 1) for each in together.by_seed] == [0.4, 0.4, -0.4]
    agreeing = [trained(tmp_path / f"t{seed}", tasks, better, seed) for seed in range(3)]
    assert of(compare(agreeing, "sft1", "rl")).is_clear


def test_every_held_out_set_and_decoding_is_compared_apart(tasks: list[Task], tmp_path: Path) -> None:
    purposes = ("eval_in", "eval_in_greedy", "eval_out")
    found = compare([trained(tmp_path / "s", tasks, FLAT, 0, purposes=purposes)], "policy-sft1-0", "rl")
    totals = [(each.use, each.decoding) for each in found.differences if each.facet == "all"]
    assert totals == [("eval_in", "sampled"), ("eval_in", "greedy"), ("eval_out", "sampled")]


def test_a_task_without_a_rated_rollout_is_left_out_of_all_seeds_and_counted(tasks: list[Task], tmp_path: Path) -> None:
    stores = [trained(tmp_path / f"s{seed}", tasks[:20], FLAT, seed) for seed in range(2)]
    for seed, store in enumerate(stores):
        rows = [
            {
                "rollout_id": f"last-{stage}-{seed}",
                "task_id": tasks[30].id,
                "policy_id": f"policy-{stage}-{seed}",
                "purpose": "eval_in",
                "draw": 0,
                "outcome": "success" if (seed, stage) == (0, "rl") else "infra_failure",
            }
            for stage in STAGES
        ]
        store.commit([part(store, "rollouts", rows, "last")])
    found = compare(stores, "sft1", "rl")
    assert of(found).tasks == 20 and found.unrated == {("eval_in", "sampled"): 1}


def test_what_cannot_be_compared_is_refused_in_a_line(tasks: list[Task], tmp_path: Path) -> None:
    one = trained(tmp_path / "one", tasks[:20], FLAT, 0)
    other = trained(tmp_path / "other", tasks[:30], FLAT, 1)
    with pytest.raises(BadInput, match=r"the tasks are not the same: eval_in of policy-sft1-0 .* 20 tasks, .* of 30, 20 of them the same"):
        compare([one, other], "sft1", "rl")
    with pytest.raises(BadInput, match=r"one and .*one hold the same policies, which is one training seed"):
        compare([one, one], "sft1", "rl")
    with pytest.raises(BadInput, match=r"has no policy sft2; it has .*policy-sft1-0 \(sft1\)"):
        compare([one], "sft2", "rl")
    with pytest.raises(BadInput, match="is compared with itself"):
        compare([one], "sft1", "policy-sft1-0")
    silent = trained(tmp_path / "silent", tasks[:20], FLAT, 2, purposes=("probe",))
    with pytest.raises(BadInput, match="holds no rollouts of sft1 and rl on held-out tasks"):
        compare([silent], "sft1", "rl")

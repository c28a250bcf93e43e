"""Every id in a store has an explanation."""

import pytest

from storage.errors import BadInput
from storage.releases.explain import explain
from storage.store import Store
from tests.storage.conftest import write

EXPECTED = {
    "q-0": ["kept", "retail/buy", "tool load 1, chain depth 2, constraints 2", "policy-1 (sft1), policy-2 (sft2)"],
    "q-2": ["dropped at rules: junk", "no policy yet"],
    "q-3": ["dropped at near: near duplicate", "repeats q-0, similarity 0.830, itself kept", "“buy me a lamp”"],
    "q-5": ["dropped at admit: plan not minimal", "find 灯"],
    "frame-lamp": ["retail/buy", "asked by", "q-0", "seed, by hash"],
    "frame-desk": ["retail/buy", "seed, by hash"],
    "task-1": ["Buy me lamp number 1", "“buy me a lamp”", "seed, by hash of its frame frame-lamp", "in split", "policy-1 (sft1)"],
    "task-2": ["from blueprint", "blueprint-good"],
    "task-3": [
        *("certain for policy-1 (sft1): 6 of 8", "0.41 to 0.93", "rl of", "weight 0.5"),
        "failure rate 0.40 expected, by 16 rollouts of other tasks of its intent",
    ],
    "task-4": ["used for eval_in", "no policy yet"],
    "trajectory-task-1": ["scripted", "success, reward 1", "accepted", "C>F"],
    "rollout-7": ["policy-1 (sft1)", "policy_failure, reward 0; failed checks: state", "draw 7"],
    "policy-2": ["sft2 (sft, local)", "2 items, 2 tasks, 2 of them from raw queries", "started from", "0.500 [0.400, 0.600]", "promoted"],
    "policy-1": ["scratch", "1 certain"],
    "stage-2": ["sft2", "policy-1 (sft1)"],
    "blueprint-bad": ["rejected: no plan", "retail x sequential x hard"],
    "blueprint-good": ["1 success", "cluster-shop"],
    "cluster-shop": ["shop.search_products, shop.buy", "1 accepted, 1 rejected"],
    "shop.search_products": ["Finds products", "2 trajectories"],
    "run-1": ["6 in, 5 kept, 1 dropped"],
    "run-synthesis": ["domain_entropy_bits"],
    "evaluation-1": ["eval_in, sampled", "0.250", "made from", "1 policy: policy-1"],
}


@pytest.mark.parametrize("node", EXPECTED)
def test_any_id_is_explained(sample, node):
    explanation = explain(sample.store, node)
    assert explanation.id == node
    assert [words for words in EXPECTED[node] if words not in str(explanation)] == []
    assert all(text and label for label, text in explanation.facts)


def test_releases_and_splits_are_explained(sample):
    explanation = str(explain(sample.store, sample.second_release))
    assert "2 items, 2 tasks" in explanation
    assert "policy-2 (sft2)" in explanation
    assert "1 task" in str(explain(sample.store, f"{sample.second_release}/rl"))


def test_an_unknown_id_is_bad_input_with_near_ones(sample):
    with pytest.raises(BadInput, match=r"'taks-1'; the nearest ids are task-1"):
        explain(sample.store, "taks-1")


def test_foreign_text_cannot_steer_the_terminal(tmp_path):
    store = Store(tmp_path / "store")
    store.commit([write(store, "queries", {"query_id": "q", "run": "r", "source": "f", "row": 0, "text": "red\x1b[31m\x07 灯\u202e"})])
    assert "red�[31m� 灯�" in str(explain(store, "q"))

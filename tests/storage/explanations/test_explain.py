"""Every id in a store has an explanation."""

import json

import pytest

from storage.errors import BadInput
from storage.explanations.explain import explain
from storage.explanations.explain_conversation import FailedCheck
from storage.releases.text_layout import columns
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
    "trajectory-task-1": [
        "scripted",
        "success, reward 1",
        "verdict accepted",
        "call, then final answer",
        "search_products(category=lamp, max=30)",
        "p7 costs 25.",
    ],
    "rollout-7": ["policy-1 (sft1)", "policy failure, reward 0; failed checks: state", "draw 7"],
    "policy-2": ["sft2 (sft, local)", "2 items, 2 tasks, 2 of them from raw queries", "started from", "0.500 [0.400, 0.600]", "promoted"],
    "policy-1": ["scratch", "1 certain"],
    "stage-2": ["sft2", "policy-1 (sft1)"],
    "blueprint-bad": ["not accepted: no plan", "retail x sequential x hard"],
    "blueprint-good": ["1 success", "cluster-shop"],
    "cluster-shop": ["shop.search_products -> shop.buy", "Finds products", "1 accepted, 1 rejected", "1 accepted: trajectory-task-2"],
    "shop.search_products": ["Finds products", "2 trajectories"],
    "bakery@1a2b3c4d": ["the user's own"],
    "retail": ["world retail", "shop.unused", "buy 4, such as task-1"],
    "taxonomy-1": ["built in"],
    "run-1": ["6 in, 5 kept, 1 dropped"],
    "run-synthesis": ["domain_entropy_bits"],
    "evaluation-1": ["known needs, sampled", "0.250", "made from", "1 policy: policy-1"],
}


def in_one_line(explanation: object) -> str:
    """The printed text without its line breaks and columns."""
    return " ".join(str(explanation).split())


@pytest.mark.parametrize("node", EXPECTED)
def test_any_id_is_explained(sample, node):
    explanation = explain(sample.store, node)
    assert explanation.id == node
    assert [words for words in EXPECTED[node] if words not in in_one_line(explanation)] == []
    assert all(text and label for label, text in explanation.facts)


def test_releases_and_splits_are_explained(sample):
    explanation = str(explain(sample.store, sample.second_release))
    assert "2 items, 2 tasks" in explanation
    assert "policy-2 (sft2)" in explanation
    assert "1 task" in str(explain(sample.store, f"{sample.second_release}/rl"))


def test_an_unknown_id_is_bad_input_with_near_ones_and_the_kinds(sample):
    with pytest.raises(BadInput, match=r"'taks-1'; the nearest ids are task-1") as refused:
        explain(sample.store, "taks-1")
    kinds = set(str(refused.value).partition("This store has ids of: ")[2].split(", "))
    assert kinds >= {"cluster", "query", "policy", "domain", "release"} and "stage" in kinds


@pytest.mark.parametrize(
    ("text", "kind", "node"),
    [
        ("frame-la", "frame", "frame-lamp"),
        ("cluster-", "cluster", "cluster-shop"),
        ("sft1", "policy", "policy-1"),
        ("models/2", "policy", "policy-2"),
        ("seed", "release", None),
        ("shop.un", "tool", "shop.unused"),
        ("search_products", "tool", "shop.search_products"),
    ],
)
def test_a_unique_beginning_or_a_name_is_enough(sample, text, kind, node):
    found = explain(sample.store, text)
    assert (found.kind, found.id) == (kind, node or sample.first_release)


def test_the_beginning_of_a_release_names_its_split_too(sample):
    assert explain(sample.store, f"{sample.second_release[:14]}/rl").id == f"{sample.second_release}/rl"
    assert explain(sample.store, sample.second_release[:14]).kind == "release"


@pytest.mark.parametrize("text", ["task-", "trajectory", "q"])
def test_a_beginning_of_several_ids_is_refused_with_some_of_them(sample, text):
    with pytest.raises(BadInput, match=f"several ids in .* begin with '{text}': .*; write more of the id"):
        explain(sample.store, text)


def test_a_conversation_is_shown_with_its_plan_beside_what_happened(sample):
    shown = in_one_line(explain(sample.store, "rollout-7"))
    assert "user 1 cheap lamp call search_products(category=lamp, max=30) result" in shown
    assert "not done buy(id=p7)" in shown
    assert "not in the plan search_products(category=lamp, max=30)" in shown


def test_a_failed_check_is_shown_with_what_was_expected_and_what_was_there(sample):
    def diagnose(_, row):
        return [FailedCheck(next(iter(json.loads(row["checks"]))), "the state is right", "lamp bought", "nothing bought")]

    shown = in_one_line(explain(sample.store, "rollout-7", diagnose=diagnose))
    assert "state the state is right expected lamp bought found nothing bought" in shown
    assert "failed checks: expected" not in str(explain(sample.store, "rollout-0", diagnose=diagnose)), "it failed nothing"


def test_long_results_are_cut_unless_asked_for_in_full(tmp_path):
    store = Store(tmp_path / "store")
    long = [{"role": "user", "content": "列出订单"}, *conversation_with_result("订" * 500)]
    row = {
        "trajectory_id": "t",
        "outcome": "success",
        "accepted": True,
        "messages": json.dumps(long),
        "teacher": "scripted",
        "checks": "{}",
    }
    store.commit([write(store, "trajectories", row)])
    short, full = str(explain(store, "t")), str(explain(store, "t", full=True))
    assert "300 more characters" in in_one_line(short)
    assert short.count("订") == 201 and full.count("订") == 501
    assert all(columns(line) <= 80 for line in (short + full).splitlines())


def test_a_conversation_of_models_shows_its_roles_grades_and_failure(tmp_path):
    store = Store(tmp_path / "store")
    row = {"trajectory_id": "t", "outcome": "user_failure", "accepted": False, "reason": "user_failure", "messages": "[]", "teacher": "m"}
    provenance = {
        "trajectory_id": "t",
        "roles": '{"user": "openai:m"}',
        "user_turns": 3,
        "user_adhered": 2,
        "planning": 4,
        "failure": "left",
    }
    store.commit([write(store, "trajectories", row | {"checks": "{}"}), write(store, "provenance", provenance)])
    shown = in_one_line(explain(store, "t"))
    for words in ("roles user openai:m", "user 2 of 3 turns followed", "judge's grades planning 4", "failure left"):
        assert words in shown


def conversation_with_result(text):
    call = {"id": "c", "type": "function", "function": {"name": "list_orders", "arguments": "{}"}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": text},
        {"role": "assistant", "content": "好"},
    ]


def test_a_conversation_for_calibration_says_that_it_is_one(tmp_path):
    store = Store(tmp_path / "store")
    blueprint = {"blueprint_id": "b", "status": "calibration", "round": -1, "spec": "{}"}
    row = {"trajectory_id": "t", "blueprint_id": "b", "outcome": "success", "accepted": False, "reason": "calibration", "messages": "[]"}
    store.commit([write(store, "blueprints", blueprint), write(store, "trajectories", row | {"teacher": "scripted", "checks": "{}"})])
    for node in ("b", "t"):
        assert "it only measured which complexity is low and high" in in_one_line(explain(store, node))
        assert "-1" not in str(explain(store, node))


def test_foreign_text_cannot_steer_the_terminal(tmp_path):
    store = Store(tmp_path / "store")
    store.commit([write(store, "queries", {"query_id": "q", "run": "r", "source": "f", "row": 0, "text": "red\x1b[31m\x07 灯\u202e"})])
    assert "red�[31m� 灯�" in str(explain(store, "q"))

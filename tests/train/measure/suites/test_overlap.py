"""The contamination gate of what is frozen: a policy or a release that learned from a suite's question is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from filters.steps.selection.contamination import ContaminationConfig, load
from storage.errors import BadInput
from storage.releases.lineage_graph import origins
from storage.releases.release import ReleaseItem, make_release
from storage.store import Store
from synth.engines.encoder import encode
from synth.suites.child import SuiteFailure, is_installed
from synth.suites.suite_questions import suite_questions
from tests.storage.conftest import build_sample
from train.config import CascadeConfig
from train.measure.suites import overlap
from train.measure.suites.overlap import check_policy_overlap, check_release_overlap, find_overlap, held_out_questions

SAID = "Buy me lamp number 1"
"""In a task of the store."""
LEARNED = "Buy me lamp <b>task-1</b>"
"""In a conversation of the store."""
FOREIGN = ["You received your order and wish to exchange the mechanical keyboard for one with clicky switches."]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store whose requests have 20 characters (`Buy me lamp number 1`), which count here."""
    monkeypatch.setattr(overlap, "SHORTEST", 20)
    return build_sample(tmp_path / "store").store


def trained_release(store: Store) -> tuple[str, str]:
    """A policy of the store, and a release that it was trained on."""
    for policy in store.query("SELECT policy_id FROM policies WHERE stage_id IS NOT NULL ORDER BY policy_id")["policy_id"]:
        splits = origins(store, "policy", policy).filter(kind="split")["id"].to_list()
        if splits:
            return policy, splits[0].rpartition("/")[0]
    raise AssertionError("no trained policy")


def test_a_near_copy_is_found_and_a_short_or_another_text_is_not() -> None:
    asked = "Please cancel order W2378156 because I no longer need it."
    copy = "please cancel the order W2378156 because I no longer need it"
    found = find_overlap([("t1", copy), ("t2", "Yes, please."), ("t3", "Where is the next cafe with a terrace?")], [asked, "Yes, please."])
    assert [(one.item_id, one.question) for one in found] == [("t1", asked)] and found[0].similarity > 0.7
    assert not find_overlap([("t1", copy)], []) and not find_overlap([("t1", copy)], ["Yes, please."]) and not find_overlap([], [asked])


def test_a_policy_that_learned_a_question_is_refused_and_another_suite_is_not(store: Store) -> None:
    """Given a policy and what a user said in its release, when that is a suite's question, then measuring on the suite is refused with
    the item; and not where the question is another, or the policy is an engine."""
    policy, release = trained_release(store)
    with pytest.raises(BadInput, match=rf"policy {policy} \(release {release}\) overlaps suite mine: 1 items, such as trajectory-task-1"):
        check_policy_overlap(store, policy, "mine", [LEARNED])
    check_policy_overlap(store, policy, "mine", FOREIGN)
    check_policy_overlap(store, "policy-of-an-engine", "mine", [LEARNED])


def test_a_release_with_a_question_is_refused(store: Store) -> None:
    release = make_release(store, "seed", {"rl": [ReleaseItem("task", "task-1", "task-1")]}, {})
    with pytest.raises(BadInput, match=f"release {release} overlaps suite bfcl: 1 items"):
        check_release_overlap(store, release, {"agentdojo": FOREIGN, "bfcl": [*FOREIGN, SAID]})
    check_release_overlap(store, release, {"bfcl": FOREIGN})


def test_without_names_all_suites_that_are_installed_are_held_out_and_one_line_names_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a machine with one suite, then its questions alone are held out, with a warning for the rest; a name that is not installed is
    refused, and an empty list holds out none."""

    def questions_of(suite: str) -> list[str]:
        return FOREIGN if suite == "bfcl" else suite_questions("agentdojo")

    monkeypatch.setenv("HEADRACE_SUITES", str(tmp_path))
    monkeypatch.setattr(overlap, "questions_of", questions_of)
    with pytest.warns(UserWarning, match=r"no release is compared with tau2-retail, tau2-airline, agentdojo: not installed") as said:
        assert held_out_questions(None) == {"bfcl": FOREIGN}
    assert len(said) == 1

    def failing_questions_of(suite: str) -> list[str]:
        if suite == "agentdojo":
            raise SuiteFailure("its program ended with exit code 1")
        return questions_of(suite)

    monkeypatch.setattr(overlap, "questions_of", failing_questions_of)
    with pytest.warns(UserWarning, match=r"tau2-retail, tau2-airline: not installed \(`make suites`\); agentdojo: its program ended"):
        assert set(held_out_questions(None)) == {"bfcl"}
    monkeypatch.setattr(overlap, "questions_of", questions_of)
    with pytest.raises(BadInput, match="suite agentdojo is not here"):
        held_out_questions(["bfcl", "agentdojo"])
    assert held_out_questions([]) == {}
    assert CascadeConfig().held_out is None, "the default"


def test_a_suite_that_is_not_installed_cannot_be_held_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_SUITES", str(tmp_path))
    with pytest.raises(BadInput, match="suite agentdojo is not here: `make suites`"):
        load(ContaminationConfig(held_out=("agentdojo",)), encode)


@pytest.mark.skipif(not is_installed("agentdojo"), reason="`make suites` installs agentdojo")
def test_the_questions_of_a_suite_are_a_held_out_set() -> None:
    questions = load(ContaminationConfig(held_out=("agentdojo",)), encode).questions
    assert questions["set"].unique().to_list() == ["agentdojo"] and len(questions) >= 90

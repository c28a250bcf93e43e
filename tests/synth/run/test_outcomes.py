"""Outcomes of a stored run: counts that add up, an example of each reason, and reasons in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from storage.store import Store
from synth.conversations.failed_checks import DEMANDS
from synth.run import proposals
from synth.run.config import SynthesisConfig
from synth.run.outcomes import conversation_example, count_kinds, count_outcomes, reason_in_words, reason_key
from synth.run.proposals import Job, Proposal
from synth.run.result import SynthesisResult
from synth.run.synthesize import synthesize

CONFIG = SynthesisConfig(worlds=("retail",), accepted=20, calibration=24, subsample=12, drills={})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, SynthesisResult]:
    """A run of which every fourth proposal finds no plan."""
    store, real = Store(tmp_path_factory.mktemp("outcomes")), proposals.propose

    def some_unplanned(jobs: Sequence[Job]) -> list[Proposal]:
        made = real(jobs)
        return [
            Proposal(one.job, one.cluster, reason="misfit") if one.job.cell and place % 4 == 3 else one for place, one in enumerate(made)
        ]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("synth.run.synthesize.propose", some_unplanned)
        return store, synthesize(store, CONFIG)


def test_counts_add_up_and_the_most_frequent_outcome_is_first(run: tuple[Store, SynthesisResult]) -> None:
    store, result = run
    counts = count_outcomes(store)
    assert sum(one.proposals for one in counts) == result.proposals
    assert [one.proposals for one in counts] == sorted((one.proposals for one in counts), reverse=True)
    assert (counts[0].outcome, counts[0].reason, counts[0].proposals) == ("success", "", result.accepted)
    rejected = Counter[str]()
    for reason, count in result.rejected.items():
        rejected[reason_key(reason)] += count
    assert {one.reason: one.proposals for one in counts[1:]} == rejected and rejected["misfit"] >= 5


def test_every_example_is_in_the_store_and_the_first_of_its_reason(run: tuple[Store, SynthesisResult]) -> None:
    store, _ = run
    for one in count_outcomes(store):
        table, key = ("blueprints", "blueprint_id") if one.outcome == "unplanned" else ("trajectories", "trajectory_id")
        (row,) = store.query(f"SELECT * FROM {table} WHERE {key} = ?", [one.example.id]).to_dicts()
        assert reason_key(row["reason"] or "") == one.reason and 0 < len(one.example.text) <= 80
        blueprint = row["blueprint_id"]
        first = store.query("SELECT blueprint_id FROM decisions WHERE coalesce(reason, '') = ? ORDER BY round, position", [one.reason])
        assert first["blueprint_id"][0] == blueprint


def test_kinds_of_accepted_conversations_add_up(run: tuple[Store, SynthesisResult]) -> None:
    store, result = run
    kinds = count_kinds(store)
    assert kinds.keys() <= {"act", "look-up", "refusal"} and len(kinds) > 1
    assert sum(kinds.values()) == result.accepted


def test_a_kind_follows_from_what_the_conversation_changes_and_refuses(run: tuple[Store, SynthesisResult]) -> None:
    """The tasks of these conversations know the same: a task that changes nothing and refuses nothing is of a look-up."""
    store, _ = run
    rows = store.query(
        """SELECT json_extract_string(k.spec, '$.success.refusal') AS refusal, json_extract_string(k.spec, '$.success.changes') AS changes
           FROM decisions d JOIN trajectories t USING (blueprint_id) JOIN tasks k USING (task_id) WHERE d.status = 'accepted'"""
    ).to_dicts()
    acts = sum(row["refusal"] is None and row["changes"] != "{}" for row in rows)
    assert 0 < acts <= count_kinds(store)["act"]


def test_an_empty_store_has_no_outcomes(tmp_path: Path) -> None:
    assert count_outcomes(Store(tmp_path)) == [] and count_kinds(Store(tmp_path)) == {}


def test_reasons_are_words() -> None:
    assert all(reason_in_words(name) == f"failed check {name} ({demand})" for name, demand in DEMANDS.items())
    assert reason_in_words("infra_failure") == "the engine did not answer"
    assert reason_in_words("no_recipe").startswith("no plan (no template fits")
    assert reason_in_words("not_minimal") == "no plan (not minimal)"
    assert reason_key("turn_1.goal_0.facts") == reason_key("facts") == "facts"


def test_an_example_is_one_short_line_and_says_what_failed_before_what_was_said() -> None:
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "你好" * 50 + "\n\nplease"}]
    assert len(conversation_example("trajectory-1", messages, None).text) == 80
    assert conversation_example("trajectory-1", messages, "turn 0: it\nleft").text == "turn 0: it left"

"""Lineage in both directions."""

import pytest

from storage.errors import BadInput
from storage.releases.lineage import lineage
from storage.releases.lineage_graph import ORIGINS_SQL, USES_SQL
from storage.store import Store


def ids(nodes, kind: str) -> set[str]:
    return set(nodes.filter(kind=kind)["id"])


def test_from_a_policy_down_to_queries_and_tools(sample):
    found = lineage(sample.store, "policy-2").origins
    assert ids(found, "stage") == {"stage-1", "stage-2"}
    assert ids(found, "release") == {sample.first_release, sample.second_release}
    assert ids(found, "split") == {f"{sample.first_release}/seed", f"{sample.second_release}/sft2"}, "not the split it never read"
    assert ids(found, "task") == {"task-1", "task-2", "task-3"}
    assert ids(found, "query") == {"q-0", "q-4"}
    assert ids(found, "blueprint") == {"blueprint-good"}
    assert ids(found, "tool") == {"shop.search_products", "shop.buy"}


def test_from_a_tool_and_a_query_up_to_the_policies(sample):
    assert ids(lineage(sample.store, "shop.buy").uses, "policy") == {"policy-1", "policy-2"}
    assert ids(lineage(sample.store, "shop.unused").uses, "policy") == set()
    late = lineage(sample.store, "q-4").uses
    assert ids(late, "policy") == {"policy-2"}
    assert ids(late, "release") == {sample.second_release}


def test_the_two_directions_are_each_others_inverse(sample):
    behind = {policy: set(lineage(sample.store, policy).origins["id"]) for policy in ("policy-1", "policy-2")}
    for node in behind["policy-1"] | behind["policy-2"]:
        went_into = ids(lineage(sample.store, node).uses, "policy")
        assert {policy for policy in behind if node in behind[policy]} == went_into, node


def test_each_direction_is_one_query_that_plain_duckdb_runs(sample):
    connection = sample.store.connect()
    for sql, kind, node in ((ORIGINS_SQL, "policy", "policy-2"), (USES_SQL, "tool", "shop.buy")):
        assert connection.execute(sql, [kind, node] * 3).fetchall()


def test_an_evaluation_is_made_from_the_policy_that_it_measured(sample):
    behind = lineage(sample.store, "evaluation-2").origins
    assert set(behind["id"]) == {"policy-2", *lineage(sample.store, "policy-2").origins["id"]}
    assert ids(lineage(sample.store, "policy-1").uses, "evaluation") == {"evaluation-1", "evaluation-2"}
    assert "made from\n  2 policies: policy-1, policy-2" in str(lineage(sample.store, "evaluation-2"))


@pytest.mark.parametrize("run", ["run-1", "run-synthesis"])
def test_a_run_has_no_lineage_and_says_who_answers(sample, run):
    with pytest.raises(BadInput, match=f"{run} is a run, and has no lineage; `headrace explain {run}`"):
        lineage(sample.store, run)


def test_a_release_stands_for_its_splits(sample):
    found = lineage(sample.store, sample.second_release)
    assert ids(found.origins, "task") == {"task-1", "task-2", "task-3"}
    assert ids(found.uses, "policy") == {"policy-2"}


def test_an_unknown_id_is_bad_input_with_near_ones(sample, tmp_path):
    with pytest.raises(BadInput, match=r"'taks-1'; the nearest ids are task-1"):
        lineage(sample.store, "taks-1")
    with pytest.raises(BadInput, match="the store is empty"):
        lineage(Store(tmp_path / "none"), "task-1")


def test_lineage_prints_as_a_few_lines(sample):
    text = str(lineage(sample.store, "policy-2"))
    assert "2 queries: q-0, q-4" in text
    assert "q-0 “buy me a lamp”" in text, "an example is shown with its content"
    assert len(text.splitlines()) < 30


def test_lineage_takes_the_name_of_a_policy(sample):
    assert lineage(sample.store, "sft2").id == "policy-2"

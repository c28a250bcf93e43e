"""Tasks go where their region says, and an empty split is an error that explains itself."""

from collections import Counter

import polars as pl
import pytest

from filters.certainty.certainty import RegionConfig, certainty
from filters.certainty.route import QUERY_SHARE, RouteConfig, rl_weights, route
from storage.errors import HeadraceError
from storage.releases.release import ReleaseItem

SEED = [ReleaseItem(kind="trajectory", item_id="expert-1", task_id="s1", weight=1.0)]


def probe(**successes: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    rows = [
        {
            "rollout_id": f"{task}/{draw}",
            "task_id": task,
            "policy_id": "p",
            "draw": draw,
            "outcome": "success" if draw < hits else "policy_failure",
            "reward": float(draw < hits),
            "messages": f"{task} " + "longer " * (draw == 0) + str(draw),
        }
        for task, hits in successes.items()
        for draw in range(8)
    ]
    rollouts = pl.DataFrame(rows)
    difficulty = pl.DataFrame({"task_id": list(successes), "difficulty": 1})
    return certainty(rollouts, difficulty, RegionConfig(), purpose="probe"), rollouts


def test_each_region_goes_its_own_way():
    splits = route(SEED, *probe(a=8, b=6, c=3, d=1, e=0), {}, RouteConfig(rl_uniform=0.0))
    assert [item.item_id for item in splits["sft2"]] == ["expert-1", "a/1", "b/1", "c/1", "d/0"], (
        "expert traces, then of every solved task the shortest verified own trace"
    )
    assert [item.task_id for item in splits["rl"]] == ["c", "d"]
    assert [item.task_id for item in splits["hold"]] == ["e"]


def test_the_second_sft_learns_from_certain_and_mastered_tasks_alone_where_that_is_asked_for():
    splits = route(SEED, *probe(a=8, b=6, c=3, d=1, e=0), {}, RouteConfig(second="certain", rl_uniform=0.0))
    assert [item.item_id for item in splits["sft2"]] == ["expert-1", "a/1", "b/1"]
    assert [item.task_id for item in splits["rl"]] == ["c", "d"], "as before"


def test_rl_weights_have_a_uniform_floor_and_sum_to_one():
    weights = {item.task_id: item.weight for item in route(SEED, *probe(a=8, b=6, c=5, d=1, e=0), {}, RouteConfig(rl_uniform=0.5))["rl"]}
    assert sum(weights.values()) == pytest.approx(1)
    assert weights["a"] == weights["e"] == pytest.approx(0.1)
    assert weights["c"] > weights["d"] > weights["a"]


def test_what_was_never_measured_gets_the_floor_and_all_get_the_same_where_nothing_is_uncertain():
    tags, _ = probe(a=8, b=4, c=0)
    unmeasured = pl.DataFrame({"task_id": ["d"], "region": [None], "learnability": [None]}, schema_overrides={"region": pl.String})
    known = pl.concat([tags.select(unmeasured.columns), unmeasured.cast({"learnability": pl.Float64})])
    assert rl_weights(known, {}, 0.4).to_list() == pytest.approx([0.1, 0.7, 0.1, 0.1])
    assert rl_weights(known.filter(pl.col("task_id") != "b"), {}, 0.0).to_list() == pytest.approx([1 / 3] * 3)


def shares_by_query(queries: dict[str, str], **successes: int) -> tuple[Counter[str], dict[str, float]]:
    """The share of RL's draws of each query ("" for what stems from none), and all weights by task."""
    weights = {item.task_id: item.weight for item in route(SEED, *probe(**successes), queries, RouteConfig())["rl"]}
    shares: Counter[str] = Counter()
    for task, weight in weights.items():
        shares[queries.get(task, "")] += weight
    return shares, weights


def test_no_query_gets_more_than_its_share_of_rl() -> None:
    """Given 24 queries of six tasks each, four of which alone can be learnt from, and tasks of no query, then none has more than 5 %, what
    they give up goes to the other queries, and inside a query the more learnable tasks still get more."""
    queries = {f"q{query:02d}_{task}": f"q{query:02d}" for query in range(24) for task in range(6)}
    successes = {task: (5 if task.endswith("0") else 3) if query < "q04" else 8 for task, query in queries.items()}
    own = {f"b{task}": (6, 5, 0)[task % 3] for task in range(60)}
    shares, weights = shares_by_query(queries, **successes, **own)
    uncapped = {item.task_id: item.weight for item in route(SEED, *probe(**successes, **own), {}, RouteConfig())["rl"]}
    assert max(share for query, share in shares.items() if query) == pytest.approx(QUERY_SHARE)
    assert sum(weight for task, weight in uncapped.items() if queries.get(task) == "q00") > 1.2 * QUERY_SHARE
    assert sum(shares.values()) == pytest.approx(1)
    assert shares[""] == pytest.approx(sum(weight for task, weight in uncapped.items() if task not in queries))
    assert shares["q10"] == pytest.approx(shares["q23"]) and shares["q10"] > 6 * uncapped["q10_0"]
    assert weights["q00_0"] > weights["q00_1"] and len(weights) == len(queries) + len(own)


def test_too_few_queries_for_the_cap_keep_their_weights() -> None:
    few = {"c": "q1", "d": "q2"}
    shares, _ = shares_by_query(few, a=8, b=6, c=5, d=1)
    free, _ = shares_by_query({}, a=8, b=6, c=5, d=1)
    assert sum(shares.values()) == pytest.approx(sum(free.values())) and shares["q1"] > shares["q2"] > QUERY_SHARE


def test_replay_takes_about_its_share_of_the_mastered():
    mastered = {f"m{n}": 8 for n in range(400)}
    splits = route(SEED, *probe(u=3, **mastered), {}, RouteConfig(replay_share=0.25))
    assert 60 <= len(splits["sft2"]) - len(SEED) - 1 <= 140, "and the solved one"


def test_equal_conversations_are_trained_on_once():
    tags, rollouts = probe(a=8, b=8, c=3)
    same = rollouts.with_columns(messages=pl.lit("the same"))
    assert len(route(SEED, tags, same, {}, RouteConfig())["sft2"]) == len(SEED) + 1


@pytest.mark.parametrize(("split", "successes"), [("sft2", {"a": 0, "b": 0}), ("rl", {"a": 8, "b": 0})])
def test_an_empty_split_names_thresholds_and_histogram(split, successes):
    with pytest.raises(HeadraceError, match=rf"split {split} would be empty.*\{{0/8: [12].*certain >= 0.75"):
        route(SEED, *probe(**successes), {}, RouteConfig())


@pytest.mark.parametrize("column", ["k", "successes", "region", "learnability", "task_id"])
def test_tags_without_a_column_are_refused_by_its_name(column: str) -> None:
    tags, rollouts = probe(a=8, b=4, c=0)
    with pytest.raises(HeadraceError, match=f"lack the column {column}"):
        route(SEED, tags.drop(column), rollouts, {}, RouteConfig())

"""Certainty follows from rated rollouts alone, by the formulas of P7."""

from collections.abc import Sequence

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from filters.certainty.certainty import DrawsConfig, Region, RegionConfig, certainty, histogram
from synth.intervals import wilson


def rollouts(*outcomes: str, task: str = "t") -> pl.DataFrame:
    rewards = {"success": 1.0, "policy_failure": 0.0}
    return pl.DataFrame(
        {"task_id": task, "policy_id": "p", "outcome": list(outcomes), "reward": [rewards.get(outcome) for outcome in outcomes]},
        schema_overrides={"reward": pl.Float64},
    )


DIFFICULTY = pl.DataFrame({"task_id": ["t"], "difficulty": [3]})


@pytest.mark.parametrize(("successes", "expected"), [(0, (0.0, 0.3244)), (6, (0.4093, 0.9285)), (8, (0.6756, 1.0))])
def test_wilson_gives_published_intervals(successes, expected):
    assert wilson(successes, 8) == pytest.approx(expected, abs=1e-4)


def test_graded_rewards_move_mean_and_variance_and_no_success() -> None:
    """Given two successes, one of them with less than full marks, and a failure that was worth something."""
    graded = rollouts("success", "success", "policy_failure", "infra_failure").with_columns(reward=pl.Series([1.0, 0.5, 0.6, None]))
    row = certainty(graded, DIFFICULTY, RegionConfig(), purpose="probe").row(0, named=True)
    assert (row["k"], row["successes"], row["region"]) == (3, 2, "uncertain")
    assert row["reward_mean"] == pytest.approx(0.7)
    assert row["reward_variance"] == pytest.approx((0.3**2 + 0.2**2 + 0.1**2) / 3)
    assert row["learnability"] == pytest.approx(row["reward_variance"] * 0.7)


@given(st.integers(0, 50), st.integers(0, 50))
def test_wilson_holds_the_rate_and_stays_in_bounds(successes, failures):
    low, high = wilson(successes, successes + failures)
    assert 0 <= low <= high <= 1
    if successes + failures:
        assert low - 1e-12 <= successes / (successes + failures) <= high + 1e-12


def test_wilson_refuses_impossible_counts():
    with pytest.raises(ValueError, match="9 successes of 8"):
        wilson(9, 8)


@pytest.mark.parametrize(
    ("successes", "region", "learnability"),
    [
        (8, "mastered", 0.0),
        (7, "certain", 0.096),
        (6, "certain", 0.141),
        (5, "uncertain", 0.146),
        (1, "uncertain", 0.014),
        (0, "out_of_reach", 0.0),
    ],
)
def test_regions_and_learnability_are_those_of_the_routing_table(successes, region, learnability):
    draws = rollouts(*["success"] * successes, *["policy_failure"] * (8 - successes))
    (row,) = certainty(draws, DIFFICULTY, RegionConfig(), purpose="probe").to_dicts()
    assert (row["region"], row["k"], row["successes"], row["difficulty"]) == (region, 8, successes, 3)
    assert row["learnability"] == pytest.approx(learnability, abs=6e-4)


def test_what_is_not_the_policys_fault_never_enters_a_rate():
    spoilt = ["infra_failure", "user_failure", "tool_failure", "judge_failure", "unfinished"]
    lenient = RegionConfig(min_rated=0.01)
    (row,) = certainty(rollouts("success", "policy_failure", *spoilt), DIFFICULTY, lenient, purpose="probe").to_dicts()
    assert (row["k"], row["rate"]) == (2, 0.5)
    assert certainty(rollouts(*spoilt), DIFFICULTY, lenient, purpose="probe").height == 0


@pytest.mark.parametrize(("rated", "tags"), [(8, 1), (6, 1), (5, 0), (1, 0)])
def test_a_task_of_which_too_little_was_seen_gets_no_tag(rated, tags):
    """Given a task of whose eight rollouts the machine spoilt some, and one that was spared, then the first has a tag from six on."""
    draws = rollouts(*["success"] * rated, *["infra_failure"] * (8 - rated))
    both = pl.concat([draws, rollouts(*["success"] * 8, task="spared")])
    assert certainty(both, DIFFICULTY, RegionConfig(), purpose="probe")["task_id"].to_list() == ["spared", "t"][: 1 + tags]


def test_thresholds_that_do_not_rise_are_refused():
    with pytest.raises(ValidationError, match="thresholds must rise"):
        RegionConfig(certain_rate=0.9, mastered_rate=0.8)


def test_tasks_are_counted_by_successes_of_so_many():
    """Two of two are mastered, and two of four are not: they are no one figure."""
    counts = {"a": (2, 0), "b": (2, 2), "c": (0, 2), "d": (2, 2)}
    made = [rollouts(*["success"] * won, *["policy_failure"] * lost, task=task) for task, (won, lost) in counts.items()]
    tags = certainty(pl.concat(made), DIFFICULTY, RegionConfig(), purpose="probe")
    assert list(histogram(tags).items()) == [("0/2", 1), ("2/4", 2), ("2/2", 1)]


def test_what_never_succeeds_is_out_of_reach():
    assert RegionConfig().region(0.0) is Region.OUT_OF_REACH


# ---- how many draws --------------------------------------------------------------------------------------------------------


def region_of(outcomes: Sequence[bool], draws: DrawsConfig, regions: RegionConfig) -> tuple[Region, int]:
    """Where a task ends whose draws would come out so, and how many of them are made."""
    for look in draws.looks:
        made = outcomes[:look]
        if draws.is_settled(sum(made), len(made), draws.most - look, regions):
            break
    return regions.region(sum(made) / len(made)), len(made)


@given(st.lists(st.booleans(), min_size=16, max_size=16))
def test_a_region_that_is_settled_is_the_one_that_all_draws_would_give(outcomes):
    """Unless the first eight all came out alike, which is taken for all."""
    region, made = region_of(outcomes, DrawsConfig(), RegionConfig())
    assert made in (8, 10, 12, 14, 16)
    if len(set(outcomes[:8])) == 1:
        assert (region, made) == (Region.MASTERED if outcomes[0] else Region.OUT_OF_REACH, 8)
    else:
        assert region is RegionConfig().region(sum(outcomes) / 16)


@pytest.mark.parametrize(("successes", "settled"), [(0, True), (1, True), (3, True), (4, False), (7, False), (8, True)])
def test_after_eight_draws_only_what_may_still_change_is_drawn_again(successes, settled):
    assert DrawsConfig().is_settled(successes, 8, 8, RegionConfig()) is settled


@pytest.mark.parametrize(
    ("successes", "rated", "made", "settled"),
    [(0, 5, 8, False), (1, 5, 8, False), (7, 7, 10, False), (0, 6, 8, True), (1, 6, 8, True), (9, 9, 12, True)],
)
def test_draws_end_where_a_task_has_a_tag_and_no_sooner(successes, rated, made, settled):
    """Given spoilt draws among those made, then what would be settled goes on until three in four are rated."""
    assert DrawsConfig().is_settled(successes, rated, 16 - made, RegionConfig()) is settled
    draws = rollouts(*["success"] * successes, *["policy_failure"] * (rated - successes), *["infra_failure"] * (made - rated))
    assert certainty(draws, DIFFICULTY, RegionConfig(), purpose="probe").height == settled


@pytest.mark.parametrize(("rated", "settled"), [(0, True), (3, True), (4, False)])
def test_draws_end_where_too_many_were_spoilt_for_any_tag(rated, settled):
    """Given eight draws, then with eight good ones more it takes four of them to be three in four of sixteen."""
    assert DrawsConfig().is_settled(0, rated, 8, RegionConfig()) is settled


def test_where_all_tasks_get_k_draws_there_is_one_look_and_never_fewer_draws_than_k():
    assert DrawsConfig(k=8, most=8).looks == (8,)
    with pytest.raises(ValidationError, match="most, 4, is below k, 8"):
        DrawsConfig(most=4)

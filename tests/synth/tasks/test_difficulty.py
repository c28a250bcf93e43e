"""Static difficulty, bin by bin."""

from __future__ import annotations

import pytest

from storage.records import Frame
from synth.tasks.difficulty import Difficulty, difficulty, names_a_tool, rate, score_shape, tool_words
from synth.worlds import WORLDS
from synth.worlds.base import Shape

RetailWorld = WORLDS["retail"]


def chain(calls: int, depth: int = 1, tools: int = 1) -> Shape:
    """`calls` calls of `tools` tools, the first `depth` of them in one chain."""
    return Shape(tuple((f"tool_{index % tools}", (index - 1,) if 0 < index < depth else ()) for index in range(calls)))


@pytest.mark.parametrize(("calls", "score"), [(1, 1), (2, 2), (3, 3), (4, 3), (5, 4), (7, 4), (8, 5), (20, 5)])
def test_chain_bins(calls: int, score: int) -> None:
    assert score_shape(chain(calls), 0, has_conflict=False, names_a_tool=True).s_chain == score


def test_a_deep_chain_costs_one_more_but_never_above_five() -> None:
    assert score_shape(chain(4, depth=4), 0, has_conflict=False, names_a_tool=True).s_chain == 4
    assert score_shape(chain(9, depth=9), 0, has_conflict=False, names_a_tool=True).s_chain == 5


@pytest.mark.parametrize(("constraints", "score"), [(0, 1), (1, 1), (2, 2), (3, 3), (4, 4), (5, 4), (6, 5), (9, 5)])
def test_constraint_bins(constraints: int, score: int) -> None:
    assert score_shape(chain(1), constraints, has_conflict=False, names_a_tool=True).s_constraints == score
    assert score_shape(chain(1), constraints, has_conflict=True, names_a_tool=True).s_constraints == min(5, score + 1)


@pytest.mark.parametrize(("tools", "is_named", "score"), [(1, True, 1), (1, False, 2), (4, True, 4), (6, True, 4), (6, False, 5)])
def test_tool_load(tools: int, is_named: bool, score: int) -> None:
    assert score_shape(chain(8, tools=tools), 0, has_conflict=False, names_a_tool=is_named).s_tool == score


def test_the_weighted_sum_is_rounded_with_halves_up() -> None:
    assert score_shape(chain(1), 1, has_conflict=False, names_a_tool=True) == Difficulty(1, 1, 1, 1)
    assert score_shape(chain(8, tools=4), 6, has_conflict=True, names_a_tool=False).r == 5
    # 0.3 * 1 + 0.4 * 1 + 0.3 * 6 would be capped; 0.3 * 2 + 0.4 * 1 + 0.3 * 5 = 2.5 -> 3
    assert score_shape(chain(1, tools=1), 6, has_conflict=False, names_a_tool=False).r == 3


def test_refusals_and_talk_have_their_own_ratings() -> None:
    assert (
        difficulty(WORLDS["retail"], Frame(world="retail", intent="special_service", slots={"order": "o01", "service": "gift_wrap"})).r
        == -1
    )
    assert difficulty(WORLDS["retail"], Frame(world="retail", intent="shop_information", slots={"topic": "shipping_fee"})).r == 0


def test_a_text_that_names_no_tool_is_harder() -> None:
    frame = Frame(world="retail", intent="close_order", slots={"order": "o17"})
    assert (
        difficulty(WORLDS[frame.world], frame, "cancel or return o17").s_tool
        < difficulty(WORLDS[frame.world], frame, "I no longer want o17").s_tool
    )
    assert difficulty(WORLDS[frame.world], frame, "请取消 o17").s_tool < difficulty(WORLDS[frame.world], frame, "o17 我不要了").s_tool
    assert not names_a_tool("a buyer", tool_words(WORLDS["retail"], "buy_product", frozenset({"user", "product"})))


def test_the_shop_has_all_ratings_and_most_are_easy() -> None:
    ratings = [
        rate(WORLDS["retail"], name, frozenset(slot.name for slot in intent.slots if slot.is_required or with_optional), is_named).r
        for name, intent in RetailWorld.intents.items()
        for with_optional in (False, True)
        for is_named in (False, True)
    ]
    assert set(ratings) == {-1, 0, 1, 2, 3, 4, 5}
    assert sum(rating <= 3 for rating in ratings) > 0.7 * len(ratings)

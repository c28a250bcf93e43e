"""Admission: quotas are filled from the shortlist, and no refusal reason holds more than half of the refusal tasks."""

import json
from collections import Counter

import polars as pl
import pytest

from filters.steps.selection.admit import admit
from filters.steps.selection.coverage import CoverageConfig
from storage.records import RefusalReason
from synth.haystack.usual_values import usual_values
from synth.tasks.solver import is_evaluation_seed
from synth.tasks.split import DivisionConfig

KEEP = 30
ORDERS = usual_values("retail", "order")
WISHES = usual_values("retail", "wish")
REFUSED = {
    RefusalReason.MISSING_INFORMATION: [("buy_unnamed", {"user": user}) for user in usual_values("retail", "user")],
    RefusalReason.NOT_ACTIONABLE: [("impossible_wish", {"order": order, "wish": WISHES[0]}) for order in ORDERS],
    RefusalReason.RULE: [("cancel_delivered", {"order": order}) for order in ORDERS],
}
INFORMATION, WISH, RULE = REFUSED


def shortlist(refusals: dict[RefusalReason, int]) -> pl.DataFrame:
    """So many rows that are to be refused for each reason, one reason after the other, and twice as many easy ones as are kept."""
    rows = [(frame, -1) for reason, count in refusals.items() for frame in REFUSED[reason][:count]]
    rows += [(("order_status", {"order": order}), 1) for order in ORDERS[: 2 * KEEP]]
    return pl.DataFrame(
        {
            "row": pl.Series(range(len(rows)), dtype=pl.UInt32),
            "text": [f"request {number}" for number in range(len(rows))],
            "language": "en",
            "world": "retail",
            "intent": [intent for (intent, _), _ in rows],
            "slots": [json.dumps(slots) for (_, slots), _ in rows],
            "difficulty": pl.Series([level for _, level in rows], dtype=pl.Int8),
            "level": pl.Series([level for _, level in rows], dtype=pl.Int8),
            "stratum_rank": pl.Series(range(len(rows)), dtype=pl.Int32),
        }
    )


@pytest.mark.parametrize(
    ("available", "admitted"),
    [
        ({INFORMATION: 20}, {}),
        ({INFORMATION: 20, RULE: 2}, {INFORMATION: 2, RULE: 2}),
        ({WISH: 3, INFORMATION: 20, RULE: 1}, {WISH: 3, INFORMATION: 4, RULE: 1}),
        ({INFORMATION: 20, WISH: 20}, {INFORMATION: 5, WISH: 5}),
    ],
)
def test_no_refusal_reason_holds_more_than_half(available: dict[RefusalReason, int], admitted: dict[RefusalReason, int]) -> None:
    """Given a quota of ten refusal tasks, then a reason has what the others have together at most, and other rows fill the rest."""
    rows = shortlist(available)
    result = admit(rows, [f"q-{row}" for row in rows["row"]], CoverageConfig(keep=KEEP), DivisionConfig())
    held = Counter(task.success.refusal for task in result.tasks.values() if task.success.refusal is not None)
    assert held == admitted
    assert len(result.tasks) == KEEP
    assert not set(result.tasks) & set(result.refused)
    full = Counter(rows["intent"][row] for row, reason in result.refused.items() if reason == "reason_full")
    assert set(full) <= {REFUSED[reason][0][0] for reason in available}


def test_a_stratum_without_a_quota_stands_in() -> None:
    """Given one task wanted, of difficulty 2, and no row of that which may be done, then a row of difficulty 1 is admitted."""
    rows = shortlist({RULE: 2})[:4].with_columns(difficulty=(levels := pl.Series([2, 2, 1, 1], dtype=pl.Int8)), level=levels)
    result = admit(rows, [f"q-{row}" for row in rows["row"]], CoverageConfig(keep=1), DivisionConfig())
    assert set(result.tasks) == {2} and set(result.refused) == {0, 1}


def test_a_held_out_frame_becomes_an_evaluation_task_at_once() -> None:
    """Given frames of every division, then a task is for evaluation, in a world set aside for it, if and only if its frame is held out."""
    rows = shortlist({INFORMATION: 8, WISH: 8})
    tasks = admit(rows, [f"q-{row}" for row in rows["row"]], CoverageConfig(keep=KEEP), DivisionConfig()).tasks.values()
    assert {task.division for task in tasks} == {"seed", "probe", "held_out"}
    for task in tasks:
        assert (task.use == "eval_out") == (task.division == "held_out") == is_evaluation_seed(task.world_seed)

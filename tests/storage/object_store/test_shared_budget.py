"""A month's budget of a store that two machines share on S3; what they exchange is tested in `tests/synth/engines/spending`."""

from __future__ import annotations

from pathlib import Path

import pytest

from synth.engines.budget import BudgetSpent, MonthlyBudget
from tests.conftest import Serve
from tests.storage.object_store.test_shared_log import copy_of
from tests.synth.engines.spending.test_ledger import Billing, ask


@pytest.mark.slow
def test_two_machines_spend_one_budget(s3: str, serve: Serve, tmp_path: Path) -> None:
    """Given runs of two machines one after the other, then the bill of both is within the budget, and little of it is left."""
    here, there = (copy_of(f"{s3}/spent", tmp_path / name) for name in ("here", "there"))
    mock, budget = Billing(), MonthlyBudget(tokens=2_000)
    url = serve(mock)
    ask(url, here.root, 60, budget)
    assert mock.billed == 60 * 13
    with pytest.raises(BudgetSpent, match=r"the budget of openai:mock for .* of 2,000 tokens"):
        ask(url, there.root, 300, budget)
    assert 1_700 < mock.billed <= 2_000
    with pytest.raises(BudgetSpent):
        ask(url, here.root, 400, budget)
    assert mock.billed <= 2_000

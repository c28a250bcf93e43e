"""How well static difficulty and the measured prior predict is told from the tags of a probe."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.report import sections
from storage.report.page import write_report
from storage.store import Store
from tests.storage.conftest import write


def test_the_prior_stands_beside_static_difficulty_and_the_hardest_need_comes_first(tmp_path: Path) -> None:
    """Given five tasks of one level, of which the prior orders the failures and static difficulty cannot."""
    store = Store(tmp_path / "store")
    tagged = {"policy_id": "p", "purpose": "probe", "difficulty": 2, "k": 8, "region": "uncertain", "prior_basis": "need"}
    rates = {"a": (0.0, 0.9), "b": (0.0, 0.8), "c": (0.5, 0.4), "d": (1.0, 0.2), "e": (0.9, 0.3)}
    rows = [
        tagged
        | {
            "task_id": name,
            "rate": rate,
            "successes": round(8 * rate),
            "difficulty_prior": prior,
            "need": f"<{'ab' if name in 'ab' else name}>",
        }
        for name, (rate, prior) in rates.items()
    ]
    store.commit([write(store, "policies", {"policy_id": "p", "stage_id": ""}), write(store, "tags", *rows)])
    shown = sections.tags(store)
    (fit,) = shown["fits"]
    assert fit["static"] is None and fit["prior"] == pytest.approx(0.975, abs=0.01)
    assert fit["bases"] == {"need": 5, "intent": 0, "static": 0}
    assert [(row["need"], row["tasks"], row["failure"]) for row in shown["hardest"]][:2] == [("<ab>", 2, 1.0), ("<c>", 1, 0.5)]
    assert "&lt;ab&gt;" in write_report(store, tmp_path / "report.html").read_text()

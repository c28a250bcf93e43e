"""What counts as lost, as paid twice and as sent again, and that the count sees it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from benchmarks.synthesis_sections import faults
from benchmarks.synthesis_sections.mock_openai import started


def test_a_try_after_the_answer_was_kept_is_paid_twice_and_one_before_is_sent_again(tmp_path: Path) -> None:
    # given one request answered and kept, then sent again; one that timed out first; one whose server was killed; one that was refused
    lines = [("a", "received", 1), ("a", "answered", 2), ("b", "received", 2), ("c", "received", 2), ("d", "received", 2)]
    lines += [("b", "hang", 4), ("d", "rate_limited", 4)]
    lines += [(one, what, at_s) for at_s, one in enumerate("abcd", 5) for what in ("received", "answered")]
    (tmp_path / "served").write_text("".join(json.dumps(line) + "\n" for line in lines))
    sent = faults.tries(tmp_path / "served")
    assert [(one.request, one.ended) for one in sent[:4]] == [("a", "answered"), ("b", "hang"), ("c", ""), ("d", "rate_limited")]
    # then
    assert faults.paid_twice(sent, {"a": 2.5, "b": 6.5, "c": 7.5}) == 1
    assert faults.paid_twice(sent, {"a": 5.5, "b": 6.5, "c": 7.5}) == 0, "what was sent before its answer was there is paid once"
    assert faults.sent_again(sent) == {"answered": 1, "hang": 1, "server killed": 1, "rate_limited": 1}


@pytest.mark.slow
def test_a_client_that_forgets_its_answers_is_seen_to_pay_twice(tmp_path: Path) -> None:
    """The measurement with real processes: a client that is started again pays for nothing, and without its journal for everything."""
    with started(latency_ms=1, faults={"rate_limited": 0.2}, journal=tmp_path / "served") as server:
        for _ in range(2):
            faults._finish(faults._client(server, tmp_path, proposals=6))
        sent, kept = faults.tries(tmp_path / "served"), faults.kept_answers(tmp_path)
        requests = {one.request for one in sent}
        assert set(kept) == requests and len(sent) > len(requests) > 6
        assert faults.paid_twice(sent, kept) == 0

        shutil.rmtree(tmp_path / "store")
        faults._finish(faults._client(server, tmp_path, proposals=6))
        assert faults.paid_twice(faults.tries(tmp_path / "served"), kept) >= len(requests)


@pytest.mark.slow
def test_a_conversation_without_an_answer_is_seen_to_be_lost(tmp_path: Path) -> None:
    with started(latency_ms=1, journal=tmp_path / "served") as server:
        faults._finish(faults._client(server, tmp_path, proposals=6))
    outcomes, asked = faults.played(tmp_path), {one.request for one in faults.tries(tmp_path / "served")}
    assert outcomes == ["policy_failure"] * 6
    assert faults.lost(tmp_path, outcomes, asked) == 0
    assert faults.lost(tmp_path, [*outcomes[:4], "missing", "infra_failure"], asked | {"never answered"}) == 3


@pytest.mark.slow
def test_a_budget_that_is_overrun_is_seen(tmp_path: Path) -> None:
    """Tries that came in beyond those allowed: none with a budget, and what a client without one sends."""
    with started(latency_ms=5, journal=tmp_path / "served") as server:
        faults._finish(faults._client(server, tmp_path, tokens=100, proposals=12))
        allowed = int((tmp_path / "spent").read_text())
        assert len(faults.tries(tmp_path / "served")) == allowed < 30
        faults._finish(faults._client(server, tmp_path, proposals=12))
        assert len(faults.tries(tmp_path / "served")) > allowed

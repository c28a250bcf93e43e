"""How clients are compared: each with all its answers, each in an environment of its own, by what a further call takes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import synthesis_client as client
from benchmarks.harness import ROOT
from benchmarks.mock_openai import started
from benchmarks.synthesis_contestants import CONTESTANTS

RELEASES = {"distilabel": "distilabel", "data_designer": "data-designer", "curator": "bespokelabs-curator"}


def test_every_peer_is_pinned_in_an_environment_of_its_own() -> None:
    assert {*client.OURS.values(), *client.PEERS.values()} == set(CONTESTANTS)
    for name in client.PEERS.values():
        lines = (ROOT / "benchmarks" / f"peers_{name}.txt").read_text().splitlines()
        assert all(re.fullmatch(r"#.*|[A-Za-z0-9._-]+==\S+", line) for line in lines)
        assert any(line.startswith(f"{RELEASES[name]}==") for line in lines)


def test_a_call_is_the_slope_between_two_runs_that_got_every_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours, really run against the mock; and a run with fewer answers than calls is refused."""
    monkeypatch.setattr(client, "WORK", tmp_path)
    monkeypatch.setattr(client, "ROUNDS", 1)
    monkeypatch.setattr(client, "FEW", 50)
    monkeypatch.setattr(client, "LATENCY_MS", 1)
    (spent_s,) = client._interleaved(["headrace"], 1_050)["headrace"]
    assert 5e-5 < spent_s < 1e-2
    with started(latency_ms=1, faults={"rate_limited": 1.0}) as refusing, pytest.raises(SystemExit):
        client._cpu_s("headrace", refusing.url, 1)


def test_a_ratio_is_taken_round_by_round() -> None:
    assert client.ratio([1.0, 2.0, 4.0], [20.0, 20.0, 60.0]) == 15.0

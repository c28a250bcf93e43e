"""How clients are compared: each with all its answers, each in an environment of its own, by what a further call takes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.harness import ROOT
from benchmarks.synthesis_sections import client
from benchmarks.synthesis_sections.client_peers import CONTESTANTS
from benchmarks.synthesis_sections.mock_openai import started

RELEASES = {"distilabel": "distilabel", "data_designer": "data-designer", "curator": "bespokelabs-curator"}


def test_every_peer_is_pinned_in_an_environment_of_its_own() -> None:
    assert {*client.OURS.values(), *client.PEERS.values()} == set(CONTESTANTS)
    for name in client.PEERS.values():
        lines = (ROOT / "benchmarks" / f"peers_{name}.txt").read_text().splitlines()
        assert all(re.fullmatch(r"#.*|[A-Za-z0-9._-]+==\S+", line) for line in lines)
        assert any(line.startswith(f"{RELEASES[name]}==") for line in lines)


def test_a_call_is_the_slope_between_two_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    a_call_s = {"headrace": 1 / 5_000, "curator": 1 / 250}
    monkeypatch.setattr(client, "_cpu_s", lambda name, url, calls: 3 + calls * a_call_s[name])
    spent = client._interleaved(list(a_call_s), 1_050)
    assert spent["headrace"] == pytest.approx([1 / 5_000] * client.ROUNDS)
    assert spent["curator"] == pytest.approx([1 / 250] * client.ROUNDS)


@pytest.mark.slow
def test_a_run_that_lacks_answers_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours, really run against the mock."""
    monkeypatch.setattr(client, "WORK", tmp_path)
    with started(latency_ms=1) as server:
        client._cpu_s("headrace", server.url, 50)
    with started(latency_ms=1, faults={"rate_limited": 1.0}) as refusing, pytest.raises(SystemExit):
        client._cpu_s("headrace", refusing.url, 1)


def test_a_ratio_is_taken_round_by_round() -> None:
    assert client.ratio([1.0, 2.0, 4.0], [20.0, 20.0, 60.0]) == 15.0

"""`headrace synthesize` with a language model: what a preview says and pays for, and what a person is told of a run that stopped short.

The server is a scripted one (`benchmarks/mock_openai.py`), whose conversations all fail; it keeps a journal of what it was asked.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prefect.artifacts import Artifact
from typer.testing import CliRunner

from benchmarks.mock_openai import started
from flows.cli import synthesize as cli_synthesize
from flows.cli.main import app
from flows.config import Config
from flows.synthesize import make_trajectories, synthesize
from storage.records import Cost
from synth.run.result import Preview

SMALL = {
    "worlds": ["clinic"],
    "accepted": 5,
    "max_proposals": 6,
    "calibration": 24,
    "subsample": 24,
    "drills": {},
    "code_share": 0,
    "evolution": {"proposals_per_round": 6},
    "roles": {"assistant": "openai:mock"},
}


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Of a server that answers; the configuration lies in `c.yaml`. Flows are worked without Prefect, which has nothing to say here."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli_synthesize, "run_or_plan", _run_without_prefect)
    Path("c.yaml").write_text(yaml.safe_dump({"store": "runs/x/store", "synthesize": SMALL}))
    with started(latency_ms=0, journal=tmp_path / "served.jsonl") as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        yield tmp_path / "served.jsonl"


def _run_without_prefect(_flow: str, settings: Config, *_: object) -> object:
    return make_trajectories.fn(settings)


def told(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["synthesize", "--config", "c.yaml", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def asked(journal: Path) -> Counter[str]:
    """Requests that came in, by their hash, but those that only look whether the server takes tools, as the first one does."""
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    looks = lines[0][0]
    return Counter(digest for digest, what, _ in lines if what == "received" and digest != looks)


def test_a_run_does_not_ask_again_what_its_preview_asked(journal: Path) -> None:
    shown = told("--preview", "3")
    assert "Preview: 0 of 3 accepted" in shown and "no price given" in shown and "policy_failure" in shown
    of_preview = asked(journal)
    assert of_preview

    ended = told("--max-tokens", "1")
    assert "stopped in round 0: the budget is spent" in ended and "0 of 5 accepted when the budget was spent" in ended
    assert asked(journal) == of_preview

    assert "stopped at 0 of 5 accepted: all 6 proposals are used up" in told()
    of_both = asked(journal)
    assert of_both.keys() > of_preview.keys() and set(of_both.values()) == {1}

    made = make_trajectories.fn(Config.model_validate({"store": "runs/x/store", "synthesize": SMALL}))
    assert (made["accepted"], made["proposals"], made["played"], made["alarms"], len(made["notes"])) == (0, 6, 0, [], 1)


@pytest.mark.server
def test_what_became_of_conversations_stands_in_prefect(prefect_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with started(latency_ms=0) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        made = synthesize(Config.model_validate({"store": tmp_path / "store", "synthesize": SMALL}))
    assert made["proposals"] == 6
    shown: Any = Artifact.get("headrace-outcomes")
    assert sum(row["conversations"] for row in json.loads(shown.data)) == 6


def test_what_costs_nothing_at_a_price_is_not_said_to_have_none(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unplanned = Preview(2, 0, {"unfilled": 2}, Cost(), 6, Cost())
    monkeypatch.setattr(cli_synthesize, "_run_preview", lambda *_: unplanned)
    assert "no price given" in told("--preview", "2")
    priced = told("--preview", "2", "--usd-per-million", "0.25", "2")
    assert "no price given" not in priced and "0.0000" in priced

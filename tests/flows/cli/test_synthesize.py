"""`headrace synthesize` with a language model: the output and requests of a preview, and the notes of a run that stopped early.

The server is scripted (`benchmarks/synthesis_sections/mock_openai.py`) and keeps a journal of its requests. All its conversations fail.
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

from benchmarks.synthesis_sections.mock_openai import started
from flows.cli import synthesize as cli_synthesize
from flows.cli.main import app
from flows.config import Config
from flows.synthesize import make_trajectories, synthesize
from storage.records import Cost, Task
from storage.store import Store
from synth.conversations.conversation_task import goal_frames
from synth.run.result import Preview
from synth.tasks.split import STANDARD, DivisionConfig, division

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
    """The journal of a running server. The configuration is in `c.yaml`. Flows run without Prefect."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli_synthesize, "run_or_plan", _run_without_prefect)
    Path("c.yaml").write_text(yaml.safe_dump({"store": "runs/x/store", "synthesize": SMALL}))
    with started(latency_ms=0, journal=tmp_path / "served.jsonl") as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        yield tmp_path / "served.jsonl"


def _run_without_prefect(_flow: str, settings: Config, *_: object, **__: object) -> object:
    return make_trajectories.fn(settings)


def run_synthesize(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["synthesize", "--config", "c.yaml", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def requests_in(journal: Path) -> Counter[str]:
    """Received requests by their hash, without checks of the server; the first request is such a check."""
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    check = lines[0][0]
    return Counter(digest for digest, what, _ in lines if what == "received" and digest != check)


def test_a_run_does_not_ask_again_what_its_preview_asked(journal: Path) -> None:
    shown = run_synthesize("--preview", "3")
    assert "Preview: 0 of 3 accepted" in shown and "no price given" in shown and "policy_failure" in shown
    preview_requests = requests_in(journal)
    assert preview_requests

    ended = run_synthesize("--max-tokens", "1")
    assert "stopped in round 0: the budget is spent" in ended and "0 of 5 accepted when the budget was spent" in ended
    assert requests_in(journal) == preview_requests

    assert "stopped at 0 of 5 accepted: all 6 proposals are used up" in run_synthesize()
    all_requests = requests_in(journal)
    assert all_requests.keys() > preview_requests.keys() and set(all_requests.values()) == {1}

    result = make_trajectories.fn(Config.model_validate({"store": "runs/x/store", "synthesize": SMALL}))
    assert (result["accepted"], result["proposals"], result["alarms"], len(result["notes"])) == (0, 6, [], 1)


def test_a_run_in_vain_warns_stops_with_code_1_and_says_the_same_again(journal: Path) -> None:
    """All conversations of the scripted server fail."""
    in_vain = SMALL | {"max_proposals": 100, "patience": 24, "evolution": {"proposals_per_round": 10}}
    Path("c.yaml").write_text(yaml.safe_dump({"store": "runs/x/store", "synthesize": in_vain}))
    runs = [CliRunner().invoke(app, ["synthesize", "--config", "c.yaml"]) for _ in range(2)]
    assert [run.exit_code for run in runs] == [1, 1]
    assert runs[0].stderr == runs[1].stderr
    assert runs[0].stderr.startswith("headrace: stopped after 24 proposals in a row without an accepted conversation; 0 of 5 are accepted")
    assert all(run.stdout.count("warning: none of the first 20 proposals gave an accepted conversation") == 1 for run in runs)
    assert set(requests_in(journal).values()) == {1}, "the second run paid for nothing"
    assert Store(Path("runs/x/store")).query("SELECT count(*) FROM decisions").item() == 24


def test_frames_are_divided_as_the_funnel_divides_them(tmp_path: Path) -> None:
    config = {
        "store": tmp_path / "store",
        "synthesize": SMALL | {"roles": {}, "drills": {"clinic": 9}},
        "curate": {"divisions": {"seed": 7}},
    }
    make_trajectories.fn(Config.model_validate(config))
    tasks = [Task.model_validate_json(spec) for spec in Store(tmp_path / "store").query("SELECT spec FROM tasks")["spec"]]
    frames = [(frame.id, task.division) for task in tasks for frame in goal_frames(task)]
    assert any(task.conversation for task in tasks) and any(not task.conversation for task in tasks)
    assert all(division(frame, DivisionConfig(seed=7)) == side for frame, side in frames)
    assert any(division(frame, STANDARD) != side for frame, side in frames)


@pytest.mark.server
def test_prefect_shows_the_outcomes_of_conversations(prefect_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with started(latency_ms=0) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        result = synthesize(Config.model_validate({"store": tmp_path / "store", "synthesize": SMALL}))
    assert result["proposals"] == 6
    shown: Any = Artifact.get("headrace-outcomes")
    assert sum(row["conversations"] for row in json.loads(shown.data)) == 6


def test_a_preview_that_cost_nothing_still_shows_a_given_price(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unfilled = Preview(2, 0, {"unfilled": 2}, Cost(), 6, Cost())
    monkeypatch.setattr(cli_synthesize, "_run_preview", lambda *_: unfilled)
    assert "no price given" in run_synthesize("--preview", "2")
    priced = run_synthesize("--preview", "2", "--usd-per-million", "0.25", "2")
    assert "no price given" not in priced and "0.0000" in priced

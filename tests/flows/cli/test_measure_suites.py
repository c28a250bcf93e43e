"""`headrace evaluate --suite`: what it prints, keeps and refuses."""

from __future__ import annotations

import importlib.util
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks.synthesis_sections.mock_openai import started
from flows.cli.main import app
from flows.config import Config
from flows.evaluate import measure_on
from storage.report.evaluation_queries import read_measurements
from storage.store import Store
from synth.engines.base import Engine, EngineFailure
from tests.storage.conftest import build_sample
from tests.train.tiny_policies import expert_conversations, retail_tasks, small_policy
from train.measure.suites import measure
from train.measure.suites.measure import Measured, measure_suite
from train.measure.suites.suite import Suite

HAS_BFCL = importlib.util.find_spec("bfcl_eval") is not None


def run_command(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == code, result.output
    if code:
        assert result.stderr.count("\n") == 1
    return result.output


@pytest.mark.slow
@pytest.mark.skipif(not HAS_BFCL, reason="pip install --no-deps bfcl-eval")
def test_an_untrained_policy_of_the_store_passes_no_bfcl_case(tmp_path: Path) -> None:
    """Given a policy with random weights in a store, when it is measured on one case of each of two categories, then it passes none, the
    store has the result as a separate held-out set, and the file has its conversations."""
    store = build_sample(tmp_path / "store").store
    model, tokenizer = small_policy(expert_conversations(retail_tasks("close_order")))
    for part in (model, tokenizer):
        part.save_pretrained(store.root / "models/2")
    file = tmp_path / "talks.jsonl"
    groups = ("--group", "base", "--group", "miss_param")
    arguments = ("--policy", "sft2", "--limit", "1", "--answer-tokens", "16", "--out", str(file), "--store", str(store.root))
    shown = run_command("evaluate", "--suite", "bfcl", *groups, *arguments)
    lines = [line.split()[:4] for line in shown.splitlines() if line.startswith(("all ", "base ", "miss_param "))]
    assert lines == [["all", "2", "2", "0"], ["base", "1", "1", "0"], ["miss_param", "1", "1", "0"]]
    assert read_measurements(store).filter(use="bfcl", facet="all").select("policy", "tasks", "rate").rows() == [("sft2", 2, 0.0)]
    conversations = [json.loads(line) for line in file.read_text().splitlines()]
    assert [conversation["case"] for conversation in conversations] == ["multi_turn_base_0", "multi_turn_miss_param_0"]
    assert all(conversation["outcome"] == "policy_failure" and conversation["messages"] for conversation in conversations)


@pytest.mark.skipif(not HAS_BFCL, reason="pip install --no-deps bfcl-eval")
def test_a_server_is_asked_once_where_a_store_keeps_its_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a server whose model calls the wrong tool in every turn, when it is measured twice with one store, then it passes nothing, the
    second run uses the kept answers and gives the same result, and the store has one measurement of it."""
    journal, store = tmp_path / "journal.jsonl", tmp_path / "store"
    arguments = ("evaluate", "--suite", "bfcl", "--policy", "openai:mock", "--group", "base", "--limit", "2", "--store", str(store))
    with started(latency_ms=0, journal=journal) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        first, second = run_command(*arguments), run_command(*arguments)
    tries = Counter(json.loads(line)[0] for line in journal.read_text().splitlines() if "answered" in line)
    assert [line.split()[:4] for line in first.splitlines() if line.startswith("base")] == [["base", "2", "2", "0"]]
    assert second == first
    assert sorted(tries.values()) == [1] * (len(tries) - 2) + [2, 2], "each run checks the server once for tools and once for tokens"
    assert len(tries) > 8
    sql = "SELECT facet, facet_value, tasks FROM evaluations JOIN policies USING (policy_id) WHERE path = 'openai:mock' ORDER BY ALL"
    by_checker = [("checker", value, 2) for value in ("agree", "ended_early", "ours", "theirs")]
    assert Store(store).query(sql).rows() == [("all", "all", 2), *by_checker, ("group", "base", 2)]


@pytest.mark.skipif(not HAS_BFCL, reason="pip install --no-deps bfcl-eval")
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--group", "bass"), "no group 'bass'"),
        (("--policy", "llama:70b"), "no engine is called 'llama:70b'"),
        (("--policy", "hf:nowhere"), "nowhere is no Hugging Face model folder"),
        (("--store", "nowhere"), "is not a store yet"),
        (("--store", "nowhere", "--out", "talks.jsonl"), "is not a store yet"),
        (("--out", "no/such/folder.jsonl"), "the file cannot be written"),
    ],
)
def test_what_a_suite_cannot_use_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], says: str) -> None:
    monkeypatch.chdir(tmp_path)
    assert says in run_command("evaluate", "--suite", "bfcl", *arguments, code=2)
    assert not list(tmp_path.iterdir())


def test_an_option_of_suites_or_a_name_that_none_has_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "--limit is an option of suites; name one with --suite" in run_command("evaluate", "--limit", "3", code=2)
    assert "no suite is called 'tau3', and no file" in run_command("evaluate", "--suite", "tau3", code=2)
    monkeypatch.setenv("HEADRACE_SUITES", str(tmp_path))
    said = run_command("evaluate", "--suite", "tau2-retail", "--policy", "openai:m", code=2)
    assert "`make suites` installs it into .venv-suite-tau2" in said
    assert not list(tmp_path.iterdir())


def test_a_dry_run_counts_cases_and_estimates_tokens(tmp_path: Path) -> None:
    tasks = tmp_path / "tasks.jsonl"
    row = {"world": "retail", "request": "Where is order o17?", "calls": [{"tool": "get_order", "arguments": {"order": "o17"}}]}
    tasks.write_text(json.dumps(row) + "\n")
    shown = run_command("evaluate", "--suite", str(tasks), "--policy", "openai:m", "--usd-per-million", "1", "2", "--dry-run")
    assert " USD" in shown and "nothing was done" in shown
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tasks.jsonl"]


def test_a_suite_is_printed_and_written_when_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given two suites, of which the second cannot be measured, then the table of the first is printed, and its conversation written."""
    row = {"world": "retail", "request": "Where is order o17?", "facts": ["pending"]}
    for name in ("first.jsonl", "second.jsonl"):
        (tmp_path / name).write_text(json.dumps(row) + "\n")

    def only_the_first(engine: Engine, suite: Suite, *arguments: Any, **options: Any) -> Measured:
        if suite.name == "second.jsonl":
            raise EngineFailure("the server is gone")
        return measure_suite(engine, suite, *arguments, **options)

    monkeypatch.setattr(measure, "measure_suite", only_the_first)
    talks = tmp_path / "talks.jsonl"
    suites = ("--suite", str(tmp_path / "first.jsonl"), "--suite", str(tmp_path / "second.jsonl"))
    with started(latency_ms=0, journal=tmp_path / "journal.jsonl") as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        shown = run_command("evaluate", *suites, "--policy", "openai:mock", "--out", str(talks), code=1)
    assert "Suite first.jsonl" in shown and "the server is gone" in shown
    assert [json.loads(line)["suite"] for line in talks.read_text().splitlines()] == ["first.jsonl"]


def test_the_flow_measures_on_a_suite_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task of the flow `evaluate`, in this process: a file of one task, and a server whose model calls the wrong tool."""
    tasks, store = tmp_path / "tasks.jsonl", tmp_path / "store"
    tasks.write_text(json.dumps({"world": "retail", "request": "Where is order o17?", "facts": ["pending"]}) + "\n")
    with started(latency_ms=0, journal=tmp_path / "journal.jsonl") as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        figures = measure_on.fn(Config(store=store), str(tasks), "openai:mock")
    assert figures == {"suite": str(tasks), "rated": 1, "ended_early": 0, "ours": 0.0, "theirs": 0.0, "agree": 1.0}
    assert [path.name.split("-")[0] for path in (store / "suites").iterdir()] == ["tasks.jsonl"]

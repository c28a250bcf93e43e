"""A list of flow runs says what each worked on, and how much of it."""

from __future__ import annotations

from typing import Any

import pytest

from flows.config import Config
from flows.runtime.run_names import curation_name, run_name, short_count


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0"), (9_999, "9,999"), (10_000, "10 k"), (999_499, "999 k"), (1_000_000, "1.0 M"), (12e6, "12 M")]
)
def test_counts_are_short(count: float, text: str) -> None:
    assert short_count(int(count)) == text


@pytest.mark.parametrize(
    ("flow", "parameters", "name"),
    [
        ("synthesize", {"synthesize": {"worlds": ["banking", "gen-1..2"], "accepted": 200}}, "synthesize banking, gen-1..2 · 200"),
        ("synthesize", {}, "synthesize 11 worlds · 300"),
        ("curate", {}, "curate generated queries · 1.0 M -> 100"),
        ("train", {}, "train retail, library · 3 stages"),
        ("train", {"train": {"stages": [{"name": "sft2", "skip": True}, {"name": "rl", "skip": True}]}}, "train retail, library · 1 stage"),
        ("tag", {}, "tag the promoted policy · retail, library"),
        ("pipeline", {"store": "runs/mine/store"}, "pipeline mine · 3 stages"),
    ],
)
def test_a_flow_run_is_named_by_its_parameters(flow: str, parameters: dict[str, Any], name: str) -> None:
    assert run_name(flow, Config.model_validate(parameters)) == name


def test_files_and_policies_are_named() -> None:
    assert run_name("curate", Config(), files=["/logs/2026-11-23.jsonl"], ray=None) == "curate 2026-11-23.jsonl"
    assert curation_name(["/logs/2026-11-23.jsonl"], 1_000_000, 100) == "curate 2026-11-23.jsonl · 1.0 M -> 100"
    assert curation_name([f"{day}.jsonl" for day in range(4)], 40_000, 100) == "curate 4 files · 40 k -> 100"
    assert run_name("evaluate", Config(), policy="sft1") == "evaluate sft1 · retail, library"

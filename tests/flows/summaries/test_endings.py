"""The last words of a command: sentences from the store, kinds of tasks apart, a gain within noise called that, and commands that exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import polars as pl
from typer.testing import CliRunner

from filters.funnel import FunnelConfig, curate
from filters.steps.selection.coverage import CoverageConfig
from flows.cli.main import app
from flows.config import Config
from flows.summaries.endings import ending
from storage.releases.text_layout import layout_rows
from storage.store import Store, part_id
from storage.tables import TABLES
from tests.storage.conftest import build_sample
from tests.storage.report.test_evaluation_queries import evaluated

ALL = ("synthesize", "haystack", "curate", "train", "tag", "report")


def said(store: Store, *steps: str, policy: str | None = None) -> str:
    return " ".join(ending(store, Config(store=store.root), steps, policy).sentences)


def test_a_whole_run_ends_with_a_sentence_on_each_of_its_parts(tmp_path: Path) -> None:
    store = build_sample(tmp_path / "store").store
    words = said(store, *ALL)
    assert "accepted of" in words and "kept of" in words and "probed tasks" in words, words
    assert "Solved of" in words and "sft1" in words and " -> sft2" in words and " %" in words
    assert "promoted" in words


def test_the_kinds_of_tasks_stand_apart(tmp_path: Path) -> None:
    """Given a policy that is good at refusing alone, then its sentence says so."""
    store = build_sample(tmp_path / "store").store
    kinds = [("act", 0.1, 60), ("look-up", 0.25, 40), ("refusal", 0.9, 20)]
    rows = [{"facet": "kind", "facet_value": kind, "rate": rate, "tasks": tasks} for kind, rate, tasks in kinds]
    evaluated(store, "kinds", {"facet": "all", "facet_value": "all", "tasks": 120}, *rows)
    expected = "By kind of task: acts 10 % of 60, look-ups 25 % of 40, refusals 90 % of 20."
    assert expected in said(store, "train") and expected in said(store, "evaluate", policy="policy-2")
    assert "sft2 solves 30 % of 120 held-out tasks (95 %: 20 to 40), sampled." in said(store, "evaluate", policy="policy-2")


def test_reasons_of_the_funnel_are_words_and_add_up(tmp_path: Path) -> None:
    """Given rows that several steps dropped, then each counts for one reason, and none is a step's name."""
    store = build_sample(tmp_path / "store").store
    read, kept = store.query("SELECT max(rows_in), min(kept) FROM funnel").row(0)
    words = said(store, "curate")
    assert words.startswith(f"Queries: {kept} kept of {read} (1 in "), words
    reasons = (
        "repeats? another query|(?:is|are) no request that a tool can carry out|(?:is|are) damaged or hard to read|"
        "(?:has|have) no solution in a world|(?:was|were) not needed|failed another check"
    )
    counts = re.findall(rf"(\d+) (?:{reasons})", words)
    assert sum(map(int, counts)) == read - kept and not re.search("near|ground|coverage", words), words


def test_one_row_has_a_verb_of_one(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text("where is my lost suitcase\nwhere is my lost suitcase\nis there wifi on flight LX17\n")
    store = Store(tmp_path / "store")
    curate(store, [tmp_path / "log.txt"], FunnelConfig(coverage=CoverageConfig(keep=2), ungrounded=True))
    words = said(store, "curate")
    assert "2 kept of 3. Of the others, 1 repeats another query." in words and "No world executes any of those kept" in words


def test_the_next_commands_are_commands_and_name_ids_of_the_store(tmp_path: Path) -> None:
    store = build_sample(tmp_path / "a store").store
    for steps in (ALL, ("synthesize",), ("curate",), ("tag",)):
        commands = ending(store, Config(store=store.root), steps).commands
        assert commands, steps
        for what, command in commands:
            words = shlex.split(command)
            assert words[0] == "headrace" and str(store.root) in words, what
            if words[1] == "explain":
                shown = CliRunner().invoke(app, words[1:])
                assert shown.exit_code == 0 and words[2] in shown.output, shown.output


def test_an_empty_store_says_nothing(tmp_path: Path) -> None:
    assert said(Store(tmp_path / "none"), *ALL, "evaluate") == ""


def test_synthesis_alone_shows_a_conversation_and_why_others_were_not_accepted(tmp_path: Path) -> None:
    """Given a run that was accepted in part, then one conversation is shown as `headrace explain` shows it; `run` has one sentence."""
    store = build_sample(tmp_path / "store").store
    shown = ending(store, Config(store=store.root), ("synthesize",))
    conversation, reasons = shown.sections
    assert conversation.title == "An accepted conversation, trajectory-task-2"
    explained = CliRunner().invoke(app, ["explain", "trajectory-task-2", "--store", str(store.root)]).output
    assert "\n".join(layout_rows(conversation.rows[1:])) in explained
    assert reasons.title.startswith("Not accepted: 1. `headrace explain ID`")
    assert reasons.rows[0][0] == "1" and "blueprint-bad" in reasons.rows[0][1]
    assert ending(store, Config(store=store.root), ALL).sections == ()


def test_a_run_that_gave_nothing_offers_no_training(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    rows = pl.DataFrame({name: [None] for name in TABLES["decisions"].columns}, schema=TABLES["decisions"].columns).with_columns(
        run=pl.lit("r"), round=0, position=0, blueprint_id=pl.lit("blueprint-1"), domain=pl.lit("shop"), reason=pl.lit("misfit")
    )
    store.commit([store.write("decisions", part_id("decisions", ["r"], {}, 1), rows)])
    shown = ending(store, Config(store=store.root), ("synthesize",))
    assert shown.sentences == ("Conversations: 0 accepted of 1 tried; each was executed and verified.",)
    assert [what for what, _ in shown.commands] == ["why not"]

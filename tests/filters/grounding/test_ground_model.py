"""What the parser could not read a model may: its frames are like the parser's, its slips become no label, and nothing is paid twice."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pydantic import ValidationError

from filters import llm_calls, normalised_text
from filters.frames.workspace import Workspace
from filters.funnel import FunnelConfig, FunnelResult, curate
from filters.grounding import ground, ground_model
from filters.grounding.ground_model import GroundConfig, questions, read_table, unread_texts
from filters.lexicon_worlds import lexicon_worlds
from filters.steps.selection import admit
from filters.steps.selection.coverage import CoverageConfig
from filters.taxonomy.agreement import generate_requests
from storage.errors import BadInput
from storage.explanations.explain import explain
from storage.store import Store
from synth.engines.base import EngineFailure
from synth.engines.budget import BudgetSpent
from synth.engines.cache import Answers
from synth.prompts import Prompt, prompt
from synth.tasks.solver import NotAdmitted
from tests.filters.reading_engines import OVERFLOW, Scripted, of_frame, reading, served, text_of

WORLDS_READ = lexicon_worlds()
UNREAD = "o17 is no longer wanted"
CLOSE = reading("retail/close_order", order="o17")
NEITHER = reading("none", "missing_tool")


def parsed(texts: Sequence[str]) -> pl.DataFrame:
    rows = pl.DataFrame({"row": range(len(texts)), "text": list(texts)}, schema={"row": pl.UInt32, "text": pl.String})
    return ground.step(normalised_text.step(rows).drop("reason"), WORLDS_READ, ungrounded=True).drop("reason")


def table_of(engine: Scripted, texts: Sequence[str]) -> pl.DataFrame:
    return read_table(engine, dict(zip(texts, questions(texts, WORLDS_READ), strict=True)))


def read_again(engine: Scripted, texts: Sequence[str], *, ungrounded: bool = False) -> pl.DataFrame:
    rows = parsed(texts)
    return ground_model.step(rows, read_again=table_of(engine, unread_texts([rows], 100)), ungrounded=ungrounded)


def test_a_model_frame_has_the_columns_of_the_parsers() -> None:
    """Given texts that the parser can read, when a model reads the same frames, then every column of a frame is the same."""
    asked = [one for one in generate_requests(120, seed=2) if one.frame]
    rows = parsed([one.norm for one in asked])
    columns = ["world", "intent", "slots", "combination", "shape", "frame_id"]
    engine = Scripted({one.norm: of_frame(one.frame) for one in asked})
    assert rows.select(columns).equals(table_of(engine, rows["norm"].to_list()).select(columns))


def test_only_what_the_parser_could_not_ground_is_asked_and_once() -> None:
    engine = Scripted({UNREAD: CLOSE, "hello there": reading("none", "not_actionable")})
    rows = read_again(engine, ["find a hotel near Willow Park", UNREAD, f"{UNREAD}!", "hello there"])
    assert len(engine.asked) == 2
    assert rows["intent"].to_list() == ["poi_search_near", "close_order", "close_order", None]
    assert rows["reason"].to_list() == [None, None, None, "not_actionable"]
    by = f"read by scripted, prompt ground@{prompt('ground').version} (parser: unknown)"
    assert rows["read_by"].to_list() == [None, by, by, None]


def test_who_invents_a_slot_is_told_and_may_mend_it() -> None:
    engine = Scripted({UNREAD: [reading("retail/close_order", order="o18"), CLOSE]})
    assert read_again(engine, [UNREAD])["slots"].to_list() == ['{"order":"o17"}']
    assert "the text does not say 'o18'" in str(engine.asked[1].messages[-1].content)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (reading("retail/close_order", order="o18"), "model_invented_value"),
        (reading("retail/close_order", order="o999"), "model_illegal_value"),
        (reading("retail/close_order", order="o17", user="u01"), "model_no_such_slot"),
        (reading("retail/close_order"), "model_missing_slot"),
        (reading("retail/fly_to_the_moon", order="o17"), "model_malformed"),
        (reading("none"), "model_malformed"),
        ('{"intent": "retail/close_order"', "model_malformed"),
        ("I cannot help with that.", "model_malformed"),
        ("", "model_malformed"),
        ('{"intent": "retail/close_order", "why": "", "slots": [{"slot": "order", "value": null}]}', "model_malformed"),
        (NEITHER, "missing_tool"),
    ],
)
def test_what_a_model_gets_wrong_is_no_label(said: str, reason: str) -> None:
    """Given an answer that stays wrong, then the row is dropped with what was wrong, and kept rows keep the parser's reason."""
    engine = Scripted({UNREAD: said})
    dropped, kept = read_again(engine, [UNREAD]), read_again(engine, [UNREAD], ungrounded=True)
    assert dropped["reason"].to_list() == [reason]
    assert kept.select("reason", "frame_id", "read_by").row(0) == (None, None, None)
    assert kept["ungrounded"].to_list() == ["missing_tool" if said == NEITHER else "unknown"]


def test_an_engine_that_fails_at_one_text_reads_the_others() -> None:
    texts = [UNREAD, *(f"o{number} is no longer wanted" for number in range(20, 24))]
    table = {text: reading("retail/close_order", order=text[:3]) for text in texts}
    rows = read_again(Scripted(table | {texts[2]: EngineFailure("filtered")}), texts)
    assert rows["reason"].to_list() == [None, None, "model_engine_failure", None, None]
    assert read_again(Scripted({UNREAD: EngineFailure("filtered")}), [UNREAD])["reason"].to_list() == ["model_engine_failure"]


def test_an_engine_that_is_gone_stops_the_step() -> None:
    engine = Scripted(dict.fromkeys(texts := [f"o{number} is no longer wanted" for number in range(20, 60)], EngineFailure("gone")))
    with pytest.raises(EngineFailure, match="gone"):
        read_again(engine, texts)
    assert len(engine.asked) == len(texts) + 3  # the batch, then the first three alone


def dying(texts: Sequence[str], *unanswered: int) -> Scripted:
    """Scripted: reads all texts but these, by their place."""
    table = {text: reading("retail/close_order", order=text.split(maxsplit=1)[0]) for text in texts}
    return Scripted(table | {texts[place]: EngineFailure("gone") for place in unanswered})


def test_an_engine_that_dies_late_stops_the_step_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given an engine that answers none of the last three texts, of two chunks, then it is gone; failures apart cost themselves alone."""
    monkeypatch.setattr(llm_calls, "_AT_ONCE", 5)
    texts = [f"o{number} is no longer wanted" for number in range(20, 31)]
    with pytest.raises(EngineFailure, match="gone"):
        table_of(dying(texts, 8, 9, 10), texts)
    apart = table_of(dying(texts, 2, 3, 5, 8, 10), texts)
    assert apart["outcome"].drop_nulls().to_list() == ["engine_failure"] * 5


def test_a_question_that_the_window_does_not_fit_is_not_asked() -> None:
    engine = Scripted({UNREAD: CLOSE})
    engine.context_tokens = 4_096
    with pytest.raises(BadInput, match=r"scripted has a window of 4,096 tokens, but a request and its answer need about [67],\d{3}"):
        table_of(engine, [UNREAD])
    assert not engine.asked
    engine.context_tokens = 8_192
    assert table_of(engine, [UNREAD])["intent"].to_list() == ["close_order"]


def test_a_text_that_the_window_has_no_room_for_is_as_one_that_was_not_asked_about() -> None:
    """Given no room for an answer, at once or when it was to be mended, then the row keeps the parser's reason; silence is malformed."""
    for said in (OVERFLOW, [reading("retail/close_order", order="o18"), OVERFLOW]):
        engine = Scripted({UNREAD: said})
        assert table_of(engine, [UNREAD])["outcome"].to_list() == ["overflow"]
        assert read_again(engine, [UNREAD])["reason"].to_list() == ["unknown"]
    assert read_again(Scripted({UNREAD: ""}), [UNREAD])["reason"].to_list() == ["model_malformed"]


def test_other_weights_in_the_same_folder_are_another_reader(tmp_path: Path) -> None:
    """Given a model folder whose weights change, then what was read before is no longer taken for its own; a model by name stays itself."""
    (tmp_path / "config.json").write_text("{}")
    weights = tmp_path / "model.safetensors"
    engine, seen = Scripted({UNREAD: CLOSE}), []
    engine.name = f"hf:{tmp_path}"
    for content in (b"1", b"2", b"1"):
        weights.write_bytes(content)
        made_by = [ground_model.made_by(GroundConfig(engine=f"{kind}:{tmp_path}")) for kind in ("hf", "vllm")]
        seen.append((*made_by, table_of(engine, [UNREAD])["read_by"].item()))
    assert seen[0] == seen[2] and all(one != other for one, other in zip(seen[0], seen[1], strict=True))
    assert ground_model.made_by(GroundConfig(engine="openai:mock")) == (prompt("ground").version, "")


def test_a_note_on_nothing_asked_claims_no_frames() -> None:
    config, engine = GroundConfig(engine="openai:mock"), Scripted({UNREAD: CLOSE})
    assert ground_model.note(config, table_of(engine, [])) == "openai:mock was not asked: no text was left without a frame"
    note = ground_model.note(config, table_of(engine, [UNREAD]))
    assert note == "openai:mock was asked about 1 texts without a frame: 1 have one now"


def test_the_remainder_is_the_same_however_rows_are_cut_and_never_more_than_may_be() -> None:
    texts = ["hello there", "o17 o18 close", UNREAD, "willow park", *(f"o{number} is no longer wanted" for number in range(20, 50))]
    rows = parsed(texts)
    whole = unread_texts([rows], 10)
    assert len(whole) == 10 and whole[0] == "o17 o18 close" and "hello there" not in whole
    assert unread_texts([rows[start : start + 3] for start in range(0, rows.height, 3)][::-1], 10) == whole


@pytest.mark.parametrize("name", ["gpt", "openai:", "anthropic:x", ""])
def test_an_engine_that_does_not_exist_is_refused_before_anything_is_read(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="pattern"):
        GroundConfig(engine=name)


# ---- in the funnel ---------------------------------------------------------------------------------------------------------------

ORDERS = [f"o{number}" for number in range(10, 40)]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Requests that the parser reads, and requests to close an order that it does not."""
    path = tmp_path / "log.txt"
    read = [f"close order o{number}" for number in range(50, 56)]
    path.write_text("\n".join([*read, *(f"{order} is no longer wanted" for order in ORDERS)]), encoding="utf-8")
    return path


def close(user: str) -> str:
    """Scripted: reads every request, but invents an order in those for o19."""
    text = text_of(user)
    return reading("retail/close_order", order="o18" if text.startswith("o19") else text.split(maxsplit=1)[0])


def run(store: Store, log: Path, *, engine: str | None = "openai:mock", **given: int) -> FunnelResult:
    config = GroundConfig.model_validate({"engine": engine, **given})
    return curate(store, [log], FunnelConfig(ground=config, coverage=CoverageConfig(keep=20)))


def test_the_funnel_has_more_tasks_with_a_reader(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without = run(Store(tmp_path / "without" / "store"), log, engine=None)
    store = Store(tmp_path / "with" / "store")
    with served(close) as (mock, url):
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        result = run(store, log)
        asked = mock.counts["answered"]
        assert run(store, log).task_ids == result.task_ids and mock.counts["answered"] == asked
    assert len(without.task_ids) <= 6 < len(result.task_ids)
    steps = {step: (dropped, json.loads(why)) for step, dropped, why in result.funnel.select("step", "dropped", "reasons").iter_rows()}
    assert [steps["parse"], steps["ask"], steps["ground"]] == [(0, {}), (0, {}), (1, {"model_invented_value": 1})]
    read = store.query("SELECT query_id, status, reason FROM frames WHERE reason LIKE 'read by openai:mock, prompt ground@%'")
    assert read.height == len(ORDERS) - 1
    tasks = store.query("SELECT DISTINCT query_id FROM tasks")["query_id"]
    assert read.filter(pl.col("query_id").is_in(tasks.implode())).height > 0
    assert "read by openai:mock" in str(explain(store, read["query_id"][0]))
    assert any("30 texts" in note and "29 have one now; the others have none: invented_value 1" in note for note in result.not_done)


def test_a_frame_that_was_refused_says_why_and_who_read_it(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given no world that has what any frame asks for, then a frame's reason says so, and of those that a model read, which model."""

    def refuse(*_: Any, **__: Any) -> None:
        raise NotAdmitted("no_world", "scripted")

    monkeypatch.setattr(admit, "admit_any", refuse)
    store = Store(tmp_path / "store")
    with served(close) as (_, url):
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        run(store, log)
    refused = store.query("SELECT reason, count(*) FROM frames WHERE status = 'refused' GROUP BY reason ORDER BY reason").rows()
    by = f"read by openai:mock, prompt ground@{prompt('ground').version} (parser: unknown)"
    assert refused == [("no_world", 6), (f"no_world ({by})", len(ORDERS) - 1)]


def test_a_run_whose_budget_is_spent_goes_on_and_pays_nothing_twice(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llm_calls, "_AT_ONCE", 5)
    store = Store(tmp_path / "store")
    with served(close) as (mock, url):
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        with pytest.raises(BudgetSpent, match="raise it and run the same again"):
            run(store, log, max_tokens=1_000)
        paid = mock.counts["answered"]
        assert 10 <= paid < 20
        assert not store.query("SELECT 1 FROM funnel").height
        result = run(store, log, max_tokens=1_000_000)
        assert len(result.task_ids) > 6
        asked_twice = [digest for digest, tries in mock.tries.items() if tries > 1]
    assert len(asked_twice) == 1  # the look at the server before each run
    assert len(Answers(store)._known) == store.query("SELECT * FROM answers").height == sum(mock.tries.values()) - 2


@pytest.mark.slow
def test_another_engine_or_prompt_or_limit_is_another_run(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path / "store")
    own = prompt("ground")
    with served(close) as (_, url):
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        runs = [run(store, log, engine=None), run(store, log), run(store, log, max_asked=7)]
        monkeypatch.setattr(ground_model, "prompt", lambda name: Prompt(name, "another", own.system, own.user))
        runs.append(run(store, log))
    assert len({one.run for one in runs}) == 4
    assert store.query("SELECT count(DISTINCT segment) AS n FROM segments")["n"].item() == 4


def test_a_window_that_is_too_short_is_refused_before_a_row_is_read(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Workspace, "write", lambda *_: pytest.fail("a row was read"))
    with served(close, window=4_096) as (mock, url):
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        with pytest.raises(BadInput, match="openai:mock has a window of 4,096 tokens"):
            run(Store(tmp_path / "store"), log)
    assert mock.counts["answered"] == 1  # the look at the server


def test_a_model_that_is_not_served_is_refused_before_a_row_is_read(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Workspace, "write", lambda *_: pytest.fail("a row was read"))
    with served(close) as (mock, url):
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        with pytest.raises(BadInput, match="serves no model 'other'; it serves mock"):
            run(Store(tmp_path / "store"), log, engine="openai:other")
    assert mock.counts["answered"] == 0
    assert not (tmp_path / "store").exists()

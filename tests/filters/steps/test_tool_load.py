"""A model may judge the tool load: one question a kind of request, its grade in place of the count, and the count where it gives none."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
from pydantic import ValidationError

from filters import normalised_text
from filters.funnel import FunnelConfig, FunnelResult, curate
from filters.grounding import ground
from filters.lexicon_worlds import lexicon_worlds
from filters.steps import rate_difficulty, tool_load
from filters.steps.selection.coverage import CoverageConfig
from filters.steps.tool_load import DifficultyConfig
from storage.errors import BadInput
from storage.explanations.explain import explain
from storage.store import Store
from synth.engines.base import EngineFailure
from tests.filters.reading_engines import Scripted, served

NEAR = "find a hotel near willow park"
NEAR_TOO = "find a pharmacy near willow park"
ORDER = "where is order o17"


def grade(s_tool: object) -> str:
    return json.dumps({"why": "so", "s_tool": s_tool})


def rows(*texts: str) -> pl.DataFrame:
    said = pl.DataFrame({"row": range(len(texts)), "text": list(texts)}, schema={"row": pl.UInt32, "text": pl.String})
    return ground.step(normalised_text.step(said).drop("reason"), lexicon_worlds(), ungrounded=True).drop("reason")


def judged(engine: Scripted, texts: Sequence[str], most: int = 100) -> pl.DataFrame:
    return tool_load.judge_loads(engine, rate_difficulty.rate_rows(rows(*texts).drop_nulls("combination")), most)


@pytest.mark.parametrize("s_tool", [3, 5])
def test_a_grade_takes_the_place_of_the_count_and_the_rating_follows(s_tool):
    """Given a request with counted terms, when a model grades its tool load, then r is the weighted sum with that grade."""
    counted = rate_difficulty.step(rows(NEAR, ORDER)).to_dicts()
    found = rate_difficulty.step(rows(NEAR, ORDER), judged=judged(Scripted({NEAR: grade(s_tool)}), [NEAR])).to_dicts()
    assert found[0]["s_tool"] == s_tool != counted[0]["s_tool"]
    expected = int(0.3 * s_tool + 0.4 * counted[0]["s_chain"] + 0.3 * counted[0]["s_constraints"] + 0.5 + 1e-9)
    assert found[0]["difficulty"] == max(1, min(5, expected))
    assert found[1] == counted[1], "what was not asked about is counted"


def test_a_kind_of_request_is_asked_about_once_and_its_grade_holds_for_all_of_its_rows():
    engine = Scripted({NEAR: grade(4), ORDER: grade(2)})
    found = judged(engine, [NEAR, NEAR_TOO, ORDER])
    assert len(engine.asked) == 2
    rated = rate_difficulty.step(rows(NEAR, NEAR_TOO, ORDER), judged=found)
    assert rated["s_tool"].to_list() == [4, 4, 2]


def test_kinds_with_most_rows_are_asked_about_first():
    engine = Scripted({NEAR: grade(4)})
    assert judged(engine, [ORDER, NEAR, NEAR_TOO], most=1).height == 1
    assert NEAR in str(engine.asked[0].messages[1].content)


def test_the_model_sees_the_tools_on_offer_and_those_of_the_plan():
    engine = Scripted({NEAR: grade(4)})
    judged(engine, [NEAR])
    asked = str(engine.asked[0].messages[1].content)
    assert "A solution uses: " in asked and json.dumps(NEAR) in asked
    assert asked.count("\n- ") > 3


@pytest.mark.parametrize("nonsense", ["it depends", grade(6), grade("many"), grade(True), EngineFailure("refused")])
def test_nonsense_keeps_the_count_and_is_counted(nonsense):
    """Given answers that are no grade, try after try, then the row keeps what was counted, and the note says how many did."""
    found = judged(Scripted({NEAR: nonsense, ORDER: grade(3)}), [NEAR, ORDER])
    assert sorted(found["judged"].to_list(), key=str) == [3, None]
    assert rate_difficulty.step(rows(NEAR), judged=found).equals(rate_difficulty.step(rows(NEAR)))
    assert tool_load.note(DifficultyConfig(engine="openai:m"), found) == (
        "openai:m judged the tool load of 2 kinds of request; 1 keep the counted one"
    )


def test_who_gives_no_grade_is_told_and_may_mend_it():
    engine = Scripted({NEAR: [grade(9), grade(5)]})
    assert judged(engine, [NEAR])["judged"].to_list() == [5]
    assert "9 is greater than the maximum" in str(engine.asked[1].messages[-1].content)


def test_what_needs_no_tool_or_is_to_be_refused_is_not_asked_about():
    text = rate_difficulty.rate_rows(rows(NEAR, ORDER)).with_columns(difficulty=pl.Series([-1, 0], dtype=pl.Int8))
    assert tool_load.judge_loads(Scripted({}), text, 10).is_empty()


def test_a_window_too_short_for_the_question_is_bad_input():
    engine = Scripted({NEAR: grade(4)})
    engine.context_tokens = 100
    with pytest.raises(BadInput, match="has a window of 100 tokens"):
        judged(engine, [NEAR])
    assert not engine.asked


# ---- in the funnel -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.txt"
    path.write_text("\n".join(f"close order o{number}" for number in range(50, 56)), encoding="utf-8")
    return path


def run(store: Store, log: Path, engine: str | None = "openai:mock") -> FunnelResult:
    return curate(store, [log], FunnelConfig(difficulty=DifficultyConfig(engine=engine), coverage=CoverageConfig(keep=20)))


@pytest.mark.slow
def test_the_funnel_rates_frames_and_tasks_by_what_was_judged_and_pays_once(log, tmp_path, monkeypatch):
    """Given a server that finds every choice of tools hard, then frames and admitted tasks are rated by that; the run without a model is
    another, and the finished one asks nothing again."""
    store = Store(tmp_path / "store")
    counted = run(Store(tmp_path / "counted" / "store"), log, engine=None)
    with served(lambda _: grade(5)) as (mock, url):
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        result = run(store, log)
        asked = mock.counts["answered"]
        assert run(store, log).task_ids == result.task_ids and mock.counts["answered"] == asked
    assert result.run != counted.run and result.task_ids == counted.task_ids
    assert store.query("SELECT DISTINCT s_tool FROM frames").rows() == [(5,)]
    before = Store(tmp_path / "counted" / "store").query("SELECT DISTINCT difficulty FROM tasks").item()
    both = "SELECT DISTINCT t.difficulty, f.difficulty AS other FROM tasks t JOIN frames f USING (frame_id)"
    ((task, frame),) = store.query(both).rows()
    assert task == frame > before
    assert "openai:mock judged the tool load of 1 kinds of request; 0 keep the counted one" in result.not_done
    assert "tool load 5" in str(explain(store, result.task_ids[0]))


def test_a_model_that_is_not_served_is_refused_before_a_row_is_read(log, tmp_path, monkeypatch):
    with served(lambda _: grade(5)) as (_, url):
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        with pytest.raises(BadInput, match="serves no model 'other'; it serves mock"):
            run(Store(tmp_path / "store"), log, engine="openai:other")
    assert not (tmp_path / "store").exists()


def test_an_engine_that_nobody_knows_is_refused():
    with pytest.raises(ValidationError, match="engine"):
        DifficultyConfig(engine="gpt")

"""The list of steps: what it refuses, what a step must do as it declares, and that one more step is a file and a line."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from filters.frames.workspace import Workspace
from filters.funnel import FunnelConfig, FunnelResult, curate
from filters.grounding.ground_model import GroundConfig
from filters.ingest import IngestConfig
from filters.pipeline import STEPS, check
from filters.step import BatchStep, SurveyStep, apply
from filters.steps.selection.coverage import CoverageConfig
from filters.steps.tool_load import DifficultyConfig
from flows.summaries.summary_tables import funnel as funnel_table
from storage.errors import BadInput
from storage.explanations.explain import explain
from storage.report.page import write_report
from storage.store import Store
from synth.haystack.generate import HaystackConfig, generate
from tests.filters.toy_step import ALL_WORDS, WORDS, ToyConfig, WordsConfig, with_step

CONFIG = ToyConfig(ingest=IngestConfig(batch_rows=1000), coverage=CoverageConfig(keep=12, max_encoded=60), words=WordsConfig(most=9))
STEPS_WITH_WORDS = with_step(WORDS, "rules")
ENGINES = {"ground": GroundConfig(engine="openai:mock"), "difficulty": DifficultyConfig(engine="openai:mock")}


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return generate(tmp_path_factory.mktemp("log"), HaystackConfig(rows=3000, common_combinations=80, seed=3), 20)[0]


@pytest.fixture(scope="module")
def short_log(log: Path) -> Path:
    """The first 1,200 rows of the log."""
    path = log.with_name("short.parquet")
    pl.read_parquet(log)[:1200].write_parquet(path)
    return path


@pytest.fixture(scope="module")
def undisturbed(log: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, FunnelResult]]:
    store = Store(tmp_path_factory.mktemp("undisturbed") / "store")
    yield store, curate(store, [log], CONFIG, steps=STEPS_WITH_WORDS)


# ---- one step more -----------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_step_in_the_list_is_counted_and_tells_its_reasons(undisturbed: tuple[Store, FunnelResult]) -> None:
    """Given a step after the rules, then it is a row of the funnel where it stands, its verdicts are in the store, and reports name it."""
    store, result = undisturbed
    steps = result.funnel["step"].to_list()
    assert steps[steps.index("rules") + 1] == "words" and steps[steps.index("words") + 1] == "near"
    row = result.funnel.row(by_predicate=pl.col("step") == "words", named=True)
    assert row["dropped"] > 100 and row["reasons"] == f'{{"many_words": {row["dropped"]}}}'
    dropped = store.query("SELECT query_id, q.text FROM verdicts v JOIN queries q USING (query_id, run) WHERE step = 'words' ORDER BY 1")
    assert dropped.height == row["dropped"]
    assert dropped["text"].str.strip_chars(" .!?~,;:").str.split(" ").list.len().min() > 9
    assert "dropped at words: many words" in str(explain(store, dropped["query_id"][0]))
    assert [shown["step"] for shown in funnel_table(store).rows] == steps
    assert "many words" in write_report(store).read_text()


@pytest.mark.slow
def test_without_the_step_its_rows_go_on(undisturbed: tuple[Store, FunnelResult], log: Path, tmp_path: Path) -> None:
    """Negative control: the same configuration, the funnel's own list."""
    result = curate(Store(tmp_path / "store"), [log], CONFIG)
    assert "words" not in result.funnel["step"].to_list()
    assert result.run != undisturbed[1].run
    entered = [run.funnel.filter(step="near")["rows_in"][0] for run in (result, undisturbed[1])]
    assert entered[0] - entered[1] == undisturbed[1].funnel.filter(step="words")["dropped"][0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "after"), [(WORDS, "normalise"), (WORDS, "near"), (WORDS, "ground"), (WORDS, "difficulty"), (ALL_WORDS, "semantic")]
)
def test_a_step_may_stand_wherever_its_columns_are(step: Any, after: str, short_log: Path, tmp_path: Path) -> None:
    """Whichever pass it shares, before or after the whole steps: nothing that it drops is kept, and the run adds up (or is refused)."""
    store = Store(tmp_path / "store")
    result = curate(store, [short_log], CONFIG, steps=with_step(step, after))
    steps = result.funnel["step"].to_list()
    assert steps[steps.index(after) + 1] == "words"
    assert result.funnel.filter(step="words")["dropped"][0] > 0
    kept = store.query("SELECT q.text FROM verdicts v JOIN queries q USING (query_id, run) WHERE v.kept")["text"]
    assert kept.len() > 10 and kept.str.strip_chars(" .!?~,;:").str.split(" ").list.len().max() <= 9
    counted = store.query("SELECT count(*) AS n FROM frames WHERE status = 'many_words'")["n"][0]
    assert counted == (0 if after in ("normalise", "near", "ground") else result.funnel.filter(step="words")["dropped"][0])


class Killed(BaseException):
    """Stands for a kill: nothing catches it."""


@pytest.mark.slow
def test_killed_inside_the_step_and_run_again_gives_the_same(
    undisturbed: tuple[Store, FunnelResult], log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a kill after one batch of the step's pass, and another after the second, then none of these is done again, and the store is
    that of a whole run."""
    store, write, written, again = Store(tmp_path / "store"), Workspace.write, list[str](), list[str]()

    def noting(self: Workspace, name: str, frame: pl.DataFrame) -> None:
        if name in written:
            again.append(name)
        write(self, name, frame)
        written.append(name)

    for pieces in (1, 2):

        def dying(self: Workspace, name: str, frame: pl.DataFrame, pieces: int = pieces) -> None:
            if len([one for one in written if one.startswith("words-") and not one.endswith("dropped")]) == pieces:
                raise Killed
            noting(self, name, frame)

        with monkeypatch.context() as patch, pytest.raises(Killed), ThreadPoolExecutor(1) as one:
            patch.setattr(Workspace, "write", dying)
            curate(store, [log], CONFIG, steps=STEPS_WITH_WORDS, executor=one)
        assert not store.exists()
    monkeypatch.setattr(Workspace, "write", noting)
    result = curate(store, [log], CONFIG, steps=STEPS_WITH_WORDS)
    assert result.task_ids == undisturbed[1].task_ids
    assert store.content_hash() == undisturbed[0].content_hash()
    assert len([name for name in written if name.startswith(("normalise-", "words-"))]) > 8
    assert not again


def test_another_setting_of_the_step_is_another_run(undisturbed: tuple[Store, FunnelResult], log: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    other = curate(store, [log], CONFIG.model_copy(update={"words": WordsConfig(most=30)}), steps=STEPS_WITH_WORDS)
    assert other.run != undisturbed[1].run
    segments = store.query("SELECT segment FROM segments")["segment"].to_list()
    assert segments != undisturbed[0].query("SELECT segment FROM segments")["segment"].to_list(), "the index is of what it let through"


# ---- what a list is refused for ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", [FunnelConfig(), FunnelConfig(**ENGINES), FunnelConfig(ungrounded=True)])
def test_the_funnels_own_list_can_run(config: FunnelConfig) -> None:
    names = [step.name for step in check(STEPS, config)]
    assert names[0] == "ingest" and names[-1] == "admission" and len(names) == len(set(names))
    assert ("ask" in names) == ("tool_load" in names) == (config.ground.engine is not None)


def without(*names: str) -> tuple[Any, ...]:
    return tuple(step for step in STEPS if step.name not in names)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (with_step(replace(WORDS, needs=("frame_id",)), "rules"), "step words needs the column frame_id, which no step before it adds"),
        (without("taxonomy"), "step pool needs the column leaf, which no step before it adds"),
        (without("near"), "there is no step near, by which later runs are compared with this one"),
        (without("tool_match"), "step topics needs the column tools_near, which no step before it adds"),
        (without("combination_counts"), "step pool uses the survey combination_counts, which is not before it"),
        (with_step(replace(WORDS, name="rules"), "near"), "two steps are called rules"),
        (with_step(WORDS, "coverage"), "step words stands after a whole step"),
        (STEPS[1:], "step normalise needs the column text, which no step before it adds"),
    ],
)
def test_a_list_that_cannot_run_is_refused_in_one_line_before_anything_is_read(steps: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as refused:
        curate(Store(tmp_path / "store"), [tmp_path / "not there.txt"], CONFIG, steps=steps)
    assert message in str(refused.value) and "\n" not in str(refused.value)
    assert not (tmp_path / "store").exists()


def test_settings_without_a_section_are_refused() -> None:
    with pytest.raises(BadInput, match=r"step words has settings \(WordsConfig\), but FunnelConfig has no section for them"):
        check(STEPS_WITH_WORDS, FunnelConfig())


# ---- what a step is held to --------------------------------------------------------------------------------------------------------

ROWS = pl.DataFrame({"row": pl.Series([4, 7], dtype=pl.UInt32), "norm": ["a b", "a b c"]})


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda rows, _: rows[:1].with_columns(words=1, reason=None), "did not return the rows that it was given"),
        (lambda rows, _: rows.reverse().with_columns(words=1, reason=None), "did not return the rows that it was given"),
        (lambda rows, _: rows.with_columns(reason=pl.lit(None, pl.String)), "did not add words"),
        (lambda rows, _: rows.with_columns(words=1), "did not add reason"),
        (lambda rows, _: rows.with_columns(words=1, reason=pl.lit("no_idea")), "gave the reason no_idea, which it does not declare"),
    ],
)
def test_a_step_that_does_not_do_as_it_declares_is_stopped(function: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        apply(replace(WORDS, function=function), ROWS, (WordsConfig(),))


@pytest.mark.parametrize("name", ["exact", "near"])
def test_steps_that_join_are_held_to_their_reasons_too(name: str, log: Path, tmp_path: Path) -> None:
    steps = [replace(step, reasons=("other",)) if step.name == name else step for step in STEPS]
    with pytest.raises(AssertionError, match=f"step {name} gave the reason {name}_duplicate, which it does not declare"):
        curate(Store(tmp_path / "store"), [log], CONFIG, steps=steps)


def test_what_a_step_does_not_declare_goes_no_further() -> None:
    """Given a step that also changes a column that it does not add, then that stays as it was."""

    def careless(rows: pl.DataFrame, _: WordsConfig) -> pl.DataFrame:
        return rows.with_columns(words=1, norm=pl.lit("x"), draft=2, reason=pl.lit(None, pl.String))

    out = apply(replace(WORDS, function=careless), ROWS, (WordsConfig(),))
    assert out.columns == ["row", "norm", "words", "reason"] and out["norm"].to_list() == ["a b", "a b c"]


def test_patterns_of_reasons_let_through_what_they_name() -> None:
    step = BatchStep(name="ask", reasons=("unknown", "model_*"), function=lambda rows: rows)
    assert step.declares("unknown") and step.declares("model_malformed")
    assert not step.declares("malformed") and not step.declares("model")


def test_no_survey_of_the_list_is_left_unused() -> None:
    """A survey is used by a later step, or it is there for what it tells the user."""
    surveys = {step.name: step for step in STEPS if isinstance(step, SurveyStep)}
    used = {step.uses for step in STEPS if step.uses is not None}
    assert used <= surveys.keys()
    assert all(surveys[name].note is not None for name in surveys.keys() - used)

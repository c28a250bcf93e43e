"""What the command line makes of a configuration."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from filters.funnel import FunnelConfig
from filters.steps.selection.contamination import HeldOutFile
from flows import validation
from flows.config import Config, for_curation, remember
from flows.validation import check_language, resolve_query_id, set_synthesis_options
from storage.configurations import read_configurations
from storage.errors import BadInput
from storage.store import Store, part_id
from synth.writing.new_spec import new_spec
from tests.storage.conftest import build_sample


def test_each_world_that_is_named_gets_tasks_and_a_range_gets_none(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "mine.yaml").write_bytes(files("synth.worlds.declarative").joinpath("starter.yaml").read_bytes())
    above = str(tmp_path / "deep" / ".." / "mine.yaml")

    drills = set_synthesis_options(Config(), [above, "banking", "gen-1..3"], None, 5).synthesize.drills

    assert [name.partition("@")[0] for name in drills] == ["tool_library", "banking"]
    assert set(drills.values()) == {3}, "of five, rounded up"


def test_licences_are_pairs_and_a_curation_may_be_begun(tmp_path: Path) -> None:
    store = build_sample(tmp_path / "store").store
    assert validation.split_licences(["a.csv=MIT", "b=c=d"]) == {"a.csv": "MIT", "b": "c=d"}
    assert [validation.resolve_curation(store, name) for name in (None, "run-1", "run")] == [None, "run-1", "run-1"]
    with pytest.raises(BadInput, match="no such curation; it has run-1"):
        validation.resolve_curation(store, "second")
    with pytest.raises(BadInput, match="leave out --format"):
        validation.refuse_options_of_messages("verl", "parallel", "object")


def test_a_training_in_a_language_that_no_world_speaks_is_refused_where_it_is_set(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(new_spec(["zh"]))
    check_language(Config.model_validate({"train": {"worlds": [str(path)]}}))
    check_language(Config.model_validate({"train": {"worlds": [str(path), "banking"], "language": "en"}}))
    with pytest.raises(BadInput, match=r"train.language is en, but no world of train.worlds speaks it \(tool_library@\w+\); set it to zh"):
        check_language(Config.model_validate({"train": {"worlds": [str(path)], "language": "en"}}))


def test_the_store_remembers_the_languages_that_its_worlds_speak(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(new_spec(["en"]))
    config = Config.model_validate({"store": tmp_path / "store", "synthesize": {"worlds": [str(path)], "drills": {}}})
    remember(config, "synthesize")
    assert [one.languages for one in read_configurations(Store(tmp_path / "store"))] == [("en",)]


def curated(**said: Any) -> FunnelConfig:
    nothing: dict[str, Any] = {"column": None, "keep": None, "held_out": [], "ungrounded": None, "strict": False, "new": False}
    return for_curation(Config(), **(nothing | said)).curate


def test_what_to_keep_is_a_number_or_one_in_so_many() -> None:
    assert (curated(keep="1/10,000").keep_one_in, curated(keep="1/7").keep_one_in) == (10_000, 7)
    assert (curated(keep="500").coverage.keep, curated(keep="500").keep_one_in) == (500, None)
    assert curated() == Config().curate
    for text in ("0", "1/0", "2/3", "-4", "many", "1/", ""):
        with pytest.raises(BadInput, match="1/10000"):
            curated(keep=text)


def test_held_out_sets_are_files_with_the_same_column_or_a_known_name() -> None:
    sets = curated(column="messages.0.content", held_out=["bfcl", "exams/final.jsonl", "bfcl"]).contamination.held_out
    assert sets == ("bfcl", HeldOutFile(name="exams/final.jsonl", file="exams/final.jsonl", column="messages.0.content"))


def test_a_row_is_named_by_its_file_and_number(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    row = {"query_id": "q-1", "run": "run-1", "source": "log.txt", "row": 7, "text": "a lamp", "language": "en", "occurrences": 1}
    store.commit([store.write("queries", part_id("queries", ["x"], {}, 1), pl.DataFrame([row]))])
    assert (resolve_query_id(store, "logs/log.txt:7"), resolve_query_id(store, "q-1"), resolve_query_id(store, "a:b")) == (
        "q-1",
        "q-1",
        "a:b",
    )
    with pytest.raises(BadInput, match=r"files read: log\.txt"):
        resolve_query_id(store, "log.txt:8")

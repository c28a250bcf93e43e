"""The haystack has the declared shares of rows, is the same in every process, and has no typos in slot values."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from storage.errors import BadInput
from synth.haystack.generate import ROWS_A_NEEDLE_COMBINATION, HaystackConfig, check_room, generate
from synth.haystack.noise import CLOSE, OPEN, near_variants, remove_marks
from synth.worlds import WORLDS
from synth.worlds.declarative.compile import compile_spec
from synth.worlds.declarative.language.yaml_text import parse_text
from synth.writing.new_spec import new_spec

CONFIG, KEEP = HaystackConfig(rows=20_000, seed=3), 60


@pytest.fixture(scope="module")
def log(tmp_path_factory) -> tuple[pl.DataFrame, pl.DataFrame]:
    queries, plants = generate(tmp_path_factory.mktemp("haystack"), CONFIG, KEEP)
    return pl.read_parquet(queries), pl.read_parquet(plants)


def test_each_kind_of_row_has_its_share(log):
    queries, plants = log
    shares = {kind: count / CONFIG.rows for kind, count in plants.group_by("kind").len().iter_rows()}
    assert queries.columns == ["text"]
    assert queries.height == plants.height == CONFIG.rows
    assert shares["exact"] == pytest.approx(0.30)
    assert shares["near"] == pytest.approx(0.20)
    assert shares["paraphrase"] == pytest.approx(0.10, abs=0.005)
    assert shares["junk"] <= 0.15
    assert plants.filter(kind="base")["frame"].is_unique().all()


def test_needles_are_rare_and_of_every_difficulty_and_both_worlds(log):
    _, plants = log
    needles = plants.filter(kind="needle")
    assert needles.height >= 2.7 * KEEP
    assert set(needles["difficulty"]) == {-1, 0, 1, 2, 3, 4, 5}
    assert set(needles["world"]) == {"city", "retail"}
    rows = plants.filter(pl.col("combination").is_not_null()).group_by("combination").len()
    assert rows.join(needles.select("combination").unique(), on="combination")["len"].max() <= ROWS_A_NEEDLE_COMBINATION


def test_twins_share_their_frame(log):
    _, plants = log
    twins = plants.filter(pl.col("twin").is_not_null())
    pairs = twins.join(plants.select(twin="row", original_frame="frame", original_kind="kind"), on="twin")
    assert pairs.height == twins.height
    assert (pairs["frame"] == pairs["original_frame"]).all()
    assert set(pairs["original_kind"]) <= {"base", "paraphrase"}


def test_texts_contain_no_marks(log):
    assert not log[0]["text"].str.contains(f"[{OPEN}{CLOSE}]").any()


@pytest.mark.slow
def test_equal_arguments_give_equal_bytes_in_another_process(log, tmp_path):
    call = f"generate(Path({str(tmp_path)!r}), HaystackConfig(rows=20_000, seed=3), 60)"
    code = f"from pathlib import Path; from synth.haystack.generate import *; {call}"
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | {"PYTHONHASHSEED": "77"})
    assert digest(pl.read_parquet(tmp_path / "queries.parquet")) == digest(log[0])
    assert digest(pl.read_parquet(tmp_path / "plants.parquet")) == digest(log[1])


def digest(frame: pl.DataFrame) -> str:
    return hashlib.sha256(frame.write_csv().encode()).hexdigest()


def test_another_seed_gives_another_log(log, tmp_path):
    queries, _ = generate(tmp_path, CONFIG.model_copy(update={"seed": 4}), KEEP)
    common = set(pl.read_parquet(queries)["text"]) & set(log[0]["text"])
    assert len(common) < 0.3 * CONFIG.rows


@pytest.mark.parametrize(("rows", "keep"), [(1000, 1), (1000, 10), (1000, 70), (3000, 240)])
def test_small_logs_have_all_their_rows(tmp_path, rows, keep):
    """Given fewer first mentions than combinations, or few rows beside the needles, then the log has the configured number of rows."""
    queries, plants = generate(tmp_path, HaystackConfig(rows=rows), keep)
    assert pl.read_parquet(queries).height == rows
    assert pl.read_parquet(plants).filter(kind="needle").height >= 2.7 * keep


def test_more_needles_than_rows_are_refused_with_the_number_of_rows_that_suffices(tmp_path):
    with pytest.raises(BadInput, match=r"a log of at least 1203 rows; haystack\.rows is 1000"):
        generate(tmp_path / "log", HaystackConfig(rows=1000), 100)
    assert not (tmp_path / "log").exists()
    check_room(1203, 100)


def test_a_world_of_another_version_makes_another_log(tmp_path, monkeypatch):
    config = HaystackConfig(rows=1000)
    queries, _ = generate(tmp_path, config, 1)
    queries.write_bytes(b"kept")
    generate(tmp_path, config, 1)
    assert queries.read_bytes() == b"kept"
    monkeypatch.setattr(WORLDS["city"], "version", WORLDS["city"].version + 1)
    generate(tmp_path, config, 1)
    assert queries.read_bytes() != b"kept"


def test_typos_never_change_marked_values():
    text = f"please close order {OPEN}o17{CLOSE} and tell {OPEN}u05{CLOSE} about it"
    rows = pl.DataFrame({"text": [text] * 500, "kind": "base"})
    misspelt = near_variants(rows, np.random.default_rng(0)).with_columns(text=remove_marks(pl.col("text")))
    assert misspelt["text"].str.contains("o17").all()
    assert misspelt["text"].str.contains("u05").all()
    assert misspelt["text"].n_unique() > 50


def test_a_families_file_changes_every_text_of_its_intents(tmp_path):
    families = tmp_path / "families.yaml"
    families.write_text("retail:\n  intents:\n    order_status:\n      en: ['zzz where is {order}']\n      zh: ['zzz {order}呢']\n")
    queries, plants = generate(tmp_path / "log", CONFIG, KEEP, families)
    rows = pl.concat([pl.read_parquet(queries), pl.read_parquet(plants)], how="horizontal").filter(pl.col("intent") == "order_status")
    assert rows.filter(kind="base")["text"].str.to_lowercase().str.contains("zzz").all()


def test_a_missing_families_file_is_refused(tmp_path):
    with pytest.raises(BadInput, match="no such file"):
        generate(tmp_path, CONFIG, KEEP, tmp_path / "missing.yaml")


def test_a_log_may_be_about_other_worlds_in_the_wording_of_a_file(tmp_path: Path) -> None:
    """Given a file that words two intents of a world, then all requests of the log ask for these, in its words."""
    file = tmp_path / "words.yaml"
    file.write_text(
        "hotel:\n  intents:\n"
        "    cancel_reservation: {en: ['scrap {reservation} for me'], zh: ['{reservation}我不要了']}\n"
        "    check_in: {en: ['we stand at your desk with {reservation}'], zh: ['我们到了，{reservation}']}\n",
        encoding="utf-8",
    )
    config = HaystackConfig(rows=1000, worlds=("hotel",), only_worded=True, common_combinations=20)
    queries, plants = (pl.read_parquet(path) for path in generate(tmp_path / "log", config, 5, file))
    asked = plants.with_columns(queries["text"]).drop_nulls("intent")
    assert set(asked["world"]) == {"hotel"} and set(asked["intent"]) <= {"cancel_reservation", "check_in"}
    wording = "scrap|not|stand at your desk|不要了|我们到了"
    assert asked.filter(kind="base")["text"].str.contains(wording).all()


def test_worlds_of_one_language_are_refused(tmp_path: Path) -> None:
    world = compile_spec(parse_text(new_spec(("en",))))
    WORLDS.register(world)
    try:
        with pytest.raises(BadInput, match="speaks one language"):
            generate(tmp_path, HaystackConfig(rows=1000, worlds=(world.name,)), 5)
    finally:
        WORLDS.forget(world.name)


def test_worded_intents_alone_need_a_file_of_wordings(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="only_worded"):
        generate(tmp_path, HaystackConfig(rows=1000, only_worded=True), 5)

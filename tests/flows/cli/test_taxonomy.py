"""`headrace taxonomy`: shows, exports, imports and grows the tree of a store."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from filters.sample_queries import sample_store
from filters.taxonomy.built_in import built_in
from filters.taxonomy.tree import tree_of
from filters.taxonomy.versions import newest, save_version
from flows.cli.main import app
from storage.store import Store
from synth.haystack.generate import HaystackConfig, generate
from tests.filters.reading_engines import served


def run_taxonomy(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["taxonomy", *arguments])
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a log of 600 rows, a tenth of them near duplicates, and a small tree; tests only add versions of the taxonomy to it."""
    folder = tmp_path_factory.mktemp("curated")
    queries, _ = generate(folder / "log", HaystackConfig(rows=1000, common_combinations=60, seed=5), 5)
    near = pl.col("number") % 10 == 0
    text = pl.when(near).then(pl.lit("a copy of it")).otherwise("text")
    texts = pl.read_parquet(queries)["text"][:600]
    rows = pl.DataFrame({"text": texts}).with_row_index("number").select(
        pl.format("q-{}", "number").alias("query_id"), pl.lit("run-1").alias("run"), pl.lit("log").alias("source"),
        row=pl.col("number").cast(pl.Int64), text=text, language=pl.lit("en"), occurrences=pl.lit(1, pl.Int64),
    )  # fmt: skip
    verdicts = rows.select(
        "query_id", "run", step=pl.when(text="a copy of it").then(pl.lit("near")).otherwise(pl.lit("ground")),
        kept=False, reason=pl.lit("unknown"),
        duplicate_of=pl.lit(None, pl.String), similarity=pl.lit(None, pl.Float64),
    )  # fmt: skip
    steps = [("near", 600, 540), ("ground", 540, 0)]
    funnel = [
        {"run": "run-1", "position": at, "step": step, "rows_in": rows_in, "kept": kept, "dropped": rows_in - kept, "seconds": 0.0}
        | {"reasons": f'{{"unknown": {rows_in - kept}}}', "size_bytes": 0}
        for at, (step, rows_in, kept) in enumerate(steps)
    ]
    frames = {"queries": rows, "verdicts": verdicts, "funnel": pl.DataFrame(funnel)}
    opened = Store(folder / "store")
    opened.commit([opened.write(table, f"{table}-0", frame) for table, frame in frames.items()])
    top = [node for node in built_in().nodes if node.id.split(".")[0] == "rules_and_policies"]
    save_version(opened, tree_of(top), "edited")
    return folder / "store"


@pytest.mark.slow
def test_the_tree_is_written_edited_and_read_back(store: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    run_taxonomy("export", str(file), "--store", str(store))
    assert "exists; name another file" in run_taxonomy("export", str(file), "--store", str(store), code=2)
    assert "nothing new" in run_taxonomy("import", str(file), "--store", str(store))
    edited = file.read_text() + "  music:\n    description: Play or find music\n    examples:\n    - play some jazz\n    - 放一首歌\n"
    file.write_text(edited.replace("  rules_and_policies.venue_rules:\n", "  rules_and_policies.venue_rules:\n    exmples: [x]\n"))
    assert "rules_and_policies.venue_rules: there is no key 'exmples'" in run_taxonomy("import", str(file), "--store", str(store), code=2)
    file.write_text(edited)
    assert "nothing was written" in run_taxonomy("import", str(file), "--store", str(store), "--dry-run")
    assert newest(Store(store)).position == 2
    output = run_taxonomy("import", str(file), "--store", str(store))
    assert "new  music" in output
    assert "version 3, edited" in output
    assert "music" in run_taxonomy("show", "--store", str(store))
    assert "music" not in run_taxonomy("show", "--store", str(store), "--version", "1")
    assert "no version 9" in run_taxonomy("show", "--store", str(store), "--version", "9", code=2)


@pytest.mark.slow
def test_the_tree_grows_with_the_stores_queries(store: Path, tmp_path: Path) -> None:
    """Given a curated store and a file with queries of a new kind, when the tree evolves on the store in a dry run, then no version is
    saved; when it evolves on the file, then a class for the new kind appears."""
    before = newest(Store(store))
    output = run_taxonomy("evolve", "--store", str(store), "--rounds", "1", "--rows", "150", "--dry-run")
    assert "round 1: agreement" in output
    assert "nothing was written" in output
    assert newest(Store(store)).tree == before.tree
    strange = [f"knit me a {colour} scarf of wool with {count} stitches" for colour in ("red", "blue", "green") for count in range(30, 80)]
    pl.DataFrame({"q": [*strange, *sample_store(Store(store), 150, seed=0)]}).write_parquet(tmp_path / "strange.parquet")
    output = run_taxonomy("evolve", str(tmp_path / "strange.parquet"), "--column", "q", "--store", str(store), "--rounds", "1")
    assert "scarf" in output
    after = newest(Store(store))
    assert (after.origin, after.parent) == ("refined", before.tree.id)
    shown = run_taxonomy("versions", "--store", str(store))
    assert after.tree.id in shown
    assert "evolved on" in run_taxonomy("show", "--store", str(store))


def test_the_sample_of_a_store_has_no_near_duplicates(store: Path) -> None:
    opened = Store(store)
    sample = sample_store(opened, 100_000, seed=0)
    assert 200 < len(sample) <= 540
    assert "a copy of it" not in sample
    assert sample_store(opened, 50, seed=0) == sample[:50]
    assert sample_store(opened, 50, seed=1) != sample[:50]


def test_agreement_is_printed_with_an_interval(tmp_path: Path) -> None:
    output = run_taxonomy("agreement", "--rows", "100", "--store", str(tmp_path / "store"))
    assert re.search(r"labels of the scripted annotator and parser: \d+ of \d+ right, [\d.]+% \([\d.]+% to [\d.]+%\)", output)
    assert re.search(r"frames of the scripted annotator and parser: \d+ of \d+ right, (100|9\d\.\d|99\.\d)", output)


@pytest.mark.parametrize("command", [("evolve", "no/such/file.jsonl"), ("agreement",)])
def test_an_annotator_that_does_not_exist_is_refused_before_anything_is_read(command: tuple[str, ...], tmp_path: Path) -> None:
    output = run_taxonomy(*command, "--annotator", "gpt", "--store", str(tmp_path / "store"), code=2)
    assert "no engine is called 'gpt'" in output
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_is_not_there_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    settings, log = tmp_path / "own.yaml", tmp_path / "log.txt"
    settings.write_text("curate:\n  ground:\n    engine: hf:no/such/folder\n")
    arguments = ["curate", str(log), "--config", str(settings), "--store", str(tmp_path / "store")]
    result = CliRunner().invoke(app, arguments)
    assert (
        result.exit_code == 2 and "no/such/folder is no Hugging Face model folder" in result.output
    )  # the engine is checked before log.txt is looked for
    assert not (tmp_path / "store").exists()


def test_a_tree_is_labelled_by_a_model_and_its_answers_are_kept(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a scripted model behind a server, when a tree evolves with it twice, then the second run uses the kept answers."""
    with served(lambda _: "no JSON at all") as (mock, url):
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        arguments = ("evolve", "--store", str(store), "--rounds", "1", "--rows", "100", "--annotator", "openai:mock")
        output = run_taxonomy(*arguments, "--dry-run")
        assert "no usable answer of openai:mock: malformed 200, unnamed 1" in output
        assert "nothing was written except the answers of the model" in output
        requests = mock.counts["answered"]
        run_taxonomy(*arguments)
        assert mock.counts["answered"] == requests + 1  # the check of the server
    by = newest(Store(store)).statistics["annotator"]
    assert by["engine"] == "openai:mock" and by["reasons"]["malformed"] >= 100

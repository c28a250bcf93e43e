"""The command line: bad input is refused in one line before anything is written, and help is fast."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import duckdb
import polars as pl
import pytest
import yaml
from httpx import ConnectError
from typer.testing import CliRunner

from flows.cli.main import app
from flows.cli.shared import print_results
from flows.config import Config, read
from flows.dry_run import plan
from flows.runtime.server import named_server
from storage.store import Store, part_id
from storage.tables import TABLES
from tests.storage.conftest import build_sample

ROOT = Path(__file__).parents[3]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder without a named Prefect server. A command that passes its checks would start a server and leave files."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    return tmp_path


def refused(*arguments: str) -> str:
    """Runs `headrace`, expects exit code 2 and one line on stderr, and returns that line."""
    result = CliRunner().invoke(app, [*arguments])
    assert result.exit_code == 2, (result.exit_code, result.output)
    assert result.stdout == "" and result.stderr.count("\n") == 1, result.output
    return result.stderr


def written(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("q.jsonl", None, "no such file"),
        ("q.jsonl", b"", "the file is empty"),
        ("q.csv", b"text\n", "no rows"),
        ("q.csv", b'text\n"where is', "truncated"),
        ("q.csv", b"query\nwhere is my order\n", "no column 'text' (it has: query); name the query's column with --column"),
        ("q.txt", "où est ma commande\n".encode("utf-16"), "not UTF-8 text"),
        ("q.txt", b"\xe9t\xe9\n\xe8re\n\xe0 bient\xf4t\n", "cannot be decoded"),
        ("q.parquet", b"PAR1 and then nothing", "q.parquet"),
        ("q.docx", b"text", "unknown format"),
    ],
)
def test_bad_query_files_are_refused_and_nothing_is_written(here: Path, name: str, content: bytes | None, says: str) -> None:
    if content is not None:
        (here / name).write_bytes(content)
    before = written(here)
    line = refused("curate", name, "--store", "runs/x/store")
    assert says in line and name in line
    assert written(here) == before


def test_wrong_columns_truncated_parquet_and_strictness(here: Path) -> None:
    pl.DataFrame({"prompt": ["where is my order", "book a table"]}).write_parquet("q.parquet")
    assert "prompt" in refused("curate", "q.parquet", "--column", "promt")
    data = Path("q.parquet").read_bytes()
    Path("cut.parquet").write_bytes(data[: len(data) // 2])
    assert "cut.parquet" in refused("curate", "cut.parquet", "--column", "prompt")
    Path("q.jsonl").write_text('{"text": "where is my order"}\n{"text": "book a table"}\nnot json\n')
    assert "row 2" in refused("curate", "q.jsonl", "--strict")
    assert "no such file" in refused("curate", "q.jsonl", "--held-out", "exam.jsonl")
    assert written(here) == ["cut.parquet", "q.jsonl", "q.parquet"]


@pytest.mark.parametrize("command", ["run", "synthesize", "curate", "tag", "train", "evaluate", "doctor"])
def test_a_typo_in_a_configuration_names_line_and_nearest_key(here: Path, command: str) -> None:
    Path("c.yaml").write_text("store: s/store\ncurate:\n  coverage:\n    kepe: 3\n")
    assert "c.yaml:4: unknown key `curate.coverage.kepe`; did you mean `keep`?" in refused(command, "--config", "c.yaml")
    assert "no such configuration file" in refused(command, "--config", "d.yaml")
    assert written(here) == ["c.yaml"]


def test_a_store_of_another_version_is_refused(here: Path) -> None:
    create_store(here / "s")
    for name in ("catalog.duckdb", "catalog.read.duckdb"):
        with duckdb.connect(here / "s" / name) as connection:
            connection.execute("UPDATE schema_version SET version = 'another'")
    Path("c.yaml").write_text("store: s\n")
    before = written(here)
    assert "schema version another" in refused("run", "--store", "s")
    assert "schema version another" in refused("explain", "q-1", "--store", "s")
    assert "schema version another" in refused("doctor", "--config", "c.yaml")
    assert written(here) == before


def test_missing_stores_files_and_worlds_are_refused(here: Path) -> None:
    Path("file").write_text("")
    assert "file cannot be a store: Not a directory" in refused("run", "--store", "file")
    assert "holds file, which is not of a store" in refused("run", "--store", "")
    assert "no store under runs/" in refused("lineage", "policy-1")
    assert "is not a store yet" in refused("explain", "policy-1", "--store", "nowhere")
    assert "is not a store yet" in refused("export", "seed", "--store", "nowhere")
    assert "no such file" in refused("run", "--families", "other.yaml")
    assert "no world is called 'retial'; did you mean 'retail'?" in refused("synthesize", "--world", "retial", "--store", "s")
    Path("tools.jsonl").write_text('{"name": "send_mail"}\n')
    assert "no world executes any of these tools" in refused("synthesize", "--tools", "tools.jsonl", "--store", "s")
    Path("tools.jsonl").unlink()
    assert "no prefect.yaml in this folder" in refused("up")
    assert written(here) == ["file"]


def test_unusable_engines_are_refused_before_any_request(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    command = ("synthesize", "--store", "s")
    assert "openai:gpt at http://127.0.0.1:9/v1/models: no answer (connection refused); start the server" in refused(
        *command, "--judge", "openai:gpt"
    )
    assert "'gpt' is no engine; give scripted, or one of openai:MODEL" in refused(*command, "--user", "gpt")
    assert "there is no model folder /nowhere/model" in refused(*command, "--assistant", "vllm:/nowhere/model")
    assert "is no Hugging Face model folder" in refused(*command, "--planner", "hf:nowhere")
    assert "no answer (connection refused)" in refused(*command, "--judge", "openai:gpt", "--preview", "2")
    assert "--preview holds conversations, --dry-run does nothing" in refused(*command, "--preview", "2", "--dry-run")
    assert "roles.max_usd: Input should be greater than 0" in refused(*command, "--max-usd", "0")
    assert written(here) == []


ENGINES = ("synthesize: {roles: {judge: 'openai:gpt'}}", "curate: {ground: {engine: 'openai:gpt'}}")


@pytest.mark.parametrize("named", ENGINES)
def test_engines_of_a_configuration_are_checked_for_a_run_but_not_for_its_plan(
    here: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    Path("c.yaml").write_text(named)
    assert "openai:gpt at http://127.0.0.1:9/v1/models: no answer (connection refused); start the server" in refused(
        "run", "--config", "c.yaml", "--store", "s"
    )
    doctor = CliRunner().invoke(app, ["doctor", "--config", "c.yaml"])
    assert doctor.exit_code == 1 and "broken engine: openai:gpt at http://127.0.0.1:9" in doctor.output, doctor.output
    planned = CliRunner().invoke(app, ["run", "--config", "c.yaml", "--dry-run"])
    assert planned.exit_code == 0 and "nothing was done" in planned.output, planned.output
    planned = CliRunner().invoke(app, ["curate", "--config", "c.yaml", "--dry-run"])
    assert planned.exit_code == 0 and "nothing was done" in planned.output, planned.output
    assert written(here) == ["c.yaml"]


def test_the_plan_does_not_call_engines_free() -> None:
    def costs(config: Config, *steps: str) -> dict[str, str]:
        return {row["step"]: row["cost"] for row in plan(config, steps).rows}

    judged, read_by = (Config.model_validate(yaml.safe_load(named)) for named in ENGINES)
    assert costs(judged, "synthesize", "tag") == {"synthesize": "see `headrace synthesize --preview`", "tag": "0 USD", "all": "as above"}
    assert costs(read_by, "synthesize", "curate") == {"synthesize": "0 USD", "curate": "by its engine", "all": "as above"}
    assert costs(judged, "curate", "tag") == {"curate": "0 USD", "tag": "0 USD", "all": "0 USD"}


def test_a_store_without_the_needed_data_is_refused(here: Path) -> None:
    """The command starts and writes nothing, not even the lock of a misspelt store."""
    for command in ("tag", "train", "evaluate"):
        assert "typo/store is not a store yet" in refused(command, "--store", "typo/store")
    assert written(here) == []
    create_store(here / "s")
    before = written(here)
    assert "has no promoted policy yet" in refused("evaluate", "--store", "s")
    assert "has no policy policy-1; it has none" in refused("evaluate", "--policy", "policy-1", "--store", "s")
    assert "has no release" in refused("export", "rl", "--store", "s")
    assert "has no accepted conversation and no task; run `headrace synthesize`" in refused("export", "--store", "s")
    assert "holds no tasks yet" in refused("tag", "--store", "s")
    assert "holds no tasks yet" in refused("train", "--store", "s")
    assert written(here) == before


def test_a_policy_that_cannot_answer_is_refused(here: Path) -> None:
    """The policy is a named engine, or a policy of the store without its folder. Nothing is written."""
    build_sample(here / "s")
    before = written(here)
    for command in ("tag", "evaluate"):
        assert "nowhere is no Hugging Face model folder" in refused(command, "--store", "s", "--policy", "hf:nowhere")
        assert "no engine is called 'opanai:m'" in refused(command, "--store", "s", "--policy", "opanai:m")
        assert "is no Hugging Face model folder" in refused(command, "--store", "s")
        assert "give usd_per_million too" in refused(command, "--store", "s", "--policy", "openai:m", "--max-usd", "3")
    assert written(here) == before


def test_a_dry_run_prints_the_number_of_rollouts(here: Path) -> None:
    Path("c.yaml").write_text("train: {probe_tasks: 30, eval_tasks: 10, eval_out_tasks: 6, eval_samples: 4}\n")

    def dry_run(*arguments: str) -> str:
        return " ".join(CliRunner().invoke(app, [*arguments, "--config", "c.yaml", "--policy", "openai:m", "--dry-run"]).output.split())

    probed = dry_run("tag", "--again", "5")
    assert "30 probe tasks x 8 to 16 = 240 to 480 rollouts" in probed and "5 probe tasks x 8 to 16 = 40 to 80 rollouts" in probed
    assert "by its engine, 8 requests a rollout at most" in probed and "openai:m" in probed
    assert "16 held-out tasks x 5 = 80 rollouts" in dry_run("evaluate")
    assert written(here) == ["c.yaml"]


def test_licences_must_name_source_files_of_the_release(here: Path) -> None:
    sample = build_sample(here / "s")
    assert "write FILE=LICENCE" in refused("export", "second", "--licence", "MIT", "--store", "s")
    line = refused("export", "second", "--licence", "log.csv=MIT", "--store", "s")
    assert f"no task of {sample.second_release} came from log.csv; they came from log.txt" in line, line


def test_paths_are_printed_unchanged(here: Path) -> None:
    build_sample(here / "s")
    for folder in ("o/[new]x", "o[/new]x", "o/:cat:"):
        result = CliRunner().invoke(app, ["export", "second", "--store", "s", "--out", folder])
        assert result.exit_code == 0 and result.stdout.startswith(f"wrote {here / folder}: "), result.output
        assert (here / folder / "README.md").exists()


def test_results_show_the_link_if_there_is_one_and_tables_if_they_are_wanted(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = Config(store=Path("o[/new]x") / "s")
    build_sample(settings.store)
    print_results(settings, "", ("curate", "train"), None)
    shown = capsys.readouterr().out
    assert f"the store   {settings.store}  (content hash" in shown and "Prefect run" not in shown and "rows in" not in shown
    print_results(settings, "http://127.0.0.1:9/runs/flow-run/1", ("curate", "train"), ("funnel",))
    shown = capsys.readouterr().out
    assert "Prefect run  http://127.0.0.1:9/runs/flow-run/1" in shown and "rows in" in shown and "Certainty" not in shown


def test_folders_that_cannot_be_created_are_bad_input(here: Path) -> None:
    build_sample(here / "s")
    Path("file").write_text("")
    for folder in ("file/x", "file/x/y", "/proc/x/y"):
        assert "cannot be made" in refused("export", "second", "--store", "s", "--out", folder)
    Path(".prefect").write_text("")
    before = written(here)
    assert ".prefect is a file" in refused("synthesize", "--store", "t")
    Path("prefect.yaml").write_text("")
    before.append("prefect.yaml")
    assert ".prefect is a file" in refused("up")
    assert written(here) == sorted(before)


def create_store(folder: Path) -> None:
    """Create a store with one row, a diversity figure."""
    columns = TABLES["diversity"].columns
    row = {"run": "r-1", "round": 1, "metric": "tool_entropy", "value": 1.0, "n": 1}
    store = Store(folder)
    rows = pl.DataFrame({name: [row.get(name)] for name in columns}, schema=columns)
    store.commit([store.write("diversity", part_id("diversity", ["r-1"], {}, 1), rows)])


def test_doctor_checks_a_store(here: Path) -> None:
    Path("c.yaml").write_text("store: s\n")
    result = CliRunner().invoke(app, ["doctor", "--config", "c.yaml"])
    assert result.exit_code == 0 and "note   store: s does not exist yet" in result.output, result.output
    create_store(here / "s")
    result = CliRunner().invoke(app, ["doctor", "--config", "c.yaml"])
    assert result.exit_code == 0 and "ok     store: s: 1 parts" in result.output, result.output
    part = next(here.glob("s/lake/diversity/*.parquet"))
    whole = part.read_bytes()
    for damage in (lambda: part.write_bytes(whole[:-9]), lambda: pl.read_parquet(whole)[:0].write_parquet(part), part.unlink):
        damage()
        result = CliRunner().invoke(app, ["doctor", "--config", "c.yaml"])
        assert result.exit_code == 1 and "broken store: 1 of 1 parts of s are missing or damaged" in result.output, result.output


def test_a_named_server_that_does_not_answer_is_bad_input(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api/")
    assert named_server() == "http://127.0.0.1:9/api"
    assert "no Prefect server answers there" in refused("synthesize", "--store", "runs/x/store")
    assert written(here) == []
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 1 and "broken Prefect" in result.output


def test_a_server_that_is_gone_in_the_middle_is_named(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its requests fail after Prefect has tried them again for minutes."""
    url = "http://127.0.0.1:9/api"
    monkeypatch.setenv("PREFECT_API_URL", url)
    for name in ("PREFECT_HOME", "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "PREFECT_LOGGING_INTERNAL_LEVEL"):
        monkeypatch.setenv(name, os.environ.get(name, "CRITICAL"))  # so that they are as before in the end
    monkeypatch.setattr("flows.runtime.run_flow.is_healthy", lambda *_, **__: True)
    monkeypatch.setattr("flows.runtime.run_flow.flush_to_server", lambda: None)
    flow = SimpleNamespace(on_running_hooks=[], with_options=lambda **_: Mock(side_effect=ConnectError("refused")))
    monkeypatch.setattr("flows.synthesize.synthesize", flow)
    result = CliRunner().invoke(app, ["synthesize", "--store", "runs/x/store"])
    assert f"Prefect's server at {url} does not answer any more (ConnectError: refused); what was committed is kept" in result.stderr
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)


def test_a_plan_does_nothing(here: Path) -> None:
    for command in ("run", "synthesize", "curate", "tag", "train", "evaluate"):
        result = CliRunner().invoke(app, [command, "--dry-run"])
        assert result.exit_code == 0 and "nothing was done" in result.output and "0 USD" in result.output, result.output
    assert written(here) == []


def test_the_plan_of_a_file_counts_its_rows(here: Path) -> None:
    Path("q.txt").write_text("where is my order\nbook a table\n")
    Path("c.yaml").write_text("curate: {keep_one_in: 2}\n")
    few = CliRunner().invoke(app, ["curate", "q.txt", "--dry-run"]).output
    assert "2 rows, a verdict on each; up to 2 queries kept, as tasks where a world executes them" in " ".join(few.split()), few
    tasks = CliRunner().invoke(app, ["curate", "q.txt", "--grounded", "--dry-run"]).output
    assert "2 rows, a verdict on each; up to 2 tasks kept" in tasks and " 0 s" in tasks, tasks
    assert "one query kept" in CliRunner().invoke(app, ["curate", "q.txt", "--config", "c.yaml", "--dry-run"]).output
    generated = CliRunner().invoke(app, ["curate", "--config", "c.yaml", "--dry-run"]).output
    assert "1,000,000 rows, a verdict on each; up to 500,000 tasks kept" in generated


def test_the_sample_configuration_has_about_forty_keys_and_equals_the_defaults(here: Path) -> None:
    text = (ROOT / "configs" / "sample.yaml").read_text()
    assert read(ROOT / "configs" / "sample.yaml") == Config()
    assert 30 <= len(shown_keys(yaml.safe_load(text))) <= 50


def shown_keys(values: object, path: str = "") -> list[str]:
    """The dotted paths of all values."""
    if not isinstance(values, dict) or not values:
        return [path]
    return [key for name, value in values.items() for key in shown_keys(value, f"{path}.{name}")]


def test_help_is_fast_and_imports_no_heavy_library() -> None:
    script = """
import sys, time
start = time.process_time()
from httpx import ConnectError
from typer.testing import CliRunner
from flows.cli.main import app
assert CliRunner().invoke(app, ["--help"]).exit_code == 0
heavy = [name for name in ("prefect", "torch", "numba", "polars", "duckdb", "transformers") if name in sys.modules]
print(heavy, time.process_time() - start)
"""
    process = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True)
    heavy, seconds = process.stdout.rsplit(" ", 1)
    assert heavy == "[]" and float(seconds) < 1.0, process.stdout


def test_doctor_finds_this_installation_whole(here: Path) -> None:
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 0, result.output
    assert "flows, train, filters, synth, storage from" in result.output


@pytest.mark.slow
def test_a_real_process_prints_one_line(here: Path) -> None:
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-P", "-m", "flows.cli.main", "curate", "q.jsonl"],
        capture_output=True,
        text=True,
        env=dict(os.environ),
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), (done, json.dumps(time.monotonic() - start))
    assert "Traceback" not in done.stderr
    shown = subprocess.run(
        [sys.executable, "-P", "-m", "flows.cli.main", "curate", "q.jsonl", "--debug"], capture_output=True, text=True, check=False
    )
    assert shown.returncode == 2 and "Traceback" in shown.stderr

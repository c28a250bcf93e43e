"""`headrace worlds write` with a scripted model behind a chat server: what it keeps, prints, continues and refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli.main import app
from storage.store import Store
from synth.clusters.cluster_store import read_clusters, save_clusters
from synth.worlds import WORLDS
from synth.writing.cluster.skeleton_text import draft_cluster
from tests.flows.cli.chat_server import chat_server
from tests.synth.scripted_writer import BROKEN, WORKSHOP, ScriptedWriter, fenced, generated
from tests.synth.writing.cluster.clusters_of_pets import PETS

Serve = Callable[[ScriptedWriter], None]


def run_write(*arguments: str | Path, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["worlds", "write", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Serves a scripted model as `openai:mock`."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with ExitStack() as servers:
        yield lambda model: monkeypatch.setenv("OPENAI_BASE_URL", servers.enter_context(chat_server(model)))


@pytest.mark.slow
def test_specs_are_written_repaired_and_listed_in_a_table(serve: Serve, tmp_path: Path) -> None:
    serve(ScriptedWriter([fenced(BROKEN), fenced(WORKSHOP)], [fenced(generated(3))]))
    output = run_write("--engine", "openai:mock", "--n", "2", "--about", "a car workshop", "--out", tmp_path / "my")
    assert "Specs: 2 kept of 2 attempts" in output and "outcomes  kept 2" in output
    assert "tokens    3,000 read, 600 written" in output and "car_workshop.yaml" in output
    assert len(list((tmp_path / "my").glob("*.yaml"))) == 2
    checked = CliRunner().invoke(app, ["worlds", "check", str(tmp_path / "my" / "car_workshop.yaml"), "--n", "20"])
    assert checked.exit_code == 0 and "car_workshop@" in checked.output
    WORLDS.forget(checked.output.partition(":")[0])


def test_a_spent_budget_stops_and_the_same_command_continues_with_the_kept_answers(serve: Serve, tmp_path: Path) -> None:
    """Given a budget for one answer, when the first answer needs a repair, then the run ends in one line with the attempt open. With a
    larger budget it continues, and the server does not get the first request again."""
    model = ScriptedWriter([fenced(BROKEN), fenced(WORKSHOP)])
    serve(model)
    command = ("--engine", "openai:mock", "--n", "1", "--out", tmp_path / "my", "--store", tmp_path / "store", "--max-tokens")
    output = run_write(*command, "1200", code=1)
    assert "the budget is spent: 1,200 of 1,200 tokens" in output and "open" in output
    assert Store(tmp_path / "store").query("SELECT count(*) FROM answers").item() == 1
    first = list(model.requests)
    output = run_write(*command, "5000", "--usd-per-million", "100", "500")
    assert "outcomes  kept 1" in output and "2,000 read, 400 written, 0.40 dollars" in output
    assert model.requests[:1] == first and len(model.requests) == 2
    assert Store(tmp_path / "store").query("SELECT count(*) FROM answers").item() == 2


def test_a_world_for_a_cluster_makes_it_executable(serve: Serve, tmp_path: Path) -> None:
    """Given a catalogue's cluster, when a model's first spec has another parameter, then it is sent back, and the mended one is kept in
    the store too: the list of clusters names it."""
    store = Store(tmp_path / "store")
    (cluster,) = save_clusters(store, PETS).clusters
    good = draft_cluster(cluster, PETS)
    serve(ScriptedWriter([fenced(good.replace("petId: pet,", "petKey: pet,")), fenced(good)]))
    command = ("--cluster", cluster.id, "--store", store.root, "--engine", "openai:mock", "--n", "1", "--out", tmp_path / "my")
    assert "outcomes  kept 1" in run_write(*command)
    listed = CliRunner().invoke(app, ["clusters", "list", "--store", str(store.root)]).output
    world = read_clusters(Store(store.root))[0].world
    assert world is not None and world.startswith("pets@") and "executable" in listed
    WORLDS.forget(world)
    refused = run_write(*command, "--about", "a bakery", code=2)
    assert "--like and --about do not go with --cluster" in refused


def test_too_few_specs_are_a_failure_with_reasons(serve: Serve, tmp_path: Path) -> None:
    serve(ScriptedWriter(*[["I would rather not."]] * 4))
    output = run_write("--engine", "openai:mock", "--n", "1", "--out", tmp_path, code=1)
    assert "outcomes  no_yaml 4" in output and "0 of 1 specs kept, and no attempt is left" in output
    assert "there is no spec in the answer" in output


def test_a_dry_run_shows_a_prompt_and_an_estimate_and_asks_nothing(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(WORKSHOP, encoding="utf-8")
    arguments = ("--engine", "openai:never-asked", "--like", tmp_path / "mine.yaml", "--about", "a bakery", "--out", tmp_path / "my")
    output = run_write(*arguments, "--dry-run")
    assert "a bakery" in output and "specs missing    3, in at most 12 attempts" in output and "nothing was asked" in output
    assert not (tmp_path / "my").exists()


def test_bad_input_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text(BROKEN, encoding="utf-8")
    (tmp_path / "file").write_text("")
    good = ("--engine", "openai:mock", "--out", tmp_path / "my")
    assert "no engine is called 'gpt'; give one of openai:MODEL" in run_write("--engine", "gpt", "--out", tmp_path / "my", code=2)
    assert "mechanik" in run_write(*good, "--like", tmp_path / "broken.yaml", code=2)
    assert "no such file" in run_write(*good, "--like", tmp_path / "none.yaml", code=2)
    assert "give another --out" in run_write("--engine", "openai:mock", "--out", tmp_path / "file" / "my", code=2)
    assert not (tmp_path / "my").exists()


def test_a_missing_server_is_reported_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setattr("synth.engines.http.wait_s", lambda attempt, retry_after: 0.01)
    assert "no answer (connection refused)" in run_write("--engine", "openai:mock", "--out", tmp_path / "my", code=2)
    assert not list((tmp_path / "my").glob("*.yaml"))

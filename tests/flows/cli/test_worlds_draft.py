"""`headrace worlds draft` takes several tables, or a cluster of tools, and its spec can be read at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli.main import app
from storage.store import Store
from synth.clusters.cluster_store import save_clusters
from synth.worlds.declarative.compile import compile_file
from tests.synth.writing.cluster.clusters_of_pets import PETS


def test_tables_after_the_first_are_tables_too(tmp_path: Path) -> None:
    rooms, bookings = tmp_path / "rooms.csv", tmp_path / "bookings.csv"
    rooms.write_text("title,price\n" + "".join(f"Room {n},{50 + n}\n" for n in range(60)), encoding="utf-8")
    bookings.write_text("guest,room\n" + "".join(f"Guest {n},Room {n % 60}\n" for n in range(80)), encoding="utf-8")
    out = tmp_path / "inn.yaml"
    result = CliRunner().invoke(app, ["worlds", "draft", "--tables", str(rooms), str(bookings), "--out", str(out)])
    assert result.exit_code == 0 and "it compiles as it is" in result.output
    text = out.read_text(encoding="utf-8")
    assert "rooms.csv" in text and "bookings.csv" in text and "type: ref, to: room" in text


def test_a_cluster_becomes_a_spec_that_compiles(tmp_path: Path) -> None:
    """Given a store with a catalogue's clusters, when one is drafted by the beginning of its id, then the file is a world of its tools."""
    store = Store(tmp_path / "store")
    (cluster,) = save_clusters(store, PETS).clusters
    out = tmp_path / "pets.yaml"
    result = CliRunner().invoke(app, ["worlds", "draft", "--cluster", cluster.id[:14], "--store", str(store.root), "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert "it compiles as it is: 8 tools" in result.output and "guesses (# ?)" in result.output
    assert compile_file(out).domain.name == "pets"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name tables (--tables FILE), a group of requests (--from-other TOPIC), or a cluster (--cluster ID)"),
        (("--cluster", "x", "--from-other", "y"), "or a cluster (--cluster ID)"),
        (("--cluster", "x", "more.csv"), "more.csv: tables go with --tables"),
        (("--cluster", "nowhere"), "no cluster nowhere; for example cluster-"),
    ],
)
def test_a_wrong_draft_is_refused_and_writes_nothing(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    store = Store(tmp_path / "store")
    save_clusters(store, PETS)
    out = tmp_path / "out.yaml"
    result = CliRunner().invoke(app, ["worlds", "draft", "--store", str(store.root), "--out", str(out), *arguments])
    assert result.exit_code == 2 and message in " ".join(result.output.split()) and not out.exists()

"""`headrace clusters`: builds, lists and shows clusters; a repeated build changes nothing; bad input is refused in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli.main import app
from storage.store import Store
from synth.clusters.catalog import read_catalogue
from synth.clusters.cluster_store import read_cluster, read_clusters

ORDER = {"type": "object", "properties": {"invoice_id": {"type": "string"}}, "required": ["invoice_id"]}
ROWS: list[object] = [
    {"name": "list_invoices", "description": "Lists all invoices.", "inputSchema": {"type": "object"}, "server": "Books"},
    {"name": "get_invoice", "description": "Shows one invoice.", "inputSchema": ORDER, "server": "Books"},
    {"name": "delete_invoice", "description": "Deletes an invoice.", "inputSchema": ORDER, "server": "Books"},
    {"title": "no name"},
]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("tools.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return tmp_path


def run_clusters(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["clusters", *arguments])
    assert result.exit_code == code, result.output
    assert code == 0 or (result.stdout == "" and result.stderr.count("\n") == 1), result.output
    return result.output


def test_clusters_are_built_listed_and_shown(here: Path) -> None:
    built = run_clusters("build", "--tools", "tools.jsonl", "--store", "st")

    assert "4 rows, 3 tools, 0 exact copies merged, 1 dropped" in built
    assert "dropped 1: no name (line 4)" in built
    assert "clusters: 1, with 3 of 3 tools (100%); 0 executable, 1 of no world" in built

    store = Store(here / "st")
    cluster = store.query("SELECT cluster_id, world FROM clusters")
    assert cluster["world"].to_list() == [None]
    assert cluster["cluster_id"][0] in run_clusters("list", "--store", "st")

    drawing = run_clusters("show", cluster["cluster_id"][0][:12], "--store", "st")
    assert "of no world" in drawing
    assert "invoice → 2 delete_invoice" in drawing
    assert "* Deletes an invoice." in drawing


def test_the_same_tools_a_second_time_change_nothing(here: Path) -> None:
    run_clusters("build", "--tools", "tools.jsonl", "--store", "st")
    before = Store(here / "st").query("SELECT part_id, content_hash, committed_at FROM parts ORDER BY ALL")

    assert "the store has them already" in run_clusters("build", "--tools", "tools.jsonl", "--store", "st")
    assert Store(here / "st").query("SELECT part_id, content_hash, committed_at FROM parts ORDER BY ALL").equals(before)


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        {"description": "Shows an invoice, its lines and its taxes."},
        {"outputSchema": {"type": "object", "properties": {"sum": {"type": "number"}}}},
        {"label": "Bookkeeping"},
        {"annotations": {"readOnlyHint": False}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_build_has_its_own_versions_of_tools(here: Path, change: dict[str, object]) -> None:
    """Given a tool that changes, and changes back while another one changes, then each cluster is shown with the tools of its build."""
    first, second, third = ROWS[0], ROWS[1], ROWS[2]
    assert isinstance(first, dict) and isinstance(second, dict) and isinstance(third, dict)
    builds = [[first, second, third], [first, second | change, third], [first, second, third | {"description": "Removes an invoice."}]]
    store, shown = Store(here / "st"), []
    for rows in builds:
        Path("tools.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        assert "the store has them already" not in run_clusters("build", "--tools", "tools.jsonl", "--store", "st")
        (listed,) = read_clusters(store)
        shown.append((listed, read_cluster(store, listed.id)[1], read_catalogue(Path("tools.jsonl")).tools))

    for cluster, tools, catalogue in shown:
        assert read_cluster(store, cluster.id) == (cluster, tools)
        assert sorted(tools, key=lambda tool: tool.id) == sorted(catalogue, key=lambda tool: tool.id)
    assert len({cluster.id for cluster, _, _ in shown}) == len(builds)


def test_a_catalogue_that_grew_is_kept_beside_the_first(here: Path) -> None:
    run_clusters("build", "--tools", "tools.jsonl", "--store", "st")
    more = [{**row, "server": "Ledger", "description": "Another."} for row in ROWS[:3] if isinstance(row, dict)]
    with Path("tools.jsonl").open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in more)

    assert "the store has them already" not in run_clusters("build", "--tools", "tools.jsonl", "--store", "st")
    assert Store(here / "st").query("SELECT cluster_id FROM clusters").height > 1


def test_tools_of_worlds_give_clusters_that_can_be_executed(here: Path) -> None:
    built = run_clusters("build", "--world", "retail", "--store", "st")

    assert "1 executable, 0 of no world" in built
    assert "intents of worlds: 19 of 19 (100%)" in built
    assert "executable in retail" in run_clusters("list", "--store", "st", "--domain", "RETAIL")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("build", "--store", "st"), "no tools are named"),
        (("build", "--tools", "none.jsonl", "--store", "st"), "none.jsonl cannot be read"),
        (("build", "--tools", "empty.jsonl", "--store", "st"), "empty.jsonl holds no usable tool"),
        (("build", "--world", "retial", "--store", "st"), "did you mean 'retail'?"),
        (("list", "--store", "st"), "not a store yet"),
        (("show", "cluster-1", "--store", "st"), "not a store yet"),
    ],
)
def test_what_cannot_be_used_is_refused_and_nothing_is_written(here: Path, arguments: tuple[str, ...], says: str) -> None:
    Path("empty.jsonl").write_text("{}\n")

    assert says in run_clusters(*arguments, code=2)
    assert not (here / "st").exists()


def test_names_of_clusters_that_are_not_there_are_refused(here: Path) -> None:
    run_clusters("build", "--tools", "tools.jsonl", "--store", "st")

    assert "has no cluster atlantis; for example cluster-" in run_clusters("show", "atlantis", "--store", "st", code=2)
    assert "no clusters of the domain 'sea'" in run_clusters("list", "--domain", "sea", "--store", "st", code=2)
    assert "no clusters of the domain ''" in run_clusters("list", "--domain", "", "--store", "st", code=2)


def test_tools_that_have_nothing_to_do_with_each_other_fail(here: Path) -> None:
    Path("tools.jsonl").write_text("".join(json.dumps({"name": name}) + "\n" for name in ("wait", "sing", "dance")))

    assert "of these 3 tools no 3 that feed each other make a cluster" in run_clusters(
        "build", "--tools", "tools.jsonl", "--store", "st", code=1
    )
    assert not (here / "st").exists()

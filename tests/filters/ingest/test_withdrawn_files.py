"""A file that was withdrawn from a store is read into it no more, by its name or by its content."""

from __future__ import annotations

from pathlib import Path

import pytest

from filters.funnel import FunnelConfig, curate
from filters.ingest import ID_DIGITS, IngestConfig, inspect
from filters.ingest.withdrawn_files import leave_out_withdrawn
from filters.steps.selection.coverage import CoverageConfig
from storage.errors import BadInput
from storage.store import Store
from storage.withdrawals.withdraw_source import withdraw_source
from storage.withdrawals.withdrawal_plan import find_source
from tests.storage.conftest import write

CONFIG = IngestConfig()


def log(folder: Path, name: str, *texts: str) -> Path:
    path = folder / name
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return path


def withdraw(store: Store, name: str) -> None:
    withdraw_source(store, find_source(store, name), reason="the customer asked", author="Ada", at="2026-11-29")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store that read `one.txt`, which was withdrawn since."""
    made = Store(tmp_path / "store")
    (source,) = inspect([log(tmp_path, "one.txt", "where is my order o17")], CONFIG)
    rows = {
        "query_id": f"q-{source.content_hash[:ID_DIGITS]}-00000000",
        "run": "r",
        "source": "one.txt",
        "row": 0,
        "text": "where is my order",
    }
    made.commit([write(made, "queries", rows)])
    withdraw(made, "one.txt")
    return made


def test_the_same_content_is_left_out_whatever_it_is_called_and_the_same_name_too(store: Store, tmp_path: Path) -> None:
    renamed = log(tmp_path, "renamed.txt", "where is my order o17")
    rewritten = log(tmp_path, "one.txt", "something else")
    other = log(tmp_path, "two.txt", "cancel order o1", "cancel order o2")

    admitted, notes = leave_out_withdrawn(store, inspect([renamed, rewritten, other], CONFIG))

    assert [(source.name, source.first_row) for source in admitted] == [("two.txt", 0)]
    assert len(notes) == 2
    assert "renamed.txt is not read" in notes[0]
    assert "query file one.txt, withdrawn on 2026-11-29 by Ada: the customer asked" in notes[0]


def test_nothing_but_withdrawn_files_is_refused(store: Store, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"one\.txt, withdrawn on 2026-11-29 by Ada.*no other file is named"):
        curate(store, [tmp_path / "one.txt"], FunnelConfig())


def test_a_run_reads_the_other_files_and_says_what_it_left_out(store: Store, tmp_path: Path) -> None:
    texts = [f"please close order o{number}, it came broken" for number in range(40)]
    config = FunnelConfig(coverage=CoverageConfig(keep=2))

    result = curate(store, [tmp_path / "one.txt", log(tmp_path, "two.txt", *texts)], config)

    assert result.funnel["rows_in"][0] == 40
    assert "one.txt is not read" in result.not_done[0]
    assert store.query("SELECT DISTINCT source FROM queries")["source"].to_list() == ["two.txt"]


def test_files_of_a_store_without_withdrawals_stay_as_they_are(tmp_path: Path) -> None:
    sources = inspect([log(tmp_path, "a.txt", "x"), log(tmp_path, "b.txt", "y", "z")], CONFIG)
    assert leave_out_withdrawn(Store(tmp_path / "fresh"), sources) == (sources, [])

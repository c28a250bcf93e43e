"""A store says which servers recorded its runs, and the page of a run opens where there is a display."""

from __future__ import annotations

import webbrowser
from pathlib import Path

import pytest

from flows.runtime.notes.run_records import add_record, describe_others, open_page, read_records
from flows.runtime.store_lock import hold_store


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with hold_store("curate", tmp_path / "store"):
        return tmp_path / "store"


def test_each_server_is_noted_once(store: Path) -> None:
    for server in ("/a/.prefect", "http://host:4200/api", "/a/.prefect"):
        add_record(store, server)
    assert read_records(store) == ["/a/.prefect", "http://host:4200/api"]


def test_runs_that_another_server_recorded_are_said_where_they_are(store: Path, tmp_path: Path) -> None:
    here, there = tmp_path / "here" / ".prefect", tmp_path / "there" / ".prefect"
    there.mkdir(parents=True)
    for server in (here, there, tmp_path / "gone" / ".prefect", "http://host:4200/api"):
        add_record(store, str(server))
    first, second, third = describe_others([store], str(here))
    assert first.endswith(f"recorded in {there}: `cd {there.parent} && headrace up` shows them")
    assert second.endswith("that folder is gone")
    assert third.endswith("recorded in http://host:4200/api: that server shows them")


def test_a_store_without_runs_has_none_elsewhere(tmp_path: Path) -> None:
    assert describe_others([tmp_path / "nowhere"], "/a/.prefect") == []


@pytest.mark.parametrize(("display", "pages"), [(":0", ["http://p"]), ("", [])])
def test_a_page_opens_only_where_there_is_a_display(monkeypatch: pytest.MonkeyPatch, display: str, pages: list[str]) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setattr("flows.runtime.notes.run_records.sys.platform", "linux")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setenv("DISPLAY", display)
    open_page("http://p")
    assert opened == pages

"""A deployment that an event starts does nothing while the store has grown too little since its last run."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.runtime.deployed import new_rows


def test_a_flow_works_again_once_enough_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {"n": 5}
    monkeypatch.setattr(new_rows, "_count_rows", lambda store: rows["n"])
    # given a store that no run has worked on: everything is new
    assert new_rows.too_few_new("tag", tmp_path, 5) == ""
    assert "5 new tasks and conversations since the last run, fewer than 6" in new_rows.too_few_new("tag", tmp_path, 6)
    # when a run has worked on it, then nothing is new, for this flow alone
    new_rows.note_seen("tag", tmp_path)
    assert "nothing to do: 0 new" in new_rows.too_few_new("tag", tmp_path, 1)
    assert new_rows.too_few_new("train", tmp_path, 1) == ""
    # and without a threshold it always works
    assert new_rows.too_few_new("tag", tmp_path, 0) == ""
    # and with three rows more there is enough for a threshold of three
    rows["n"] = 8
    assert new_rows.too_few_new("tag", tmp_path, 3) == ""
    assert "3 new" in new_rows.too_few_new("tag", tmp_path, 4)


def test_a_folder_that_is_no_store_yet_has_no_rows(tmp_path: Path) -> None:
    assert "0 new" in new_rows.too_few_new("tag", tmp_path / "store", 1)

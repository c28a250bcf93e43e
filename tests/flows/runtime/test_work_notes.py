"""What works on a store, and what worked on it, is written beside its lock."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flows.runtime.notes import work_notes
from flows.runtime.notes.run_records import notes_folder
from flows.runtime.notes.work_notes import note_work, read_runs, read_work
from flows.runtime.progress import report
from flows.runtime.store_lock import hold_store


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    notes = notes_folder(tmp_path / "store")
    notes.mkdir(parents=True)
    return notes


def test_a_flow_at_work_shows_its_flows_and_its_steps_and_nothing_afterwards(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_notes, "WRITE_EVERY_S", 0.0)
    with hold_store("pipeline", folder.parent), note_work("pipeline", folder):
        with note_work("curate", folder):
            report("reading", 450, 1000, "rows")
            inside = read_work(folder)
        outside = read_work(folder)

    assert inside is not None and outside is not None
    assert inside.flows == ("pipeline", "curate")
    assert outside.flows == ("pipeline",)
    assert [(step.label, step.done, step.total, step.note) for step in inside.steps] == [("reading", 450, 1000, "rows")]
    assert read_work(folder) is None
    assert not (folder / "working.json").exists()


def test_notes_of_a_killed_process_are_no_work(folder: Path) -> None:
    """Given a note whose process is gone, so that nobody holds the lock, when it is read, then nothing is at work."""
    (folder / "working.json").write_text(json.dumps({"flows": ["train"], "page": "", "started": "", "steps": []}))
    (folder / "flow.lock").write_text("train (process 1)")

    assert read_work(folder) is None


def test_runs_tell_how_they_ended_the_latest_first(folder: Path) -> None:
    with note_work("synthesize", folder):
        pass
    with pytest.raises(ValueError), note_work("curate", folder):
        raise ValueError("no rows\nmore")
    with (folder / "runs.jsonl").open("a") as file:
        file.write(
            json.dumps({"flow": "train", "run": "7", "name": "train x", "page": "", "server": "/p/.prefect", "started": "2026"}) + "\n"
        )
        file.write("torn line")

    runs = read_runs(folder, 8)

    assert [(run.flow, run.outcome) for run in runs] == [("train", ""), ("curate", "failed: no rows"), ("synthesize", "completed")]
    assert [bool(run.ended) for run in runs] == [False, True, True]
    assert read_runs(folder, 1) == runs[:1]

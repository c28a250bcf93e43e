"""`headrace run`, undisturbed and killed: it shows what it did, leaves nothing running, and always ends with the same store."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from flows.config import read
from storage.store import Store
from synth.run.synthesize import synthesize
from tests.e2e.conftest import CI, HEADRACE, LIMIT_S, Finished, content_hash, headrace
from tests.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.server]
Marked = tuple[dict[str, str], Callable[[], list[str]]]


def test_it_ends_with_sentences_and_shows_tables_and_a_query_that_works_if_they_are_wanted(undisturbed: Finished) -> None:
    for words in ("Plan, with times", "kept of 8,000", "By kind of task: acts", "promoted", "headrace chat --policy latest", "Prefect run"):
        assert words in undisturbed.output
    verbose = headrace("run", "--config", str(CI), "--verbose", folder=undisturbed.folder, environment=dict(os.environ))
    for title in ("Funnel: 1 in", "Diversity", "Static difficulty", "Certainty", "Success on held-out tasks"):
        assert title in verbose and title not in undisturbed.output
    report = undisturbed.folder / "runs" / "ci" / "report.html"
    assert report.stat().st_size > 1_000_000
    line = re.search(r"^the tags +(.*)$", verbose, re.MULTILINE)
    assert line
    shown = subprocess.run(line.group(1), shell=True, cwd=undisturbed.folder, capture_output=True, text=True, check=True).stdout
    assert "mean_rate" in shown and "uncertain" in shown
    store = Store(undisturbed.store)
    assert store.query("SELECT count(*) FROM queries").item() == 8_000
    assert store.query("SELECT count(*) FROM verdicts WHERE kept").item() == 60
    assert store.query("SELECT count(DISTINCT name) FROM stages").item() == 3
    licensed = ("export", "second", "--licence", "queries.parquet=Apache-2.0", "--out", "out", "--store", str(undisturbed.store))
    headrace(*licensed, folder=undisturbed.folder, environment=dict(os.environ))
    card = (undisturbed.folder / "out" / "README.md").read_text()
    assert re.search(r"^\| queries\.parquet \| \d+ \| Apache-2\.0 \|$", card, re.MULTILINE), card


def test_a_second_call_finds_everything_there(undisturbed: Finished) -> None:
    again = headrace("run", "--config", str(CI), folder=undisturbed.folder, environment=dict(os.environ))
    assert content_hash(again) == content_hash(undisturbed.output)
    assert "stage sft1" not in again


def test_killed_anywhere_it_resumes_to_the_same_store(undisturbed: Finished, tmp_path: Path, marked: Marked) -> None:
    environment, alive = marked
    store = tmp_path / "runs" / "ci" / "store"

    def some(pattern: str) -> bool:
        return next(store.glob(pattern), None) is not None

    def is_training() -> bool:
        return any("train.run" in line for line in alive()) and some("models/*/log.txt")

    def disturbed(signal_: signal.Signals, when: Callable[[], bool], meanwhile: Callable[[], None] = lambda: None) -> int:
        """Starts the run, sends the signal once `when` holds, and sees that nothing is left; returns the exit code."""
        with (tmp_path / "out.txt").open("w") as out:
            process = subprocess.Popen([*HEADRACE, "run", "--config", str(CI)], cwd=tmp_path, env=environment, stdout=out, stderr=out)
            came = eventually(lambda: when() or process.poll() is not None, LIMIT_S, 0.02)
            assert came and process.poll() is None, Path(out.name).read_text()
            meanwhile()
            process.send_signal(signal_)
            code = process.wait(60)
        assert eventually(lambda: not alive(), 15), alive()
        return code

    def second_call_is_refused() -> None:
        refused = headrace("run", "--config", str(CI), folder=tmp_path, environment=environment, code=1)
        assert "is being worked on by pipeline (process" in refused and "Traceback" not in refused

    # when it is interrupted in synthesis, and killed inside a training stage
    assert disturbed(signal.SIGINT, lambda: some("lake/blueprints/*.parquet")) == 130
    assert "run the same command again to continue" in (tmp_path / "out.txt").read_text()
    assert disturbed(signal.SIGKILL, is_training, second_call_is_refused) == -signal.SIGKILL
    assert Store(store).query("SELECT count(*) FROM policies").item() == 0
    # then the same command finishes, with the same content as the run that nobody disturbed
    finished = headrace("run", "--config", str(CI), folder=tmp_path, environment=environment)
    assert content_hash(finished) == content_hash(undisturbed.output)
    assert not alive()
    # and Prefect was told of the dead
    (database,) = (tmp_path / ".prefect").glob("prefect-*.db")
    with sqlite3.connect(database) as connection:
        states = connection.execute("SELECT state_type FROM flow_run WHERE parent_task_run_id IS NULL ORDER BY start_time").fetchall()
        unfinished = connection.execute(
            "SELECT count(*) FROM flow_run WHERE state_type NOT IN ('COMPLETED', 'CRASHED', 'CANCELLED')"
        ).fetchone()
    assert [state for (state,) in states] == ["CRASHED", "CRASHED", "COMPLETED"]
    assert unfinished == (0,)


def test_a_full_disk_is_exit_code_1_and_loses_nothing(prefect_server: str, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(disk)], capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"cannot mount a tmpfs here: {mounted.stderr.strip()}")
    try:
        # given a store with something in it, on a disk that is nearly full
        config = tmp_path / "small.yaml"
        config.write_text(
            "synthesize: {worlds: [retail], accepted: 5, max_proposals: 50, calibration: 30, subsample: 10, drills: {retail: 10}}\n"
        )
        (tmp_path / "queries.txt").write_text(
            "".join(f"find me a cheap red jacket in size {n} below {n + 20} euros please\n" for n in range(5000))
        )
        arguments = ("--config", str(config), "--store", str(disk / "store"))
        synthesize(Store(disk / "store"), read(config).synthesize)
        before = Store(disk / "store").content_hash()
        with (disk / "filler").open("wb") as filler:
            filler.write(b"\0" * (os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize - 150_000))
        # when more is put into it
        output = headrace("curate", "queries.txt", *arguments, folder=tmp_path, environment=dict(os.environ), code=1)
        # then one line says so, and what was committed is there
        assert [line for line in output.splitlines() if "headrace:" in line and "no space left" in line], output
        assert "Traceback" not in output
        assert Store(disk / "store").content_hash() == before
        # and with room the same command goes on
        (disk / "filler").unlink()
        headrace("curate", "queries.txt", *arguments, folder=tmp_path, environment=dict(os.environ))
        assert Store(disk / "store").query("SELECT count(*) FROM verdicts").item() == 5000
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)

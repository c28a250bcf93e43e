"""The journal keeps what was paid for, through kills in the middle of a line."""

import json
import os
import subprocess
import sys
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.journal import SYNC_INTERVAL_S, Journal
from storage.store import Store

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.lists(st.tuples(st.text(), json_values), max_size=8))
@settings(deadline=None)
def test_entries_come_back_and_the_first_of_a_key_wins(tmp_path_factory, entries):
    expected: dict = {}
    with Journal(tmp_path_factory.mktemp("journal") / "j.jsonl") as journal:
        for key, value in entries:
            journal.append(key, value)
            expected.setdefault(key, value)
        assert journal.entries() == expected
    assert Journal(journal.path).entries() == expected


def test_a_torn_last_line_is_skipped_and_does_not_spoil_the_next(tmp_path):
    with Journal(tmp_path / "j.jsonl") as journal:
        journal.append("a", 1)
        journal.append("b", 2)
    whole = journal.path.read_bytes()
    for cut in range(1, 24):
        journal.path.write_bytes(whole[:-cut])
        with Journal(journal.path) as resumed:
            assert resumed.entries() in ({"a": 1}, {})
            resumed.append("c", 3)
            assert resumed.entries()["c"] == 3
            assert resumed.entries().keys() >= ({"a", "c"} if cut < 23 else {"c"})


def test_nothing_is_on_disk_before_the_first_entry_or_after_it_is_discarded(tmp_path):
    store = Store(tmp_path / "store")
    journal = store.journal("notes")
    assert journal.entries() == {}
    assert not store.root.exists()
    journal.append("k", {"v": [1]})
    assert store.journal("notes").entries() == {"k": {"v": [1]}}
    journal.discard({"k"})
    assert not journal.path.exists()
    journal.append("again", 1)
    assert journal.entries() == {"again": 1}


def test_what_others_append_is_not_discarded_with_what_was_folded(tmp_path):
    path = tmp_path / "j.jsonl"
    one, other = Journal(path), Journal(path)
    one.append("a", 1)
    other.append("b", 2)
    folded = one.entries()
    other.append("late", 3)
    one.discard(folded)
    assert one.entries() == {"late": 3}
    other.append("later", 4)
    assert one.entries() == other.entries() == {"late": 3, "later": 4}
    one.discard({"late", "later"})
    assert not path.exists()
    other.append("last", 5)
    assert one.entries() == {"last": 5}
    assert [found.name for found in tmp_path.iterdir()] == ["j.jsonl"]


APPENDER = """
import sys
from pathlib import Path
from storage.journal import Journal
journal = Journal(Path(sys.argv[1]))
for n in range(300):
    journal.append(f"{sys.argv[2]}-{n}", "x" * 200)
journal.close()
"""


def test_processes_that_append_while_another_folds_and_discards_lose_nothing(tmp_path):
    path = tmp_path / "j.jsonl"
    children = [subprocess.Popen([sys.executable, "-c", APPENDER, str(path), name]) for name in "ab"]
    journal, folded = Journal(path), set[str]()
    while any(child.poll() is None for child in children):
        keys = journal.entries().keys()
        assert not keys & folded, "what was discarded stays so"
        journal.discard(keys)
        folded |= keys
    assert [child.wait() for child in children] == [0, 0]
    assert folded | journal.entries().keys() == {f"{name}-{n}" for name in "ab" for n in range(300)}


def test_threads_do_not_tear_each_others_lines(tmp_path):
    journal = Journal(tmp_path / "j.jsonl")
    threads = [threading.Thread(target=lambda n=n: [journal.append(f"{n}-{i}", "x" * 500) for i in range(50)]) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    journal.close()
    assert len(journal.entries()) == 200
    assert all(json.loads(line) for line in journal.path.read_text().splitlines())


def test_what_is_appended_is_synced_within_the_interval(tmp_path, monkeypatch):
    synced = threading.Event()
    syncs: list[int] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        real(descriptor)
        syncs.append(descriptor)
        if len(syncs) >= 3:
            synced.set()

    journal = Journal(tmp_path / "j.jsonl")
    monkeypatch.setattr(os, "fsync", fsync)
    for n in range(100):
        journal.append(str(n), n)
    assert synced.wait(SYNC_INTERVAL_S + 5), "the last entries were never synced"
    assert len(syncs) < 50, "every entry was synced on its own"
    journal.close()


def test_the_journals_lines_are_plain_json(tmp_path):
    with Journal(tmp_path / "j.jsonl") as journal:
        journal.append("钥匙", "值")
    assert json.loads(journal.path.read_text(encoding="utf-8")) == {"key": "钥匙", "value": "值"}


def test_a_value_that_is_not_json_is_refused_before_anything_is_written(tmp_path):
    journal = Journal(tmp_path / "j.jsonl")
    with pytest.raises(TypeError):
        journal.append("k", object())
    assert not journal.path.exists()

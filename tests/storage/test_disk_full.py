"""A full disk is one clear line, and what was committed stays. On a small tmpfs, where mounting is permitted."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.errors import BadInput, HeadraceError
from storage.store import Store
from tests.storage.conftest import write

SIZE_MIB = 12


@pytest.fixture
def small_disk(tmp_path) -> Iterator[Path]:
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MIB}m", "tmpfs", str(tmp_path)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a tmpfs here: {mounted.stderr.strip()}")
    try:
        yield tmp_path
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def big(n: int, size_bytes: int = 400_000) -> dict:
    return {"rollout_id": f"r{n}", "messages": os.urandom(size_bytes // 2).hex()}


@pytest.mark.slow
def test_writing_to_a_full_disk_is_told_and_loses_nothing(small_disk):
    store = Store(small_disk / "store")
    committed = 0
    with pytest.raises(HeadraceError, match=r"no space left on the disk of .*store while .*; what was committed before is intact") as told:
        for n in range(200):
            store.commit([write(store, "rollouts", big(n), n=n)])
            committed = n + 1
    assert not isinstance(told.value, BadInput)
    assert "\n" not in str(told.value)
    assert committed > 5
    assert Store(store.root).query("FROM rollouts").height == committed
    assert not list(store.lake.rglob(".tmp-*"))


@pytest.mark.parametrize("left_kib", [4, 40, 200, 600, 1500])
def test_committing_on_a_full_disk_is_told_and_goes_on_when_there_is_space(small_disk, left_kib):
    store = Store(small_disk / "store")
    store.commit([write(store, "policies", {"policy_id": "p0", "weights_hash": "h"}, n=0)])
    part = write(store, "policies", *({"policy_id": f"q{n}", "weights_hash": os.urandom(400).hex()} for n in range(2000)), n=1)
    filler = small_disk / "filler"
    with filler.open("wb") as file:
        free = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize - left_kib * 1024
        file.write(b"\0" * max(0, free))
    try:
        store.commit([part])
        reached = 2001
    except HeadraceError as told:
        assert "no space left" in str(told)
        reached = Store(store.root).query("FROM policies").height
        assert reached in (1, 2001)
    filler.unlink()
    again = Store(store.root)
    assert again.query("FROM policies").height >= reached
    again.commit([part])
    assert again.query("FROM policies").height == 2001


def test_a_journal_on_a_full_disk_keeps_what_it_had(small_disk):
    journal = Store(small_disk / "store").journal("notes")
    kept = 0
    with pytest.raises(HeadraceError, match="no space left"):
        for n in range(1000):
            journal.append(str(n), "x" * 100_000)
            kept = n + 1
    assert len(journal.entries()) == kept
    with pytest.raises(HeadraceError):
        journal.append("more", "x" * 100_000)
    journal.close()
    assert len(journal.entries()) == kept

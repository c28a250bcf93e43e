"""One flow at a time on a shared store, on whichever machine; a machine that is killed does not keep it."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import fsspec
import pytest

from flows import validation
from flows.config import Config
from flows.runtime.store_lock import hold_store, work_on_store
from storage.errors import HeadraceError
from storage.files import Busy
from storage.object_store.flow_lease import hold_lease
from storage.object_store.url_files import UrlFiles
from storage.store import Store
from tests.storage.object_store.test_shared_log import commit, copy_of

numbers = itertools.count()
SHORT_S = 0.4


@pytest.fixture
def url() -> Iterator[str]:
    yield f"memory://leased/{next(numbers)}"
    fsspec.filesystem("memory").store.clear()


def hold(store: Store, *, wait: bool = False, lease_s: float = 60.0, says: list[str] | None = None) -> AbstractContextManager[None]:
    return hold_lease(store.root, "curate", wait=wait, say=(says if says is not None else []).append, lease_s=lease_s)


def test_while_one_machine_works_another_is_refused_and_afterwards_it_is_not(url: str, tmp_path: Path) -> None:
    here, there = copy_of(url, tmp_path / "here"), copy_of(url, tmp_path / "there")
    with hold(here), pytest.raises(Busy, match=r"is being worked on by curate \(process \d+ on "), hold(there):
        pass
    with hold(there):
        pass
    assert len(UrlFiles(url).names("lease")) == 1


def test_a_store_that_is_not_shared_needs_no_lease(tmp_path: Path) -> None:
    with hold(Store(tmp_path / "one")), hold(Store(tmp_path / "one")):
        pass


def test_a_holder_that_renews_keeps_it_and_one_that_does_not_loses_it_and_commits_no_more(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = copy_of(url, tmp_path / "here"), copy_of(url, tmp_path / "there")
    with hold(here, lease_s=SHORT_S):
        (name,) = UrlFiles(url).names("lease")
        first = UrlFiles(url).read(name)
        end = time.monotonic() + 60
        while UrlFiles(url).read(name) == first:
            assert time.monotonic() < end
            time.sleep(0.02)
        commit(here, 1)
        with monkeypatch.context() as patched:
            patched.setattr("storage.object_store.flow_lease.Lease._write", lambda *_, **__: None)
            says: list[str] = []
            with hold(there, wait=True, lease_s=SHORT_S, says=says):
                assert says and "waiting for curate" in says[0]
                with pytest.raises(HeadraceError, match="another machine works on"):
                    commit(here, 2)
                commit(there, 3)
    assert there.query("FROM policies").height == 2


def test_a_flow_takes_the_lease_with_the_lock_and_begins_with_what_others_committed(url: str, tmp_path: Path) -> None:
    """Given a machine whose folder is not there yet, as a deployment finds it, then its flow works on the shared store."""
    other = copy_of(url, tmp_path / "other")
    commit(other, 1)
    config = Config(store=tmp_path / "here" / "store", object_store=url)
    with work_on_store("train", config):
        assert Store(config.store).query("FROM policies").height == 1
        with pytest.raises(HeadraceError, match=r"worked on by train"), hold_store("tag", other.root):
            pass
    commit(other, 2)
    with hold_store("tag", config.store):
        assert Store(config.store).query("FROM policies").height == 2
    with hold_store("tag", other.root):
        pass


def test_commands_read_what_others_committed(url: str, tmp_path: Path) -> None:
    other, folder = copy_of(url, tmp_path / "other"), tmp_path / "here" / "store"
    commit(other, 1)
    file = tmp_path / "team.yaml"
    file.write_text(f"store: {folder}\nobject_store: {url}\n")
    validation.read_config(file)
    assert Store(folder).query("FROM policies").height == 1
    for n, named in enumerate([(file, None), (None, folder)], start=2):
        commit(other, n)
        assert validation.open_store(*named).query("FROM policies").height == n


HOLD = """
import sys, time
from pathlib import Path
from flows.runtime.locks import lock
from storage.object_store.flow_lease import hold_lease
from storage.store import Store
store = Store(sys.argv[2])
store.share(sys.argv[1])
with hold_lease(store.root, "synthesize", wait=False, say=print, lease_s=float(sys.argv[3])):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.mark.slow
def test_the_lease_of_a_killed_process_is_free_at_once_on_its_machine_and_when_it_ran_out_on_another(s3: str, tmp_path: Path) -> None:
    url = f"{s3}/leases"
    there = copy_of(url, tmp_path / "there")
    for is_same_machine in (True, False):
        child = subprocess.Popen([sys.executable, "-c", HOLD, url, str(tmp_path / "here"), "2"], stdout=subprocess.PIPE, text=True)
        assert child.stdout and child.stdout.readline() == "held\n"
        with pytest.raises(Busy, match="synthesize"), hold(there, lease_s=60):
            pass
        child.send_signal(signal.SIGKILL)
        child.wait()
        begun = time.monotonic()
        with hold(Store(tmp_path / "here") if is_same_machine else there, wait=not is_same_machine, lease_s=2):
            waited = time.monotonic() - begun
        assert is_same_machine or waited >= 2

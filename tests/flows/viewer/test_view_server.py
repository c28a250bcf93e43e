"""`headrace view` as a user starts it: it says its address, answers, writes nothing into the store, and ends with Ctrl-C."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from storage.store import Store
from tests.storage.conftest import funnel_parts


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.slow
def test_the_command_serves_a_store_that_it_does_not_write_to(tmp_path: Path) -> None:
    store = Store(tmp_path / "shop" / "store")
    store.commit(funnel_parts(store))
    before = files_of(store.root)
    command = [sys.executable, "-m", "flows.cli.main", "view", str(store.root), "--port", "0", "--no-browser"]
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache"), "COLUMNS": "300"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stdout is not None
        assert server.stderr is not None
        found = re.search(r"http://127\.0\.0\.1:\d+/", server.stdout.readline())
        assert found
        for path in ("", "requests?text=lamp", "trajectories", "assets/viewer.css", "plotly.js"):
            with urllib.request.urlopen(found[0] + path, timeout=30) as answer:
                assert answer.status == 200
        server.send_signal(signal.SIGINT)
        assert (server.wait(20), server.stderr.read()) == (0, "")

    assert files_of(store.root) == before

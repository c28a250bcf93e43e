"""The load on a server: all client processes count the same seconds, however long each takes to connect."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from benchmarks.live_sections import serving


def test_all_processes_begin_to_count_at_one_time(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: dict[str, float] = {}

    class SlowToConnect:
        def __init__(self, url: str, era: str, name: str) -> None:
            self._process = name.partition("-")[0]
            time.sleep(0.05 if self._process == "1" else 0.0)

        def keep_calling(self, reads: Any, begins: float, ends: float) -> int:
            begun[self._process] = begins
            return 0

    monkeypatch.setattr(serving, "PlainClient", SlowToConnect)
    connected = Barrier(2)
    with ThreadPoolExecutor(2) as processes:
        list(processes.map(lambda number: serving.load("", "legacy", number, (), connected), range(2)))
    assert abs(begun["0"] - begun["1"]) < 0.1

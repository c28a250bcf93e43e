"""Commands run in this process: the worlds that one registers are unknown to the next."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from synth.worlds import WORLDS


@pytest.fixture(autouse=True)
def forget_worlds() -> Iterator[None]:
    before = set(WORLDS.names())
    yield
    for name in set(WORLDS.names()) - before:
        WORLDS.forget(name)

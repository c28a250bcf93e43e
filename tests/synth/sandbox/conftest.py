"""Providers that really run. Where one cannot, its tests are left out, and say what to install."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from synth.sandbox.base import Provider, SandboxError
from synth.sandbox.bubblewrap import Bubblewrap
from synth.sandbox.containers import Docker
from synth.sandbox.engine import APT, docker_engine

CACHE = Path(__file__).parents[3] / ".cache" / "sandbox"
PROVIDERS = ("docker", "bwrap")


@pytest.fixture(scope="session")
def own_docker() -> Iterator[Docker]:
    """A Docker provider on this machine's engine, or on one that the session starts and stops."""
    try:
        engine = docker_engine(CACHE)
        docker = engine.__enter__()
    except SandboxError as error:
        pytest.skip(f"left out, no Docker: {error}")
    try:
        yield docker
    finally:
        engine.__exit__(None, None, None)


@pytest.fixture(scope="session")
def own_bubblewrap() -> Bubblewrap:
    bubblewrap = Bubblewrap()
    lacks = bubblewrap.missing()
    if lacks:
        pytest.skip(f"left out, no bubblewrap: {lacks} (all that these tests need: {APT})")
    return bubblewrap


def provider_of(which: str, request: pytest.FixtureRequest) -> Provider:
    """The provider by its short name; skips where it cannot run."""
    found: Provider = request.getfixturevalue("own_docker" if which == "docker" else "own_bubblewrap")
    return found


@pytest.fixture(scope="session", params=PROVIDERS)
def provider(request: pytest.FixtureRequest) -> Provider:
    """Each provider in turn."""
    return provider_of(request.param, request)

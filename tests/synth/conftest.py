"""Sandbox providers that really run. Where one cannot, its tests are left out, and say what to install."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from synth.sandbox import Bubblewrap, Docker, Provider, SandboxError
from tests.synth.sandbox import own_engine

CACHE = Path(__file__).parents[2] / ".cache" / "sandbox"
PROVIDERS = ("docker", "bwrap")


@pytest.fixture(scope="session")
def docker_engine() -> Iterator[Docker]:
    """A Docker provider on this machine's engine, or on one that the session starts and stops."""
    try:
        running = own_engine.docker_engine(CACHE)
        docker = running.__enter__()
    except SandboxError as error:
        pytest.skip(f"left out, no Docker: {error}")
    try:
        yield docker
    finally:
        running.__exit__(None, None, None)


@pytest.fixture(scope="session")
def bubblewrap_here() -> Bubblewrap:
    bubblewrap = Bubblewrap()
    lacks = bubblewrap.missing()
    if lacks:
        pytest.skip(f"left out, no bubblewrap: {lacks} (all that these tests need: {own_engine.APT})")
    return bubblewrap


def provider_of(which: str, request: pytest.FixtureRequest) -> Provider:
    """The provider by its short name; skips where it cannot run."""
    found: Provider = request.getfixturevalue("docker_engine" if which == "docker" else "bubblewrap_here")
    return found


@pytest.fixture(scope="session", params=PROVIDERS)
def provider(request: pytest.FixtureRequest) -> Provider:
    """Each provider in turn."""
    return provider_of(request.param, request)

"""Specs of the servers in this folder, for tests and benchmarks."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from synth.worlds.live.live_spec import LiveSpec, parse_live_spec

HERE = Path(__file__).parent
NEEDS_BOX = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")


def notes_spec(lie: str = "", **changed: object) -> LiveSpec:
    """The server of notes; with one of its lies."""
    raw: dict[str, object] = {"live": "notes", "command": [sys.executable, str(HERE / "notes_server.py"), *([lie] if lie else [])]}
    raw |= {"state": [{"json": "notes.json"}], **changed}
    return parse_live_spec(raw, "notes")


def hostile_spec(**changed: object) -> LiveSpec:
    raw: dict[str, object] = {"live": "hostile", "command": [sys.executable, str(HERE / "hostile_server.py")], "state": [{"files": "**"}]}
    raw |= {"limits": {"call_s": 4, "memory_mib": 1024, "disk_mib": 64, "processes": 64}, **changed}
    return parse_live_spec(raw, "hostile")


def functions_spec() -> LiveSpec:
    return parse_live_spec({"live": "shop", "python": "shop_functions:Shop", "mounts": [str(HERE)]}, "shop")


def api_spec(description: Path) -> LiveSpec:
    """The HTTP API; its description is written to this file."""
    command = [sys.executable, str(HERE / "shop_api.py")]
    openapi = {"file": str(description), "base_url": "http://127.0.0.1:8000"}
    return parse_live_spec({"live": "api", "openapi": openapi, "command": command, "state": [{"json": "items.json"}]}, "api")

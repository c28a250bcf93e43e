"""The pipeline of configs/ci.yaml, run once without disturbance; every end-to-end test compares with it or works on a copy of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CI = ROOT / "configs" / "ci.yaml"
HEADRACE = [sys.executable, "-P", "-m", "flows.cli.main"]
LIMIT_S = 1200


@dataclass(frozen=True)
class Finished:
    """A finished run: where it worked, its store, and what it printed."""

    folder: Path
    store: Path
    output: str


def headrace(*arguments: str, folder: Path, environment: dict[str, str], code: int = 0) -> str:
    """Calls `headrace` and returns what it printed."""
    done = subprocess.run(
        [*HEADRACE, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == code, f"exit code {done.returncode}, not {code}\n{done.stdout[-6000:]}\n{done.stderr[-3000:]}"
    return done.stdout + done.stderr


def content_hash(output: str) -> str:
    found = re.search(r"content hash ([0-9a-f]{16})", output)
    assert found, output[-3000:]
    return found.group(1)


@pytest.fixture(scope="session")
def undisturbed(prefect_server: str, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """`headrace run --config configs/ci.yaml` against the session's server."""
    folder = tmp_path_factory.mktemp("undisturbed")
    output = headrace("run", "--config", str(CI), folder=folder, environment=dict(os.environ))
    return Finished(folder, folder / "runs" / "ci" / "store", output)

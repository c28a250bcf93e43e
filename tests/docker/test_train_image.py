"""docker/train.Dockerfile, as far as it can be tried without a base image: that its context is enough to build the wheel of."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docker" / "train.Dockerfile"


def instructions() -> list[tuple[str, str]]:
    """(instruction, its words) of the Dockerfile, lines joined."""
    text = re.sub(r"\\\n\s*", "", FILE.read_text())
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(name, words) for name, _, words in (line.partition(" ") for line in lines)]


def test_what_the_context_lets_through_is_enough_for_the_wheel_stage(tmp_path: Path) -> None:
    """Given only what the ignore file keeps, when the stage's own build command is run there, then the wheel holds every room."""
    kept = re.findall(r"^!(\S+)$", FILE.with_name(f"{FILE.name}.dockerignore").read_text(), re.MULTILINE)
    for name in kept:
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, tmp_path / name)
    (command,) = [words for name, words in instructions() if name == "RUN" and "build --wheel" in words]
    python, *build = shlex.split(command.split("&&")[1])
    build[build.index("/wheel")] = str(tmp_path / "wheel")
    assert python == "python"
    subprocess.run([sys.executable, *build], cwd=tmp_path, check=True, capture_output=True)
    (wheel,) = (tmp_path / "wheel").glob("headrace-*.whl")
    with zipfile.ZipFile(wheel) as opened:
        names = set(opened.namelist())
    assert {f"{room}/__init__.py" for room in ("flows", "train", "filters", "synth", "storage")} <= names
    assert {"train/run.py", "train/backends/remote_sync.py", "train/backends/on_nodes.py"} <= names


def test_what_the_image_copies_from_the_wheel_stage_is_there_and_it_ends_with_a_checked_install() -> None:
    found = instructions()
    (copied,) = [words for name, words in found if name == "COPY" and words.startswith("--from=wheel")]
    assert [Path(word).name for word in copied.split()[1:-1]] == ["constraints.txt", "headrace-*.whl"]
    installed = [words for name, words in found if name == "RUN"][-1]
    assert "[train,ray]" in installed and installed.endswith("headrace doctor")
    assert {name for name, _ in found} <= {"ARG", "FROM", "WORKDIR", "COPY", "RUN", "ENV"}

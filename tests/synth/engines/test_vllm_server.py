"""Start and end of a model server. A scripted program, the `python` of a test environment, replaces vLLM."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from storage.errors import BadInput, HeadraceError
from storage.records import Message
from synth.engines.base import ChatRequest, EngineFailure
from synth.engines.vllm import VLLMConfig, serving, vllm_engine

ROOT = Path(__file__).resolve().parents[3]
SCRIPTED = """#!/bin/sh
# Scripted: a mock server, and a second process beside it that would live on.
while [ $# -gt 0 ]; do case "$1" in --port) port="$2";; --served-model-name) name="$2";; esac; shift; done
sleep 600 &
echo "serving $name"
cd {root} && exec {python} -c "
import asyncio, benchmarks.synthesis_sections.mock_openai as mock
mock.MODEL = '$name'
asyncio.run(mock._serve(mock.Mock(), $port))"
"""
Marked = tuple[dict[str, str], Callable[[], list[str]]]


def environment(folder: Path, script: str = SCRIPTED) -> Path:
    python = folder / "env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(script.format(root=ROOT, python=sys.executable))
    python.chmod(0o755)
    return folder / "env"


@pytest.mark.slow
def test_a_server_serves_and_ends_with_all_it_has_started(tmp_path: Path, marked: Marked, monkeypatch: pytest.MonkeyPatch) -> None:
    variables, alive = marked
    for key, value in variables.items():
        monkeypatch.setenv(key, value)
    config = VLLMConfig(model="org/tiny", environment=environment(tmp_path))
    with vllm_engine(config, tmp_path / "log" / "vllm.log") as engine:
        engine.check(tools=True)
        (answer,) = engine.chat([ChatRequest((Message(role="user", content="abc"),))])
        assert (answer.message.content, answer.policy_version) == ("cba", "vllm:org/tiny")
        assert sum("sleep 600" in one for one in alive()) == 1
    assert alive() == []
    assert "serving org/tiny" in (tmp_path / "log" / "vllm.log").read_text()


@pytest.mark.slow
def test_nothing_is_left_after_a_kill(tmp_path: Path, marked: Marked) -> None:
    variables, alive = marked
    code = (
        "import sys, time; from pathlib import Path; from synth.engines.vllm import VLLMConfig, serving\n"
        f"with serving(VLLMConfig(model='m', environment=Path({str(environment(tmp_path))!r})), Path({str(tmp_path / 'log')!r})):\n"
        "    print('up', flush=True); time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, env=variables, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"up\n"
    assert len(alive()) >= 4
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    end = time.monotonic() + 30
    while (left := alive()) and time.monotonic() < end:
        time.sleep(0.1)
    assert left == []


@pytest.mark.slow
def test_a_server_that_has_ended_is_not_waited_for(tmp_path: Path, marked: Marked, monkeypatch: pytest.MonkeyPatch) -> None:
    variables, alive = marked
    for key, value in variables.items():
        monkeypatch.setenv(key, value)
    log_lines = (
        "ERROR 01-01 00:00:00 [serving.py:1] ValueError: a request that was refused",
        "(EngineCore pid=1) ERROR 01-01 00:00:01 [core.py:1] torch.OutOfMemoryError: out of memory",
        "(APIServer pid=2) vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue",
        "cleaning up",
    )
    script = SCRIPTED.replace("exec ", "") + "".join(f"echo '{line}' >&2\n" for line in log_lines) + "exit 5\n"
    log = tmp_path / "vllm.log"
    log.write_text("OldError: of another run\n")
    with vllm_engine(VLLMConfig(model="m", environment=environment(tmp_path, script)), log) as engine:
        engine.chat([ChatRequest((Message(role="user", content="abc"),))])
        (server,) = [one for one in alive() if "mock._serve" in one]
        os.kill(int(server.split()[0]), signal.SIGKILL)
        while alive():
            time.sleep(0.05)
        with pytest.raises(EngineFailure, match=r"ended with code 5: torch\.OutOfMemoryError: out of memory"):
            engine.chat([ChatRequest((Message(role="user", content="abcd"),))])
        assert engine.counts["sent"] == 1
        with pytest.raises(EngineFailure, match=r"torch\.OutOfMemoryError"):
            engine.check()


def test_a_server_that_does_not_come_up_says_why(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(BadInput, match="`make vllm` installs it there"), serving(VLLMConfig(model="m", environment=tmp_path / "none"), log):
        pass
    broken = environment(tmp_path, "#!/bin/sh\necho 'no such model: m' >&2\nexit 3\n")
    ended = r"ended with code 3 while it was starting m; .*\n.*no such model: m"
    with pytest.raises(HeadraceError, match=ended), serving(VLLMConfig(model="m", environment=broken), log):
        pass
    (folder := tmp_path / "folder").mkdir()
    with pytest.raises(BadInput, match=r"no config\.json"), serving(VLLMConfig(model=str(folder), environment=broken), log):
        pass

"""A hostile server does not leave its box, does not use it up, and does not fool the host. An attack that works says `escaped`."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from storage.records import JSON
from synth.worlds.base import Observation
from synth.worlds.live.copies.copy_errors import ServerFailed
from synth.worlds.live.copies.live_server import LiveServer
from synth.worlds.live.copies.server_box import descendants
from tests.synth.live_servers.specs import NEEDS_BOX, hostile_spec

pytestmark = NEEDS_BOX
ATTACKS = (
    "read_shadow", "read_home", "read_secret_file", "read_environment", "see_processes", "kill_host", "connect_loopback", "connect_out",
    "abstract_socket", "write_usr", "write_mounted", "become_root", "mount_something", "new_namespace", "trace_process", "fork_bomb",
    "use_memory", "fill_disk", "large_file",
    "sparse_files", "deep_folders", "huge_answer", "never_answer", "link_to_host", "pipe_in_folder", "leave_daemon", "deep_answer",
    "terminal_escapes", "crash",
)  # fmt: skip
SECRET = "the-secret-of-the-host"


@dataclass(frozen=True)
class Attacked:
    """What an attack led to. told: the observation, or the failure. state: as it is read afterwards. left: processes that stayed."""

    told: Observation | ServerFailed
    state: str
    left: int


def run_attack(attack: str, host: dict[str, JSON]) -> Attacked:
    server = LiveServer(hostile_spec())
    assert server._box is not None and server._box._process is not None
    box = server._box._process.pid
    inside: list[int] = []
    state = ""
    try:
        try:
            told: Observation | ServerFailed = server.call("attack", {"attack": attack, "host": host})
        except ServerFailed as failure:
            told = failure
        else:
            began = time.monotonic()
            try:
                state = json.dumps(server.state())
            except ServerFailed as failure:
                state = str(failure)
            assert time.monotonic() - began < 5
        inside = descendants(box)
    finally:
        server.close()
    assert not server._folder.exists()
    time.sleep(0.05)
    return Attacked(told, state, sum(lives(pid) for pid in (box, *inside)))


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Attacked]]:
    """All attacks, four at a time."""
    secret = tmp_path_factory.mktemp("secret") / "secret.txt"
    secret.write_text(SECRET)
    secret.chmod(0o644)
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket(socket.AF_UNIX) as abstract, ThreadPoolExecutor(4) as threads:
        abstract.bind("\0headrace-test-" + str(os.getpid()))
        abstract.listen()
        host: dict[str, JSON] = {
            "pid": os.getpid(), "port": listening.getsockname()[1], "secret_file": str(secret), "abstract": f"headrace-test-{os.getpid()}",
        }  # fmt: skip
        os.environ["HEADRACE_TEST_PLANTED"] = SECRET
        yield dict(zip(ATTACKS, threads.map(lambda attack: run_attack(attack, host), ATTACKS), strict=True))
        del os.environ["HEADRACE_TEST_PLANTED"]


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_attack_fails(attacked: dict[str, Attacked], attack: str) -> None:
    done = attacked[attack]
    told = done.told.content if isinstance(done.told, Observation) else str(done.told)
    assert "escaped" not in told, told[:200]
    assert SECRET not in told + done.state
    assert "\x1b" not in told and "\\u001b" not in told and "\u202e" not in told
    assert not done.left


@pytest.mark.parametrize(
    "attack", ["read_shadow", "read_secret_file", "read_environment", "see_processes", "kill_host", "connect_loopback", "abstract_socket"]
)
def test_without_a_box_the_attack_succeeds(attack: str, tmp_path: Path) -> None:
    """So an attack that is harmless to try would be seen; one on the machine itself is not tried."""
    if attack == "read_shadow" and os.geteuid() != 0:
        pytest.skip("only root reads /etc/shadow")
    secret = tmp_path / "secret.txt"
    secret.write_text(SECRET)
    name = f"headrace-unboxed-{os.getpid()}"
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(f"\0{name}")
        abstract.listen()
        host: dict[str, JSON] = {"pid": os.getpid(), "port": listening.getsockname()[1], "secret_file": str(secret), "abstract": name}
        server = LiveServer(hostile_spec(isolation="none", variables={"HEADRACE_TEST_PLANTED": SECRET}, command=_unboxed()))
        try:
            assert "escaped" in server.call("attack", {"attack": attack, "host": host}).content
        finally:
            server.close()


def _unboxed() -> list[str]:
    import sys

    from synth.worlds.live.copies.server_box import FORK_SERVER
    from tests.synth.live_servers.specs import HERE

    run = f"import runpy; runpy.run_path({str(HERE / 'hostile_server.py')!r}, run_name='__main__')"
    return [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(FORK_SERVER.parent)!r}); {run}"]


def test_failures_say_how_the_server_ended(attacked: dict[str, Attacked]) -> None:
    assert "did not answer within 4 s" in str(attacked["never_answer"].told)
    assert "answer of" in str(attacked["huge_answer"].told)
    assert "filled its private folder" in str(attacked["fill_disk"].told)
    assert "more than" in attacked["sparse_files"].state or "filled" in str(attacked["sparse_files"].told)

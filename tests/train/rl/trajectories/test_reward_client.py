"""The client of the reward service: what fails is asked again, and every answer is counted and billed once."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from storage.errors import HeadraceError, OutOfReach
from storage.records import Outcome
from tests.synth.retail_tasks import task_of
from tests.waiting import eventually
from train.rl.trajectories import reward_client
from train.rl.trajectories.reward_client import BATCH, Judged, RewardClient, check_service, health
from train.rl.trajectories.reward_service import Handler

TASK = task_of("price_of_two", 1)
SCORING = {"weights": {"success": 1.0}, "collapse": "mean"}


def conversation(reward: float = 0.25) -> dict[str, Any]:
    """One whose outcome is known; the service echoes its reward."""
    return {"task": TASK.model_dump(mode="json"), "messages": [], "changes": None, "outcome": "policy_failure", "reward": reward}


class Scripted(ThreadingHTTPServer):
    """A reward service that first goes wrong in given ways. sizes: conversations of each request that it read."""

    daemon_threads = True

    def __init__(self, *faults: str) -> None:
        super().__init__(("127.0.0.1", 0), _Faulty)
        self.faults, self.sizes, self.gate = list(faults), list[int](), threading.Event()
        self.gate.set()
        self.url = f"http://127.0.0.1:{self.server_address[1]}/"
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: the faults are scripted."""


class _Faulty(Handler):
    server: Scripted

    def do_POST(self) -> None:
        fault = self.server.faults.pop(0) if self.server.faults else ""
        if fault == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            self.connection.close()
        elif fault.isdigit():
            self.rfile.read(int(self.headers["Content-Length"]))
            self._send(int(fault), {"error": f"scripted {fault}"})
        elif fault:
            self.rfile.read(int(self.headers["Content-Length"]))
            body = fault.encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body) + 9 * (fault == "cut off")))
            self.end_headers()
            self.wfile.write(body)
            self.close_connection = True
        else:
            super().do_POST()

    def _send(self, status: int, content: Any) -> None:
        if "verdicts" in content:
            self.server.sizes.append(len(content["verdicts"]))
            self.server.gate.wait()
        super()._send(status, content)


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scripted services are on this machine."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def service() -> Iterator[Callable[..., Scripted]]:
    started: list[Scripted] = []

    def start(*faults: str) -> Scripted:
        started.append(Scripted(*faults))
        return started[-1]

    yield start
    for server in started:
        server.gate.set()
        server.shutdown()
        server.server_close()


@pytest.fixture
def make(monkeypatch) -> Iterator[Callable[..., tuple[RewardClient, list[tuple[str, Judged]]]]]:
    """Makes clients that wait for next to no time; each with the verdicts that it gave."""
    monkeypatch.setattr(reward_client, "_FIRST_WAIT_S", 0.002)
    monkeypatch.setattr(reward_client, "_LONGEST_WAIT_S", 0.02)
    clients: list[RewardClient] = []

    def start(url: str | None, store: Path = Path(), patience_s: float = 30.0) -> tuple[RewardClient, list[tuple[str, Judged]]]:
        given: list[tuple[str, Judged]] = []
        client = RewardClient(url, store=store, scoring=SCORING, on_verdict=lambda *one: given.append(one), patience_s=patience_s)
        clients.append(client)
        return client, given

    yield start
    for client in clients:
        client.close()


FAULTS = (
    "503",
    "500",
    "429",
    "408",
    "reset",
    "cut off",
    "<html>",
    "[]",
    "{}",
    "null",
    '{"verdicts": [], "seconds": 9}',
    '{"verdicts": []}',
)
HALF = '{"verdicts": [{"outcome": "success", "reward": 1.0, "learned": 1.0}]}'
"""A verdict, but no bill."""


def test_what_fails_is_asked_again_and_counted_and_billed_once(service, make):
    """Given every fault of a server, a proxy or a connection before the answer, then there is one verdict, one call, and one bill."""
    server = service(*FAULTS, HALF)
    client, given = make(server.url)
    client.ask("a", conversation(0.25))
    assert eventually(lambda: given or client.failure, 30, 0.01)
    assert client.failure is None
    assert given == [("a", Judged(Outcome.POLICY_FAILURE, 0.25, 0.0))]
    assert (client.bill.calls, client.bill.conversations, client.bill.retries) == (1, 1, len(FAULTS) + 1)
    assert 0 <= client.bill.seconds < 5
    assert server.sizes == [1]


def test_what_waits_is_sent_together_and_each_gets_its_own_verdict(service, make):
    server = service()
    server.gate.clear()
    client, given = make(server.url)
    client.ask("0", conversation(0.0))
    assert eventually(lambda: server.sizes, 30, 0.01)
    for number in range(1, 2 * BATCH + 7):
        client.ask(str(number), conversation(number / 100))
    server.gate.set()
    assert eventually(lambda: len(given) == 2 * BATCH + 7, 30, 0.01)
    assert server.sizes == [1, BATCH, BATCH, 6]
    assert [(key, judged.reward) for key, judged in given] == [(str(number), number / 100) for number in range(2 * BATCH + 7)]
    assert (client.bill.calls, client.bill.conversations, client.bill.retries) == (4, 2 * BATCH + 7, 0)


@pytest.mark.parametrize("status", [400, 401, 404, 413])
def test_a_request_that_is_refused_is_an_error_at_once_in_the_service_s_words(service, make, status):
    server = service(str(status))
    client, given = make(server.url)
    client.ask("a", conversation())
    assert eventually(lambda: client.failure, 30, 0.01)
    assert str(client.failure) == f"the reward service {server.url} refuses a request: scripted {status}"
    assert type(client.failure) is HeadraceError
    assert (given, client.bill.retries, client.bill.calls) == ([], 0, 0)


@pytest.mark.parametrize("how", ["gone", "broken"])
def test_a_service_that_is_gone_for_longer_than_the_patience_is_out_of_reach_in_one_line(service, make, how):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/" if how == "gone" else service(*["503"] * 999).url
    client, given = make(url, patience_s=0.1)
    client.ask("a", conversation())
    assert eventually(lambda: client.failure, 30, 0.01)
    assert isinstance(client.failure, OutOfReach)
    text = str(client.failure)
    assert text.startswith(f"the reward service {url} has given no verdict for 0.1 s (")
    assert ("scripted 503" in text) == (how == "broken")
    assert "\n" not in text
    assert len(text) <= 240
    assert given == []
    assert client.bill.retries > 0
    assert client.bill.calls == 0


def test_a_client_that_waits_for_a_service_can_be_closed(service, make, monkeypatch):
    monkeypatch.setattr(reward_client, "_LONGEST_WAIT_S", 900.0)
    monkeypatch.setattr(reward_client, "_FIRST_WAIT_S", 900.0)
    client, given = make(service("503").url, patience_s=9999.0)
    client.ask("a", conversation())
    client.close()
    assert not client._thread.is_alive()
    assert given == []


@pytest.mark.slow
def test_a_service_of_our_own_is_started_again_when_it_is_killed_and_ends_with_its_client(make, monkeypatch, tmp_path):
    """Given a proxy in the environment, which is not for this machine, and a service that is killed between two conversations."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    client, given = make(None, store=tmp_path / "store")
    assert client.child_pid is None, "it is started when it is needed"
    client.ask("a", conversation(0.25))
    assert eventually(lambda: given or client.failure, 60, 0.01)
    first = client.child_pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    client.ask("b", conversation(0.5))
    assert eventually(lambda: len(given) > 1 or client.failure, 60, 0.01)
    assert [(key, judged.reward) for key, judged in given] == [("a", 0.25), ("b", 0.5)]
    assert client.bill.calls == client.bill.conversations == 2
    second = client.child_pid
    assert second not in (None, first)
    client.close()
    assert not Path(f"/proc/{second}").exists()


def test_an_answer_is_what_the_service_wrote(service, make):
    """The negative control of the tests above: a verdict that the service makes up arrives as it is."""
    made_up = {"verdicts": [{"outcome": "success", "reward": 0.9, "learned": None, "failure": "why"}], "seconds": 2.5}
    client, given = make(service(json.dumps(made_up)).url)
    client.ask("a", conversation())
    assert eventually(lambda: given or client.failure, 30, 0.01)
    assert given == [("a", Judged(Outcome.SUCCESS, 0.9, None, "why"))]
    assert client.bill.seconds == 2.5


# ---- before a stage begins -------------------------------------------------------------------------------------------------------


def test_a_service_is_asked_whether_it_is_there(service):
    check_service(service().url)


def test_a_service_that_is_gone_or_is_something_else_is_named_before_a_stage_begins(service):
    gone = service()
    gone.shutdown()
    gone.server_close()
    with pytest.raises(OutOfReach, match=r"no reward service answers at http://127.0.0.1:\d+/ \(.*start one, or set rl.reward_url to null"):
        check_service(gone.url)
    other = service()
    other.RequestHandlerClass = type("Other", (Handler,), {"do_GET": lambda self: self._send(200, {"status": "of something else"})})
    with pytest.raises(OutOfReach, match=r"is no reward service of Headrace: correct rl\.reward_url"):
        check_service(other.url)


def test_a_service_of_other_code_is_named_before_a_stage_begins(service):
    older = service()
    older.RequestHandlerClass = type("Older", (Handler,), {"do_GET": lambda self: self._send(200, health() | {"code": "older"})})
    with pytest.raises(OutOfReach, match=r"the reward service at http://127.0.0.1:\d+/ runs other code: start it from this version"):
        check_service(older.url)

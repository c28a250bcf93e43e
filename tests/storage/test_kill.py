"""kill -9 at random moments of writing and committing: the store opens, nothing is doubled, a rerun ends where an undisturbed run does."""

import os
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from storage.store import Store

COMMITS = 5

SERVER = f"""
import os, sys
from storage.store import Store, part_id
from tests.storage.conftest import funnel_parts, rows, write

def work(store):
    for n in range({COMMITS}):
        journal = store.journal(f"answers-{{n}}")
        rollouts = part_id("rollouts", [], {{"n": n}}, 1)
        part = store.find(rollouts)
        if part is None:
            known = journal.entries()
            for i in range(40):
                if str(i) not in known:
                    journal.append(str(i), {{"text": "x" * 300}})
            texts = journal.entries()
            part = store.write("rollouts", rollouts, rows("rollouts", *(
                {{"rollout_id": f"{{n}}-{{i}}", "messages": texts[str(i)]["text"]}} for i in range(40))))
        policy = write(store, "policies", {{"policy_id": f"p{{n}}", "weights_hash": "h"}}, n=n)
        store.commit([part, policy, *funnel_parts(store, f"run-{{n}}", n=n)])
        journal.discard({{str(i) for i in range(40)}})

for root in sys.stdin:
    child = os.fork()
    if not child:
        try:
            print(os.getpid(), flush=True)
            work(Store(root.strip()))
            os._exit(0)
        finally:
            os._exit(1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""Forks a process that works on a store for each root it is told: says its id, and at its end its exit code. Each imports nothing anew."""


@pytest.fixture
def server() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as found:
        yield found


def work(server: subprocess.Popen[bytes], store: Store, limit_s: float) -> int:
    """The exit code of a process that works on the store, and is killed when its time is over."""
    assert server.stdin is not None and server.stdout is not None
    server.stdin.write(f"{store.root}\n".encode())
    process = int(server.stdout.readline())
    if not select.select([server.stdout], [], [], limit_s)[0]:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    return int(server.stdout.readline())


def check(store: Store) -> int:
    """The store is consistent; returns how many commits it holds."""
    done = store.query("FROM policies").height
    counts = store.query(
        """SELECT (SELECT count(*) FROM rollouts) AS rollouts, (SELECT count(DISTINCT rollout_id) FROM rollouts) AS distinct_rollouts,
                  (SELECT count(*) FROM queries) AS queries,
                  (SELECT count(*) FROM verdicts) AS verdicts, (SELECT count(*) FROM funnel) AS steps"""
    ).row(0)
    assert counts == (40 * done, 40 * done, 6 * done, 6 * done, 4 * done)
    return done


@pytest.mark.slow
def test_killed_again_and_again_it_ends_where_an_undisturbed_run_ends(server, tmp_path):
    undisturbed = Store(tmp_path / "undisturbed")
    began = time.monotonic()
    assert work(server, undisturbed, 120) == 0
    length_s = time.monotonic() - began

    rng, disturbed, kills = random.Random(7), Store(tmp_path / "disturbed"), 0
    while (code := work(server, disturbed, rng.uniform(0.02, length_s / 2))) != 0:
        assert code == -signal.SIGKILL
        kills += 1
        check(Store(disturbed.root))
        assert kills < 60, "it makes no progress"

    assert kills >= 2
    assert check(disturbed) == COMMITS
    assert disturbed.content_hash() == undisturbed.content_hash()
    assert not list((disturbed.lake / "_journal").glob("*"))

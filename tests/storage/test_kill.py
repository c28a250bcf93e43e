"""kill -9 at random moments of writing and committing: the store opens, nothing is doubled, a rerun ends where an undisturbed run does."""

import random
import signal
import subprocess
import sys
import time

import pytest

from storage.store import Store

COMMITS = 5

WORK = f"""
import sys
from storage.store import Store, part_id
from tests.storage.conftest import funnel_parts, rows, write
print("ready", flush=True)
store = Store(sys.argv[1])
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
print("done", flush=True)
"""


def start(store: Store) -> subprocess.Popen[str]:
    child = subprocess.Popen([sys.executable, "-c", WORK, str(store.root)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


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
def test_killed_again_and_again_it_ends_where_an_undisturbed_run_ends(tmp_path):
    undisturbed = Store(tmp_path / "undisturbed")
    child = start(undisturbed)
    began = time.monotonic()
    assert child.wait(timeout=120) == 0
    length_s = time.monotonic() - began

    rng, disturbed, kills = random.Random(7), Store(tmp_path / "disturbed"), 0
    while True:
        child = start(disturbed)
        try:
            child.wait(timeout=rng.uniform(0.02, length_s / 2))
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGKILL)
        if child.wait() == 0:
            break
        kills += 1
        check(Store(disturbed.root))
        assert kills < 60, "it makes no progress"

    assert kills >= 2
    assert check(disturbed) == COMMITS
    assert disturbed.content_hash() == undisturbed.content_hash()
    assert not list((disturbed.lake / "_journal").glob("*"))

"""Two releases by what is in them, two policies by where one wins."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from flows.viewer.viewed_store import ViewedStore
from flows.viewer.web_app import create_app
from storage.store import Store
from tests.storage.conftest import build_sample, task_row, write
from tests.synth.retail_tasks import task_of

TASKS = 10


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """The sample, with draws of two policies on tasks of retail: the second solves all but the first task, the first that alone."""
    made = build_sample(tmp_path_factory.mktemp("compare") / "store").store
    real = [task_of("close_order", seed) for seed in range(TASKS)]
    tasks = [task.id for task in real]
    said = json.dumps([{"role": "user", "content": "hello"}, {"role": "assistant", "content": "done"}])
    draws = [
        {
            "rollout_id": f"rollout-{number:016x}",
            "task_id": task,
            "policy_id": policy,
            "purpose": "eval_in",
            "draw": draw,
            "outcome": "success" if (policy == "policy-2") == (at != 0) else "policy_failure",
            "checks": "{}",
            "messages": said,
            "turns": "[]",
        }
        for number, (at, task, policy, draw) in enumerate(
            (at, task, policy, draw) for at, task in enumerate(tasks) for policy in ("policy-1", "policy-2") for draw in (0, 1)
        )
    ]
    made.commit([write(made, "tasks", *map(task_row, real), n=77), write(made, "rollouts", *draws, n=77)])
    return made


@pytest.fixture(scope="module")
def app(store: Store) -> TestClient:
    viewed = ViewedStore(Path(store.root))
    return TestClient(create_app(viewed), base_url="http://127.0.0.1:8790", raise_server_exceptions=False)


def test_the_page_offers_releases_and_policies_and_fetches_the_comparison(app: TestClient) -> None:
    page = app.get("/compare?of=policies&first=policy-1&second=policy-2").text

    assert '<option value="policy-1" selected>' in page
    assert 'data-load="/compare/policies?first=policy-1&amp;second=policy-2"' in page


def test_the_items_of_two_releases_add_up(store: Store, app: TestClient) -> None:
    first, second = store.query("SELECT release_id FROM releases JOIN parts USING (part_id) ORDER BY parts.rowid")["release_id"][:2]
    page = app.get(f"/compare/releases?first={first}&second={second}").text

    rows = re.findall(r'<tr><td>([\w ]+)<td class="n">(\d+)<td class="n">(\d+)<td class="n">(\d+)<td class="n">(\d+)</tr>', page)
    assert rows
    for split, one, other, lost, gained in rows:
        assert int(one) - int(lost) == int(other) - int(gained), f"{split}: what both have"
    held = store.query("SELECT count(*) AS n FROM (SELECT DISTINCT split, kind, item_id FROM release_items WHERE release_id = ?)", [first])
    assert sum(int(one) for _, one, *_ in rows) == held["n"][0]


def test_where_the_second_policy_wins_has_a_failure_and_a_success_to_open(store: Store, app: TestClient) -> None:
    page = app.get("/compare/policies?first=policy-1&second=policy-2").text

    assert f"Where the second wins: {TASKS - 1} of {TASKS} tasks" in page
    assert f"Where the second loses: 1 of {TASKS} tasks" in page
    for link, wanted in (("a success of the second", "success"), ("a failure of the first", "policy_failure")):
        id = re.search(rf'href="/trajectories/(rollout-[0-9a-f]+)">{link}', page)
        assert id is not None
        row = store.query("SELECT outcome, policy_id FROM rollouts WHERE rollout_id = ?", [id[1]]).row(0)
        assert row == (wanted, "policy-2" if "second" in link else "policy-1")


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("/compare/policies?first=policy-1&second=policy-1", "compared with itself"),
        ("/compare/releases?first=release-1&second=release-2", "the store has no release-1"),
    ],
)
def test_what_cannot_be_compared_is_said(app: TestClient, address: str, words: str) -> None:
    page = app.get(address)
    assert page.status_code == 404
    assert words in page.text

"""A teacher's conversations are verified before anybody learns from them, and paid for once."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl
import pytest

import train.teacher
from filters.certainty.certainty import RegionConfig, certainty
from storage.errors import HeadraceError
from storage.record_rows import tasks_frame
from storage.records import Message
from storage.store import Store, part_id
from synth.engines.base import ChatAnswer, ChatRequest
from tests.synth.scripted_engine import ScriptedEngine
from tests.train.tiny_policies import retail_tasks
from train.config import CascadeConfig, ExpertsConfig
from train.data.seed_split import rough_tokens
from train.teacher import oracle_tries, teach

TASKS = retail_tasks("order_status", "close_order", "buy_pick", each=2)
CONFIG = CascadeConfig(worlds=("retail",), experts=ExpertsConfig(engine="openai:teacher", best_of=4))


class Counting:
    """An engine that counts the requests that another one answers."""

    name = "openai:teacher"

    def __init__(self, inner: ScriptedEngine | None) -> None:
        self.inner, self.asked = inner, 0

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer]:
        self.asked += len(requests)
        if self.inner is None:
            return [ChatAnswer(Message(role="assistant", content="Fish."), "stop") for _ in requests]
        return self.inner.chat(requests)


class Wordy(ScriptedEngine):
    """Its answers have 0 to 9 words too many, by the request's seed."""

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer]:
        return [
            dataclasses.replace(
                answer, message=answer.message.model_copy(update={"content": answer.message.content + " So." * (request.seed % 10)})
            )
            if answer.message.content
            else answer
            for request, answer in zip(requests, super().chat(requests), strict=True)
        ]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "store")
    store.commit([store.write("tasks", part_id("tasks", [], {}, 1), tasks_frame(TASKS))])
    return store


@pytest.fixture
def taught_by(monkeypatch: pytest.MonkeyPatch):
    def use(engine: Counting) -> Counting:
        @contextlib.contextmanager
        def opened(*_: object) -> Iterator[Counting]:
            yield engine

        monkeypatch.setattr(train.teacher, "open_policy_engine", opened)
        return engine

    return use


def tries(most: int = 4) -> dict[str, int]:
    return {task.id: most for task in TASKS}


def conversations(store: Store) -> dict[str, list[Message]]:
    """Task id -> the conversation of a teacher that errs nowhere."""
    teach(store, CONFIG, TASKS, tries(), nothing, window=10_000)
    rows = store.query("SELECT task_id, messages FROM rollouts").iter_rows()
    return {task: [Message.model_validate(message) for message in json.loads(text)] for task, text in rows}


def nothing(*_: object) -> None:
    pass


def test_a_task_that_the_teacher_solves_has_one_verified_conversation(store: Store, taught_by) -> None:
    engine = taught_by(Counting(ScriptedEngine(TASKS)))
    items = teach(store, CONFIG, TASKS, tries(), nothing, window=10_000)
    assert [item.task_id for item in items] == [task.id for task in TASKS] and {item.kind for item in items} == {"rollout"}
    outcomes = store.query("SELECT outcome, purpose FROM rollouts")
    assert outcomes.height == len(TASKS), "the first try is right, and there is no second"
    assert outcomes.unique().rows() == [("success", "experts")]
    asked = engine.asked
    assert teach(store, CONFIG, TASKS, tries(), nothing, window=10_000) == items and engine.asked == asked, "paid for once"


def test_a_teacher_that_errs_tries_again_and_its_errors_are_no_experts(store: Store, taught_by) -> None:
    taught_by(Counting(ScriptedEngine(TASKS, skill=0.4)))
    items = teach(store, CONFIG, TASKS, tries(), nothing, window=10_000)
    right = dict(store.query("SELECT rollout_id, outcome FROM rollouts").iter_rows())
    assert len(right) > len(items) > 0 and {right[item.item_id] for item in items} == {"success"}
    assert store.query("SELECT max(n) FROM (SELECT count(*) AS n FROM rollouts GROUP BY task_id)").item() <= 4


def test_the_shortest_of_the_right_conversations_is_taken(store: Store, taught_by) -> None:
    taught_by(Wordy(TASKS, skill=0.1))
    chosen = {item.item_id for item in teach(store, CONFIG, TASKS, tries(32), nothing, window=10_000)}
    right = store.query("SELECT rollout_id, task_id, draw, strlen(messages) AS size FROM rollouts WHERE outcome = 'success' ORDER BY draw")
    shortest = right.sort("size").unique("task_id", keep="first")
    assert chosen == set(shortest["rollout_id"])
    assert chosen != set(right.unique("task_id", keep="first")["rollout_id"]), "some first right conversation is a longer one"


def test_what_is_longer_than_the_window_is_no_expert(store: Store, taught_by) -> None:
    taught_by(Counting(ScriptedEngine(TASKS)))
    sizes = {task: rough_tokens(said) for task, said in conversations(store).items()}
    window = sorted(sizes.values())[len(sizes) // 2]
    items = teach(store, CONFIG, TASKS, tries(), nothing, window=window)
    assert [item.task_id for item in items] == [task.id for task in TASKS if sizes[task.id] <= window]
    assert 0 < len(items) < len(TASKS)
    with pytest.raises(HeadraceError, match="every conversation in which openai:teacher solves a task is longer than the window"):
        teach(store, CONFIG, TASKS, tries(), nothing, window=10)
    assert teach(store, CONFIG, TASKS, tries(), nothing, window=10, is_needed=False) == []


def test_a_teacher_that_answers_nonsense_is_refused_by_name(store: Store, taught_by) -> None:
    taught_by(Counting(None))
    with pytest.raises(HeadraceError, match=r"openai:teacher solved none of 6 tasks in 4 tries; `headrace explain rollout-\w+`"):
        teach(store, CONFIG, TASKS, tries(), nothing, window=10_000)
    assert teach(store, CONFIG, TASKS, tries(), nothing, window=10_000, is_needed=False) == []


def test_tries_of_an_oracle_are_in_proportion_to_what_there_is_to_learn() -> None:
    rows = [
        {"rollout_id": f"{task}/{n}", "task_id": task, "policy_id": "p", "draw": n, "reward": float(n < hits), "messages": ""}
        | {"outcome": "success" if n < hits else "policy_failure"}
        for task, hits in {"none": 0, "one": 1, "five": 5, "all": 8}.items()
        for n in range(8)
    ]
    difficulty = pl.DataFrame({"task_id": ["none", "one", "five", "all"], "difficulty": 1})
    tags = certainty(pl.DataFrame(rows), difficulty, RegionConfig(), purpose="probe")
    assert oracle_tries(tags, 8) == {"one": 1, "five": 8}, "0.014 and 0.146 of at most 0.148; what is certain or out of reach is not asked"
    assert oracle_tries(tags, 2) == {"one": 1, "five": 2}


def test_an_unsolved_task_gets_one_try_if_its_need_is_partly_solved() -> None:
    """Given tasks without a success: of a need that is solved in part, of one that is not, and with a prior by intent alone."""
    probed = {"hopeful": ("need", 0.6), "hopeless": ("need", 0.97), "by_intent": ("intent", 0.6), "unknown": (None, None)}
    rows = [
        {"task_id": task, "region": "out_of_reach", "learnability": 0.0, "successes": 0, "prior_basis": basis, "difficulty_prior": prior}
        for task, (basis, prior) in probed.items()
    ]
    solved = {
        "task_id": "mastered",
        "region": "mastered",
        "learnability": 0.0,
        "successes": 8,
        "prior_basis": "need",
        "difficulty_prior": 0.5,
    }
    assert oracle_tries(pl.DataFrame([*rows, solved]), 8) == {"hopeful": 1}


def test_an_oracle_without_an_engine_is_refused() -> None:
    with pytest.raises(ValueError, match="oracle needs an engine to ask"):
        ExpertsConfig(oracle=True)

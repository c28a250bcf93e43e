"""A cascade with a context: its experts, probes and RL tasks show the world as the policy will see it, and exports list its tools."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from filters.certainty.route import RouteConfig
from storage.context.settings import PolicyContext
from storage.record_rows import tasks_frame
from storage.records import Outcome, Task
from storage.releases.export_rows import offered_tools
from storage.releases.release import ReleasedItem, ReleaseItem, Setting, load_split
from storage.store import Store, part_id
from synth.conversations.expert import expert_trajectory
from synth.engines.base import ChatAnswer, ChatRequest
from synth.rollouts.draws import rollout
from synth.tasks.solver import expert_messages
from synth.worlds import WORLDS
from tests.train.data.test_task_pool import origin
from train.cascade import Cascade
from train.config import CascadeConfig
from train.data.task_pool import Source, draw, sources
from train.rl.task_sampler import FreshTasks
from train.run import _talks
from train.spec import RLSettings, StageSpec

CONTEXT = PolicyContext(observation_chars=150, tool_scope="cluster", reminder_every=2, notes=True)
CONFIG = CascadeConfig(worlds=("retail",), expert_budget=40, synthesised_share=0, context=CONTEXT, probe_tasks=30)
OWN = ("read_more", "write_note", "read_notes")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    rng = random.Random(0)
    tasks = {task.id: task for number in range(120) if (task := origin(number, rng))}
    made = Store(tmp_path_factory.mktemp("context") / "store")
    made.commit([made.write("tasks", part_id("tasks", ["origins"], {}, 1), tasks_frame(list(tasks.values())))])
    return made


def seed_split(store: Store, config: CascadeConfig = CONFIG) -> list[ReleasedItem]:
    cascade = Cascade(store, config)
    return load_split(store, cascade.seed_release(cascade.seed_items()), "seed")


def test_the_seed_split_is_made_in_the_context_and_lists_its_tools(store: Store, tmp_path: Path) -> None:
    items = seed_split(store)
    assert len(items) == 40
    signatures = {("retail", tool.name): tool.to_openai() for tool in WORLDS["retail"].tools}
    spec = StageSpec(name="sft1", algorithm="sft", store=store.root, release_id="r", split="seed", model_out=tmp_path, sft={})
    shown, prompts = 0, _talks(spec, items)
    for item, (messages, tools) in zip(items, prompts, strict=True):
        assert item.task is not None and item.task.context == CONTEXT and item.setting.tools[-3:] == OWN
        assert [tool["function"]["name"] for tool in offered_tools(item, signatures)] == list(item.setting.tools)
        assert [tool.name for tool in tools] == list(item.setting.tools)
        assert messages == expert_trajectory(WORLDS["retail"], item.task).messages
        shown += any("hidden]" in (message.content or "") for message in messages if message.role == "tool")
    assert shown


def test_what_a_cascade_adds_in_a_context_is_no_new_source(store: Store) -> None:
    def found() -> list[Source]:
        return sources(store, worlds=["retail"], max_difficulty=3)

    before = found()
    Cascade(store, CONFIG).prober.probe_tasks()
    assert found() == before and all(source.conversation is None for source in before)


def test_without_a_context_the_same_tasks_are_drawn_as_before(store: Store) -> None:
    pool = [source for source in sources(store, worlds=["retail"], max_difficulty=3) if source.division == "seed"]
    plain, off = (draw(pool, 20, use="train", language="en", context=context) for context in (None, PolicyContext()))
    viewed = draw(pool, 20, use="train", language="en", context=CONTEXT)
    assert plain == off and not {task.id for task in plain} & {task.id for task in viewed}
    assert [task.messages for task in plain] == [task.messages for task in viewed]


def test_rl_draws_siblings_in_the_context_of_the_task_that_they_are_of(store: Store, tmp_path: Path) -> None:
    tasks = [task for item in seed_split(store) if (task := item.task) is not None][:6]
    items = [ReleasedItem(ReleaseItem("task", one.id, one.id), Setting(one.world, one.language, one.tools), one, None) for one in tasks]
    spec = StageSpec(
        name="rl", algorithm="rl", store=store.root, release_id="r", split="rl", model_in=tmp_path, model_out=tmp_path / "m", rl={}
    )
    drawn = FreshTasks(items, spec, RLSettings(tasks_a_step=4, draws=2), RouteConfig())(0)
    assert len(drawn) == 4 and all(task.context == CONTEXT and task.tools[-3:] == OWN for task in drawn)


class Expert:
    """Says what the expert of each task says."""

    name = "expert"

    def __init__(self, tasks: list[Task]) -> None:
        self._said = {task.messages: expert_messages(WORLDS[task.world], task) for task in tasks}
        self.tools: list[list[str]] = []

    def chat(self, requests: list[ChatRequest]) -> list[ChatAnswer]:
        self.tools += [[tool.name for tool in request.tools] for request in requests]
        return [ChatAnswer(self._next(request), "stop") for request in requests]

    def _next(self, request: ChatRequest) -> object:
        said = next(said for opening, said in self._said.items() if request.messages[: len(opening)] == opening)
        assert tuple(said[: len(request.messages)]) == request.messages
        return said[len(request.messages)]


def test_a_rollout_in_a_context_offers_its_tools_and_shows_what_the_expert_saw(store: Store) -> None:
    tasks = [task for item in seed_split(store) if (task := item.task) is not None][:8]
    engine = Expert(tasks)
    made = rollout(engine, tasks, 1, policy_id="p")  # type: ignore[arg-type]
    assert all(one.outcome is Outcome.SUCCESS for one in made) and all(tuple(names[-3:]) == OWN for names in engine.tools)

"""Which accepted conversations the seed split takes: those that cover most for their length, and none with a coin flip in it."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from storage.record_rows import tasks_frame
from storage.records import Message
from storage.store import Store, part_id
from storage.tables import TABLES
from synth.blueprints.blueprint import Bands
from synth.blueprints.cell import mode_family
from synth.conversations.conversation_task import conversation_task, rate_difficulty
from synth.roles.simulate import Simulated, simulated_frame
from synth.run.evolution.source_weights import SourceWeights
from synth.worlds import WORLDS
from tests.synth.conversations.conversations import accepted
from train.data.seed_split import rough_tokens, synthesised_conversations
from train.data.task_pool import is_for_evaluation

EVERY = accepted("retail", 60)
MADE = tuple((plan, one) for plan, one in EVERY if not is_for_evaluation(conversation_task(WORLDS["retail"], plan, division="seed")))
LIMITS = {"worlds": ["retail"], "language": "en", "max_difficulty": 5, "max_tokens": 10_000}


def kept(root: Path, made=MADE) -> Store:
    """A store with these conversations, accepted."""
    columns = TABLES["blueprints"].columns
    rows = [
        dict.fromkeys(columns)
        | {"blueprint_id": plan.id, "cluster_id": plan.cluster_id, "world": plan.world, "round": 0, "status": "accepted"}
        | {"spec": plan.model_dump_json()}
        for plan, _ in made
    ]
    store = Store(root)
    tasks = [conversation_task(WORLDS["retail"], plan, division="seed") for plan, _ in made]
    trajectories = simulated_frame([(plan, one, task) for (plan, one), task in zip(made, tasks, strict=True)], Bands(3, 8))
    store.commit(
        [
            store.write("blueprints", part_id("blueprints", [], {}, 1), pl.DataFrame(rows, schema=columns)),
            store.write("tasks", part_id("tasks", [], {}, 1), tasks_frame(tasks)),
            store.write("trajectories", part_id("trajectories", [], {}, 1), trajectories),
        ]
    )
    return store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return kept(tmp_path_factory.mktemp("seed") / "store")


def chosen(store: Store, count: int = 1_000, **changed: object) -> list[str]:
    return [item.item_id for item in synthesised_conversations(store, **(LIMITS | changed), count=count)]


def test_all_are_taken_where_there_is_room_and_the_first_are_the_same_for_fewer(store: Store) -> None:
    every = chosen(store)
    assert sorted(every) == sorted(one.trajectory.id for _, one in MADE)
    assert chosen(store, 10) == every[:10]


def test_what_shows_a_policy_what_is_kept_for_evaluation_is_left_out(tmp_path: Path) -> None:
    """Given conversations without an individual of which some are set aside by hash, then none of those is learned from."""
    assert len(MADE) < len(EVERY)
    assert sorted(chosen(kept(tmp_path / "store", EVERY))) == sorted(one.trajectory.id for _, one in MADE)


def test_few_of_them_cover_more_than_as_many_tokens_of_others(store: Store) -> None:
    """Given room for 12 of 60, then the tools and kinds of decisions in those are more than in the first others of as many tokens."""
    by_id = {one.trajectory.id: one for _, one in MADE}
    taken = [by_id[item] for item in chosen(store, 12)]
    budget, others = sum(rough_tokens(one.trajectory.messages) for one in taken), list[Simulated]()
    for _, one in MADE:
        budget -= rough_tokens(one.trajectory.messages)
        if budget < 0:
            break
        others.append(one)

    def covered(conversations: list[Simulated]) -> int:
        tools = {tool for one in conversations for tool in one.profile.tools}
        return len(tools) + len({mode for one in conversations for mode in one.profile.coarse.replace("+", "").split(">")} & set("APRVNX"))

    assert covered(taken) > covered(others)


def test_hard_long_and_foreign_ones_are_left_out(store: Store) -> None:
    difficulty = {one.trajectory.id: rate_difficulty(plan) for plan, one in MADE}
    length = {one.trajectory.id: rough_tokens(one.trajectory.messages) for _, one in MADE}
    easy, short = chosen(store, max_difficulty=2), chosen(store, max_tokens=150)
    assert 0 < len(easy) < len(MADE) and set(easy) == {item for item, level in difficulty.items() if level <= 2}
    assert 0 < len(short) < len(MADE) and set(short) == {item for item, tokens in length.items() if tokens <= 150}
    assert chosen(store, language="zh") == chosen(store, worlds=["city"]) == []


def test_a_conversation_with_a_decision_out_of_the_blue_is_left_out(tmp_path: Path) -> None:
    """Given an accepted conversation in which the user does not ask for the second look that is taken, then it is not learned from."""
    plan, one = next((plan, one) for plan, one in MADE if [turn.cues for turn in plan.turns] == [("double_check",)])
    silent = [
        message.model_copy(update={"content": plan.turns[0].text.split(".")[0]}) if message.role == "user" else message
        for message in one.trajectory.messages
    ]
    spoilt = Simulated(one.trajectory.model_copy(update={"messages": tuple(silent)}), one.profile, True, "", None)
    assert len(chosen(kept(tmp_path / "whole", [(plan, one)]))) == 1
    assert chosen(kept(tmp_path / "spoilt", [(plan, spoilt)])) == []


def test_rough_tokens_are_at_least_those_of_the_tiny_policy() -> None:
    from train import tiny

    texts = [tiny.render(one.trajectory.messages) for _, one in MADE]
    tokenizer = tiny.build_tokenizer(texts)
    for text, (_, one) in zip(texts, MADE, strict=True):
        assert len(tokenizer(text)["input_ids"]) <= rough_tokens(one.trajectory.messages)
    assert rough_tokens([Message(role="user", content=json.dumps({"a": 1}))]) > 4


def test_conversations_of_a_heavier_source_are_chosen_first(store: Store) -> None:
    """Given weights by mode, then a family of weight 1,000 comes before all others, and one of .001 after them."""
    families = {one.trajectory.id: mode_family(one.profile.coarse) for _, one in MADE}
    family = sorted(set(families.values()))[0]
    own = {item for item, name in families.items() if name == family}
    first = chosen(store, len(own), sources=SourceWeights(by="mode", weights={family: 1e6}))
    assert set(first) == own
    assert not own & set(chosen(store, len(MADE) - len(own), sources=SourceWeights(by="mode", weights={family: 1e-6})))

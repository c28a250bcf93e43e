"""Episodes: a world each, none sees another, and each ends and is freed."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from storage.errors import BadInput
from storage.records import CODE_TOOL, JSON
from synth.serving.call_log import CallLog
from synth.serving.episodes import EpisodeKey, EpisodeRefused, Episodes
from synth.serving.served import Served, serve_task, serve_world
from synth.worlds import WORLDS, make_world
from synth.worlds.base import Observation
from synth.worlds.live.copies.copy_errors import ServerDied
from tests.synth.live_servers.specs import NEEDS_BOX, notes_spec
from tests.synth.retail_tasks import task_of
from tests.synth.worlds.live.test_live_world import world_of

HOTEL = WORLDS["hotel"]
ROOM = ("get_room", {"room": "r001"})


def named(name: str) -> EpisodeKey:
    return EpisodeKey("named", name)


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class CountedHotel(HOTEL):  # type: ignore[valid-type, misc]
    """A hotel that tells what is asked of it."""

    closed: ClassVar[list[int]]
    name = "counted_hotel"

    def call(self, tool: str, arguments: Any) -> Observation:
        if arguments == {"room": "slow"}:
            time.sleep(0.2)
        if arguments == {"room": "broken"}:
            raise RuntimeError("the room is on fire")
        return super().call(tool, arguments)  # type: ignore[no-any-return]

    def close(self) -> None:
        self.closed.append(self.seed)


class InThreads(Served):
    """All calls are executed in threads, as those of worlds that may take long."""

    def quick_tools(self) -> frozenset[str]:
        return frozenset()


@pytest.fixture
def counted() -> Served:
    CountedHotel.closed = []
    return InThreads(CountedHotel, serve_world("hotel").tools)


def test_compiled_worlds_answer_at_once_all_else_in_threads() -> None:
    bank = serve_world("banking")
    assert bank.quick_tools() == {tool.name for tool in bank.tools} - {CODE_TOOL}
    assert serve_world("city").quick_tools() == frozenset()


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def test_an_episode_answers_as_the_world_does_and_others_see_nothing_of_it() -> None:
    task = task_of("close_order", 0)
    episodes = Episodes(serve_world("retail"), most=50, idle_s=None)

    async def play(name: str) -> list[str]:
        return [(await episodes.call(named(name), task.world_seed, call.tool, call.arguments)).content for call in task.plan.calls]

    async def play_all() -> list[list[str]]:
        return list(await asyncio.gather(*(play(str(number)) for number in range(30))))

    world = make_world("retail", task.world_seed)
    alone = [world.call(call.tool, call.arguments).content for call in task.plan.calls]
    assert world.changes()
    assert run(play_all()) == [alone] * 30
    assert run(play("0")) != alone, "the same episode goes on in its state"


def test_the_same_name_of_two_kinds_is_two_episodes(counted: Served) -> None:
    episodes = Episodes(counted, most=5, idle_s=None)

    async def use_both() -> None:
        await episodes.call(named("a"), 1, *ROOM)
        await episodes.call(EpisodeKey("session", "a"), 2, *ROOM)

    run(use_both())
    assert len(episodes) == 2


def test_calls_of_one_episode_keep_their_order(counted: Served, tmp_path: Path) -> None:
    log = CallLog(tmp_path / "log.jsonl")
    episodes = Episodes(counted, log, most=5, idle_s=None)
    rooms = ["slow", *(f"r{number:03}" for number in range(20))]

    async def call_all() -> None:
        await asyncio.gather(*(episodes.call(named("a"), None, "get_room", {"room": room}) for room in rooms))

    run(call_all())
    rows = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [row["arguments"]["room"] for row in rows] == rooms
    assert [row["call"] for row in rows] == list(range(1, len(rooms) + 1))


def test_an_idle_episode_ends_and_its_name_is_not_used_again(counted: Served) -> None:
    clock = Clock()
    episodes = Episodes(counted, most=5, idle_s=60.0, clock=clock)

    async def wait_and_come_back() -> None:
        await episodes.call(named("old"), 1, *ROOM)
        clock.now_s = 30.0
        await episodes.call(named("young"), 2, *ROOM)
        clock.now_s = 61.0
        await episodes.end_idle()
        assert CountedHotel.closed == [1]
        assert len(episodes) == 1
        await episodes.call(named("young"), 2, *ROOM)
        with pytest.raises(EpisodeRefused, match=r"episode 'old' has ended: no call came for 1 minutes; name another episode"):
            await episodes.call(named("old"), 1, *ROOM)

    run(wait_and_come_back())


def test_an_episode_in_a_call_is_not_idle_and_is_freed_after_it(counted: Served) -> None:
    clock = Clock()
    episodes = Episodes(counted, most=5, idle_s=60.0, clock=clock)

    async def end_meanwhile() -> None:
        running = asyncio.create_task(episodes.call(named("a"), 1, "get_room", {"room": "slow"}))
        waiting = asyncio.create_task(episodes.call(named("a"), 1, *ROOM))
        await asyncio.sleep(0.05)
        clock.now_s = 100.0
        await episodes.end_idle()
        assert len(episodes) == 1
        assert await episodes.end(named("a"))
        assert CountedHotel.closed == [1]
        assert (await running).is_error
        with pytest.raises(EpisodeRefused, match="its client ended it"):
            await waiting
        assert not await episodes.end(named("a"))

    run(end_meanwhile())


def test_too_many_episodes_are_refused_until_one_ends(counted: Served) -> None:
    clock = Clock()
    episodes = Episodes(counted, most=2, idle_s=60.0, clock=clock)

    async def open_three() -> None:
        await episodes.call(named("a"), None, *ROOM)
        await episodes.call(named("b"), None, *ROOM)
        with pytest.raises(EpisodeRefused, match="2 episodes are open, which is the most"):
            await episodes.call(named("c"), None, *ROOM)
        await episodes.call(named("a"), None, *ROOM)
        clock.now_s = 61.0
        await episodes.call(named("c"), None, *ROOM)
        assert len(episodes) == 1
        await episodes.end_all()
        assert len(CountedHotel.closed) == 3

    run(open_three())


def test_two_calls_that_begin_one_episode_where_none_is_free_share_it(counted: Served, tmp_path: Path) -> None:
    clock = Clock()
    episodes = Episodes(counted, CallLog(tmp_path / "log.jsonl"), most=1, idle_s=60.0, clock=clock)

    async def begin_twice() -> None:
        await episodes.call(named("idle"), None, *ROOM)
        clock.now_s = 61.0
        await asyncio.gather(*(episodes.call(named("new"), None, *ROOM) for _ in range(3)))

    run(begin_twice())
    rows = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [(row["episode"], row["call"]) for row in rows[1:]] == [("named:new", 1), ("named:new", 2), ("named:new", 3)]


def test_an_episode_that_all_sessions_left_goes_on_until_another_needs_its_place(counted: Served) -> None:
    clock = Clock()
    episodes = Episodes(counted, most=2, idle_s=None, clock=clock)

    async def leave_and_come_back() -> None:
        for session in ("s1", "s2"):
            await episodes.call(named("shared"), None, *ROOM, session=session)
        await episodes.call(named("other"), None, *ROOM, session="s3")
        episodes.leave(named("shared"), "s1")
        with pytest.raises(EpisodeRefused, match="which is the most"):
            await episodes.call(named("third"), None, *ROOM)
        episodes.leave(named("shared"), "s2")
        await episodes.call(named("shared"), None, *ROOM, session="s4")
        with pytest.raises(EpisodeRefused, match="which is the most"):
            await episodes.call(named("third"), None, *ROOM)
        episodes.leave(named("shared"), "s4")
        await episodes.call(named("third"), None, *ROOM)
        with pytest.raises(EpisodeRefused, match="'shared' has ended: its last session ended, and another episode took its place"):
            await episodes.call(named("shared"), None, *ROOM)
        assert not (await episodes.call(named("other"), None, *ROOM)).is_error

    run(leave_and_come_back())


def test_an_episode_keeps_its_seed(counted: Served) -> None:
    episodes = Episodes(replace(counted, seed=3), most=5, idle_s=None)

    async def call(seed: int | None) -> str:
        return (await episodes.call(named("a"), seed, *ROOM)).content

    assert run(call(4)) == HOTEL(4).call(*ROOM).content != HOTEL(3).call(*ROOM).content
    assert run(call(None)) == run(call(4))
    with pytest.raises(EpisodeRefused, match="episode 'a' has seed 4, not 5; name another episode"):
        run(call(5))
    assert run(episodes.call(named("b"), None, *ROOM)).content == HOTEL(3).call(*ROOM).content


def test_a_world_that_fails_ends_its_episode_and_no_other(counted: Served, tmp_path: Path) -> None:
    log = CallLog(tmp_path / "log.jsonl")
    episodes = Episodes(counted, log, most=5, idle_s=None)

    async def fail_and_come_back() -> None:
        await episodes.call(named("a"), 1, *ROOM)
        await episodes.call(named("b"), 2, *ROOM)
        failing = asyncio.create_task(episodes.call(named("a"), 1, "get_room", {"room": "broken"}))
        waiting = asyncio.create_task(episodes.call(named("a"), 1, *ROOM))
        with pytest.raises(RuntimeError, match="on fire"):
            await failing
        for call in (waiting, episodes.call(named("a"), 1, *ROOM)):
            with pytest.raises(EpisodeRefused, match="'a' has ended: the world failed, not the call: RuntimeError: the room is on fire"):
                await call
        assert CountedHotel.closed == [1]
        assert not (await episodes.call(named("b"), 2, *ROOM)).is_error

    run(fail_and_come_back())
    rows = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [(row["episode"], row["call"], row.get("failure", "")[:17]) for row in rows] == [
        ("named:a", 1, ""),
        ("named:b", 1, ""),
        ("named:a", 2, "the world failed,"),
        ("named:b", 2, ""),
    ]
    assert rows[2]["observation"] is None


@NEEDS_BOX
def test_a_live_server_that_dies_ends_the_episode(tmp_path: Path) -> None:
    world = world_of(notes_spec())
    episodes = Episodes(Served(world, world.tools), CallLog(tmp_path / "log.jsonl"), most=5, idle_s=None)

    async def die() -> None:
        await episodes.call(named("a"), None, "remove_note", {"note_id": "n1"})
        for server in world.pool._all:
            server.signal(signal.SIGKILL)
        with pytest.raises(ServerDied):
            await episodes.call(named("a"), None, "list_notes", {})
        with pytest.raises(EpisodeRefused, match="has ended: the world failed, not the call: ServerDied"):
            await episodes.call(named("a"), None, "list_notes", {})
        assert not (await episodes.call(named("b"), None, "list_notes", {})).is_error
        await episodes.end_all()

    run(die())
    world.pool.close()


def test_a_live_world_without_a_seed_refuses_one_and_has_few_episodes() -> None:
    world = world_of(notes_spec())
    WORLDS.register(world)
    try:
        with pytest.raises(BadInput, match=r"has one start state: no \{seed\} stands in its file; leave out --seed"):
            serve_world(world.name, 3)
        served = serve_world(world.name)
    finally:
        WORLDS.forget(world.name)
    assert (served.most_open, serve_world("hotel").most_open) == (16, 1_000)
    with pytest.raises(EpisodeRefused, match=r"has one start state: .*; leave out `seed`"):
        run(Episodes(served, most=5, idle_s=None).call(named("a"), 3, "list_notes", {}))
    seeded = world_of(notes_spec(variables={"SEED": "{seed}"}))
    assert not Served(seeded, seeded.tools).why_one_seed


def test_a_task_whose_user_says_more_is_refused() -> None:
    task = task_of("close_order", 0)
    with pytest.raises(BadInput, match=f"the user of task {task.id} says more after the request, and a server plays no user"):
        serve_task(task.model_copy(update={"conversation": {"turns": []}}))


@pytest.mark.parametrize("arguments", [{}, {"room": 7}, {"room": "r001", "more": 1}])
def test_a_bad_call_and_an_unknown_tool_are_error_observations(arguments: dict[str, JSON]) -> None:
    episodes = Episodes(serve_world("hotel"), most=5, idle_s=None)
    observation = run(episodes.call(named("a"), None, "get_room", arguments))
    assert observation == HOTEL(0).call("get_room", arguments)
    assert observation.is_error
    assert run(episodes.call(named("a"), None, "open_window", arguments)) == Observation('{"error":"no such tool"}', is_error=True)


def test_a_task_is_served_with_its_own_tools_seed_and_request() -> None:
    task = task_of("close_order", 7)
    offered = task.model_copy(update={"tools": task.tools[:-1]})
    served = serve_task(offered)
    assert served.task_id == task.id
    assert served.request == task.messages[-1].content
    assert [tool.name for tool in served.tools] == list(task.tools[:-1])
    episodes = Episodes(served, most=5, idle_s=None)
    assert json.loads(run(episodes.call(named("a"), None, task.tools[-1], {})).content) == {"error": "no such tool"}
    with pytest.raises(EpisodeRefused, match="leave out `seed`"):
        run(episodes.call(named("b"), task.world_seed + 1, *ROOM))

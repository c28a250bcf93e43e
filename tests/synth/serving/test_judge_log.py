"""The log of a served task, judged: the expert's calls pass, no calls and forged ones do not."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from storage.errors import BadInput
from storage.records import Call, Task
from synth.serving.call_log import CallLog, LogFailed
from synth.serving.episodes import EpisodeKey, EpisodeRefused, Episodes
from synth.serving.judge_log import JudgedEpisode, judge_log
from synth.serving.served import serve_task
from synth.worlds import WORLDS
from synth.worlds.base import Observation
from tests.synth.context_tasks import expert_calls, task_read_on
from tests.synth.retail_tasks import task_of


@pytest.fixture(scope="module")
def task() -> Task:
    return task_of("close_order", 0)


def play(path: Path, task: Task, episode: str, calls: tuple[Call, ...]) -> None:
    """Logs these calls in an episode of a server that starts and stops."""
    log = CallLog(path)

    async def call_all() -> None:
        episodes = Episodes(serve_task(task), log, most=1, idle_s=None)
        for call in calls:
            await episodes.call(EpisodeKey("named", episode), None, call.tool, call.arguments)

    asyncio.run(call_all())
    log.close()


def test_the_experts_calls_and_answer_are_solved(task: Task, tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    play(path, task, "a", task.plan.calls)
    count = len(task.plan.calls)
    assert judge_log(path, task, answer=task.plan.answer) == [JudgedEpisode("named:a", count, True, ())]
    assert judge_log(path, task) == [JudgedEpisode("named:a", count, None, ())]
    (wrong,) = judge_log(path, task, answer="I cannot do that, there is no tool for it.")
    assert wrong.solved is False


def test_a_task_in_a_context_is_served_and_judged_with_the_contexts_tools(tmp_path: Path) -> None:
    """Given a task whose results are shortened, then its expert's calls, `read_more` among them, solve it through a server; the plan alone,
    which reads nothing on, does not."""
    task = task_read_on()
    calls = expert_calls(task)
    assert [tool.name for tool in serve_task(task).tools] == list(task.tools)
    play(tmp_path / "expert.jsonl", task, "a", calls)
    (judged,) = judge_log(tmp_path / "expert.jsonl", task, answer=task.plan.answer)
    assert judged == JudgedEpisode("named:a", len(calls), True, ())
    play(tmp_path / "plan.jsonl", task, "a", task.plan.calls)
    assert judge_log(tmp_path / "plan.jsonl", task, answer=task.plan.answer)[0].solved is False


def test_a_call_too_few_is_not_solved(task: Task, tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    play(path, task, "a", task.plan.calls[:-1])
    (judged,) = judge_log(path, task, answer=task.plan.answer)
    assert judged.solved is False
    assert "end_state" in judged.failed
    assert judge_log(path, task)[0].solved is False


def test_a_forged_observation_is_found(task: Task, tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    play(path, task, "a", task.plan.calls)
    lines = path.read_text().splitlines()
    forged = {**json.loads(lines[0]), "observation": '{"id":"o1","status":"paid"}'}
    path.write_text("\n".join([json.dumps(forged), *lines[1:]]))
    assert "observations" in judge_log(path, task, answer=task.plan.answer)[0].failed


def test_a_name_that_begins_anew_is_a_further_episode(task: Task, tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    play(path, task, "a", task.plan.calls)
    play(path, task, "b", task.plan.calls[:1])
    play(path, task, "a", task.plan.calls)
    assert [(each.episode, each.solved) for each in judge_log(path, task)] == [("named:a", None), ("named:b", False), ("named:a#2", None)]
    assert [each.episode for each in judge_log(path, task, "named:a#2", task.plan.answer)] == ["named:a#2"]
    with pytest.raises(BadInput, match=r"has 3 episodes of task .*; name the one of the answer with --episode"):
        judge_log(path, task, answer="done")
    with pytest.raises(BadInput, match=r"has no episode 'c' of task .*; it has named:a, named:b"):
        judge_log(path, task, "c")


def test_an_episode_is_named_as_in_the_url(task: Task, tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    for name in ("a", "b", "a"):
        play(path, task, name, task.plan.calls)
    for name in ("a", "named:a", "b", "a#2"):
        (judged,) = judge_log(path, task, name, task.plan.answer)
        assert (judged.episode, judged.solved) == (f"named:{name.removeprefix('named:')}", True)


def test_a_world_that_failed_is_not_the_policys_failure(task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "calls.jsonl"
    play(path, task, "a", task.plan.calls[:1])

    def fail(self: Any, tool: str, arguments: Any) -> Observation:
        raise RuntimeError("the shop burnt down")

    with monkeypatch.context() as patched, pytest.raises(RuntimeError):
        patched.setattr(WORLDS[task.world], "call", fail)
        play(path, task, "b", task.plan.calls)
    too_few, failed = judge_log(path, task)
    assert (too_few.solved, too_few.failure) == (False, "")
    assert failed == JudgedEpisode("named:b", 0, None, (), "the world failed, not the call: RuntimeError: the shop burnt down")
    assert judge_log(path, task, "b", task.plan.answer) == [failed]


def test_a_log_that_can_no_longer_be_written_is_said_once_and_refuses_calls(
    task: Task, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "calls.jsonl"
    episodes = Episodes(serve_task(task), CallLog(path), most=5, idle_s=None)
    call = task.plan.calls[0]

    async def remove_and_call() -> None:
        await episodes.call(EpisodeKey("named", "a"), None, call.tool, call.arguments)
        path.unlink()
        for _ in range(3):
            with pytest.raises(LogFailed, match=r"the call log cannot be written \(the file was removed\), so calls are refused"):
                await episodes.call(EpisodeKey("named", "a"), None, call.tool, call.arguments)

    asyncio.run(remove_and_call())
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert len(episodes) == 1


def test_a_full_disk_ends_the_episode_and_leaves_a_whole_log(task: Task, tmp_path: Path) -> None:
    """A limit of the file's size is a disk that is full in the middle of a line."""
    path = tmp_path / "calls.jsonl"
    log = CallLog(path)
    call, key = task.plan.calls[0], EpisodeKey("named", "a")
    resource = pytest.importorskip("resource", reason="a limit of the file's size needs it")
    before, ignored = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    async def fill_and_go_on() -> None:
        episodes = Episodes(serve_task(task), log, most=5, idle_s=None)
        await episodes.call(key, None, call.tool, call.arguments)
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 20, before[1]))
        try:
            with pytest.raises(LogFailed, match="File too large"):
                await episodes.call(key, None, call.tool, call.arguments)
            with pytest.raises(LogFailed, match="File too large"):
                await episodes.call(EpisodeKey("named", "b"), None, call.tool, call.arguments)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        with pytest.raises(EpisodeRefused, match=r"'a' has ended: .*the call log cannot be written"):
            await episodes.call(key, None, call.tool, call.arguments)
        for each in task.plan.calls:
            await episodes.call(EpisodeKey("named", "b"), None, each.tool, each.arguments)

    try:
        asyncio.run(fill_and_go_on())
    finally:
        signal.signal(signal.SIGXFSZ, ignored)
    full, whole = judge_log(path, task)
    assert (full.solved, full.calls) == (None, 2) and "cannot be written" in full.failure
    assert (whole.episode, whole.calls, whole.failed, whole.failure) == ("named:b", len(task.plan.calls), (), "")


@pytest.mark.parametrize("text", ["{}", "no json", '{"episode": "a", "task": null}', "[1]"])
def test_a_file_that_is_no_log_is_refused(text: str, task: Task, tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    path.write_text(text + "\n")
    with pytest.raises(BadInput, match="line 1: no call that `headrace serve --log` wrote"):
        judge_log(path, task)


def test_a_log_of_other_tasks_or_none_is_refused(task: Task, tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    with pytest.raises(BadInput, match="cannot be read"):
        judge_log(path, task)
    play(path, task, "a", task.plan.calls)
    with pytest.raises(BadInput, match="has no call of task"):
        judge_log(path, task.model_copy(update={"id": "task-0000000000000000"}))


def test_a_log_that_cannot_be_written_is_refused_before_anything_is_served(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot be written .*; name another file with --log"):
        CallLog(tmp_path / "no folder" / "calls.jsonl")

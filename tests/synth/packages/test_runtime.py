"""What exported packages need of Headrace: every expert passes, doing nothing fails, and a forged log is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from storage.errors import BadInput
from storage.records import FunctionCall, Message, ToolCall
from synth.packages.forms.forms_by_name import FORMS
from synth.packages.package_contents import choose, task_lines, world_lines
from synth.packages.replay_log import judge_log
from synth.packages.runtime import Episode, EpisodeLost, Episodes, Package, expert_turns, judge, judge_openai, resume, tool_schemas
from synth.packages.task_sources import of_worlds
from synth.worlds import WORLDS
from synth.worlds.declarative.compile import compile_file
from tests.synth.context_tasks import expert_calls, task_read_on
from tests.synth.live_servers.specs import notes_spec
from tests.synth.worlds.live.test_live_world import world_of

CONTENTS = of_worlds(["retail", "banking", "library"], 12, "tasks")
CHANGING = next(task for task in CONTENTS.all_tasks if task.success.changes and task.plan.calls)


def played(task):
    episode = Episode(task)
    for call in task.plan.calls:
        episode.call(call.tool, call.arguments)
    return episode


@pytest.mark.parametrize("task", CONTENTS.all_tasks, ids=lambda task: f"{task.world}-{task.intent}-{task.id[-4:]}")
def test_the_expert_passes_and_doing_nothing_fails(task):
    assert played(task).judge(task.plan.answer).success
    assert judge(task, expert_turns(task)).reward == 1.0
    for answer in ("", "Done."):
        assert not Episode(task).judge(answer).success
    assert not judge(task, []).success


def test_a_task_in_a_context_is_packaged_with_the_contexts_tools():
    """Given a task whose results are shortened, then its schemas have the tools of its context, its expert reads on and passes, Harbor has
    that expert as its solution, and the plan alone fails."""
    task = task_read_on()
    assert [schema["name"] for schema in tool_schemas(task)] == list(task.tools)
    contents = choose("some", [task], "", [])
    (solution,) = (json.loads(text) for path, text in FORMS["harbor"].files(contents).items() if path.endswith("calls.json"))
    *calls, answer = solution
    assert [call["name"] for call in calls] == [call.tool for call in expert_calls(task)] and "read_more" in str(calls)
    episode = Episode(task)
    for call in calls:
        episode.call(call["name"], call["arguments"])
    assert episode.judge(answer["arguments"]["text"]).success
    assert not played(task).judge(task.plan.answer).success
    assert judge(task, expert_turns(task)).success


def test_a_result_that_the_world_did_not_give_fails():
    turns = expert_turns(CHANGING)
    forged = [turn.model_copy(update={"content": '{"ok": true, "forged": 1}'}) if turn.role == "tool" else turn for turn in turns]
    verdict = judge(CHANGING, forged)
    assert not verdict.success and not verdict.checks["observations"]


def test_a_call_that_was_only_claimed_changes_nothing():
    claimed = [turn for turn in expert_turns(CHANGING) if turn.role == "assistant" and not turn.tool_calls]
    assert not judge(CHANGING, claimed).checks["end_state"]


def test_messages_in_openai_form_are_judged_alike_and_broken_ones_fail():
    turns = [turn.to_openai() for turn in expert_turns(CHANGING)]
    assert judge_openai(CHANGING, turns).success
    assert not judge_openai(CHANGING, [{"role": "narrator", "content": "all done"}]).success


def test_a_bad_call_is_an_error_and_no_exception():
    episode = Episode(CHANGING)
    for tool, arguments in (("no_such_tool", {}), (CHANGING.tools[0], "{not json"), (CHANGING.tools[0], {"unheard_of": 1})):
        observation = episode.call(tool, arguments)
        assert observation.is_error and "error" in json.loads(observation.content)


def test_episodes_are_apart_and_the_oldest_goes_and_is_not_begun_anew():
    episodes = Episodes(most=2)
    first, second = episodes.start("a", CHANGING), episodes.start("b", CHANGING)
    for call in CHANGING.plan.calls:
        first.call(call.tool, call.arguments)
    assert first.judge(CHANGING.plan.answer).success and not second.judge(CHANGING.plan.answer).success
    assert episodes.get("a") is first
    episodes.start("c", CHANGING)
    for lost in ("b", "never started"):
        with pytest.raises(EpisodeLost, match=f"no episode is kept for {lost}: none was started, or 2 others were used since"):
            episodes.get(lost)


def test_an_episode_is_resumed_by_its_calls():
    calls = [(call.tool, json.dumps(call.arguments)) for call in CHANGING.plan.calls]
    resumed = resume(CHANGING, calls[:-1])
    assert resumed.call(*calls[-1]).content == expert_turns(CHANGING)[-2].content
    assert resumed.judge(CHANGING.plan.answer).success


def test_every_parameter_has_a_description_and_no_mark_of_headrace():
    for task in CONTENTS.all_tasks:
        schemas = tool_schemas(task)
        assert [schema["name"] for schema in schemas] == list(task.tools)
        assert "x-grounded" not in json.dumps(schemas)
        assert all(field["description"] for schema in schemas for field in schema["parameters"]["properties"].values())


LOG = "".join(json.dumps({"tool": call.tool, "arguments": call.arguments}) + "\n" for call in CHANGING.plan.calls)
ANSWER = json.dumps({"answer": CHANGING.plan.answer}) + "\n"


def test_a_log_of_calls_is_replayed():
    assert judge_log(CHANGING, LOG + ANSWER).success
    assert not judge_log(CHANGING, "").success
    assert not judge_log(CHANGING, ANSWER).success, "the answer alone"


@pytest.mark.parametrize(
    "forged",
    [
        '{"tool": "close_order"}\n',
        '["answer"]\n',
        "not json\n",
        json.dumps({"tool": CHANGING.tools[0], "arguments": "text"}) + "\n",
        json.dumps({"reward": 1.0}) + "\n",
    ],
)
def test_a_log_that_is_no_log_is_refused(forged):
    assert judge_log(CHANGING, forged + LOG + ANSWER).reward == 0.0


def test_a_missing_log_is_an_error_and_no_reward(tmp_path):
    write(tmp_path, {"train.jsonl": task_lines([CHANGING]), "worlds.jsonl": world_lines([CHANGING.world])})
    log, out = tmp_path / "calls.jsonl", tmp_path / "reward.json"
    command = [sys.executable, "-m", "synth.packages.replay_log", "--data", str(tmp_path), "--log", str(log), "--out", str(out)]
    failed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert failed.returncode != 0 and not out.exists()
    assert failed.stderr.strip() == f"{log}: there is no log of the calls (No such file or directory), so there is no reward"
    log.write_text("")
    assert subprocess.run(command, check=False).returncode == 0
    assert json.loads(out.read_text())["reward"] == 0.0


def test_calls_after_the_answer_do_not_count():
    assert not judge_log(CHANGING, ANSWER + LOG).success


# ---- the data folder ----------------------------------------------------------------------------------------------------------


def write(folder, files):
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return Package(folder)


def test_held_out_tasks_are_in_files_of_their_own(tmp_path):
    assert set(CONTENTS.tasks) == {"train", "eval_out"}
    package = write(tmp_path, {name.removeprefix("data/"): text for name, text in CONTENTS.data("data").items()})
    assert package.splits == ("train", "eval_out")
    for split in package.splits:
        assert {task.use for task in package.tasks(split)} == {split}
        assert package.tasks(split) == list(CONTENTS.tasks[split])
    with pytest.raises(BadInput, match="has no split 'eval_in'"):
        package.tasks("eval_in")
    with pytest.raises(BadInput, match="has no task"):
        package.task("task-unknown")


def test_a_world_of_another_version_is_refused(tmp_path):
    row = json.loads(world_lines(["retail"]))
    with pytest.raises(BadInput, match="this Headrace has version"):
        write(tmp_path, {"train.jsonl": "", "worlds.jsonl": json.dumps({**row, "version": row["version"] + 1})})


def test_a_world_of_the_users_own_travels_as_its_spec(tmp_path):
    world = compile_file(Path("tests/synth/car_workshop.yaml"))
    WORLDS.register(world)
    try:
        contents = of_worlds([world.name], 6, "own")
        data = {name.removeprefix("data/"): text for name, text in contents.data("data").items()}
    finally:
        WORLDS.forget(world.name)
    try:
        package = write(tmp_path, data)
        task = package.tasks()[0]
        assert task.world == world.name and WORLDS[world.name] is not world
        assert played(task).judge(task.plan.answer).success
        assert world.name in contents.licences[0]
    finally:
        WORLDS.forget(world.name)


def test_what_cannot_travel_is_left_out_and_counted():
    talk = CHANGING.model_copy(update={"id": "task-talk", "conversation": {"turns": []}})
    program = CHANGING.model_copy(update={"id": "task-program", "tools": (*CHANGING.tools, "run_python")})
    strange = CHANGING.model_copy(update={"id": "task-strange", "world": "somebody_elses"})
    live_world = world_of(notes_spec())
    live = CHANGING.model_copy(update={"id": "task-live", "world": live_world.name})
    WORLDS.register(live_world)
    try:
        contents = choose("some", [CHANGING, CHANGING, talk, program, strange, live], "", [])
        with pytest.raises(BadInput, match=f"no task can be packaged of world {live_world.name}, a live one"):
            of_worlds([live_world.name], 1, "live")
    finally:
        WORLDS.forget(live_world.name)
    assert contents.all_tasks == [CHANGING]
    assert contents.left_out == {
        "in which the user goes on after the request": 1,
        "that offer run_python, which needs a sandbox": 1,
        "of world somebody_elses, which is not known here": 1,
        f"of world {live_world.name}, a live one: its server, its files and its secrets are on this machine and are not packaged": 1,
    }
    with pytest.raises(BadInput, match="1 in which the user goes on"):
        choose("some", [talk], "", [])


def test_a_repeated_draw_gives_the_same_tasks():
    again = of_worlds(["retail"], 12, "tasks")
    assert task_lines(again.all_tasks) == task_lines(task for task in CONTENTS.all_tasks if task.world == "retail")


def test_two_calls_in_one_message_are_judged_in_their_order():
    calls = tuple(ToolCall(id=f"c{n}", function=FunctionCall(name=CHANGING.tools[0], arguments="{}")) for n in range(2))
    episode = Episode(CHANGING)
    results = [Message(role="tool", tool_call_id=call.id, content=episode.call(CHANGING.tools[0], "{}").content) for call in calls]
    verdict = judge(CHANGING, [Message(role="assistant", tool_calls=calls), *results, Message(role="assistant", content="x")])
    assert verdict.checks["observations"]

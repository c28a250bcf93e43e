"""`headrace chat`: a real tiny policy is talked to in a live world, by a person and by a script, and its calls are seen and judged."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from flows import resolve_policy
from flows.cli import chat as cli_chat
from flows.cli.main import app
from flows.interactive.chat_session import Chat, ChatSettings, Event
from flows.interactive.policy_facts import schooling
from flows.interactive.world_repl import draw_task
from storage.record_rows import tasks_frame
from storage.records import FunctionCall, Message, Task, ToolCall
from storage.releases.release import ReleaseItem, make_release
from storage.store import Store, part_id
from synth.engines.base import ChatAnswer, ChatRequest, EngineFailure
from synth.engines.budget import BudgetSpent
from synth.roles.simulate import expert_trajectory, trajectories_frame
from synth.worlds import WORLDS, make_world
from tests.conftest import Serve
from tests.train.measure.test_compare import part
from tests.train.served_policies import Served
from tests.train.tiny_policies import small_policy
from train.sft.sft import train_sft
from train.spec import SFTSettings
from train.tiny import save_policy

CALL_ME = "u{:02} : please call me back"
SETTINGS = SFTSettings(max_steps=60, batch_size=8, learning_rate=2e-2, warmup_steps=5, weight_decay=0.0)


def drawn(intent: str, slots: set[str], count: int) -> list[Task]:
    """Different tasks in the shop of seed 0."""
    world, rng = make_world("retail", 0), random.Random(0)
    tasks = [draw_task(world, 0, lambda: (intent, frozenset(slots)), "en", rng, canonical=True) for _ in range(count)]
    return list({task.id: task for task in tasks}.values())


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store whose policy `sft1` has learned, in seconds, to call users back, and was promoted; `sft2` was not, and its tokenizer is lost.
    Measured was `sft1`, which called back rightly and closed no order."""
    tasks = drawn("call_back", {"user"}, 150)
    others = drawn("close_order", {"order"}, 2)
    experts = [expert_trajectory(WORLDS[task.world], task) for task in tasks]
    conversations = [expert.messages for expert in experts]
    model, tokenizer = small_policy(conversations)
    train_sft(model, tokenizer, conversations, SETTINGS, seed=0, scratch=tmp_path_factory.mktemp("sft"))
    store = Store(tmp_path_factory.mktemp("chat") / "store")
    save_policy(model.eval(), tokenizer, store.root / "models/1")
    shutil.copytree(store.root / "models/1", store.root / "models/2", ignore=shutil.ignore_patterns("tokenizer*"))
    store.commit(
        [
            store.write("tasks", part_id("tasks", ["all"], {}, 1), tasks_frame([*tasks, *others])),
            store.write("trajectories", part_id("trajectories", ["all"], {}, 1), trajectories_frame(experts, tasks)),
        ]
    )
    items = [
        ReleaseItem(kind="trajectory", item_id=expert.id, task_id=task.id, weight=1.0) for expert, task in zip(experts, tasks, strict=True)
    ]
    release = {"release_id": make_release(store, "seed", {"seed": items}, {}), "split": "seed"}
    parts = []
    for number in (1, 2):
        stage, policy = {"stage_id": f"stage-{number}"}, {"policy_id": f"policy-{number}"}
        spec = json.dumps({"worlds": ["retail", "library"], "language": "en"})
        parts.append(part(store, "stages", [stage | release | {"name": f"sft{number}", "spec": spec}], stage))
        parts.append(part(store, "policies", [stage | policy | {"path": f"models/{number}"}], policy))
        parts.append(part(store, "promotions", [policy | {"position": number, "passed": number == 1}], policy))
    rated = {"evaluation_id": "evaluation-1", "policy_id": "policy-1", "use": "eval_in", "decoding": "greedy", "facet": "all"}
    parts.append(part(store, "evaluations", [rated | {"facet_value": "all", "tasks": 3, "rate": 0.25, "low": 0.1, "high": 0.5}], 1))
    outcomes = [(tasks[0], "success"), *((task, "policy_failure") for task in others)]
    rollouts = [
        {"rollout_id": task.id, "task_id": task.id, "policy_id": "policy-1", "purpose": "eval_in", "outcome": outcome}
        for task, outcome in outcomes
    ]
    store.commit([*parts, part(store, "rollouts", rollouts, 1)])
    return store


def called(store: Store | None, *arguments: str, given: str | None = None, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["chat", *(("--store", str(store.root)) if store else ()), *arguments], input=given)
    assert result.exit_code == code, result.output
    if code:
        assert result.stderr.count("\n") == 1
    return result.output


def events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


# ---- a policy of the cascade -------------------------------------------------------------------------------------------


def test_a_task_is_proposed_sent_and_accepted_by_the_verifier(store: Store) -> None:
    """Given a policy that was measured to call users back, when a script asks for a task and sends it with an empty line, then it is one of
    these, every call is seen with what it brought, the verifier accepts the answer, and the world has changed."""
    told = called(store, "--policy", "latest", "--world", "retail", given="/task\n\n/changes\n/quit\nnever reached\n").splitlines()
    assert told[0] == "policy  sft1 (policy-1), the one promoted last"
    assert told[1].split() == ["0.250", "(0.100", "to", "0.500)", "of", "3", "tasks,", "eval_in,", "greedy"]
    assert told[2] == "world   retail, seed 0, 8 tools"
    (user,) = {found[1] for line in told if (found := re.fullmatch(r"you> (u\d\d) : please call me back", line))}
    at = told.index(f"you> {user} : please call me back")
    assert told[at + 1] == f'  > escalate {{"user": "{user}", "reason": "callback"}}'
    assert told[at + 2].startswith("  < {")
    assert told[at + 3] == f"sft1> {user} will be called."
    assert "the verifier accepts it" in told[at + 5 :]
    assert told[-1] == f"tickets/{user}-callback = 1"


def test_an_answer_to_something_else_is_not_accepted(store: Store) -> None:
    """Given a proposed task, when another user is asked for instead, then the policy does that, and the verifier says what fails."""
    found = events(called(store, "--json", given=f"/task call_back\n{CALL_ME.format(24)}\n{CALL_ME.format(23)}\n"))
    (proposed,) = [event for event in found if event["event"] == "task"]
    verdicts = [event for event in found if event["event"] == "verdict"]
    assert "u24" not in proposed["request"] and "u23" not in proposed["request"]
    assert [verdict["accepted"] for verdict in verdicts] == [False], "the request after it is another conversation, and no task"
    assert "end_state" in verdicts[0]["failed"]


def test_one_request_is_said_and_told_as_json_lines(store: Store) -> None:
    found = events(called(store, "--say", CALL_ME.format(7), "--json"))
    assert [event["event"] for event in found] == ["start", "note", "request", "call", "result", "answer"]
    start, _, _, call, result, answer = found
    assert (start["policy"], start["name"], start["world"], start["seed"], start["requests"]) == ("policy-1", "sft1", "retail", 0, 1)
    assert json.loads(call["arguments"]) == {"user": "u07", "reason": "callback"} and not result["is_error"]
    assert (answer["content"], answer["stopped"], answer["calls"]) == ("u07 will be called.", "", 1)


def test_each_request_is_a_conversation_as_in_training_and_the_world_keeps_what_was_done(store: Store, tmp_path: Path) -> None:
    """Given a policy that learned from conversations of one request, when it is asked twice, then it sees each request alone, both have
    changed the same world, and after a reset nothing has."""
    file = tmp_path / "talks.jsonl"
    lines = [CALL_ME.format(3), CALL_ME.format(4), "/changes", f"/save {file}", "/reset 5", "/changes", CALL_ME.format(3), f"/save {file}"]
    told = called(store, given="\n".join(lines))
    assert "each request is a conversation of its own, as in its training" in told
    changes = told[told.index("sft1> u04 will be called.") : told.index("a fresh world of seed 5")]
    assert "u03" in changes and "u04" in changes
    assert "a fresh world of seed 5\nnothing has changed\n" in told
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row["world_seed"] for row in rows] == [0, 0, 5]
    assert {row["policy"] for row in rows} == {"policy-1"} and {row["world"] for row in rows} == {"retail"}
    assert [[message["role"] for message in row["messages"]] for row in rows] == [["system", "user", "assistant", "tool", "assistant"]] * 3


def test_longer_conversations_than_in_training_are_had_on_demand_with_a_warning(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "talk.jsonl"
    told = called(store, "--requests", "2", given=f"{CALL_ME.format(3)}\n{CALL_ME.format(4)}\n/save {file}\n")
    assert "it learned from conversations of at most 1 request" in told and "as in its training" not in told
    (row,) = [json.loads(line) for line in file.read_text().splitlines()]
    assert sum(message["role"] == "user" for message in row["messages"]) == 2


def test_words_that_it_never_learned_and_worlds_that_it_was_not_trained_in_are_warned_of(store: Store) -> None:
    told = called(store, "--say", "u03 : bananas please")
    assert "it never learned these words, and may take them for others: bananas\n" in told
    assert "never learned" not in called(store, "--say", CALL_ME.format(3))
    warning = "it was not trained in banking, but in retail, library"
    assert warning in called(store, "--world", "banking", "--say", CALL_ME.format(3))
    assert warning not in told


def test_a_request_that_outgrows_the_window_ends_its_conversation_alone(store: Store) -> None:
    """Given a window of 256 tokens, when a request is far longer, then it has no answer, and the next one does."""
    lines = [" ".join([CALL_ME.format(3)] * 60), CALL_ME.format(4)]
    answers = [event for event in events(called(store, "--json", "--requests", "9", given="\n".join(lines))) if event["event"] == "answer"]
    assert [(answer["stopped"], answer["content"]) for answer in answers] == [("window", ""), ("", "u04 will be called.")]


def test_help_names_what_it_can_be_asked_and_a_wrong_command_the_right_one(store: Store) -> None:
    told = called(store, given="/help\n/chanes\n/task close_ordr\n\n/save\n/reset five\n/reset " + "9" * 5000 + "\n/state\n/intents\n")
    resolve_policy = told.split("ask it, for example:\n")[1].split("/help lists")[0].splitlines()
    assert resolve_policy and all(line.endswith("please call me back") for line in resolve_policy), (
        "what it was measured to do, and nothing else"
    )
    assert "no command /chanes; did you mean /changes?" in told
    assert "no intent 'close_ordr' in this world" in told
    assert "nothing was said yet" in told and told.count("write /reset, or /reset SEED") == 2
    assert "  /reset [SEED]" in told
    assert "close_order: " in told and "order (" in told


def test_a_saved_file_is_replaced_by_the_session_that_wrote_it_alone(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "talk.jsonl"
    file.write_text("precious")
    assert "exists; name another file" in called(store, given=f"{CALL_ME.format(3)}\n/save {file}\n", code=2)
    for nowhere in (tmp_path / "no/folder", "~nobody-has-this-name/talk.jsonl"):
        assert f"{nowhere}: nothing can be written there" in called(store, given=f"{CALL_ME.format(3)}\n/save {nowhere}\n", code=2)
    assert file.read_text() == "precious"


def test_latest_is_the_policy_promoted_last_and_not_the_one_trained_last(store: Store) -> None:
    known = schooling(store, "policy-1")
    assert (known.worlds, known.language, known.requests, known.is_promoted) == (("retail", "library"), "en", 1, True)
    assert not schooling(store, "policy-2").is_promoted
    assert schooling(store, "no such policy").worlds == ()
    for named in ((), ("--policy", "latest"), ("--policy", "sft1"), ("--policy", "policy-1")):
        assert "sft1 (policy-1), the one promoted last" in called(store, *named, "--say", CALL_ME.format(3))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--policy", "sft9"), "has no policy sft9; it has policy-1 (sft1), policy-2 (sft2)"),
        (("--policy", "sft2"), "models/2 holds no tokenizer"),
        (("--policy", "llama:70b"), "no engine is called 'llama:70b'"),
        (("--policy", "hf:nowhere"), "nowhere is no Hugging Face model folder"),
        (("--world", "retial"), "no world is called 'retial'; did you mean 'retail'?"),
        (("--world", "moon"), "no world is called 'moon'; there are city, retail"),
        (("--max-usd", "5"), "max_usd has no effect without prices"),
    ],
)
def test_what_cannot_be_talked_to_is_refused_in_a_line(store: Store, arguments: tuple[str, ...], says: str) -> None:
    assert says in called(store, *arguments, "--say", "hello", code=2)


@pytest.mark.parametrize("nothing", ["", " \n"])
def test_to_say_nothing_is_refused(store: Store, nothing: str) -> None:
    assert "--say has nothing to say" in called(store, "--say", nothing, code=2)


def test_ctrl_c_while_a_policy_loads_promises_no_continuation(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object, **more: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(resolve_policy, "answers", interrupted)
    assert called(store, "--say", "hello", code=130).endswith("headrace: interrupted\n")


def test_lines_that_are_no_text_are_refused(store: Store) -> None:
    result = CliRunner().invoke(app, ["chat", "--store", str(store.root)], input=b"close \xff\n")
    assert (result.exit_code, "is not UTF-8 text" in result.stderr) == (2, True), result.output


def test_a_store_without_a_promoted_policy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "no store under runs/" in called(None, "--say", "hello", code=2)
    store = Store(tmp_path / "store")
    store.commit([store.write("tasks", part_id("tasks", ["one"], {}, 1), tasks_frame(drawn("call_back", {"user"}, 1)))])
    assert "has no promoted policy yet: train one first" in called(store, "--say", "hello", code=2)


# ---- an engine by its name ---------------------------------------------------------------------------------------------


def test_an_engine_by_its_name_is_talked_to_within_a_budget(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a server that answers by the plans of tasks, when it is talked to, then it needs no store and is sent the tools; with a store
    its answers are kept, so that the same said again is not sent again; and a budget that is spent ends the chat."""
    tasks = drawn("call_back", {"user"}, 1)
    (text,) = [task.messages[-1].content or "" for task in tasks]
    server = Served(tasks)
    monkeypatch.setenv("OPENAI_BASE_URL", serve(server))
    monkeypatch.chdir(tmp_path)
    engine = ("--policy", "openai:mock", "--world", "retail", "--say", text)
    assert "openai:mock> " in called(None, *engine)
    assert {len(json.loads(body)["tools"]) for body in server.answered} == {8}
    assert not list(tmp_path.iterdir())
    server.answered.clear()
    kept = Store(tmp_path / "store")
    assert called(kept, *engine).count("will be called") == called(kept, *engine).count("will be called") == 1
    assert set(server.answered.values()) == {1}
    assert "the budget is spent" in called(None, *engine, "--max-tokens", "50", code=1)


# ---- what can happen to an answer --------------------------------------------------------------------------------------


class Says:
    """An engine that says these, one after the other; what is to be raised is raised."""

    name = "says"

    def __init__(self, *said: Message | ChatAnswer | BaseException) -> None:
        self._said = iter(said)
        self.asked: list[ChatRequest] = []

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer]:
        self.asked += requests
        said = next(self._said)
        if isinstance(said, BaseException):
            raise said
        return [said if isinstance(said, ChatAnswer) else ChatAnswer(said, "stop", completion_tokens=3)]


def text(content: str) -> Message:
    return Message(role="assistant", content=content)


def call(order: str, number: int = 0) -> Message:
    function = FunctionCall(name="get_order", arguments=json.dumps({"order": order}))
    return Message(role="assistant", tool_calls=(ToolCall(id=f"call_{number}", function=function),))


def talking(engine: Any, **settings: Any) -> tuple[Chat, list[Event]]:
    told: list[Event] = []
    return Chat(engine, "retail", 0, ChatSettings(**settings), told.append), told


def test_an_engine_is_shown_the_whole_conversation_where_nothing_bounds_it() -> None:
    engine = Says(call("o12"), text("It is pending."), text("You are welcome."))
    chat, _ = talking(engine)
    chat.handle("where is o12?")
    chat.handle("thanks")
    assert [message.role for message in engine.asked[-1].messages] == ["system", "user", "assistant", "tool", "assistant", "user"]
    assert len({request.seed for request in engine.asked}) == 3


@pytest.mark.parametrize(
    ("said", "stopped"),
    [
        ((ChatAnswer(text("and so on and"), "length", completion_tokens=16),), "tokens"),
        ((ChatAnswer(text(""), "length"),), "window"),
        ((text('<tool_call>\n{"name": '),), "malformed"),
        ((call("o12"), call("o13", 1), call("o14", 2)), "turns"),
    ],
)
def test_what_is_no_whole_answer_is_said_and_fails_its_task(said: tuple[Message, ...], stopped: str) -> None:
    chat, told = talking(Says(*said), answer_tokens=16, max_turns=3)
    chat.handle("/task order_status")
    chat.handle("")
    answer, verdict = told[-2:]
    assert (answer.kind, answer.said["stopped"]) == ("answer", stopped)
    assert verdict.said["failed"] == ["well_formed" if stopped == "malformed" else "ended_in_time"]
    assert sum(event.kind == "call" for event in told) == answer.said["calls"] == (2 if stopped == "turns" else 0)


def test_a_task_may_take_several_requests_and_is_judged_as_it_stands() -> None:
    """Given an engine that asks back before it does what was expected, when it is told to go on, then the second answer is accepted."""
    chat, told = talking(Says())
    chat.handle("/task call_back")
    (expected,) = told[-1].said["calls"]
    function = FunctionCall(name=expected["name"], arguments=json.dumps(expected["arguments"]))
    made = Message(role="assistant", tool_calls=(ToolCall(id="call_0", function=function),))
    chat.engine = Says(text("Shall I?"), made, text(told[-1].said["answer"]))
    chat.handle("")
    chat.handle("yes")
    assert [event.said["accepted"] for event in told if event.kind == "verdict"] == [False, True]


@pytest.mark.parametrize("raised", [EngineFailure("the server is gone"), KeyboardInterrupt()])
def test_a_person_goes_on_after_a_failure_or_ctrl_c_and_leaves_by_ctrl_c_at_the_prompt(
    raised: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given an answer that was cut off after a call, when the person goes on, then the conversation has the call and its result, whole."""
    engine = Says(call("o12"), raised, text("It is pending."), raised, text("Bye."))
    chat, told = talking(engine)

    def typed(prompt: str, words: Sequence[str]) -> Iterator[str]:
        yield from ("where is o12?", "well?", "thanks", "thanks")
        raise KeyboardInterrupt

    monkeypatch.setattr(cli_chat, "lines", typed)
    cli_chat._with_a_person(chat)
    assert [event.kind for event in told if event.kind in ("answer", "error", "warning")] == [
        "error" if isinstance(raised, EngineFailure) else "warning",
        "answer",
    ] * 2
    said = [(message.role, message.content) for message in engine.asked[-1].messages if message.role in ("user", "assistant")]
    assert said == [("user", "where is o12?"), ("assistant", None), ("user", "well?"), ("assistant", "It is pending."), ("user", "thanks")]


def test_a_script_ends_with_what_fails_and_a_person_with_a_budget_that_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EngineFailure):
        cli_chat._with_a_script(talking(Says(EngineFailure("gone")))[0], ["hello"])
    monkeypatch.setattr(cli_chat, "lines", lambda prompt, words: iter(["hello"]))
    with pytest.raises(BudgetSpent):
        cli_chat._with_a_person(talking(Says(BudgetSpent("spent")))[0])


def test_a_proposed_request_that_was_not_answered_is_sent_again_by_an_empty_line() -> None:
    engine = Says(EngineFailure("gone"), text("I cannot."))
    chat, told = talking(engine)
    chat.handle("/task order_status")
    with pytest.raises(EngineFailure):
        chat.handle("")
    chat.handle("")
    assert [event.kind for event in told[-2:]] == ["answer", "verdict"]
    assert engine.asked[0].messages == engine.asked[1].messages


def test_json_lines_hold_no_byte_that_a_terminal_obeys(capsys: pytest.CaptureFixture[str]) -> None:
    """Given an answer with a control character beyond ASCII, when it is printed as JSON, then it is escaped, and nothing of it is lost."""
    Chat(Says(text("\x9b2J 你好")), "retail", 0, ChatSettings(), cli_chat._print_json).handle("hello")
    shown = capsys.readouterr().out
    assert shown.isascii() and events(shown)[-1]["content"] == "\x9b2J 你好"


def test_what_a_policy_writes_is_shown_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    """Given an answer with escapes of a terminal and markup of ours, when it is shown, then it does nothing to the terminal."""
    chat = Chat(Says(text("\x1b[2J[red]gone[/red]\x07")), "retail", 0, ChatSettings(), cli_chat._Drawing("it", echoes=True))
    chat.handle("hello \x1b[31m")
    shown = capsys.readouterr().out
    assert "\x1b" not in shown and "\x07" not in shown
    assert "[red]gone[/red]" in shown and "you> hello" in shown

"""`headrace chat`: a user or a script talks to a real tiny policy in a live world; its calls are shown and judged."""

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
from flows.cli.interactive import chat as cli_chat
from flows.cli.main import app
from flows.interactive.chat_session import Chat, ChatSettings, Event
from flows.interactive.policy_facts import read_policy_facts
from flows.interactive.world_repl import draw_task
from storage.record_rows import tasks_frame
from storage.records import FunctionCall, Message, Task, ToolCall
from storage.releases.release import ReleaseItem, make_release
from storage.store import Store, part_id
from synth.conversations.expert import expert_trajectory
from synth.engines.base import ChatAnswer, ChatRequest, EngineFailure
from synth.engines.budget import BudgetSpent
from synth.roles.simulate import trajectories_frame
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


def draw_tasks(intent: str, slots: set[str], count: int) -> list[Task]:
    """Different tasks of an intent in the retail world of seed 0."""
    world, rng = make_world("retail", 0), random.Random(0)
    tasks = [draw_task(world, 0, lambda: (intent, frozenset(slots)), "en", rng, canonical=True) for _ in range(count)]
    return list({task.id: task for task in tasks}.values())


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store with two policies. `sft1` learned in seconds to call users back, and was promoted and measured: it succeeded at call_back and
    failed at close_order. `sft2` was not promoted, and its tokenizer is missing."""
    tasks = draw_tasks("call_back", {"user"}, 150)
    others = draw_tasks("close_order", {"order"}, 2)
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


def run_chat(store: Store | None, *arguments: str, stdin: str | None = None, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["chat", *(("--store", str(store.root)) if store else ()), *arguments], input=stdin)
    assert result.exit_code == code, result.output
    if code:
        assert result.stderr.count("\n") == 1
    return result.output


def events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


# ---- a policy of the cascade -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_task_is_proposed_sent_and_accepted_by_the_verifier(store: Store) -> None:
    """Given a policy that succeeded at call_back, when a script asks for a task and sends it with an empty line, then the task is a
    call_back, the call and its result are shown, the verifier accepts the answer, and the world has changed."""
    output = run_chat(store, "--policy", "latest", "--world", "retail", stdin="/task\n\n/changes\n/quit\nnever reached\n").splitlines()
    assert output[0] == "policy  sft1 (policy-1), the last promoted policy"
    assert output[1].strip() == "solves 25 % of 3 held-out tasks (95 %: 10 to 50), greedy"
    assert output[2] == "world   retail, seed 0, 8 tools"
    (user,) = {found[1] for line in output if (found := re.fullmatch(r"you> (u\d\d) : please call me back", line))}
    at = output.index(f"you> {user} : please call me back")
    assert output[at + 1] == f'  > escalate {{"user": "{user}", "reason": "callback"}}'
    assert output[at + 2].startswith("  < {")
    assert output[at + 3] == f"sft1> {user} will be called."
    assert "the verifier accepts it" in output[at + 5 :]
    assert output[-1] == f"tickets/{user}-callback = 1"


def test_an_answer_to_something_else_is_not_accepted(store: Store) -> None:
    """Given a proposed task, when the script asks for another user, then the policy serves that user, and the verifier names what fails."""
    emitted = events(run_chat(store, "--json", stdin=f"/task call_back\n{CALL_ME.format(24)}\n{CALL_ME.format(23)}\n"))
    (proposed,) = [event for event in emitted if event["event"] == "task"]
    verdicts = [event for event in emitted if event["event"] == "verdict"]
    assert "u24" not in proposed["request"] and "u23" not in proposed["request"]
    assert [verdict["accepted"] for verdict in verdicts] == [False], "the next request is a new conversation without a task"
    assert "end_state" in verdicts[0]["failed"]


def test_say_with_json_prints_one_event_per_line(store: Store) -> None:
    emitted = events(run_chat(store, "--say", CALL_ME.format(7), "--json"))
    assert [event["event"] for event in emitted] == ["start", "note", "request", "call", "result", "answer"]
    start, _, _, call, result, answer = emitted
    assert (start["policy"], start["name"], start["world"], start["seed"], start["requests"]) == ("policy-1", "sft1", "retail", 0, 1)
    assert json.loads(call["arguments"]) == {"user": "u07", "reason": "callback"} and not result["is_error"]
    assert (answer["content"], answer["stopped"], answer["calls"]) == ("u07 will be called.", "", 1)


def test_each_request_is_a_conversation_as_in_training_and_the_world_keeps_the_changes(store: Store, tmp_path: Path) -> None:
    """Given a policy that learned from conversations of one request, when it gets two requests, then it sees each request alone, both
    change the same world, and a reset removes the changes."""
    file = tmp_path / "talks.jsonl"
    lines = [CALL_ME.format(3), CALL_ME.format(4), "/changes", f"/save {file}", "/reset 5", "/changes", CALL_ME.format(3), f"/save {file}"]
    output = run_chat(store, stdin="\n".join(lines))
    assert "each request is a separate conversation, as in its training" in output
    changes = output[output.index("sft1> u04 will be called.") : output.index("a fresh world of seed 5")]
    assert "u03" in changes and "u04" in changes
    assert "a fresh world of seed 5\nnothing has changed\n" in output
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row["world_seed"] for row in rows] == [0, 0, 5]
    assert {row["policy"] for row in rows} == {"policy-1"} and {row["world"] for row in rows} == {"retail"}
    assert [[message["role"] for message in row["messages"]] for row in rows] == [["system", "user", "assistant", "tool", "assistant"]] * 3


def test_longer_conversations_than_in_training_are_possible_with_a_warning(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "talk.jsonl"
    output = run_chat(store, "--requests", "2", stdin=f"{CALL_ME.format(3)}\n{CALL_ME.format(4)}\n/save {file}\n")
    assert "the policy learned from conversations of at most 1 request" in output and "as in its training" not in output
    (row,) = [json.loads(line) for line in file.read_text().splitlines()]
    assert sum(message["role"] == "user" for message in row["messages"]) == 2


def test_unknown_words_and_worlds_outside_the_training_give_a_warning(store: Store) -> None:
    output = run_chat(store, "--say", "u03 : bananas please")
    assert "the policy never learned these words and may confuse them with others: bananas\n" in output
    assert "never learned" not in run_chat(store, "--say", CALL_ME.format(3))
    warning = "the policy was not trained in banking, but in retail, library"
    assert warning in run_chat(store, "--world", "banking", "--say", CALL_ME.format(3))
    assert warning not in output


def test_a_request_that_exceeds_the_window_ends_only_its_own_conversation(store: Store) -> None:
    """Given a window of 256 tokens, when a request is far longer, then it has no answer, and the next one does."""
    lines = [" ".join([CALL_ME.format(3)] * 60), CALL_ME.format(4)]
    answers = [
        event for event in events(run_chat(store, "--json", "--requests", "9", stdin="\n".join(lines))) if event["event"] == "answer"
    ]
    assert [(answer["stopped"], answer["content"]) for answer in answers] == [("window", ""), ("", "u04 will be called.")]


def test_help_shows_example_requests_and_a_wrong_command_gets_a_suggestion(store: Store) -> None:
    output = run_chat(store, stdin="/help\n/chanes\n/task close_ordr\n\n/save\n/reset five\n/reset " + "9" * 5000 + "\n/state\n/intents\n")
    examples = output.split("example requests:\n")[1].split("/help lists")[0].splitlines()
    assert examples and all(line.endswith("please call me back") for line in examples), "only needs that the policy succeeded at"
    assert "no command /chanes; did you mean /changes?" in output
    assert "no intent 'close_ordr' in this world" in output
    assert "there is no conversation yet" in output and output.count("write /reset, or /reset SEED") == 2
    assert "  /reset [SEED]" in output
    assert "close_order: " in output and "order (" in output


def test_only_the_session_that_wrote_a_file_may_replace_it(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "talk.jsonl"
    file.write_text("precious")
    assert "exists; name another file" in run_chat(store, stdin=f"{CALL_ME.format(3)}\n/save {file}\n", code=2)
    for nowhere in (tmp_path / "no/folder", "~nobody-has-this-name/talk.jsonl"):
        assert f"{nowhere}: the file cannot be written" in run_chat(store, stdin=f"{CALL_ME.format(3)}\n/save {nowhere}\n", code=2)
    assert file.read_text() == "precious"


def test_latest_is_the_policy_promoted_last_and_not_the_one_trained_last(store: Store) -> None:
    known = read_policy_facts(store, "policy-1")
    assert (known.worlds, known.language, known.requests, known.is_promoted) == (("retail", "library"), "en", 1, True)
    assert not read_policy_facts(store, "policy-2").is_promoted
    assert read_policy_facts(store, "no such policy").worlds == ()
    for named in ((), ("--policy", "latest"), ("--policy", "sft1"), ("--policy", "policy-1")):
        assert "sft1 (policy-1), the last promoted policy" in run_chat(store, *named, "--say", CALL_ME.format(3))


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
def test_a_wrong_policy_world_or_budget_is_refused_in_one_line(store: Store, arguments: tuple[str, ...], says: str) -> None:
    assert says in run_chat(store, *arguments, "--say", "hello", code=2)


@pytest.mark.parametrize("blank", ["", " \n"])
def test_an_empty_say_is_refused(store: Store, blank: str) -> None:
    assert "--say is empty" in run_chat(store, "--say", blank, code=2)


def test_ctrl_c_while_a_policy_loads_promises_no_continuation(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: object, **more: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(resolve_policy, "open_engine", interrupt)
    assert run_chat(store, "--say", "hello", code=130).endswith("headrace: interrupted\n")


def test_lines_that_are_not_utf8_are_refused(store: Store) -> None:
    result = CliRunner().invoke(app, ["chat", "--store", str(store.root)], input=b"close \xff\n")
    assert (result.exit_code, "is not UTF-8 text" in result.stderr) == (2, True), result.output


def test_a_store_without_a_promoted_policy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "no store under runs/" in run_chat(None, "--say", "hello", code=2)
    store = Store(tmp_path / "store")
    store.commit([store.write("tasks", part_id("tasks", ["one"], {}, 1), tasks_frame(draw_tasks("call_back", {"user"}, 1)))])
    assert "has no promoted policy yet: train one first" in run_chat(store, "--say", "hello", code=2)


# ---- an engine by its name ---------------------------------------------------------------------------------------------


def test_a_chat_with_a_named_engine_keeps_to_its_budget(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a server that answers by the plans of tasks, when a script chats, then no store is needed and the server gets the tools.
    With a store its answers are kept, so a repeated request is not sent again. A spent budget ends the chat."""
    tasks = draw_tasks("call_back", {"user"}, 1)
    (text,) = [task.messages[-1].content or "" for task in tasks]
    server = Served(tasks)
    monkeypatch.setenv("OPENAI_BASE_URL", serve(server))
    monkeypatch.chdir(tmp_path)
    engine = ("--policy", "openai:mock", "--world", "retail", "--say", text)
    assert "openai:mock> " in run_chat(None, *engine)
    assert {len(json.loads(body)["tools"]) for body in server.answered} == {8}
    assert not list(tmp_path.iterdir())
    server.answered.clear()
    kept = Store(tmp_path / "store")
    assert run_chat(kept, *engine).count("will be called") == run_chat(kept, *engine).count("will be called") == 1
    assert set(server.answered.values()) == {1}
    assert "the budget is spent" in run_chat(None, *engine, "--max-tokens", "50", code=1)


# ---- incomplete and failed answers --------------------------------------------------------------------------------------


class AnswersInOrder:
    """An engine that returns these answers one after another; it raises those that are exceptions."""

    name = "says"

    def __init__(self, *answers: Message | ChatAnswer | BaseException) -> None:
        self._answers = iter(answers)
        self.requests: list[ChatRequest] = []

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer]:
        self.requests += requests
        answer = next(self._answers)
        if isinstance(answer, BaseException):
            raise answer
        return [answer if isinstance(answer, ChatAnswer) else ChatAnswer(answer, "stop", completion_tokens=3)]


def text(content: str) -> Message:
    return Message(role="assistant", content=content)


def call(order: str, number: int = 0) -> Message:
    function = FunctionCall(name="get_order", arguments=json.dumps({"order": order}))
    return Message(role="assistant", tool_calls=(ToolCall(id=f"call_{number}", function=function),))


def make_chat(engine: Any, **settings: Any) -> tuple[Chat, list[Event]]:
    emitted: list[Event] = []
    return Chat(engine, "retail", 0, ChatSettings(**settings), emitted.append), emitted


def test_an_engine_sees_the_whole_conversation_without_a_limit() -> None:
    engine = AnswersInOrder(call("o12"), text("It is pending."), text("You are welcome."))
    chat, _ = make_chat(engine)
    chat.handle("where is o12?")
    chat.handle("thanks")
    assert [message.role for message in engine.requests[-1].messages] == ["system", "user", "assistant", "tool", "assistant", "user"]
    assert len({request.seed for request in engine.requests}) == 3


@pytest.mark.parametrize(
    ("answers", "stopped"),
    [
        ((ChatAnswer(text("and so on and"), "length", completion_tokens=16),), "tokens"),
        ((ChatAnswer(text(""), "length"),), "window"),
        ((text('<tool_call>\n{"name": '),), "malformed"),
        ((call("o12"), call("o13", 1), call("o14", 2)), "turns"),
    ],
)
def test_an_incomplete_answer_is_reported_and_fails_its_task(answers: tuple[Message, ...], stopped: str) -> None:
    chat, emitted = make_chat(AnswersInOrder(*answers), answer_tokens=16, max_turns=3)
    chat.handle("/task order_status")
    chat.handle("")
    answer, verdict = emitted[-2:]
    assert (answer.kind, answer.data["stopped"]) == ("answer", stopped)
    assert verdict.data["failed"] == ["well_formed" if stopped == "malformed" else "ended_in_time"]
    assert sum(event.kind == "call" for event in emitted) == answer.data["calls"] == (2 if stopped == "turns" else 0)


def test_a_task_may_take_several_requests_and_each_answer_is_judged() -> None:
    """Given an engine that asks back before it acts, when the user confirms, then the second answer is accepted."""
    chat, emitted = make_chat(AnswersInOrder())
    chat.handle("/task call_back")
    (expected,) = emitted[-1].data["calls"]
    function = FunctionCall(name=expected["name"], arguments=json.dumps(expected["arguments"]))
    expected_call = Message(role="assistant", tool_calls=(ToolCall(id="call_0", function=function),))
    chat.engine = AnswersInOrder(text("Shall I?"), expected_call, text(emitted[-1].data["answer"]))
    chat.handle("")
    chat.handle("yes")
    assert [event.data["accepted"] for event in emitted if event.kind == "verdict"] == [False, True]


@pytest.mark.parametrize("raised", [EngineFailure("the server is gone"), KeyboardInterrupt()])
def test_a_user_continues_after_a_failure_or_ctrl_c_and_leaves_by_ctrl_c_at_the_prompt(
    raised: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given an answer cut off after a call, when the user continues, then the conversation holds the call and its result."""
    engine = AnswersInOrder(call("o12"), raised, text("It is pending."), raised, text("Bye."))
    chat, emitted = make_chat(engine)

    def typed(prompt: str, words: Sequence[str]) -> Iterator[str]:
        yield from ("where is o12?", "well?", "thanks", "thanks")
        raise KeyboardInterrupt

    monkeypatch.setattr(cli_chat, "read_lines", typed)
    cli_chat._talk_with_user(chat)
    assert [event.kind for event in emitted if event.kind in ("answer", "error", "warning")] == [
        "error" if isinstance(raised, EngineFailure) else "warning",
        "answer",
    ] * 2
    said = [(message.role, message.content) for message in engine.requests[-1].messages if message.role in ("user", "assistant")]
    assert said == [("user", "where is o12?"), ("assistant", None), ("user", "well?"), ("assistant", "It is pending."), ("user", "thanks")]


def test_a_failure_ends_a_script_and_a_spent_budget_ends_a_chat(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EngineFailure):
        cli_chat._run_script(make_chat(AnswersInOrder(EngineFailure("gone")))[0], ["hello"])
    monkeypatch.setattr(cli_chat, "read_lines", lambda prompt, words: iter(["hello"]))
    with pytest.raises(BudgetSpent):
        cli_chat._talk_with_user(make_chat(AnswersInOrder(BudgetSpent("spent")))[0])


def test_an_empty_line_sends_an_unanswered_proposed_request_again() -> None:
    engine = AnswersInOrder(EngineFailure("gone"), text("I cannot."))
    chat, emitted = make_chat(engine)
    chat.handle("/task order_status")
    with pytest.raises(EngineFailure):
        chat.handle("")
    chat.handle("")
    assert [event.kind for event in emitted[-2:]] == ["answer", "verdict"]
    assert engine.requests[0].messages == engine.requests[1].messages


def test_json_lines_hold_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    """Given an answer with a control character beyond ASCII, when it is printed as JSON, then it is escaped and can be read back."""
    Chat(AnswersInOrder(text("\x9b2J 你好")), "retail", 0, ChatSettings(), cli_chat._print_json).handle("hello")
    shown = capsys.readouterr().out
    assert shown.isascii() and events(shown)[-1]["content"] == "\x9b2J 你好"


def test_what_a_policy_writes_is_shown_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    """Given an answer with terminal escapes and markup, when it is shown, then it appears as plain text."""
    chat = Chat(
        AnswersInOrder(text("\x1b[2J[red]gone[/red]\x07")), "retail", 0, ChatSettings(), cli_chat._TerminalDisplay("it", echoes=True)
    )
    chat.handle("hello \x1b[31m")
    shown = capsys.readouterr().out
    assert "\x1b" not in shown and "\x07" not in shown
    assert "[red]gone[/red]" in shown and "you> hello" in shown

"""The reward service: the verdict of the one who played, from nothing but the request."""

from __future__ import annotations

import copy
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import pytest

from storage.errors import BadInput
from storage.records import Message, Outcome, Task
from synth.blueprints.single_goal import draw_drills
from synth.engines.base import ChatAnswer
from synth.rollouts.episode import Episode
from synth.tasks.solver import expert_messages
from synth.tasks.split import STANDARD
from synth.tasks.verify import Verdict
from synth.worlds import WORLDS
from tests.synth.context_tasks import task_read_on
from tests.synth.conversations import conversations
from tests.synth.retail_tasks import task_of
from train.rl.rewards import AGGREGATES, SCORERS, score_episodes
from train.rl.trajectories import reward_service
from train.rl.trajectories.reward_client import health
from train.rl.trajectories.reward_service import answer, serve

SCORINGS: list[dict[str, Any]] = [
    {"weights": {"success": 1.0}, "collapse": "mean"},
    {"weights": {"graded": 2.0, "plan": 1.0, "grounded": 1.0}, "collapse": "mean"},
    {"weights": {"graded": 1.0, "fidelity": 1.0}, "collapse": "least"},
]
Said = Sequence[tuple[Message, str]]
"""What the assistant says, each with the reason for which it ended."""


def right(said: Sequence[Message]) -> Said:
    return [(message, "stop") for message in said]


def wrong(said: Sequence[Message]) -> Said:
    return [*right(said[:-1]), (Message(role="assistant", content="I cannot say."), "stop")]


def blind(said: Sequence[Message]) -> Said:
    return right(said[-1:])


def cut_short(said: Sequence[Message]) -> Said:
    return [*right(said[:1]), (said[-1], "length")]


def with_unknown_tool(said: Sequence[Message]) -> Said:
    first = next((message for message in said if message.tool_calls), None)
    if first is None:
        return right(said)
    (call, *_) = first.tool_calls
    return right([first.model_copy(update={"tool_calls": (conversations.renamed(call, "no_such_tool"),)}), said[-1]])


ENDS: list[Callable[[Sequence[Message]], Said]] = [right, wrong, blind, cut_short, with_unknown_tool]


@cache
def played_tasks() -> tuple[tuple[Task, tuple[Message, ...]], ...]:
    """Tasks of several worlds, one in a context, and two with several user turns; each with what its expert says."""
    drills = [drill.task for name in ("library", "gen-17") for drill in draw_drills(WORLDS[name], 3, (), STANDARD, seed=1)]
    retail = [task_of(intent, 1) for intent in ("price_of_two", "close_order", "impossible_wish")]
    single = [(task, expert_messages(WORLDS[task.world], task)) for task in (*retail, *drills, task_read_on())]
    several = [(task, conversations.play(task)[0]) for task in conversations.tasks("retail", 4)[:2]]
    return tuple((task, tuple(one for one in messages if one.role == "assistant")) for task, messages in (*single, *several))


def play(task: Task, said: Said, *, is_judged_elsewhere: bool) -> Episode:
    episode = Episode(task, 0, 30, WORLDS[task.world], is_judged_elsewhere=is_judged_elsewhere)
    for message, reason in said:
        if episode.step(ChatAnswer(message, reason)) is None:  # type: ignore[arg-type]
            return episode
    episode.close()
    return episode


def conversation_of(episode: Episode) -> dict[str, Any]:
    return {
        "task": episode.task.model_dump(mode="json"),
        "messages": [message.model_dump(mode="json") for message in episode.messages],
        "changes": episode.changes,
        "outcome": episode.outcome,
        "reward": episode.reward,
    }


@cache
def conversations_of_all() -> tuple[list[Episode], list[dict[str, Any]]]:
    """Every task with every end: as judged by who played, and as the service gets it."""
    pairs = [(task, end(said)) for task, said in played_tasks() for end in ENDS]
    here = [play(task, said, is_judged_elsewhere=False) for task, said in pairs]
    elsewhere = [conversation_of(play(task, said, is_judged_elsewhere=True)) for task, said in pairs]
    return here, json.loads(json.dumps(elsewhere))


@pytest.mark.parametrize("scoring", SCORINGS, ids=["success", "marks", "least"])
def test_the_verdict_is_that_of_the_one_who_played(scoring):
    here, given = conversations_of_all()
    verdicts = answer({"conversations": given, **scoring})["verdicts"]
    weights = scoring["weights"]
    for episode, verdict in zip(here, verdicts, strict=True):
        assert (verdict["outcome"], verdict["reward"]) == (episode.outcome, episode.reward)
        scores = score_episodes([episode], [SCORERS[name] for name in weights], list(weights.values()), AGGREGATES[scoring["collapse"]])
        assert [verdict["learned"]] == scores
    assert {episode.outcome for episode in here} == {Outcome.SUCCESS, Outcome.POLICY_FAILURE}
    assert sum(one["outcome"] is None for one in given) > len(given) / 3, "left to the service"
    assert {verdict["reward"] for verdict in verdicts} >= {0.0, 0.5, 1.0}


def test_an_answer_depends_on_its_request_alone():
    """Given one conversation or many, in any order, again and again, then each has the same verdict, and the request is as it was."""
    _, given = conversations_of_all()
    request = {"conversations": given, **SCORINGS[1]}
    before = copy.deepcopy(request)
    whole = answer(request)["verdicts"]
    assert request == before
    assert answer(request)["verdicts"] == whole
    assert answer({**request, "conversations": given[::-1]})["verdicts"] == whole[::-1]
    assert [answer({**request, "conversations": [one]})["verdicts"][0] for one in given[:6]] == whole[:6]
    assert answer({**request, "conversations": []})["verdicts"] == []


@pytest.mark.parametrize("said", [ZeroDivisionError("judge"), None, Verdict(True, 7.0, {}), Verdict("yes", 1.0, {})])  # type: ignore[arg-type]
def test_a_verifier_that_fails_or_says_nonsense_is_no_failure_of_the_policy(monkeypatch, said):
    """Then it counts as at the one who played: without a reward, and as nothing to learn from."""

    def judge(*_: object) -> Any:
        if isinstance(said, Exception):
            raise said
        return said

    task, messages = played_tasks()[0]
    given = conversation_of(play(task, right(messages), is_judged_elsewhere=True))
    monkeypatch.setattr("synth.rollouts.episode.judge", judge)
    monkeypatch.setattr(reward_service, "judge", judge)
    (verdict,) = answer({"conversations": [given], **SCORINGS[0]})["verdicts"]
    here = play(task, right(messages), is_judged_elsewhere=False)
    assert (verdict["outcome"], verdict["reward"], verdict["learned"]) == (here.outcome, here.reward, None)
    assert here.outcome is Outcome.JUDGE_FAILURE


def test_a_world_that_the_service_does_not_know_is_refused_with_advice():
    task, messages = played_tasks()[0]
    given = conversation_of(play(task, right(messages), is_judged_elsewhere=True))
    given["task"]["world"] = "of_another_store"
    with pytest.raises(BadInput, match="world of_another_store is unknown here: start the service with --store of this stage"):
        answer({"conversations": [given], **SCORINGS[0]})


def test_a_conversation_that_cannot_be_scored_costs_no_other_its_verdict(monkeypatch):
    """Given a scorer that raises at one of two conversations, then that one has no reward, and the verdict says why."""
    (task, messages), (other, answers) = played_tasks()[:2]
    given = [conversation_of(play(one, right(said), is_judged_elsewhere=True)) for one, said in ((task, messages), (other, answers))]
    plain = reward_service.score_rated

    def score(one: Task, *rest: Any) -> Any:
        if one.id == task.id:
            raise ZeroDivisionError("scorer\n")
        return plain(one, *rest)

    expected = answer({"conversations": given, **SCORINGS[1]})["verdicts"]
    monkeypatch.setattr(reward_service, "score_rated", score)
    failed, same = answer({"conversations": given, **SCORINGS[1]})["verdicts"]
    assert failed == {"outcome": Outcome.JUDGE_FAILURE, "reward": None, "learned": None, "failure": "ZeroDivisionError: scorer"}
    assert same == expected[1]
    assert (same["outcome"], same["failure"]) == (Outcome.SUCCESS, "")


# ---- over HTTP -------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    server = serve("127.0.0.1", 0)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def post(url: str, body: bytes) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(urllib.request.Request(url, body)) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def known() -> dict[str, Any]:
    """A conversation whose outcome is known."""
    return conversation_of(play(played_tasks()[0][0], cut_short(played_tasks()[0][1]), is_judged_elsewhere=True))


def bad_requests() -> dict[str, bytes]:
    def request(scoring: dict[str, Any] = SCORINGS[0], **changes: Any) -> bytes:
        return json.dumps({"conversations": [known() | changes], **scoring}).encode()

    return {
        "empty": b"",
        "no JSON": b'{"conversations": [',
        "no UTF-8": b"\xff\xfe{}",
        "a list": b"[]",
        "a number": b"7",
        "nothing asked": b"{}",
        "no weights": json.dumps({"conversations": [], "collapse": "mean"}).encode(),
        "weights no object": request({"weights": ["success"], "collapse": "mean"}),
        "no scorer": request({"weights": {}, "collapse": "mean"}),
        "unknown scorer": request({"weights": {"beauty": 1}, "collapse": "mean"}),
        "weight of nothing": request({"weights": {"success": 0}, "collapse": "mean"}),
        "weight no number": request({"weights": {"success": "much"}, "collapse": "mean"}),
        "unknown collapse": request({"weights": {"success": 1}, "collapse": "most"}),
        "no task": request(task={"id": "t"}),
        "no messages": request(messages=[{"role": "nobody"}]),
        "unknown outcome": request(outcome="triumph"),
        "reward no number": request(reward="much"),
        "changes no object": request(changes=7, outcome=None),
    }


def test_a_bad_request_is_refused_in_one_line_and_the_service_goes_on(url):
    for name, body in bad_requests().items():
        status, content = post(url, body)
        assert status == 400, name
        assert content["error"].startswith("this is no "), name
        assert "\n" not in content["error"], name
        assert len(content["error"]) < 300, name
    status, content = post(url, json.dumps({"conversations": [known()], **SCORINGS[0]}).encode())
    assert (status, len(content["verdicts"])) == (200, 1)
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url) as response:
        assert json.loads(response.read()) == health()


def test_a_request_that_is_no_mapping_of_conversations_is_bad_input():
    with pytest.raises(BadInput, match=r"this is no request for rewards \(KeyError"):
        answer({"weights": {"success": 1}, "collapse": "mean"})


def test_an_error_of_ours_has_a_text_and_may_be_asked_again(url, monkeypatch):
    def broken(*_: object) -> None:
        raise RuntimeError("no\nmemory")

    body = json.dumps({"conversations": [known()], **SCORINGS[0]}).encode()
    with monkeypatch.context() as patch:
        patch.setattr(reward_service, "_read_weights", broken)
        assert post(url, body) == (500, {"error": "RuntimeError: no memory"})
    assert post(url, body)[0] == 200


def test_what_is_billed_is_the_caller_s_own_computing(url, monkeypatch):
    """Given another request that computes meanwhile, then a short one is billed what it took itself."""
    body = json.dumps({"conversations": [known()], **SCORINGS[0]}).encode()
    started, stop = threading.Event(), threading.Event()

    def compute() -> None:
        started.set()
        while not stop.is_set():
            sum(range(1000))

    other = threading.Thread(target=compute, daemon=True)
    plain = reward_service.score_rated

    def waits(*given: Any) -> Any:
        other.start()
        started.wait()
        threading.Event().wait(0.3)
        stop.set()
        return plain(*given)

    monkeypatch.setattr(reward_service, "score_rated", waits)
    assert post(url, body)[1]["seconds"] < 0.1
    other.join()

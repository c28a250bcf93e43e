"""Conversations with vLLM in tokens: what is sent and what becomes of the answers. The server is scripted."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from storage.records import Message, Outcome
from synth.engines.base import ChatAnswer, ChatRequest, EngineFailure
from synth.engines.local.chat_format import ChatFormat
from synth.engines.vllm import Server
from synth.engines.vllm_tokens import VLLMTokenEngine
from synth.rollouts.episode import Episode, play
from tests.conftest import Serve
from tests.synth.engines.scripted_vllm import WINDOW, ScriptedVLLM
from tests.synth.tiny_caller import said, tokenizer
from tests.train.tiny_policies import retail_tasks

FORMAT = ChatFormat(tokenizer())
(END,) = FORMAT.ends
CALL = '<tool_call>\n{"name": "run_tests", "arguments": {"path": "a"}}\n</tool_call>'
RESULT = Message(role="tool", content="ok", tool_call_id="call_0")
Connect = Callable[..., VLLMTokenEngine]


def ids_of(text: str) -> list[int]:
    found: list[int] = FORMAT.tokenizer(text, add_special_tokens=False)["input_ids"]
    return found


def spelt(text: str) -> list[int]:
    """The text as a policy may sample it: a token a character, which no tokenizer would give."""
    return [token for letter in text for token in ids_of(letter)]


@pytest.fixture
def connect(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connect]:
    """An engine of a scripted server; it does not wait between attempts."""
    monkeypatch.setattr("synth.engines.http.wait_s", lambda *_: 0.0)
    with ExitStack() as stack:

        def connected(server: ScriptedVLLM, ended: Callable[[], str] = lambda: "") -> VLLMTokenEngine:
            engine = VLLMTokenEngine(Server(serve(server), ended), "policy", FORMAT, in_flight=4, policy_version="p1")
            return stack.enter_context(engine)

        yield connected


def test_a_prompt_is_what_was_sampled_before_it_token_by_token(connect: Connect) -> None:
    """Given answers whose tokens are not those of their text, then they stand in the next prompt as sampled, and so in the trace."""
    sampled = iter([[*spelt("Run it: "), *ids_of(CALL), END], [*spelt("Done."), END]])
    server = ScriptedVLLM(lambda _: next(sampled))
    answers: list[ChatAnswer] = []
    request = ChatRequest(said("Run the tests"), temperature=0.7, max_tokens=50, seed=11)
    connect(server).converse([request], lambda _, answer: answers.append(answer) or ([RESULT] if len(answers) == 1 else None))
    first, second = answers
    assert (first.finish_reason, second.finish_reason) == ("tool_calls", "stop")
    assert (first.message.tool_calls[0].function.name, second.message.content) == ("run_tests", "Done.")
    assert list(first.token_ids) != ids_of(FORMAT.tokenizer.decode(first.token_ids)), "the negative control: re-tokenising would show"
    suffix = FORMAT.suffix_ids(first.message, [RESULT])
    assert list(second.prompt_ids) == [*first.prompt_ids, *first.token_ids, *suffix]
    assert [body["token_ids"] for body in server.generated] == [list(answer.prompt_ids) for answer in answers]
    assert list(first.prompt_ids) == FORMAT.prompt_ids(request.messages)
    assert second.logprobs == tuple(-0.5 * place for place in range(len(second.token_ids))) and second.policy_version == "p1"


def test_what_is_sampled_from_is_the_policy_at_the_temperature_and_nothing_else(connect: Connect) -> None:
    """And every turn has noise of its own: with one seed for all, equal turns would go alike."""
    sampled = itertools.cycle([[*ids_of(CALL), END]])
    server, turns = ScriptedVLLM(lambda _: next(sampled)), itertools.count()
    request = ChatRequest(said("Run the tests"), temperature=0.7, max_tokens=50, seed=2**63 - 1)
    connect(server).converse([request], lambda *_: [RESULT] if next(turns) < 2 else None)
    settings = [body["sampling_params"] for body in server.generated]
    seeds = {one.pop("seed") for one in settings}
    assert len(seeds) == 3 and all(0 <= seed < 2**63 for seed in seeds)
    expected = {"temperature": 0.7, "stop_token_ids": [END], "ignore_eos": True, "detokenize": False, "logprobs": 0, "max_tokens": 50}
    assert settings == [expected] * 3


def test_an_answer_ends_with_the_end_token_or_is_too_long_and_none_outgrows_the_window(connect: Connect) -> None:
    server = ScriptedVLLM(lambda _: spelt("on and on " * WINDOW))
    engine = connect(server)
    short, opening = ChatRequest(said("Go"), max_tokens=5), ChatRequest(said("x " * WINDOW), max_tokens=5)
    cut, refused = engine.chat([short, opening])
    assert (cut.finish_reason, cut.completion_tokens) == ("length", 5)
    assert (refused.finish_reason, refused.token_ids, len(server.generated)) == ("length", (), 1)
    (last,) = engine.chat([ChatRequest(said("Go"), max_tokens=10 * WINDOW)])
    assert (last.finish_reason, last.prompt_tokens + last.completion_tokens) == ("length", WINDOW)
    answers: list[ChatAnswer] = []
    more = [Message(role="user", content="y " * WINDOW)]
    engine.converse([short], lambda _, answer: answers.append(answer) or more)
    assert len(answers) == 1


@pytest.mark.parametrize(
    "damage",
    [
        lambda choice: choice | {"logprobs": None},
        lambda choice: choice | {"logprobs": {"content": choice["logprobs"]["content"][1:]}},
        lambda choice: choice | {"token_ids": []},
        lambda choice: choice | {"finish_reason": "abort"},
    ],
)
def test_tokens_without_their_log_probabilities_are_no_answer(connect: Connect, damage: Callable[[Any], Any]) -> None:
    server = ScriptedVLLM(lambda _: [*ids_of("Done."), END])
    server.choice = damage
    with pytest.raises(EngineFailure, match="malformed answer"):
        connect(server).chat([ChatRequest(said("Go"), max_tokens=9)])
    assert len(server.generated) == 4, "it was tried again"


def test_a_failure_of_the_server_is_not_the_policys_and_takes_no_other_conversation_with_it(connect: Connect) -> None:
    tasks = retail_tasks("special_service", each=2)
    doomed = [Episode(task, 0, 4) for task in tasks]
    play(connect(ScriptedVLLM(lambda _: [], {"/inference/v1/generate": 500})), doomed, temperature=1.0, seed=0, tools=False)
    assert {(one.outcome, one.reward, one.is_unanswered) for one in doomed} == {(Outcome.INFRA_FAILURE, None, True)}
    assert "the engine is gone" in doomed[0].failure

    broken = FORMAT.prompt_ids(tasks[0].messages)
    server = ScriptedVLLM(lambda ids: [] if ids[: len(broken)] == broken else [*ids_of("Sorry."), END])
    mixed = [Episode(task, 0, 4) for task in tasks]
    play(connect(server), mixed, temperature=1.0, seed=0, tools=False)
    assert [one.outcome for one in mixed] == [Outcome.INFRA_FAILURE, Outcome.POLICY_FAILURE]


def test_a_server_that_has_ended_says_why_and_is_asked_nothing(connect: Connect) -> None:
    server, why = ScriptedVLLM(lambda _: [END]), ["", "vLLM ended with code 1: out of memory"]
    engine = connect(server, lambda: why[-1])
    for act in (lambda: engine.chat([ChatRequest(said("Go"))]), engine.sleep, lambda: engine.load_weights(Path("w"))):
        with pytest.raises(EngineFailure, match=r"^vLLM ended with code 1: out of memory$"):
            act()
    assert server.generated == server.controlled == []


# ---- weights ---------------------------------------------------------------------------------------------------------------


def test_weights_are_taken_between_sleep_and_the_cache_of_prompts(connect: Connect, tmp_path: Path) -> None:
    server = ScriptedVLLM(lambda _: [END])
    engine = connect(server)
    engine.sleep()
    engine.load_weights(tmp_path)
    waking = ["/wake_up?tags=weights", "update_config", "reload_weights", "/wake_up?tags=kv_cache", "/reset_prefix_cache"]
    assert server.controlled == ["/sleep?level=2", *waking]
    assert engine.token_logprobs([5, 7, 9]) == [-7.0, -9.0]


def test_weights_that_were_not_taken_are_an_error(connect: Connect, tmp_path: Path) -> None:
    server = ScriptedVLLM(lambda _: [END], {"reload_weights": 500})
    with pytest.raises(EngineFailure, match=r"vllm:p1: collective_rpc failed: .*Worker failed"):
        connect(server).load_weights(tmp_path)
    assert server.controlled.count("reload_weights") == 1, "it is not tried again: vLLM is half loaded"
    server = ScriptedVLLM(lambda _: [END])
    server.is_cache_reset = False
    with pytest.raises(EngineFailure, match="still computes with earlier weights"):
        connect(server).load_weights(tmp_path)

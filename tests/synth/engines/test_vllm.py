"""A real vLLM server with a tiny model that has memorised a few tool calls: everything that the engine relies on."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from filters.certainty.certainty import DrawsConfig
from storage.record_rows import tasks_frame
from storage.records import FunctionCall, Message
from storage.store import Store, part_id
from synth.engines import structured
from synth.engines.base import ChatAnswer, ChatRequest
from synth.engines.cache import Answers
from synth.engines.openai import OpenAIEngine
from synth.engines.vllm import ENVIRONMENT, VLLMConfig, vllm_engine
from synth.roles.role_engines import RoleEngines, RolesConfig
from synth.run.config import SynthesisConfig
from synth.run.synthesize import synthesize
from tests.conftest import MARK, processes
from tests.synth.probed import drilled
from tests.synth.tiny_caller import ASKED, READ, TALK, TOOLS, make, said
from train.config import CascadeConfig, EngineConfig
from train.measure.probe import tag

pytestmark = pytest.mark.vllm
ROOT = Path(__file__).resolve().parents[3]
ENGINE = ROOT / ENVIRONMENT
MOST_A_STEP = 8_192
"""Beyond the tokens of prompts that vLLM takes in one step by default: 2,048 as a server on a CPU."""


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenAIEngine]:
    """The one vLLM server of the session; that nothing of it is left is checked at its end."""
    if not (ENGINE / ".ready").exists():
        pytest.skip("vLLM is not installed: `make vllm`")
    folder = tmp_path_factory.mktemp("vllm")
    assert make(folder / "tiny") < 0.05
    mark = uuid.uuid4().hex
    config = VLLMConfig(model=str(folder / "tiny"), environment=ENGINE, max_model_len=512)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MARK, mark)
        with vllm_engine(config, folder / "vllm.log") as running:
            patch.undo()  # what other tests start does not belong to it
            yield running
    assert processes(mark) == []


def test_it_makes_the_calls_that_the_model_knows(engine: OpenAIEngine) -> None:
    engine.check(tools=True)
    answers = engine.chat([ChatRequest(said(text), TOOLS, max_tokens=60) for text in ASKED])
    calls = [[(call.function.name, json.loads(call.function.arguments)) for call in answer.message.tool_calls] for answer in answers]
    assert calls == [[known] for known in ASKED.values()]
    assert {answer.finish_reason for answer in answers} == {"tool_calls"}
    assert all(answer.prompt_tokens > 10 and answer.completion_tokens > 10 and answer.latency_s > 0 for answer in answers)
    talk = engine.chat([ChatRequest(said(text), TOOLS, max_tokens=60) for text in TALK])
    assert [answer.message.content for answer in talk] == list(TALK.values())


def test_a_call_may_be_demanded_and_named(engine: OpenAIEngine) -> None:
    choices = ("required", READ.name)
    required, named = engine.chat([ChatRequest(said("Hello"), TOOLS, max_tokens=60, tool_choice=choice) for choice in choices])
    assert required.message.tool_calls and {call.function.name for call in required.message.tool_calls} <= {tool.name for tool in TOOLS}
    (call,) = named.message.tool_calls
    assert call.function.name == READ.name and set(json.loads(call.function.arguments)) == {"path"}


def test_a_schema_is_kept_to(engine: OpenAIEngine) -> None:
    schema = {"type": "object", "properties": {"done": {"enum": ["yes", "no"]}}, "required": ["done"], "additionalProperties": False}
    (found,) = structured.ask(engine, [ChatRequest(said("Hello"), schema=schema, max_tokens=40)])
    assert found.problems == () and found.value in ({"done": "yes"}, {"done": "no"})


def test_a_seed_draws_the_same_again_whatever_is_asked_beside_it(engine: OpenAIEngine) -> None:
    requests = [ChatRequest(said("What now?"), temperature=1.5, seed=seed, max_tokens=12) for seed in range(6)]
    together = [answer.message for answer in engine.chat(requests)]
    assert [engine.chat([request])[0].message for request in requests] == together
    assert len({message.model_dump_json() for message in together}) > 3


def test_more_than_fits_one_step_is_answered_with_its_seeds(engine: OpenAIEngine) -> None:
    """A prompt that the server would split over two steps has ended servers on a CPU."""
    requests = [ChatRequest(said(f"{number} " * 100), temperature=1.0, seed=number, max_tokens=4) for number in range(40)]
    answers = engine.chat(requests)
    assert sum(answer.prompt_tokens for answer in answers) > MOST_A_STEP and all(answer.completion_tokens for answer in answers)
    assert [engine.chat([request])[0].message for request in requests[::8]] == [answer.message for answer in answers[::8]]


def test_what_was_sampled_stands_in_the_next_prompt(engine: OpenAIEngine) -> None:
    """Token by token, though the server renders the conversation anew; and log-probabilities are those of the temperature sampled at."""
    engine.check(traced=True)
    for text in ASKED:
        (call,) = engine.chat([ChatRequest(said(text), TOOLS, max_tokens=60, is_traced=True)])
        assert len(call.prompt_ids) == call.prompt_tokens and len(call.token_ids) == len(call.logprobs) == call.completion_tokens
        result = Message(role="tool", content="ok", tool_call_id=call.message.tool_calls[0].id)
        (after,) = engine.chat([ChatRequest((*said(text), call.message, result), TOOLS, max_tokens=60, is_traced=True)])
        assert after.prompt_ids[: len(call.prompt_ids) + len(call.token_ids)] == (*call.prompt_ids, *call.token_ids)
    requests = [ChatRequest(said("zq xj"), temperature=temperature, max_tokens=1, seed=3, is_traced=True) for temperature in (0.5, 1.0)]
    cool, warm = engine.chat([replace(request, alternatives=20) for request in requests])
    assert sum(cool.entropies) < 0.9 * sum(warm.entropies)
    (untraced,) = engine.chat([ChatRequest(said("Hello"), max_tokens=4)])
    assert untraced.prompt_ids == untraced.token_ids == ()


def test_it_plays_the_assistant_and_the_user_of_a_synthesis(engine: OpenAIEngine, tmp_path: Path) -> None:
    """It knows nothing of these conversations, so every one fails; each for a reason that is stored, and held against whose it is."""
    roles = RolesConfig(assistant=engine.name, user=engine.name, answer_tokens=40, in_flight=8)
    config = SynthesisConfig(
        worlds=("retail",),
        calibration=9,
        subsample=10,
        drills={},
        accepted=5,
        max_proposals=8,
        chinese_share=0,
        veiled_share=0,
        roles=roles,
    )
    answers = Answers(store := Store(tmp_path / "store"))
    with OpenAIEngine(engine.config, answers=answers, name=engine.name) as keeping:
        for engines in (RoleEngines(roles, assistant=keeping, answers=answers), RoleEngines(roles, user=keeping, answers=answers)):
            result = synthesize(store, config.model_copy(update={"seed": int(engines.user is None)}), engines=engines)
            assert (result.proposals, result.accepted, sum(result.rejected.values())) == (8, 0, 8)
        sent = keeping.counts["sent"]
        found = store.query("SELECT outcome, prompt_tokens, reward, failure FROM trajectories JOIN provenance USING (trajectory_id)")
        assert set(found["outcome"]) == {"policy_failure", "user_failure"} and found["prompt_tokens"].sum() > 0
        assert found.filter(outcome="user_failure")["reward"].null_count() == 8 == found["failure"].drop_nulls().len()
        assert store.query("SELECT count(*) AS n FROM answers")["n"][0] == sent > 16
    answers.close()


def test_it_is_probed_as_a_policy_token_by_token(engine: OpenAIEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It knows nothing of the shop, so it succeeds at nothing; what it has sampled is in the store with what stood before it."""
    monkeypatch.setenv("OPENAI_BASE_URL", engine.config.url)
    store = Store(tmp_path / "store")
    tasks = [task.model_copy(update={"blueprint_id": f"b{place}"}) for place, task in enumerate(drilled("retail"))]
    store.commit([store.write("tasks", part_id("tasks", ["drilled"], {}, 1), tasks_frame(tasks))])
    asked = EngineConfig(answer_tokens=40, in_flight=8)
    config = CascadeConfig(worlds=("retail",), probe_tasks=4, draws=DrawsConfig(k=2, most=2), engine=asked)
    policy = tag(store, config, policy=f"openai:{engine.config.model}")
    assert policy is not None
    assert store.query("SELECT policy_id, k, successes FROM tags WHERE purpose = 'probe'").rows() == [(policy.id, 2, 0)] * 4
    found = [json.loads(turns) for turns in store.query("SELECT turns FROM rollouts")["turns"]]
    assert len(found) == 8
    for turns in found:
        assert all(len(turn["token_ids"]) == len(turn["logprobs"]) > 0 and turn["context_ids"] for turn in turns)


def test_log_probabilities_and_entropies_come_step_by_step(engine: OpenAIEngine) -> None:
    known, strange = engine.chat(
        [
            ChatRequest(said("Hello"), max_tokens=8, alternatives=20),
            ChatRequest(said("zq xj"), temperature=2.0, max_tokens=8, alternatives=20),
        ]
    )
    assert len(known.logprobs) == len(known.entropies) == known.completion_tokens
    assert all(value <= 0 for value in known.logprobs) and all(value >= 0 for value in known.entropies)
    assert sum(strange.entropies) > 5 * sum(known.entropies)


def test_what_prompts_share_is_computed_once(engine: OpenAIEngine) -> None:
    def hits() -> float:
        import urllib.request

        with urllib.request.urlopen(f"{engine.config.url.removesuffix('/v1')}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith("vllm:prefix_cache_hits_total"))

    prompt = "The story so far: " + "the tests in tests/unit were run and README.md was shown. " * 12
    before = hits()
    engine.chat([ChatRequest(said(prompt + "Hello"), max_tokens=4)])
    engine.chat([ChatRequest(said(prompt + "Thank you"), max_tokens=4)])
    assert hits() - before >= 128


def test_a_context_that_does_not_fit_is_cut_off(engine: OpenAIEngine) -> None:
    (answer,) = engine.chat([ChatRequest(said("tests " * 2000), max_tokens=4)])
    assert (answer.finish_reason, answer.message.content) == ("length", "")


def spoken(answer: ChatAnswer) -> tuple[str | None, list[FunctionCall]]:
    return answer.message.content, [call.function for call in answer.message.tool_calls]

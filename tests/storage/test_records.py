"""Records: JSON and back without loss, ids that are content, and refusals of what is not a record."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from storage.records import (
    Call,
    Cost,
    Fact,
    Frame,
    FunctionCall,
    Message,
    Outcome,
    Plan,
    RefusalReason,
    Rollout,
    SampledTurn,
    Success,
    Task,
    Tool,
    ToolCall,
    Trajectory,
    canonical_json,
    content_id,
    parse_arguments,
    plain_json,
)

text = st.text(max_size=12)
scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | text
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3), max_leaves=6)
objects = st.dictionaries(text, values, max_size=3)
calls = st.builds(ToolCall, id=text, function=st.builds(FunctionCall, name=text, arguments=objects.map(json.dumps) | text))
messages = st.builds(
    Message,
    role=st.sampled_from(["system", "user", "assistant", "tool"]),
    content=st.none() | text,
    tool_calls=st.lists(calls, max_size=2).map(tuple),
    tool_call_id=st.none() | text,
)
conversations = st.lists(messages, max_size=4).map(tuple)
checks = st.dictionaries(text, st.booleans(), max_size=3)
facts = st.builds(Fact, kind=st.sampled_from(["number", "price", "time", "date", "name", "id", "word"]), value=text)
successes = st.builds(
    Success,
    changes=objects,
    evidence=st.lists(facts, max_size=2).map(tuple),
    facts=st.lists(facts, max_size=2).map(tuple),
    refusal=st.none() | st.sampled_from(RefusalReason),
)
tasks = st.builds(
    Task,
    id=text,
    world=text,
    world_seed=st.integers(0, 2**31),
    intent=text,
    leaf=text,
    frame_id=text,
    slots=objects,
    language=st.sampled_from(["en", "zh"]),
    messages=conversations,
    tools=st.lists(text, max_size=3).map(tuple),
    plan=st.builds(Plan, calls=st.lists(st.builds(Call, tool=text, arguments=objects), max_size=2).map(tuple), answer=text),
    success=successes,
    difficulty=st.integers(-1, 5),
    query_id=st.none() | text,
    blueprint_id=st.none() | text,
    division=st.sampled_from(["seed", "probe", "held_out"]),
    use=st.sampled_from(["train", "eval_in", "eval_out"]),
)
outcomes = st.sampled_from(Outcome).flatmap(lambda o: st.tuples(st.just(o), st.floats(0, 1) if o.is_rated else st.none()))
floats = st.floats(-50, 0)
turns = st.builds(
    SampledTurn,
    token_ids=st.lists(st.integers(0, 2**17), max_size=4).map(tuple),
    logprobs=st.lists(floats, max_size=4).map(tuple),
    policy_version=text,
)


@st.composite
def trajectories(draw):
    outcome, reward = draw(outcomes)
    cost = Cost(prompt_tokens=draw(st.integers(0, 10**6)), usd=draw(st.floats(0, 9)))
    return Trajectory(
        id=draw(text),
        task_id=draw(text),
        messages=draw(conversations),
        outcome=outcome,
        reward=reward,
        checks=draw(checks),
        teacher=draw(text),
        cost=cost,
    )


@st.composite
def rollouts(draw):
    outcome, reward = draw(outcomes)
    return Rollout(
        id=draw(text),
        task_id=draw(text),
        messages=draw(conversations),
        outcome=outcome,
        reward=reward,
        policy_id=draw(text),
        draw=draw(st.integers(0, 99)),
        turns=tuple(draw(st.lists(turns, max_size=2))),
    )


tools = st.builds(Tool, name=text, description=text, parameters=objects, server=text, domain=text, world=st.none() | text)


@given(st.one_of(tasks, trajectories(), rollouts(), tools, messages))
def test_json_and_back_is_exact(record):
    assert type(record).model_validate_json(record.model_dump_json()) == record


@given(messages)
def test_openai_form_and_back_is_exact(message):
    assert Message.model_validate(message.to_openai()) == message
    assert Message.model_validate_json(json.dumps(message.to_openai())) == message


@given(objects, st.randoms())
def test_ids_do_not_depend_on_the_order_of_keys(slots, random):
    shuffled = list(slots.items())
    random.shuffle(shuffled)
    assert Frame(world="w", intent="i", slots=slots).id == Frame(world="w", intent="i", slots=dict(shuffled)).id


@given(values)
def test_json_is_written_as_the_standard_library_writes_it(value):
    assert canonical_json(value) == json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    assert plain_json(value) == json.dumps(value, ensure_ascii=False)


@given(objects, objects)
def test_different_content_has_different_ids(first, second):
    assert (content_id("x", first) == content_id("x", second)) == (canonical_json(first) == canonical_json(second))


@pytest.mark.parametrize("outcome", list(Outcome))
def test_only_a_rated_outcome_has_a_reward(outcome):
    """An infrastructure failure can never be stored as reward 0."""
    reward, wrong = (0.0, None) if outcome.is_rated else (None, 0.0)
    Trajectory(id="t", task_id="k", messages=(), outcome=outcome, reward=reward)
    with pytest.raises(ValidationError, match="reward"):
        Trajectory(id="t", task_id="k", messages=(), outcome=outcome, reward=wrong)


def test_unknown_fields_and_changes_are_refused():
    with pytest.raises(ValidationError):
        Message(role="user", content="x", colour="red")
    with pytest.raises(ValidationError):
        Message(role="user", content="x").content = "y"


def test_arguments_nested_beyond_all_reason_are_no_arguments():
    assert parse_arguments('{"a": ' + "[" * 200_000) is None
    assert parse_arguments('{"a": ' + "[" * 64 + "]" * 64 + "}") is None
    assert parse_arguments('{"a": ' + "[" * 63 + "]" * 63 + "}") is not None
    many = {str(n): [{}] for n in range(100)}
    assert parse_arguments(json.dumps(many)) == many

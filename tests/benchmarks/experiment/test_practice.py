"""The base's practice: nouns are drawn anew, alike everywhere in a conversation, and none is a noun of the experiments."""

from __future__ import annotations

import random

from benchmarks.experiment.domains import THEMES
from benchmarks.experiment.practice import _draw_noun, _with_drawn_nouns
from storage.records import FunctionCall, Message, ToolCall
from synth.worlds.declarative.generate.components import themes


def conversation() -> tuple[Message, ...]:
    call = ToolCall(id="call_0", function=FunctionCall(name="cancel_pet_stay", arguments='{"id": "p001"}'))
    return (
        Message(role="user", content="cancel pet stay; search pet stays\nplease cancel pet stay p001"),
        Message(role="assistant", tool_calls=(call,)),
        Message(role="tool", tool_call_id="call_0", content='{"pet_stays_found": 1, "rows": [{"id": "p001"}]}'),
        Message(role="assistant", content="I have cancelled pet stay p001."),
    )


def test_a_noun_is_replaced_alike_in_words_names_and_results() -> None:
    one, two, three, four = _with_drawn_nouns(conversation(), random.Random(1))

    name = two.tool_calls[0].function.name.removeprefix("cancel_")
    assert name != "pet_stay"
    spoken = name.replace("_", " ")
    assert (one.content or "").startswith(f"cancel {spoken}; search ")
    assert (one.content or "").endswith(f"please cancel {spoken} p001")
    assert four.content == f"I have cancelled {spoken} p001."
    assert "pet_stay" not in (three.content or "")
    assert two.tool_calls[0].function.arguments == '{"id": "p001"}'


def test_other_seeds_draw_other_nouns() -> None:
    drawn = {_with_drawn_nouns(conversation(), random.Random(seed))[3].content for seed in range(20)}

    assert len(drawn) > 15


def test_no_noun_of_an_experiment_is_drawn() -> None:
    rng = random.Random(0)
    kept = {noun.en for theme in themes() if theme.key in THEMES for noun in theme.nouns.values()}

    drawn = {_draw_noun(rng, is_compound=at % 2 == 0) for at in range(5_000)}

    assert drawn.isdisjoint(kept)

"""Nothing that an assistant decides in accepted conversations is a coin flip: what it sees asks for it."""

from __future__ import annotations

import pytest

from storage.records import Message
from synth.conversations.cues import uncued_turns
from tests.synth.conversations.conversations import accepted


@pytest.mark.parametrize("world", ["retail", "city", "banking"])
def test_every_decision_of_an_accepted_conversation_has_a_cue(world: str) -> None:
    counts = [uncued_turns(blueprint, simulated.trajectory.messages) for blueprint, simulated in accepted(world)]
    assert sum(uncued for uncued, _ in counts) == 0
    assert all(learned > 0 for _, learned in counts)


@pytest.mark.parametrize("cue", ["ask_first", "double_check", "together"])
def test_without_the_users_words_the_same_decision_has_none(cue: str) -> None:
    seen = 0
    for blueprint, simulated in accepted("retail", 80):
        if not any(cue in turn.cues for turn in blueprint.turns):
            continue
        silent = [
            message.model_copy(update={"content": "please"}) if message.role == "user" else message
            for message in simulated.trajectory.messages
        ]
        assert uncued_turns(blueprint, silent)[0] > 0
        seen += 1
    assert seen >= 3


def test_a_question_out_of_the_blue_has_none() -> None:
    blueprint, simulated = next((b, s) for b, s in accepted("retail", 80) if not any(t.withholds or t.cues for t in b.turns) and b.nodes)
    said = list(simulated.trajectory.messages)
    first_call = next(at for at, message in enumerate(said) if message.tool_calls)
    said[first_call:first_call] = [Message(role="assistant", content="Shall I look?"), Message(role="user", content="Yes.")]
    assert uncued_turns(blueprint, said)[0] >= 1

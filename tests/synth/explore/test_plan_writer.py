"""Plans and wordings that a language model proposes are executed and admitted; the model here is scripted."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from storage.records import JSON, Message
from synth.engines.base import ChatAnswer, ChatRequest, EngineFailure
from synth.explore.conformance import Measured, measure
from synth.explore.explorer import Exploration, Explorer
from synth.explore.plan_writer import Written, request_for_plan, write_plans
from synth.explore.rewording import has_constants, reword, reworded_count
from synth.worlds.live.live_world import LiveWorld, make_live_world
from synth.worlds.live.lock import FoundIntent, FoundSlot
from synth.worlds.live.plans import PlanCall
from tests.synth.live_servers.specs import NEEDS_BOX, notes_spec

MOVE: dict[str, JSON] = {
    "request": "The note about the ferry is on the wrong shelf: please put it on the kitchen shelf.",
    "calls": [{"tool": "list_notes", "arguments": {}}, {"tool": "move_note", "arguments": {"note_id": "n2", "shelf": "kitchen"}}],
    "asks_for": None,
}
ASK: dict[str, JSON] = {
    "request": "What does note n5 say?",
    "calls": [{"tool": "get_note", "arguments": {"note_id": "n5"}}],
    "asks_for": "text",
}


class Scripted:
    """Scripted: answers in turn, whatever is asked."""

    name = "scripted:in_turn"

    def __init__(self, *answers: JSON, fails_after: int = 100) -> None:
        self._answers, self._fails_after = list(answers), fails_after
        self.requests: list[ChatRequest] = []

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer]:
        given = []
        for request in requests:
            if len(self.requests) == self._fails_after:
                raise EngineFailure("the server is gone")
            self.requests.append(request)
            given.append(ChatAnswer(Message(role="assistant", content=json.dumps(self._answers.pop(0))), "stop", prompt_tokens=10))
        return given


@pytest.fixture(scope="module")
def bare() -> Iterator[tuple[Measured, type[LiveWorld]]]:
    measured = measure(notes_spec())
    world = make_live_world(measured.spec, measured.lock)
    yield measured, world
    world.pool.close()


def explore(world: type[LiveWorld], then: Callable[[Explorer], None]) -> Exploration:
    """A search too short to find much, and what is then proposed."""
    return Explorer(world, seconds=0.3, most=1, then=then).run()


def propose(world: type[LiveWorld], *answers: JSON, count: int = 1) -> tuple[Written, Exploration, Scripted]:
    engine = Scripted(*answers)
    written: list[Written] = []
    found = explore(world, lambda explorer: written.append(write_plans(engine, explorer, count)))
    return written[0], found, engine


@NEEDS_BOX
def test_values_of_a_proposed_plan_are_said_or_looked_up(bare: tuple[Measured, type[LiveWorld]]) -> None:
    written, found, _ = propose(bare[1], MOVE)
    assert (written.asked, written.kept, written.problems) == (1, 1, ())
    (intent,) = (intent for intent in found.intents if any("note about the" in said for said in intent.says))
    assert intent.calls[1].arguments["shelf"] == {"said": "shelf"}
    (at, path) = intent.calls[1].arguments["note_id"]["found"]
    assert (at, list(path)) == (0, [{"where": ["title", "note_entry_title"]}, "note_id"])
    assert intent.says == ("The note about the {note_entry_title} is on the wrong shelf: please put it on the {shelf} shelf.",)


@NEEDS_BOX
def test_a_question_is_answered_by_the_field_that_it_asks_for(bare: tuple[Measured, type[LiveWorld]]) -> None:
    written, found, _ = propose(bare[1], ASK)
    assert written.kept == 1
    assert [intent.told for intent in found.intents if intent.says == ("What does note {note_id} say?",)] == [("text",)]


WRONG: Mapping[str, tuple[dict[str, Any], str]] = {
    "nobody says the shelf": ({"request": "Please tidy up the note about the ferry."}, "shelf: 'kitchen' stands neither in the request"),
    "nothing tells the note apart": ({"request": "Please put it on the kitchen shelf."}, "note_id: 'n2' stands neither in the request"),
    "a call fails": (
        {"request": "Move n99 to kitchen.", "calls": [{"tool": "move_note", "arguments": {"note_id": "n99", "shelf": "kitchen"}}]},
        "call 0 (move_note) cannot be made: move_note: ",
    ),
    "it changes nothing": ({"request": "Show all notes.", "calls": [{"tool": "list_notes", "arguments": {}}]}, "nothing changes"),
    "a call is too many": (
        {
            "request": "Move note n2 to kitchen.",
            "calls": [{"tool": "list_notes", "arguments": {}}, {"tool": "move_note", "arguments": {"note_id": "n2", "shelf": "kitchen"}}],
        },
        "not_minimal",
    ),
    "the field is not there": ({**ASK, "asks_for": "colour"}, "no colour that the request determines"),
    "several have it": (
        {"request": "What is it called?", "calls": [{"tool": "list_notes", "arguments": {}}], "asks_for": "title"},
        "title that the request determines",
    ),
    "braces": ({"request": "Move {n2} to kitchen."}, "holds braces"),
}


@NEEDS_BOX
@pytest.mark.parametrize("wrong", WRONG)
def test_a_plan_that_does_not_hold_goes_back_with_its_reason(bare: tuple[Measured, type[LiveWorld]], wrong: str) -> None:
    changed, said = WRONG[wrong]
    written, _, engine = propose(bare[1], {**MOVE, **changed}, MOVE)
    assert written.kept == 1
    assert said in (engine.requests[1].messages[-1].content or "")


@NEEDS_BOX
def test_the_prompt_shows_tools_and_results_and_no_plan_twice(bare: tuple[Measured, type[LiveWorld]]) -> None:
    import random

    prompts: list[str] = []

    def look(explorer: Explorer) -> None:
        prompts.append(request_for_plan(explorer, random.Random(0)).messages[1].content or "")
        write_plans(Scripted(MOVE), explorer, 1)
        prompts.append(request_for_plan(explorer, random.Random(0)).messages[1].content or "")

    explore(bare[1], look)
    assert "- list_notes (only reads): List all notes." in prompts[0]
    assert "plumber" in prompts[0]
    assert "list_notes then move_note" not in prompts[0]
    assert "list_notes then move_note" in prompts[1]


@NEEDS_BOX
def test_what_was_admitted_before_the_engine_failed_is_kept(bare: tuple[Measured, type[LiveWorld]]) -> None:
    def ask(explorer: Explorer) -> None:
        with pytest.raises(EngineFailure):
            write_plans(Scripted(MOVE, ASK, fails_after=1), explorer, 1) and write_plans(Scripted(fails_after=0), explorer, 1)

    assert any(len(intent.calls) == 2 for intent in explore(bare[1], ask).intents)


@NEEDS_BOX
def test_a_rewording_says_what_the_request_says(bare: tuple[Measured, type[LiveWorld]]) -> None:
    measured, world = bare
    _, found, _ = propose(world, MOVE)
    (intent,) = (intent for intent in found.intents if any("note about the" in said for said in intent.says))
    slot = next(each.name for each in intent.slots if each.name != "shelf")
    lost: dict[str, JSON] = {"requests": [f"Put {{{slot}}} elsewhere."]}
    good = [f"My {{{slot}}} note should be on {{shelf}}.", f"{{shelf}} is where {{{slot}}} belongs, would you?"]
    kind = make_live_world(measured.spec, measured.lock.model_copy(update={"intents": (intent,)}))
    engine = Scripted(lost, {"requests": good})
    ((after,),) = reword(engine, kind)
    assert after.says == (*intent.says, *good)
    assert reworded_count([intent], [after]) == 2
    assert "as often as the request does" in (engine.requests[1].messages[-1].content or "")
    kind.pool.close()


def test_a_request_with_a_constant_is_not_reworded() -> None:
    said, constant = PlanCall(tool="t", arguments={"a": {"said": "a"}}), PlanCall(tool="t", arguments={"a": {"said": "a"}, "loud": True})
    slots = (FoundSlot(name="a", label="a"),)
    intents = [FoundIntent(name="x", calls=(call,), slots=slots, says=("{a}",), examples=({"a": "b"},)) for call in (said, constant)]
    assert [has_constants(intent) for intent in intents] == [False, True]

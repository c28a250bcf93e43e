"""Scripts of simulated users, the checks of their messages, and requests that are lists of instructions."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest

from storage.records import Message
from synth.blueprints.blueprint import Blueprint
from synth.blueprints.draft import PlanFailed
from synth.blueprints.planner import Planner
from synth.clusters.business_clusters import cluster_tools
from synth.roles.user_script import Line, Script, instruction_problems, mentions, script_of, script_problems, shortest
from synth.text.claims import normalise
from synth.worlds import WORLDS, admitted_names


def blueprints_of(world: str, count: int) -> Iterator[Blueprint]:
    clusters = cluster_tools(WORLDS[world].tools)
    for index in range(count):
        rng = random.Random(f"{world} {index}")
        try:
            yield Planner(lambda _: True, chinese_share=0.5).draw_unsteered(rng.choice(clusters), rng)
        except PlanFailed:
            continue


@pytest.mark.parametrize("world", ["retail", "city", *admitted_names(("library", "gen-1..4"))])
def test_what_the_scripted_user_says_keeps_to_the_script(world: str) -> None:
    facts = 0
    for blueprint in blueprints_of(world, 30):
        script, dialogue = script_of(blueprint), list[Message]()
        for turn, plan in zip(range(len(script.lines)), blueprint.turns, strict=True):
            assert script_problems(script, turn, plan.text, dialogue) == []
            facts += len(script.lines[turn].says)
            dialogue += [Message(role="user", content=plan.text), Message(role="assistant", content=plan.reply)]
    assert facts > 10, "and there was something to say"


@pytest.mark.parametrize("world", ["retail", "city", "library"])
def test_what_another_user_says_does_not(world: str) -> None:
    scripts = [script_of(blueprint) for blueprint in blueprints_of(world, 30)]
    pairs = [(one, other) for one, other in itertools.pairwise(scripts) if one.lines[0].says and one.goal != other.goal]

    noticed = [bool(script_problems(one, 0, other.lines[0].text, [])) for one, other in pairs]

    assert len(noticed) >= 10 and sum(noticed) >= 0.9 * len(noticed)


SCRIPT = Script(
    language="en",
    persona="plain",
    goal="- cancel order: order o17, quantity 2",
    lines=(
        Line("Cancel something of mine.", hides=frozenset({"o17"})),
        Line("It is o17, two of them: 2.", says=(frozenset({"o17"}), frozenset({"2"}))),
    ),
    tools=("cancel_order", "readOrder", "buy"),
    parameters=frozenset({"order", "quantity"}),
)


@pytest.mark.parametrize(
    ("turn", "text", "problem"),
    [
        (0, "Please cancel an order of mine.", ""),
        (0, "Please cancel o17.", "do not say 'o17' yet"),
        (0, "", "say something"),
        (0, "word " * 400, "far too long"),
        (0, "请取消我的订单。", "write in English"),
        (0, 'Sure. {"name": "cancel"}', ""),
        (0, '{"name": "cancel"}', "write as a person writes"),
        (0, "<tool_call>", "write as a person writes"),
        (1, "o17 please, 2 pieces", ""),
        (1, "order O17, 2.0 pieces", ""),
        (1, "o171, 2 pieces", "'o17' is missing"),
        (1, "o17, 12 pieces", "'2' is missing"),
        (1, "o17, 2 pieces, like o18", "you bring up 'o18'"),
        (1, "o17, 2 pieces, for 45 dollars", "you bring up '45'"),
        (1, "o17, 2 pieces, on 2026-05-13", "you bring up '2026-05-13'"),
        (1, "Call cancel_order for o17, 2 pieces", "do not name the tool cancel_order"),
    ],
)
def test_every_way_of_leaving_the_script_is_named(turn: int, text: str, problem: str) -> None:
    problems = script_problems(SCRIPT, turn, text, [])
    assert (problems == []) if not problem else any(problem in one for one in problems), problems


def test_of_several_shortest_spellings_every_process_names_the_same() -> None:
    assert {shortest(forms) for forms in itertools.permutations(("to be returned", "due", "到期日"))} == {"due"}


def test_what_was_shown_before_may_be_said_again() -> None:
    shown = [Message(role="assistant", content="There is o18 for 45 dollars.")]
    assert script_problems(SCRIPT, 1, "o17, 2 pieces, not o18 for 45 dollars", shown) == []


def test_what_is_only_pointed_at_is_neither_known_nor_said_though_it_was_shown() -> None:
    chained = [blueprint for blueprint in blueprints_of("retail", 160) if any(goal.hidden for goal in blueprint.goals)]
    assert len(chained) >= 3
    for blueprint in chained:
        script, dialogue, named = script_of(blueprint), list[Message](), 0
        for turn, plan in enumerate(blueprint.turns):
            pointed = [goal for index, goal in enumerate(blueprint.goals) if index in plan.settles and goal.hidden]
            for value in (str(goal.slots[name]) for goal in pointed for name in goal.hidden):
                named += 1
                assert mentions(" ".join(message.content or "" for message in dialogue), {value}), "it was shown"
                assert not mentions(script.goal, {value})
                assert f"do not say {value!r} yet" in script_problems(script, turn, f"{plan.text} I mean {value}.", dialogue)
            assert script_problems(script, turn, plan.text, dialogue) == []
            dialogue += [Message(role="user", content=plan.text), Message(role="assistant", content=plan.reply)]
        assert named


def test_a_number_is_told_in_any_spelling_of_its_value() -> None:
    assert mentions("within 1.5 km", {"1500"}) and mentions("1,500 m", {"1500"}) and not mentions("15 m", {"1500"})
    assert mentions("it is -5 now", {"-5.0"}) and not mentions("it is 5 now", {"-5.0"})


@pytest.mark.parametrize("form", ["555-1234", "2-3", "2024-001", "²", "1.", "-", "--1", "٣", "1e5", "nan"])
def test_what_only_looks_like_a_number_is_told_word_for_word(form: str) -> None:
    said = f"my number is {normalise(form)} , please"
    assert mentions(said, {normalise(form)}) and not mentions("my number is 7, please", {form})


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("I want to cancel order o17 and buy two blue mugs, the cheapest ones.", False),
        ("Could you order two of them? The quantity is 2.", False),
        ("1. a mug\n2. a lamp", False),
        ("Use readOrder to look it up.", True),
        ("Please run cancel_order.", True),
        ("cancel with order=o17 and quantity: 2", True),
        ("1. Look up the order.\n2. Check its status.\n3. Cancel it.", True),
        ("第一步查订单\n第二步看状态\n第三步取消", True),
        ("Step 1 look it up\nStep 2 check it\nStep 3 cancel it", True),
    ],
)
def test_a_list_of_instructions_is_told_from_a_request(text: str, found: bool) -> None:
    assert bool(instruction_problems(text, SCRIPT.tools, SCRIPT.parameters)) is found

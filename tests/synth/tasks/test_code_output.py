"""What a program's output adds to it, and that nobody can make something up by printing it."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from storage.conversation import derive_turns
from storage.records import CODE_TOOL, Call, FunctionCall, Message, Plan, Success, Task, ToolCall
from synth.tasks.code_output import computed_figures
from synth.tasks.verify import judge
from synth.worlds import WORLDS


def printed(text: str, value: str | None = None) -> str:
    return json.dumps({"exit_code": 0, "result_repr": value, "stderr": "", "stdout": text})


@given(st.lists(st.integers(-(10**6), 10**6), min_size=1, max_size=8), st.integers(-(10**9), 10**9))
def test_a_number_counts_unless_the_program_spells_it(values: list[int], result: int) -> None:
    code = f"values = {values}\nprint(f(values))"
    is_spelt = abs(result) in {abs(value) for value in values}

    assert computed_figures(printed(f"{result}\n"), code) == ("" if is_spelt else str(result))


def test_numbers_times_and_days_are_figures_and_nothing_else_is() -> None:
    assert computed_figures(printed("425.33 o17 Anna\n", "'2026-05-30 09:30'"), "print(work())") == "425.33 2026-05-30 09:30"
    assert computed_figures(printed("", "0.1"), "1 / 10") == "0.1"
    assert computed_figures(json.dumps({"error": "the snippet took more than 137 s"}), "print(1)") == ""
    assert computed_figures("137", "print(1)") == computed_figures("[137]", "print(1)") == ""


def test_what_a_program_spells_is_no_figure_however_it_is_written() -> None:
    for code in ("print(137)", "print('137')", "print(1_37)", "print(0x89)", "print(-137)", "print(f'it is 137')", "print(137.0)"):
        assert computed_figures(printed("137\n"), code) == "", code
    assert computed_figures(printed("2026-05-30 09:30\n"), "print('2026-05-30', '09:30')") == ""


def test_large_and_small_figures_are_one_number_each() -> None:
    assert computed_figures(printed(str(137 * 10**15)), "f()") == "137000000000000000"
    assert computed_figures(printed("1e+17 1.37E-05"), "f()") == "0.0000137 100000000000000000"
    assert computed_figures(printed("1e+17"), "print(10.0 ** 17, 1e17)") == ""
    assert computed_figures(printed("9" * 400), "f()") == computed_figures(printed("1e999 inf nan"), "f()") == ""


def test_bytes_spell_and_so_does_what_is_no_program() -> None:
    assert computed_figures(printed("137"), "print(b'137'.decode())") == ""
    for code in ("type X = int; match\nprint(1_37)", "x = " + "-" * 9_000 + "1\nprint(137)", "print("):
        assert "137" not in computed_figures(printed("425 137"), f"{code} # 137"), code[:20]


# ---- in a conversation --------------------------------------------------------------------------------------------------------------

WORLD = "library"


def task(*, answer: str = "", **success: object) -> Task:
    world = WORLDS[WORLD]
    return Task(
        id="task",
        world=WORLD,
        world_seed=0,
        intent=next(iter(world.intents)),
        leaf="a.b.c",
        frame_id="frame",
        slots={},
        language="en",
        messages=(),
        tools=tuple(tool.name for tool in world.tools),
        plan=Plan(calls=(), answer=answer),
        success=Success.model_validate(success),
        difficulty=1,
        division="seed",
    )


def talk(asked: str, made: list[tuple[Call, str]], answer: str) -> list[Message]:
    messages = [Message(role="user", content=asked)]
    for at, (call, result) in enumerate(made):
        function = FunctionCall(name=call.tool, arguments=json.dumps(call.arguments))
        messages.append(Message(role="assistant", tool_calls=(ToolCall(id=f"c{at}", function=function),)))
        messages.append(Message(role="tool", content=result, tool_call_id=f"c{at}"))
    return [*messages, Message(role="assistant", content=answer)]


def program(code: str, text: str) -> tuple[Call, str]:
    return Call(tool=CODE_TOOL, arguments={"code": code}), printed(text)


def read_tool() -> tuple[str, str]:
    """A tool that takes one id, and its parameter."""
    tool = next(tool for tool in WORLDS[WORLD].tools if [*tool.parameters["properties"]] == tool.parameters["required"])
    return tool.name, tool.parameters["required"][0]


def test_an_identifier_that_a_program_prints_grounds_no_argument() -> None:
    name, parameter = read_tool()
    read = (Call(tool=name, arguments={parameter: "o17"}), '{"id":"o17"}')
    for code in ("print('o17')", "print('o' + str(17))", "print(f'o{3 * 4 + 5}')"):
        verdict = judge(WORLDS[WORLD], task(), talk("look", [program(code, "o17\n"), read], "done."), {})
        assert not verdict.checks["grounded_arguments"], code
    assert judge(WORLDS[WORLD], task(), talk("look at o17", [read], "done."), {}).checks["grounded_arguments"]


def test_a_number_that_was_computed_grounds_an_argument_and_one_that_was_only_printed_does_not() -> None:
    name, parameter = next(
        (tool.name, key)
        for tool in WORLDS[WORLD].tools
        for key, schema in tool.parameters["properties"].items()
        if schema["type"] == "integer" and schema.get("x-grounded")
    )
    shown = (Call(tool="any", arguments={}), '{"rows":[{"fee":120},{"fee":305}]}')
    use = (Call(tool=name, arguments={parameter: 425}), '{"done":true}')
    sums, echo = program("print(sum([120, 305]))", "425\n"), program("print(425)", "425\n")

    assert judge(WORLDS[WORLD], task(), talk("use the sum", [shown, sums, use], "done."), {}).checks["grounded_arguments"]
    assert not judge(WORLDS[WORLD], task(), talk("use the sum", [shown, echo, use], "done."), {}).checks["grounded_arguments"]


def test_an_answer_may_say_what_was_computed_and_not_what_was_only_printed() -> None:
    seen = (Call(tool="any", arguments={}), '{"rows":[{"fee":120},{"fee":305}]}')
    sums, echo = program("print(sum([120, 305]))", "425\n"), program("print(730)", "730\n")

    assert judge(WORLDS[WORLD], task(), talk("sum up", [seen, sums], "It is 425."), {}).checks["grounded_answer"]
    assert not judge(WORLDS[WORLD], task(), talk("sum up", [seen, echo], "It is 730."), {}).checks["grounded_answer"]
    assert not judge(WORLDS[WORLD], task(), talk("sum up", [seen], "It is 425."), {}).checks["grounded_answer"]
    for said in ("It is o425.", "It was on 2026-05-30."):
        assert not judge(WORLDS[WORLD], task(), talk("sum up", [program("print(z)", "o425\n")], said), {}).checks["grounded_answer"]


def test_evidence_that_a_program_prints_is_none() -> None:
    fact = {"kind": "word", "value": '"id":"o17"'}
    wanted = task(evidence=[fact])
    row = '{"id":"o17"}'

    assert judge(WORLDS[wanted.world], wanted, talk("look", [(Call(tool="any", arguments={}), row)], "done."), {}).checks["evidence"]
    faked = (Call(tool=CODE_TOOL, arguments={"code": f"print('{row}')"}), row)
    assert not judge(WORLDS[wanted.world], wanted, talk("look", [faked], "done."), {}).checks["evidence"]


def test_a_program_is_fed_by_what_showed_its_numbers_and_feeds_what_it_does_not_spell() -> None:
    shown = (Call(tool="list_loans", arguments={}), '{"rows":[{"id":"o17","fee":120},{"id":"o18","fee":305}]}')
    pay = (Call(tool="pay", arguments={"amount": 425}), '{"done":"pay"}')
    repay = (Call(tool="pay", arguments={"amount": 730, "order": "o99"}), '{"done":"pay"}')
    sums, echo = program("print(sum([120, 305]))", "425\n"), program("print(730, 'o99')", "730 o99\n")
    turns = derive_turns(talk("sum up and pay", [shown, sums, pay, echo, repay], "done."))
    steps = turns[0].steps

    assert [step.mode for step in steps] == ["C", "X", "S", "X", "C", "F"]
    assert [dict(step.calls[0].sources) for step in steps[:-1]] == [
        {},
        {"code": "c0"},
        {"amount": "c1"},
        {"code": "const"},
        {"amount": "const", "order": "const"},
    ]

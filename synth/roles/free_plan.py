"""The plan of a conversation whose tools no world executes, and what is wrong with one before anything is spent on it.

There is no world to ask whether the goal can be reached, so the plan is held to what code can see: its calls keep to their tools'
signatures, every value that the user gives is said by then word for word, every value that a call gives comes from an earlier one, and the
user's turns are a person's. Which results will come is not known; a value from an earlier call is the name of that call.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from storage.records import JSON, Language, Record, Tool, leaves
from synth.blueprints.blueprint import Argument
from synth.clusters.signatures import argument_problems
from synth.roles.over_specified import spelled_out
from synth.roles.user_script import Line, Script, strayed, tells
from synth.text.claims import has_chinese, normalise

_NAMES_ONE = re.compile(r"(?:^|[_-])(?:ids?|uuid|guid)$|(?<=[a-z0-9])I[dD]s?$")


class FreeTurn(Record):
    """One user turn. facts: spellings of what it tells, each in the text word for word."""

    text: str
    facts: tuple[str, ...] = ()


class FreeCall(Record):
    """A call that is expected after turn number `turn` (from 0). An argument of source `node` comes from an earlier call's result, and has
    no value yet."""

    turn: int
    tool: str
    arguments: dict[str, Argument]

    @property
    def parents(self) -> frozenset[int]:
        return frozenset(argument.node for argument in self.arguments.values() if argument.src == "node" and argument.node is not None)


class FreePlan(Record):
    """tools: names of those on offer. calls: in order; whoever carries the plan out may use other arguments."""

    id: str
    cluster_id: str
    domain: str
    language: Language
    persona: str
    goal: str
    tools: tuple[str, ...]
    turns: tuple[FreeTurn, ...]
    calls: tuple[FreeCall, ...]


def plan_problems(plan: FreePlan, tools: Mapping[str, Tool], *, is_chained: bool) -> list[str]:
    """What is wrong with a plan, in words for its author; empty if it may be carried out.

    tools: those on offer, by name. is_chained: some of these feed others, so that the plan is to show it.
    """
    problems = [*_call_problems(plan, tools), *_turn_problems(plan, tools)]
    if is_chained and not any(call.parents for call in plan.calls):
        problems.append("no call uses what an earlier one returned: take at least one argument from an earlier call")
    return problems


def free_script(plan: FreePlan, tools: Mapping[str, Tool]) -> Script:
    """The user's part: each turn says its facts, and the values of calls that its text holds; what comes later is not said yet."""
    given = {normalise(str(value)) for call in plan.calls for value in _said_by_user(call)}
    told = [{normalise(fact) for fact in turn.facts} | {form for form in given if tells(turn.text, {form})} for turn in plan.turns]
    lines = []
    for at, turn in enumerate(plan.turns):
        later = {form for forms in told[at + 1 :] for form in forms}
        so_far = "\n".join(one.text for one in plan.turns[: at + 1])
        hidden = frozenset(form for form in later if not tells(so_far, {form}))
        lines.append(Line(turn.text, tuple(frozenset({form}) for form in sorted(told[at])), hidden))
    return Script(plan.language, plan.persona, plan.goal, tuple(lines), tuple(plan.tools), _parameters(tools))


def is_grounded(tool: Tool, arguments: Mapping[str, JSON], heard: str) -> bool:
    """Whether every identifier among a call's arguments was said or shown before; what an enum or default names needs no source.

    Told by the parameters' names (`order_id`, `chatId`); names, dates and quantities are not checked."""
    named = {name: value for name, value in arguments.items() if _names_one(tool, name, value)}
    return all(tells(heard, {normalise(str(value))}) for _, value in leaves(named) if value is not None and not isinstance(value, bool))


def _names_one(tool: Tool, name: str, value: JSON) -> bool:
    schema = tool.parameters.get("properties", {}).get(name)
    declared = schema if isinstance(schema, Mapping) else {}
    return _NAMES_ONE.search(name) is not None and "enum" not in declared and ("default" not in declared or declared["default"] != value)


def _parameters(tools: Mapping[str, Tool]) -> frozenset[str]:
    return frozenset(name for tool in tools.values() for name in tool.parameters.get("properties", {}))


def _said_by_user(call: FreeCall) -> list[JSON]:
    """Scalars that the call has from the user; truth values are said in no word of their own."""
    given = [value for argument in call.arguments.values() if argument.src == "user" for _, value in leaves(argument.value)]
    return [value for value in given if value is not None and not isinstance(value, bool)]


def _call_problems(plan: FreePlan, tools: Mapping[str, Tool]) -> list[str]:
    problems: list[str] = []
    turn = 0
    for n, call in enumerate(plan.calls):
        tool = tools.get(call.tool)
        if tool is None:
            problems.append(f"call {n}: there is no tool {call.tool}")
            continue
        if not turn <= call.turn < len(plan.turns):
            problems.append(f"call {n}: turn {call.turn} is no turn of the user, or earlier than that of the call before")
        turn = max(turn, call.turn)
        chained = {name for name, argument in call.arguments.items() if argument.src == "node"}
        values = {name: argument.value for name, argument in call.arguments.items()}
        problems += [f"call {n}: {problem}" for problem in argument_problems(tool, values, unknown=chained)]
        said = "\n".join(one.text for one in plan.turns[: call.turn + 1])
        for name, argument in call.arguments.items():
            problems += [f"call {n}: {name} {problem}" for problem in _source_problems(n, tool, name, argument, said)]
    return problems


def _source_problems(n: int, tool: Tool, name: str, argument: Argument, said: str) -> Sequence[str]:
    if argument.src == "node":
        is_earlier = argument.node is not None and 0 <= argument.node < n
        return [] if is_earlier else [f"comes from call {argument.node}, which is no earlier call"]
    if argument.src == "const":
        is_free = is_grounded(tool, {name: argument.value}, said)
        return [] if is_free else [f"identifies something ({argument.value!r}): let the user say it, or take it from an earlier call"]
    scalars = [value for _, value in leaves(argument.value) if not isinstance(value, bool)]
    silent = [value for value in scalars if value is None or not tells(said, {normalise(str(value))})]
    return [f"is {value!r}, which the user has not said word for word by then: write it into the turn's text" for value in silent]


def _turn_problems(plan: FreePlan, tools: Mapping[str, Tool]) -> list[str]:
    script = free_script(plan, tools)
    problems = []
    for at, turn in enumerate(plan.turns):
        found = [*strayed(script, at, turn.text, ()), *spelled_out(turn.text, script.tools, script.parameters)]
        if has_chinese(turn.text) != (plan.language == "zh"):
            found.append(f"write it in {'Chinese' if plan.language == 'zh' else 'English'}")
        problems += [f"turn {at}: {problem}" for problem in found]
    return problems

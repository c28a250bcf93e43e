"""A blueprint: the plan of a trajectory before it runs, and what is wrong with a plan before anything is spent on it (definition P2).

It holds the goals in order, the dependency graph of all calls, the turn plan (who says what when, what is revealed and what withheld),
the disturbances, and when the whole counts as done. Everything that executes it reads it from here; rows of table `blueprints` hold it
as JSON.

How a blueprint is invented is the planner's business (`roles/planner.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from storage.records import JSON, Call, Fact, Language, Record, RefusalReason, Tool
from synth.blueprints.cell import Band, mode_family

MAX_EXTRA_CALLS = 2
"""Calls beyond the planned ones (retries of planned faults apart) that an accepted trajectory may hold."""
MAX_USER_TURNS = 10
"""Turns of the user in a conversation: a plan has no more, and nobody speaks after them."""


class Argument(Record):
    """A value of a call and where it comes from: `user` (said so far), `const` (enum, default, free text), `node` (the result of call
    number `node`), `hidden` (nowhere: such a blueprint is refused)."""

    src: Literal["user", "const", "node", "hidden"]
    value: JSON = None
    node: int | None = None


class Node(Record):
    """Call number `n` of the plan. `after`: calls that must have been made before, by value or by condition.

    is_check: reads again what was read before, to see that an act arrived or that an answer still holds."""

    n: int
    goal: int
    tool: str
    arguments: dict[str, Argument]
    after: tuple[int, ...] = ()
    is_check: bool = False

    def values(self) -> dict[str, JSON]:
        return {name: argument.value for name, argument in self.arguments.items()}


class Goal(Record):
    """One intent with its slots, and what must come of it.

    hidden: slots whose values the user never says: they follow from earlier results ("cancel that one").
    changes: everything that differs from the start of the conversation once this goal is done.
    is_abandoned: the user changes their mind before anything is changed; nothing is owed.
    """

    intent: str
    leaf: str
    frame_id: str
    slots: dict[str, JSON]
    hidden: tuple[str, ...] = ()
    facts: tuple[Fact, ...] = ()
    evidence: tuple[Fact, ...] = ()
    refusal: RefusalReason | None = None
    changes: dict[str, JSON] = Field(default_factory=dict)
    answer: str = ""
    is_abandoned: bool = False


class TurnPlan(Record):
    """One user turn and the assistant's reply to it.

    reveals, withholds: names of facts as `goal.slot`. steps: groups of calls, each group one assistant message. reply: what the
    assistant says at the end of the turn; `is_question` where it asks. settles: goals that the reply answers.
    """

    t: int
    text: str
    reveals: tuple[str, ...] = ()
    withholds: tuple[str, ...] = ()
    steps: tuple[tuple[int, ...], ...] = ()
    reply: str = ""
    is_question: bool = False
    settles: tuple[int, ...] = ()


class Perturbation(Record):
    """What goes wrong on purpose, at call `at`. The world is not touched by it.

    `error`, `empty`: the call's first answer is replaced, by the error `message` or by an empty result. `goal_shift`: the user drops the
    goal that the call belongs to. `noise`: the call's answers hold irrelevant fields besides (`message`, a JSON object). `outage`: before
    it, `tried` is called, a tool that answers nothing but the error `message` in the whole conversation; the plan is the other way."""

    at: int
    kind: Literal["error", "empty", "goal_shift", "noise", "outage"]
    message: str = ""
    tried: Call | None = None


class Blueprint(Record):
    id: str
    cluster_id: str
    world: str
    world_seed: int
    domain: str
    language: Language
    persona: str
    tools: tuple[str, ...]
    """Names of the tools on offer: the cluster's, those of the cluster it was merged with, and distractors."""
    goals: tuple[Goal, ...]
    nodes: tuple[Node, ...]
    turns: tuple[TurnPlan, ...]
    perturbations: tuple[Perturbation, ...] = ()
    operators: tuple[str, ...] = ()
    """Evolution operators that shaped it, in order."""
    merged_with: str | None = None
    """The other cluster, where the conversation is over the union of two."""
    forbidden_tools: tuple[str, ...] = ()
    """State-changing tools of the cluster that the plan does not call: the conversation must not either."""
    code_tool: bool = False
    """Whether `run_python` is among the tools."""
    mode_coarse: str
    """Predicted."""
    complexity: float
    """Predicted CAC."""

    @property
    def family(self) -> str:
        return mode_family(self.mode_coarse)


@dataclass(frozen=True, slots=True)
class Bands:
    """Complexity bands: below `low_to` is low, from `high_from` on is high. Terciles of unsteered trajectories, then frozen."""

    low_to: float
    high_from: float

    def band(self, complexity: float) -> Band:
        return "low" if complexity < self.low_to else "high" if complexity >= self.high_from else "mid"


# ---- static checks --------------------------------------------------------------------------------------------------


def static_checks(blueprint: Blueprint, tools: Mapping[str, Tool], *, bands: Bands | None = None, band: Band | None = None) -> list[str]:
    """What is wrong with a plan; empty if it may be executed.

    Args:
        tools: those on offer, by name.
        bands, band: the complexity that was asked for, if any.
    """
    problems = [*_graph_problems(blueprint), *_call_problems(blueprint, tools), *_turn_problems(blueprint)]
    if not any(goal.changes or goal.facts or goal.refusal for goal in blueprint.goals if not goal.is_abandoned):
        problems.append("nothing to succeed at: no state, no fact, no refusal")
    if bands is not None and band is not None and bands.band(blueprint.complexity) != band:
        problems.append(f"predicted complexity {blueprint.complexity:.1f} is not in band {band}")
    return problems


def _graph_problems(blueprint: Blueprint) -> list[str]:
    problems = []
    for index, node in enumerate(blueprint.nodes):
        if node.n != index:
            problems.append(f"node {index} is numbered {node.n}")
        if any(not 0 <= parent < index for parent in node.after):
            problems.append(f"node {index} comes before what it depends on: the graph has a cycle or an unknown node")
        for name, argument in node.arguments.items():
            if argument.src == "hidden" or (argument.src == "node" and argument.node not in node.after):
                problems.append(f"argument {name} of node {index} cannot be resolved")
    return problems


def _call_problems(blueprint: Blueprint, tools: Mapping[str, Tool]) -> list[str]:
    problems = []
    for node in blueprint.nodes:
        tool = tools.get(node.tool)
        if tool is None:
            problems.append(f"tool {node.tool} is not in the cluster")
            continue
        if node.tool in blueprint.forbidden_tools:
            problems.append(f"tool {node.tool} is forbidden")
        problems += [f"node {node.n}: {problem}" for problem in schema_problems(tool, node.values())]
    for at, tried in ((p.at, p.tried) for p in blueprint.perturbations if p.tried is not None):
        if tried.tool not in tools or any(node.tool == tried.tool for node in blueprint.nodes):
            problems.append(f"tool {tried.tool}, which is down before node {at}, is not on offer, or is needed")
        else:
            problems += [f"before node {at}: {problem}" for problem in schema_problems(tools[tried.tool], tried.arguments)]
    return problems


def schema_problems(tool: Tool, arguments: Mapping[str, JSON]) -> list[str]:
    """How arguments break a tool's signature: missing, unknown, of the wrong type, or outside an enum."""
    properties = tool.parameters.get("properties", {})
    problems = [f"{tool.name} lacks {name}" for name in tool.parameters.get("required", ()) if name not in arguments]
    for name, value in arguments.items():
        schema = properties.get(name)
        if schema is None:
            problems.append(f"{tool.name} has no parameter {name}")
        elif not _is_of_type(value, schema.get("type")) or ("enum" in schema and value not in schema["enum"]):
            problems.append(f"{name} of {tool.name} may not be {value!r}")
    return problems


_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list, tuple),
    "object": (dict,),
}


def _is_of_type(value: JSON, kind: JSON) -> bool:
    python_type = _TYPES.get(kind) if isinstance(kind, str) else None
    if python_type is None:
        return True
    return isinstance(value, python_type) and (kind == "boolean" or not isinstance(value, bool))


def _turn_problems(blueprint: Blueprint) -> list[str]:
    problems: list[str] = []
    if len(blueprint.turns) > MAX_USER_TURNS:
        problems.append(f"the user speaks {len(blueprint.turns)} times, and may {MAX_USER_TURNS} times")
    withheld, revealed, goal_order = set[str](), set[str](), list[int]()
    for turn in blueprint.turns:
        withheld |= set(turn.withholds)
        revealed |= set(turn.reveals)
        if not turn.text.strip():
            problems.append(f"turn {turn.t} says nothing")
        for n in (n for step in turn.steps for n in step):
            if any(parent not in goal_order for parent in blueprint.nodes[n].after):
                problems.append(f"turn {turn.t} calls node {n} before what it depends on")
            goal_order.append(n)
    hidden = {f"{index}.{slot}" for index, goal in enumerate(blueprint.goals) for slot in goal.hidden}
    if missing := sorted(withheld - revealed - hidden):
        problems.append(f"withheld and never revealed: {', '.join(missing)}")
    if sorted(goal_order) != list(range(len(blueprint.nodes))):
        problems.append("the turn plan does not call every node exactly once")
    settled = sorted(goal for turn in blueprint.turns for goal in turn.settles)
    if settled != [index for index, goal in enumerate(blueprint.goals) if not goal.is_abandoned]:
        problems.append("a goal is left unanswered, or answered twice")
    return problems

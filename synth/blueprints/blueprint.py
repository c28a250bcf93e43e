"""A blueprint: the plan of a trajectory before it runs, and the checks of a plan before anything is spent on it (definition P2).

It holds the goals in order, the dependency graph of all calls, the turns (who says what when, what is withheld and revealed), the
disturbances, and the criteria of success. Rows of table `blueprints` hold it as JSON. `planner.py` makes blueprints.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal

from pydantic import Field, field_serializer

from storage.records import JSON, Call, Fact, Language, Record, RefusalReason, Tool
from synth.blueprints.cell import Band, Cell, mode_family
from synth.blueprints.schedule import Cue, GoalTemplate

MAX_EXTRA_CALLS = 2
"""Unplanned calls that an accepted trajectory may hold, besides retries of planned faults."""
MAX_USER_TURNS = 10
"""User turns of a plan and of a conversation, at most."""


class Argument(Record):
    """A value of a call and its source: `user` (stated so far), `const` (enum, default, free text), `node` (the result of call number
    `node`), `hidden` (none: such a blueprint is refused)."""

    src: Literal["user", "const", "node", "hidden"]
    value: JSON = None
    node: int | None = None


class Node(Record):
    """Call number `n` of the plan.

    after: calls that must come before it, for a value or a condition.
    is_check: it repeats an earlier read, to confirm a change or an answer.
    """

    n: int
    goal: int
    tool: str
    arguments: dict[str, Argument]
    after: tuple[int, ...] = ()
    is_check: bool = False

    def values(self) -> dict[str, JSON]:
        return {name: argument.value for name, argument in self.arguments.items()}


class Goal(Record):
    """One intent with its slots, and its criteria of success.

    hidden: slots whose values the user never states: they follow from earlier results ("cancel that one").
    changes: all differences from the start of the conversation after this goal.
    is_abandoned: the user changes their mind before anything is changed; the goal has no criteria.
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

    reveals, withholds: slots as `goal.slot`.
    steps: groups of calls, each group one assistant message.
    reply: the assistant's text at the end of the turn.
    is_question: whether the reply is a question.
    settles: goals that the reply answers.
    cues: what the text asks for beside the goals.
    """

    t: int
    text: str
    reveals: tuple[str, ...] = ()
    withholds: tuple[str, ...] = ()
    steps: tuple[tuple[int, ...], ...] = ()
    reply: str = ""
    is_question: bool = False
    settles: tuple[int, ...] = ()
    cues: tuple[Cue, ...] = ()


class Perturbation(Record):
    """A planned disturbance at call `at`. The world's state does not change by it.

    error: the call's first result is replaced by the error `message`.
    goal_shift: the user drops the goal of the call.
    noise: the call's results hold irrelevant fields (`message`, a JSON object).
    outage: `tried` is called before it; its tool returns the error `message` in the whole conversation, and the plan does without it.
    """

    at: int
    kind: Literal["error", "goal_shift", "noise", "outage"]
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
    """Evolution operators that were applied, in order."""
    merged_with: str | None = None
    """The other cluster, if the conversation uses the tools of two."""
    forbidden_tools: tuple[str, ...] = ()
    """State-changing tools on offer that the plan does not call: the conversation must not call them either."""
    code_tool: bool = False
    """Whether `run_python` is among the tools."""
    template: tuple[GoalTemplate, ...] = ()
    """The template that it was written from, goal by goal: what a sibling is drawn from."""
    is_parallel: bool = False
    """Of the template: whether the user wants independent calls made together."""
    mode_coarse: str
    """Predicted signature m1."""
    complexity: float
    """Predicted CAC."""

    @field_serializer("template")
    def _template_json(self, template: tuple[GoalTemplate, ...]) -> list[dict[str, JSON]]:
        """With sorted slots, so that equal blueprints have equal bytes."""
        return [asdict(goal) | {"slots": sorted(goal.slots)} for goal in template]

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

    def cell(self, domain: str, coarse: str, complexity: float) -> Cell:
        """The cell of a conversation. coarse: its signature of modes."""
        return Cell(domain, mode_family(coarse), self.band(complexity))


# ---- static checks --------------------------------------------------------------------------------------------------


def static_checks(blueprint: Blueprint, tools: Mapping[str, Tool], *, bands: Bands | None = None, band: Band | None = None) -> list[str]:
    """The problems of a plan; empty if it may be executed.

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
    withheld, revealed, called = set[str](), set[str](), list[int]()
    for turn in blueprint.turns:
        withheld |= set(turn.withholds)
        revealed |= set(turn.reveals)
        if not turn.text.strip():
            problems.append(f"turn {turn.t} says nothing")
        for n in (n for step in turn.steps for n in step):
            if any(parent not in called for parent in blueprint.nodes[n].after):
                problems.append(f"turn {turn.t} calls node {n} before what it depends on")
            called.append(n)
    hidden = {f"{index}.{slot}" for index, goal in enumerate(blueprint.goals) for slot in goal.hidden}
    if missing := sorted(withheld - revealed - hidden):
        problems.append(f"withheld and never revealed: {', '.join(missing)}")
    if sorted(called) != list(range(len(blueprint.nodes))):
        problems.append("the turn plan does not call every node exactly once")
    settled = sorted(goal for turn in blueprint.turns for goal in turn.settles)
    if settled != [index for index, goal in enumerate(blueprint.goals) if not goal.is_abandoned]:
        problems.append("a goal is left unanswered, or answered twice")
    return problems

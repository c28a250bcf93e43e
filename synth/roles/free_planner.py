"""The planner that is a language model, for tools that no world executes: it invents a customer, what they say, and the calls expected.

Its answer is JSON of a schema, checked as a plan (`free_plan.py`), and written again with what was wrong with it. What it is asked for (an
edge of the cluster to build around, how many turns and calls, the language) follows from a key, so that two plans over one cluster are
not asked for with the same words.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from storage.records import JSON, Cost, Language, Tool, content_id
from synth.blueprints.blueprint import Argument
from synth.clusters.business_clusters import Cluster
from synth.clusters.edges import Edge
from synth.clusters.signatures import told
from synth.engines.base import ChatRequest, Engine
from synth.engines.structured import ask
from synth.prompts import prompt
from synth.roles.free_plan import FreeCall, FreePlan, FreeTurn, plan_problems
from synth.roles.model_assistant import TEMPERATURE, seed_of
from synth.roles.user_script import LONGEST_TURN

PROMPT = "free_plan"
MOST_TURNS, MOST_CALLS = 4, 8
_MAX_TOKENS = 2_048
_SOURCES = {"user": "user", "call": "node", "const": "const"}


@dataclass(frozen=True, slots=True)
class Brief:
    """What a plan is to be. tools: of the cluster, those on offer. around: an edge between two of them. key: its own text."""

    key: str
    cluster: Cluster
    tools: tuple[Tool, ...]
    language: Language
    around: Edge | None
    turns: int
    calls: int


@dataclass(frozen=True, slots=True)
class Drafted:
    """plan: None where no try was right; problems: then what was wrong with the last. cost: of all tries."""

    plan: FreePlan | None
    problems: tuple[str, ...]
    cost: Cost


def brief(key: str, cluster: Cluster, tools: Sequence[Tool], chinese_share: float) -> Brief:
    """What to ask for, drawn from the key."""
    rng, own = random.Random(key), {tool.id for tool in tools}
    edges = [edge for edge in cluster.edges if edge.source in own and edge.target in own]
    language: Language = "zh" if rng.random() < chinese_share else "en"
    around = rng.choice(edges) if edges else None
    return Brief(key, cluster, tuple(tools), language, around, turns=rng.choice((1, 1, 2, 3)), calls=rng.randint(2, 5))


def drafted(engine: Engine, wanted: Brief, *, repairs: int = 3) -> Drafted:
    """A plan, or why there is none.

    Raises:
        EngineFailure, BudgetSpent: as the engine's `chat`.
    """
    tools = {tool.name: tool for tool in wanted.tools}

    def problems(_: int, value: JSON) -> list[str]:
        return plan_problems(_plan(wanted, value), tools, is_chained=wanted.around is not None)

    messages = prompt(PROMPT).messages(
        tools=told(wanted.tools), language=wanted.language, turns=wanted.turns, calls=wanted.calls, around=wanted.around
    )
    seed = seed_of("free_plan", wanted.key)
    request = ChatRequest(messages, (), TEMPERATURE, _MAX_TOKENS, seed, schema=_schema(sorted(tools)))
    (found,) = ask(engine, [request], repairs=repairs, check=problems)
    return Drafted(None if found.problems else _plan(wanted, found.value), found.problems, found.cost)


def _plan(wanted: Brief, value: JSON) -> FreePlan:
    """The plan in an answer of the schema."""
    return FreePlan(
        id=content_id("blueprint", "free", wanted.key, wanted.cluster.id, value),
        cluster_id=wanted.cluster.id,
        domain=wanted.cluster.domain,
        language=wanted.language,
        persona=value["persona"],
        goal=value["goal"],
        tools=tuple(tool.name for tool in wanted.tools),
        turns=tuple(FreeTurn(text=turn["text"], facts=tuple(turn["facts"])) for turn in value["turns"]),
        calls=tuple(
            FreeCall(turn=call["turn"], tool=call["tool"], arguments={name: _argument(one) for name, one in call["arguments"].items()})
            for call in value["calls"]
        ),
    )


def _argument(given: JSON) -> Argument:
    is_chained = given["from"] == "call"
    return Argument.model_validate(
        {
            "src": _SOURCES[given["from"]],
            "value": None if is_chained else given.get("value"),
            "node": given.get("call") if is_chained else None,
        }
    )


def _object(**properties: JSON) -> dict[str, JSON]:
    """The schema of an object with these properties and no others, all of them required."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _schema(tools: Sequence[str]) -> dict[str, JSON]:
    """Of a planner's answer."""
    argument = _object(**{"from": {"enum": list(_SOURCES)}}) | {"required": ["from"]}
    argument["properties"] |= {"value": {}, "call": {"type": "integer", "minimum": 0}}
    fact: JSON = {"type": "string", "minLength": 1, "maxLength": 200}
    turn = _object(
        text={"type": "string", "minLength": 1, "maxLength": LONGEST_TURN}, facts={"type": "array", "items": fact, "maxItems": 12}
    )
    call = _object(
        turn={"type": "integer", "minimum": 0},
        tool={"enum": list(tools)},
        arguments={"type": "object", "additionalProperties": argument},
    )
    return _object(
        persona={"type": "string", "minLength": 3, "maxLength": 60},
        goal={"type": "string", "minLength": 10, "maxLength": 800},
        turns={"type": "array", "items": turn, "minItems": 1, "maxItems": MOST_TURNS},
        calls={"type": "array", "items": call, "minItems": 2, "maxItems": MOST_CALLS},
    )

"""Worlds for the multi-turn cases of the Berkeley function-calling leaderboard, and the judge of conversations in them.

One idea: a case is a world in a start state, what the user says turn by turn, the tools on offer in each turn, and reference calls. A
conversation is judged against the reference by outcome, after every turn: the same end state, everything observed that the reference
observes, in whatever order, and nothing called that was not on offer, or not with its parameters.
That is stricter than the leaderboard's own checker (`multi_turn_checker`), which lets an observation of an earlier turn stand for one of
this turn, runs calls of tools that are not on offer, and does not look at the state after a turn without reference calls.

The tools are the leaderboard's own classes, from the package bfcl-eval (`pip install --no-deps bfcl-eval mpmath`).
Source: Patil et al., The Berkeley Function Calling Leaderboard, ICML 2025; data of bfcl-eval 2026.3.23.
"""

from __future__ import annotations

import ast
import copy
import importlib
import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

from storage.records import JSON, Call, Tool, canonical_json, parse_arguments
from synth.text.slot_kinds import SlotKind
from synth.worlds import bfcl_files
from synth.worlds.arguments import BadArgument, Checker, compile_checker
from synth.worlds.base import Intent, Observation, World

CATEGORIES = ("base", "miss_func", "miss_param", "long_context")
MORE_TOOLS = "I have updated some more functions you can choose from. What about now?"
"""What the user says where tools were withheld so far, in the leaderboard's words."""
_PACKAGE = "bfcl_eval.eval_checker.multi_turn_eval.func_source_code"
_MODULES = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TwitterAPI": "posting_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "VehicleControlAPI": "vehicle_control",
}
_WITHOUT_STATE = frozenset({"MathAPI"})
_JSON_TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": "string"}


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a case.

    said: the user's message.
    tools: names of the tools that are offered in this turn.
    calls: the reference calls; empty if nothing can be done yet.
    """

    said: str
    tools: frozenset[str]
    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """One case of the leaderboard: a conversation of several turns.

    classes: names of the classes that the tools belong to.
    config: the start state of each class, by its name.
    """

    id: str
    category: str
    turns: tuple[Turn, ...]
    classes: tuple[str, ...]
    config: Mapping[str, Any]
    tools: tuple[Tool, ...]


class BFCLWorld(World):
    """The tools of one case (`case.tools`). Its state: the public attributes of the classes, as their own checker compares them."""

    name = "bfcl"
    version = 1
    intents: ClassVar[Mapping[str, Intent]] = {}
    kinds: ClassVar[Mapping[str, SlotKind]] = {}
    tools = ()

    def __init__(self, case: Case) -> None:
        self.case = case
        self._checkers = {tool.name: _compile_name_checker(tool.parameters) for tool in case.tools}
        super().__init__(0)

    def reset(self, seed: int) -> None:
        """The start state of the case, whatever the seed."""
        self._objects: dict[str, Any] = {}
        for name in self.case.classes:
            instance = getattr(importlib.import_module(f"{_PACKAGE}.{_MODULES[name]}"), name)()
            if name not in _WITHOUT_STATE:
                instance._load_scenario(copy.deepcopy(self.case.config.get(name, {})), long_context=self.case.category == "long_context")
            self._objects[name] = instance
        self._start = _flat(self.state())

    def call(self, tool: str, arguments: str | Mapping[str, JSON]) -> Observation:
        """Executes one call; what the leaderboard's code raises is an error observation."""
        values = parse_arguments(arguments) if isinstance(arguments, str) else dict(arguments)
        if tool not in self._checkers:
            return _error(f"there is no tool {tool}")
        if values is None:
            return _error("the arguments are no JSON object")
        if problem := self.argument_problem(tool, values):
            return _error(problem)
        holder = next(one for one in self._objects.values() if hasattr(type(one), tool))
        try:
            result = getattr(holder, tool)(**copy.deepcopy(values))  # some keep what they are given, and change it later
        except Exception as error:  # as the leaderboard does: whatever its code raises is the call's result
            return _error(str(error))
        text = result if isinstance(result, str) else json.dumps(result, default=str, ensure_ascii=False)
        return Observation(text, is_error=isinstance(result, dict) and "error" in result)

    def argument_problem(self, tool: str, arguments: Mapping[str, JSON]) -> str:
        """Which argument is missing or unknown, as a message; empty where the names are right."""
        try:
            self._checkers[tool](arguments)
        except BadArgument as problem:
            return str(problem)
        return ""

    def state(self) -> dict[str, JSON]:
        return {name: _plain(vars(one)) for name, one in self._objects.items()}

    def snapshot(self) -> object:
        return copy.deepcopy(self._objects)

    def restore(self, snapshot: object) -> None:
        assert isinstance(snapshot, dict)
        self._objects = copy.deepcopy(snapshot)

    def changes(self) -> dict[str, JSON]:
        now = _flat(self.state())
        gone: dict[str, JSON] = dict.fromkeys(self._start.keys() - now.keys())
        return gone | {path: value for path, value in now.items() if path not in self._start or self._start[path] != value}

    def draw_slots(self, intent: str, slot_names: frozenset[str], rng: random.Random) -> dict[str, JSON]:
        """Raises KeyError: always; a case is one job, and has no intents to draw from."""
        raise KeyError(intent)


def cases(categories: Sequence[str] = CATEGORIES) -> list[Case]:
    """The multi-turn cases of these categories, in the order of the files.

    Raises:
        BadInput: the package bfcl-eval is not installed.
    """
    result: list[Case] = []
    for category in categories:
        name = f"BFCL_v*_multi_turn_{category}.json"
        questions, answers = bfcl_files.files(name), bfcl_files.files(f"possible_answer/{name}")
        for path, gold in zip(questions, answers, strict=True):
            references = {one["id"]: one["ground_truth"] for one in bfcl_files.cases(gold)}
            result += [_case(one, category, references[one["id"]]) for one in bfcl_files.cases(path)]
    return result


def _case(row: Mapping[str, Any], category: str, reference: Sequence[Sequence[str]]) -> Case:
    left_out = set(row.get("excluded_function", ()))
    tools = tuple(tool for name in row["involved_classes"] for tool in _tools(name) if tool.name not in left_out)
    later = {int(turn): frozenset(names) for turn, names in row.get("missed_function", {}).items()}
    signatures = {tool.name: tool.parameters for tool in tools}
    turns = []
    for index, (messages, calls) in enumerate(zip(row["question"], reference, strict=True)):
        withheld = frozenset[str]().union(*(names for turn, names in later.items() if turn > index))
        request = "\n".join(message["content"] for message in messages) or MORE_TOOLS
        turns.append(Turn(request, frozenset(signatures) - withheld, tuple(_call(text, signatures) for text in calls)))
    return Case(row["id"], category, tuple(turns), tuple(row["involved_classes"]), row["initial_config"], tools)


@cache
def _tools(class_name: str) -> tuple[Tool, ...]:
    """The documented tools of a class."""
    documents = {path.stem: path for path in bfcl_files.files(bfcl_files.MULTI_TURN_TOOLS)}
    lines = documents[_MODULES[class_name]].read_text(encoding="utf-8").splitlines()
    return tuple(
        Tool(
            name=row["name"],
            description=row["description"],
            parameters=_schema(row["parameters"]),
            server=class_name,
            domain="bfcl",
        )
        for row in map(json.loads, filter(None, lines))
    )


def _schema(value: Any) -> Any:
    """A schema of the leaderboard's as JSON schema."""
    if isinstance(value, list):
        return [_schema(item) for item in value]
    if not isinstance(value, dict):
        return value
    converted = {key: _schema(item) for key, item in value.items()}
    if isinstance(converted.get("type"), str):
        converted["type"] = _JSON_TYPES.get(converted["type"], converted["type"])
    return converted


def _call(text: str, signatures: Mapping[str, Any]) -> Call:
    """A reference call, which stands there as Python: `sort('final_report.pdf')`."""
    node = ast.parse(text, mode="eval").body
    assert isinstance(node, ast.Call) and isinstance(node.func, ast.Name), text
    names = list(signatures[node.func.id]["properties"]) if node.func.id in signatures else []
    arguments = {name: ast.literal_eval(value) for name, value in zip(names, node.args, strict=False)}
    arguments |= {keyword.arg or "": ast.literal_eval(keyword.value) for keyword in node.keywords}
    return Call(tool=node.func.id, arguments=json.loads(json.dumps(arguments)))


def _compile_name_checker(parameters: Mapping[str, Any]) -> Checker:
    """A checker of the arguments' names; their values are checked by the leaderboard's code."""
    any_values: dict[str, JSON] = {name: {} for name in parameters["properties"]}
    return compile_checker({"properties": any_values, "required": parameters.get("required", []), "additionalProperties": False})


def _error(text: str) -> Observation:
    return Observation(canonical_json({"error": text}), is_error=True)


def _plain(value: Any) -> JSON:
    """A state as JSON. An object becomes its public attributes, without the reference to its parent."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items() if not str(key).startswith("_")}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted((_plain(item) for item in value), key=str)
    if hasattr(value, "__dict__"):
        return _plain({key: item for key, item in vars(value).items() if key != "parent"})
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)


def _flat(value: JSON, path: str = "") -> dict[str, JSON]:
    """The scalars and empty containers of a state by their "/"-joined paths."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    leaves: dict[str, JSON] = {}
    for key, item in items:
        leaves |= _flat(item, f"{path}/{key}" if path else str(key))
    return leaves or {path: value}


# ---- judging -------------------------------------------------------------------------------------------------------------------


def judge_conversation(case: Case, calls_by_turn: Sequence[Sequence[Call]]) -> dict[str, bool]:
    """The checks of a conversation, by name; all hold where it did what the reference does.

    Args:
        calls_by_turn: calls by turn, as many turns as the case has.

    Raises:
        ValueError: they are more turns or fewer.
    """
    if len(calls_by_turn) != len(case.turns):
        raise ValueError(f"{case.id} has {len(case.turns)} turns; here are {len(calls_by_turn)}")
    played, reference = BFCLWorld(case), BFCLWorld(case)
    checks = dict.fromkeys(("known_tools", "well_formed", "observations", "end_state"), True)
    for turn, calls in zip(case.turns, calls_by_turn, strict=True):
        checks["known_tools"] &= all(call.tool in turn.tools for call in calls)
        checks["well_formed"] &= all(not played.argument_problem(call.tool, call.arguments) for call in calls if call.tool in turn.tools)
        expected = Counter(reference.call(call.tool, call.arguments).content for call in turn.calls)
        checks["observations"] &= expected <= Counter(
            played.call(call.tool, call.arguments).content for call in calls if call.tool in turn.tools
        )
        checks["end_state"] &= played.state() == reference.state()
    return checks

"""The tools of a conversation that no world executes: an engine plays them.

Arguments are checked first, by code, against the tool's signature; a bad call is an error observation and asks nobody. Then the engine is
asked for the result, with all that it answered before in this conversation, so that what it invented once stays true. The same call has
the same result, unless a call in between changed something. It plays no failures: an error is always the caller's own, so nobody is blamed
for a whim. What it says is invented; nothing here can tell whether a real server would answer so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from storage.records import JSON, Cost, Message, Tool, ToolCall, canonical_json, is_error, parse_arguments, plain_json
from synth.clusters.signatures import argument_problems, is_checkable, told
from synth.engines.base import ChatRequest, Engine
from synth.engines.structured import ask
from synth.prompts import prompt
from synth.roles.base import ToolsFailed
from synth.roles.model_assistant import seed_of

PROMPT = "tools"
LONGEST_RESULT = 4_000
"""Characters."""
_REMEMBERED = 40_000
"""Characters of earlier calls and results that the engine is shown, the latest ones."""
MAX_TOKENS = 2_048
_TOLD = 3
_OBJECT: Mapping[str, JSON] = {"type": "object"}


class SimulatedTools:
    """One conversation's tools.

    Args:
        tools: those on offer (`is_offerable`).
        seed: of the conversation, any text that is its own.
        repairs: how often a result that is none may be written again.
    """

    def __init__(self, engine: Engine, tools: Sequence[Tool], seed: str, *, repairs: int = 2) -> None:
        self._engine, self._seed, self._repairs = engine, seed, repairs
        self._tools = {tool.name: tool for tool in tools}
        self._known: dict[str, str] = {}
        self._earlier: list[tuple[str, str]] = []
        self.cost = Cost()

    def run(self, call: ToolCall) -> Message:
        """What a call returns, or what is wrong with it.

        Raises:
            ToolsFailed: the engine gave no result of the form asked for. EngineFailure, BudgetSpent: as the engine's `chat`.
        """
        tool, arguments = self._tools.get(call.function.name), parse_arguments(call.function.arguments)
        if tool is None or arguments is None:
            return _observed(call, canonical_json({"error": "no such tool" if tool is None else "arguments are no JSON object"}))
        if problems := argument_problems(tool, arguments):
            return _observed(call, canonical_json({"error": "; ".join(problems[:_TOLD])}))
        key = f"{tool.name} {canonical_json(arguments)}"
        if key not in self._known:
            result = self._played(tool, key)
            if tool.changes_state:
                self._known.clear()
            else:
                self._known[key] = result
            self._earlier.append((key, result))
            return _observed(call, result)
        return _observed(call, self._known[key])

    def _played(self, tool: Tool, call: str) -> str:
        output = tool.output if tool.output and tool.output.get("type") == "object" and is_checkable(tool.output) else None
        messages = prompt(PROMPT).messages(
            tools=told(self._tools.values()),
            output=canonical_json(output) if output else "",
            changes_state=tool.changes_state,
            call=call,
            earlier=self._remembered(),
            longest=LONGEST_RESULT,
        )
        request = ChatRequest(
            messages,
            (),
            0.0,
            MAX_TOKENS,
            seed_of("tools", self._seed, len(self._earlier)),
            schema=output or _OBJECT,
        )
        (found,) = ask(self._engine, [request], repairs=self._repairs, check=lambda _, value: _problems(value))
        self.cost += found.cost
        if found.problems:
            raise ToolsFailed(f"{tool.name}: no result of the form asked for: {found.problems[0]}")
        return plain_json(found.value)

    def _remembered(self) -> list[tuple[str, str]]:
        room, found = _REMEMBERED, list[tuple[str, str]]()
        for call, result in reversed(self._earlier):
            room -= len(call) + len(result)
            if room < 0:
                break
            found.append((call, result))
        return found[::-1]


def _problems(value: JSON) -> list[str]:
    """What keeps a JSON value from being a result."""
    if len(plain_json(value)) > LONGEST_RESULT:
        return [f"that is too long: at most {LONGEST_RESULT} characters"]
    if not isinstance(value, Mapping) or is_error(plain_json(value)) or value.get("error"):
        return ["the call succeeds: answer with its result, an empty one where nothing fits, and not with an error"]
    return []


def _observed(call: ToolCall, content: str) -> Message:
    return Message(role="tool", tool_call_id=call.id, content=content)

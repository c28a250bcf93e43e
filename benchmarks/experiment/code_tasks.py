"""Tiny code tasks: one expression over copied numbers, such as `what is 12 plus 7 times 30` for `print(12 + 7 * 30)`.

One idea: every arm starts from a policy that can do these and nothing else; how many it still can, once it has been trained on
conversations, is what it has forgotten. A program passes if it is one `print` of sums, differences and products of whole numbers and gives
the right number: so little that it is worked out from its syntax tree, without a sandbox. Anything else fails.
"""

from __future__ import annotations

import ast
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass

from storage.records import CODE_TOOL, FunctionCall, Message, ToolCall, parse_arguments
from synth.engines.base import ChatRequest, Engine

_WORDS = {"+": "plus", "-": "minus", "*": "times"}
_OPENINGS = ("what is", "compute", "please work out", "how much is")
_TOKENS = 24
_OFFER = "run python (code)"


@dataclass(frozen=True, slots=True)
class CodeTask:
    text: str
    code: str

    @property
    def messages(self) -> tuple[Message, ...]:
        return (Message(role="user", content=f"{_OFFER}\n{self.text}"),)

    def conversation(self) -> tuple[Message, ...]:
        """The task with its expert's call."""
        call = ToolCall(id="call_0", function=FunctionCall(name=CODE_TOOL, arguments=json.dumps({"code": self.code})))
        return (*self.messages, Message(role="assistant", tool_calls=(call,)))


def draw_code_tasks(count: int, seed: str) -> list[CodeTask]:
    """`count` tasks with distinct texts, of two or three numbers below 1,000."""
    rng = random.Random(f"code/{seed}")
    found: dict[str, CodeTask] = {}
    while len(found) < count:
        numbers = [rng.randint(1, 999) for _ in range(rng.choice((2, 3)))]
        signs = [rng.choice(list(_WORDS)) for _ in numbers[1:]]
        spoken, written = str(numbers[0]), str(numbers[0])
        for sign, number in zip(signs, numbers[1:], strict=True):
            spoken += f" {_WORDS[sign]} {number}"
            written += f" {sign} {number}"
        text = f"{rng.choice(_OPENINGS)} {spoken}"
        found.setdefault(text, CodeTask(text, f"print({written})"))
    return list(found.values())


def passed(engine: Engine, tasks: Sequence[CodeTask]) -> list[bool]:
    """pass@1, greedy, of each task."""
    answers = engine.chat([ChatRequest(messages=task.messages, temperature=0.0, max_tokens=_TOKENS) for task in tasks])
    return [_is_right(answer.message, task) for answer, task in zip(answers, tasks, strict=True)]


def _is_right(message: Message, task: CodeTask) -> bool:
    if len(message.tool_calls) != 1 or message.tool_calls[0].function.name != CODE_TOOL:
        return False
    arguments = parse_arguments(message.tool_calls[0].function.arguments)
    code = arguments.get("code") if arguments else None
    return isinstance(code, str) and printed(code) is not None and printed(code) == printed(task.code)


def printed(code: str) -> int | None:
    """What a program prints that is one `print` of sums, differences and products of whole numbers; None for any other."""
    try:
        tree = ast.parse(code, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
    is_print = isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id == "print" and not tree.keywords
    return _value(tree.args[0]) if is_print and isinstance(tree, ast.Call) and len(tree.args) == 1 else None


def _value(tree: ast.expr) -> int | None:
    if isinstance(tree, ast.Constant):
        return tree.value if type(tree.value) is int else None
    if not isinstance(tree, ast.BinOp):
        return None
    left, right = _value(tree.left), _value(tree.right)
    if left is None or right is None:
        return None
    match tree.op:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
    return None

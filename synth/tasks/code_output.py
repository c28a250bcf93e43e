"""The figures that a program's output adds to its source code: computed by the policy, not invented.

One idea: a policy that writes `print("o17")` has stated o17 itself. So of the output of `run_python`, only numbers, times of day and dates
count as observed, and of these only those that the source does not spell out. A program that hides a figure in arithmetic
(`print(100 + 37)`) is not detected.
Source: definitions P8 (the code tool's output grounds an answer) and P10.
"""

from __future__ import annotations

import ast
import json
import re
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

from synth.text.claims import normalise, read_claims

LARGEST = 1e300
_EXPONENT = re.compile(r"(?<![a-z0-9_.])\d+(?:\.\d*)?e[+-]?\d{1,3}(?![a-z0-9_])")


class _Figures(NamedTuple):
    numbers: frozenset[float]
    minutes: frozenset[int]
    dates: frozenset[str]


@lru_cache(maxsize=1024)
def computed_figures(observation: str, code: str) -> str:
    """Figures in the observation of a run that its code does not hold, as normalised text: `425.33 2026-05-30 09:30`."""
    output, source = _figures(_output_text(observation)), _source_figures(code)
    numbers = [_plain_number(number) for number in sorted(output.numbers) if abs(number) not in source.numbers]
    times = [f"{minute // 60:02d}:{minute % 60:02d}" for minute in sorted(output.minutes - source.minutes)]
    return " ".join([*numbers, *sorted(output.dates - source.dates), *times])


def _output_text(observation: str) -> str:
    """Printed text and the value of the last line; empty for an error observation."""
    try:
        content = json.loads(observation)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(content, dict):
        return ""
    return "\n".join(text for text in (content.get("stdout"), content.get("result_repr")) if isinstance(text, str))


def _source_figures(code: str) -> _Figures:
    """The figures in the constants of a program, numbers without their signs; those of its whole text if this Python cannot parse it."""
    try:
        constants: list[Any] = [node.value for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Constant)]
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        constants = [code.replace("_", "")]
    decoded = [constant.decode("latin-1") if isinstance(constant, bytes) else constant for constant in constants]
    texts = _figures("\n".join(constant for constant in decoded if isinstance(constant, str)))
    numbers = [float(constant) for constant in constants if type(constant) in (int, float) and abs(constant) < LARGEST]
    return _Figures(frozenset(abs(number) for number in (*numbers, *texts.numbers)), texts.minutes, texts.dates)


def _figures(text: str) -> _Figures:
    claims = read_claims(_EXPONENT.sub(lambda match: _plain_number(float(match[0])), normalise(text)))
    numbers = frozenset(number.value for number in claims.numbers if abs(number.value) < LARGEST)
    return _Figures(numbers, frozenset(claims.minutes), frozenset(claims.dates))


def _plain_number(number: float) -> str:
    """A number without an exponent (with one it would be read as two numbers); empty if it is too large for any answer."""
    if not abs(number) < LARGEST:
        return ""
    return str(int(number)) if number.is_integer() else f"{Decimal(f'{number:.15g}'):f}"

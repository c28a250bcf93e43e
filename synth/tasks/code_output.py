"""What a program's output adds to the program: the figures in it that nobody had to make up.

One idea: whoever writes `print("o17")` has said o17 himself. So of what `run_python` returns, only numbers, times of day and dates count
as observed, and of these only such as the source does not spell out; what it spells out was observed before, or nowhere. A program that
hides a figure in arithmetic (`print(100 + 37)`) is not seen through.
Source: definitions P8 (the code tool's output grounds an answer) and P10.
"""

from __future__ import annotations

import ast
import json
import re
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

from synth.text.claims import normalise, read

LARGEST = 1e300
_EXPONENT = re.compile(r"(?<![a-z0-9_.])\d+(?:\.\d*)?e[+-]?\d{1,3}(?![a-z0-9_])")


class _Figures(NamedTuple):
    numbers: frozenset[float]
    minutes: frozenset[int]
    dates: frozenset[str]


@lru_cache(maxsize=1024)
def computed(observation: str, code: str) -> str:
    """The figures that the observation of a run shows and its code does not, as normalised text: `425.33 2026-05-30 09:30`."""
    shown, spelt = _figures(_printed(observation)), _spelt(code)
    numbers = [_written(number) for number in sorted(shown.numbers) if abs(number) not in spelt.numbers]
    times = [f"{minute // 60:02d}:{minute % 60:02d}" for minute in sorted(shown.minutes - spelt.minutes)]
    return " ".join([*numbers, *sorted(shown.dates - spelt.dates), *times])


def _printed(observation: str) -> str:
    """What a run printed, and the value of its last line; nothing where it failed altogether."""
    try:
        content = json.loads(observation)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(content, dict):
        return ""
    return "\n".join(text for text in (content.get("stdout"), content.get("result_repr")) if isinstance(text, str))


def _spelt(code: str) -> _Figures:
    """What the constants of a program say, numbers without their signs. Of what this Python cannot parse (another's may), all that the
    text says counts."""
    try:
        constants: list[Any] = [node.value for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Constant)]
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        constants = [code.replace("_", "")]
    said = [constant.decode("latin-1") if isinstance(constant, bytes) else constant for constant in constants]
    texts = _figures("\n".join(constant for constant in said if isinstance(constant, str)))
    numbers = [float(constant) for constant in constants if type(constant) in (int, float) and abs(constant) < LARGEST]
    return _Figures(frozenset(abs(number) for number in (*numbers, *texts.numbers)), texts.minutes, texts.dates)


def _figures(text: str) -> _Figures:
    said = read(_EXPONENT.sub(lambda found: _written(float(found[0])), normalise(text)))
    numbers = frozenset(number.value for number in said.numbers if abs(number.value) < LARGEST)
    return _Figures(numbers, frozenset(said.minutes), frozenset(said.dates))


def _written(number: float) -> str:
    """A number without an exponent, which is read as two numbers; nothing for what no answer could tell."""
    if not abs(number) < LARGEST:
        return ""
    return str(int(number)) if number.is_integer() else f"{Decimal(f'{number:.15g}'):f}"

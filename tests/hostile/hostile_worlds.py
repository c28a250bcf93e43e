"""World files that a stranger wrote to do harm, or by accident: name -> text."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

import yaml

from synth.writing.new_spec import new_spec

VALUES: dict[str, Any] = {
    "nothing": None,
    "a number": 7,
    "a huge number": 10**400,
    "infinity": float("inf"),
    "a list": [1, [2]],
    "a text": "odd\u202e\x1b[2J\x00",
    "a long text": "x" * 1_000_000,
    "a nest": [[[[[[[[[[[[]]]]]]]]]]]],
    "a mapping": {"a": {"b": {"c": {}}}},
    "code": "__import__('os').system('true')",
    "an expression": "count(" * 300,
    "a power": "9 ** 9 ** 9 ** 9",
}

SQUARE = """  square_deposit:
    verb: square the deposit of
    on: member
    needs: [{if: member.level == basic, else: the member has the level plus}]
    sets: {member.deposit: member.deposit * member.deposit}
"""
LIBRARY = new_spec(["en"]).replace("\ninfo:", f"{SQUARE}\ninfo:")
"""A world that compiles; `square_deposit` lets a stored number grow until it is refused."""
_PRODUCT = "member.deposit * member.deposit"
_TEST = "loan.status == out, else"
_RANGE = "min: 0, max: 80, step: 5"


def _bomb(levels: int = 9) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels)]
    return "\n".join([*lines, "domain: library", f"about: *a{levels - 1}"])


_EMPTY = [f"  e{n}: {{noun: n{n}, id: 'e###'}}" for n in range(1_000)]
WHOLE_FILES = {
    "a number that is squared forty times": LIBRARY,
    "aliases that grow nine times nine": _bomb(),
    "an alias of itself": "domain: &a [*a]\nabout: *a\n",
    "a tag of Python": "domain: !!python/object/apply:os.system ['true']\n",
    "a nest of 5,000": "[" * 5_000,
    "mappings in mappings": "\n".join(f"{' ' * n}k:" for n in range(3_000)),
    "nothing": "",
    "a scalar": "bank",
    "two documents": f"{LIBRARY}\n---\n{LIBRARY}",
    "a key twice": f"{LIBRARY}\ndomain: other\n",
    "no text": "\x00\x01\x02",
    "half a surrogate": 'domain: "\\ud800"\n',
    "a merge of everything": "base: &b {domain: library}\n<<: [*b, *b]\n",
    "a number of 100,000 digits": f"domain: library\nabout: {'9' * 100_000}\n",
    "a thousand entities": "\n".join(["domain: b", "about: b", "entities:", *_EMPTY]),
    "a million rows": LIBRARY.replace("rows: 60", "rows: 100000000"),
    "an id without room": LIBRARY.replace("id: m###", "id: m"),
    "an id of a thousand signs": LIBRARY.replace("id: m###", f"id: m{'#' * 1_000}"),
    "numbers beyond every range": LIBRARY.replace(_RANGE, "min: -1e308, max: 1e308"),
    "a range upside down": LIBRARY.replace(_RANGE, "min: 90, max: 2"),
    "a pattern that explodes": LIBRARY.replace("id: m###", "id: '(a+)+$'"),
    "weights that are negative": LIBRARY.replace("weights: {out: 4}", "weights: {out: -4}"),
    "weights that are infinite": LIBRARY.replace("weights: {out: 4}", "weights: {out: .inf}"),
    "a verb of a megabyte": LIBRARY.replace("verb: return", f"verb: {'return ' * 20_000}"),
    "a condition of 3,000 parts": LIBRARY.replace(_TEST, " and ".join(["loan.status == out"] * 3_000) + ", else"),
    "a condition 500 deep": LIBRARY.replace(_TEST, "(" * 500 + "loan.status == out" + ")" * 500 + ", else"),
    "a power of powers": LIBRARY.replace(_PRODUCT, "member.deposit ** 99 ** 99 ** 99"),
    "a list in an expression": LIBRARY.replace(_PRODUCT, "[0] * 10 ** 10"),
    "an attribute of Python": LIBRARY.replace(_PRODUCT, "member.__class__.__mro__"),
    "a call of Python": LIBRARY.replace(_PRODUCT, "open('/etc/passwd').read()"),
    "a lambda": LIBRARY.replace(_PRODUCT, "(lambda: member.deposit)()"),
    "a long shift": LIBRARY.replace(_PRODUCT, "1 << 10 ** 10"),
}


def mutated(count: int, seed: int = 0) -> Iterator[tuple[str, str]]:
    """The library with one value at a time replaced by a hostile one."""
    base = yaml.safe_load(LIBRARY)
    places = list(_places(base))
    cases = [(place, name) for place in places for name in VALUES]
    random.Random(seed).shuffle(cases)
    for place, name in cases[:count]:
        changed = copy.deepcopy(base)
        inner = changed
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = VALUES[name]
        yield f"{'.'.join(map(str, place))}: {name}", yaml.safe_dump(changed, allow_unicode=True)


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from _places(inner, (*path, key))


def world_files(count: int) -> dict[str, str]:
    """All whole files, and `count` mutated ones."""
    return {**WHOLE_FILES, **dict(mutated(count))}

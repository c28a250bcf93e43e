"""A spec file's text as plain values, safely: a file may come from a stranger.

One idea: every scalar stays text until the schema says what it is, so none of YAML 1.1's surprises happens (`on`, `no`, dates, 8:30 as a
number). Aliases are refused (they can make a small file enormous), doubled keys too, and the size is bounded.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from synth.worlds.spec.schema import Problem, SpecError

MAX_BYTES = 256 * 1024

_Base: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


class _Loader(_Base):  # type: ignore[misc]
    """Plain text scalars; the first doubled key of each mapping is remembered."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.problems: list[Problem] = []

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self.problems.append(Problem(_line(key), "a key must be plain text"))
            elif key.value in seen:
                self.problems.append(Problem(_line(key), f"the key {key.value[:60]!r} is given twice; keep one"))
            else:
                seen.add(key.value)
        if self.problems:
            return {}
        found: dict[Any, Any] = super().construct_mapping(node, deep=True)
        return found


def _line(node: Any) -> str:
    return f"line {node.start_mark.line + 1}"


def parse_text(text: str, where: str = "") -> Any:
    """The values of a YAML text: mappings, lists and text.

    Raises:
        SpecError: it is too large, not YAML, has aliases or doubled keys; each problem names its line.
    """
    if len(text.encode("utf-8", "replace")) > MAX_BYTES:
        raise SpecError([Problem("", f"larger than {MAX_BYTES // 1024} KiB; a spec of one business is a few hundred lines")], where)
    try:
        if "&" in text or "*" in text:
            _refuse_aliases(text, where)
        loader = _Loader(text)
        try:
            values = loader.get_single_data()
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f"line {mark.line + 1}" if mark else ""
        raise SpecError([Problem(line, f"not valid YAML: {getattr(error, 'problem', None) or error}")], where) from None
    except RecursionError:
        raise SpecError([Problem("", "nested too deeply")], where) from None
    if loader.problems:
        raise SpecError(loader.problems, where)
    return values


def _refuse_aliases(text: str, where: str) -> None:
    for token in yaml.scan(text, Loader=_Base):
        if isinstance(token, (yaml.AliasToken, yaml.AnchorToken)):
            raise SpecError([Problem(_line(token), "anchors and aliases (& and *) are not taken; write it out")], where)


def parse_file(path: Path) -> Any:
    """`parse_text` of a file.

    Raises:
        SpecError: see there; also a file that does not exist or is not UTF-8.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise SpecError([Problem("", f"larger than {MAX_BYTES // 1024} KiB; a spec of one business is a few hundred lines")], str(path))
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise SpecError([Problem("", "no such file")], str(path)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError([Problem("", f"cannot be read as UTF-8 text ({error})")], str(path)) from None
    return parse_text(text, str(path))

"""Reads the text of a spec file as plain values. The file is not trusted.

One idea: every scalar stays text until the schema gives it a type, so YAML 1.1's conversions (`on`, `no`, dates, 8:30 as a number) do not
happen. Aliases are refused, since they can make a small file enormous; so are duplicate keys, and files over MAX_BYTES.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from synth.text.yaml_loader import TEXT_LOADER
from synth.worlds.declarative.language.problems import Problem, SpecError

MAX_BYTES, MAX_DEPTH = 256 * 1024, 24

_TOO_LARGE = Problem("", f"larger than {MAX_BYTES // 1024} KiB; a spec of one business is a few hundred lines")


def parse_text(text: str, where: str = "") -> Any:
    """The values of a YAML text: mappings, lists and text.

    Raises:
        SpecError: the text is too large or nested too deeply, is not YAML, or has aliases or duplicate keys; each problem names its line.
    """
    if len(text.encode("utf-8", "replace")) > MAX_BYTES:
        raise SpecError([_TOO_LARGE], where)
    builder = _Builder()
    try:
        for event in yaml.parse(text, Loader=TEXT_LOADER):
            builder.take(event)
    except yaml.YAMLError as error:
        raise SpecError([_describe(error, text)], where) from None
    except _Unsupported as error:
        raise SpecError([error.problem], where) from None
    if builder.problems:
        raise SpecError(builder.problems, where)
    return builder.value


def _describe(error: yaml.YAMLError, text: str) -> Problem:
    """What is wrong with a text that is not YAML, and on which line."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return Problem("", f"not valid YAML: {error}")
    line = next(iter(text.splitlines()[mark.line :]), "")
    if "\t" in line[: len(line) - len(line.lstrip())]:
        return Problem(f"line {mark.line + 1}", "begins with a tab; YAML is indented with spaces: write spaces in its place")
    problem = str(getattr(error, "problem", None) or error)
    if problem.startswith("mapping values are not allowed"):
        problem = 'a text with a colon needs quotes: "..."; or the line is not indented like the one above'
    return Problem(f"line {mark.line + 1}", f"not valid YAML: {problem}")


class _Unsupported(Exception):
    def __init__(self, event: Any, text: str) -> None:
        self.problem = Problem(f"line {event.start_mark.line + 1}", text)
        super().__init__(text)


class _Builder:
    """Builds values from parser events. It does not recurse, so deep nesting cannot exhaust the stack."""

    def __init__(self) -> None:
        self.value: Any = None
        self.problems: list[Problem] = []
        self._open: list[Any] = []
        self._keys: list[str | None] = []
        """Per open collection, the key whose value comes next; None in a list and before a key."""
        self._has_document = False

    def take(self, event: Any) -> None:
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise _Unsupported(event, "anchors and aliases (& and *) are not taken; write it out")
        if isinstance(event, yaml.DocumentStartEvent):
            if self._has_document:
                raise _Unsupported(event, "a second document begins (---); a file holds one business, put the other into a file of its own")
            self._has_document = True
        elif isinstance(event, yaml.ScalarEvent):
            self._scalar(event)
        elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            if self._open and isinstance(self._open[-1], dict) and self._keys[-1] is None:
                raise _Unsupported(event, "a key must be plain text")
            if len(self._open) == MAX_DEPTH:
                raise _Unsupported(event, "nested too deeply")
            started: Any = {} if isinstance(event, yaml.MappingStartEvent) else []
            self._put(started)
            self._open.append(started)
            self._keys.append(None)
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            self._open.pop()
            self._keys.pop()

    def _scalar(self, event: Any) -> None:
        if not (self._open and isinstance(self._open[-1], dict) and self._keys[-1] is None):
            self._put(event.value)
            return
        if event.value in self._open[-1]:
            line = f"line {event.start_mark.line + 1}"
            self.problems.append(Problem(line, f"the key {event.value[:60]!r} is given twice; keep one"))
        self._keys[-1] = event.value

    def _put(self, value: Any) -> None:
        if not self._open:
            self.value = value
        elif isinstance(self._open[-1], dict):
            self._open[-1][self._keys[-1]] = value
            self._keys[-1] = None
        else:
            self._open[-1].append(value)


def parse_file(path: Path) -> Any:
    """`parse_text` of a file.

    Raises:
        SpecError: see `parse_text`; also if the file does not exist or is not UTF-8.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise SpecError([_TOO_LARGE], str(path))
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise SpecError([Problem("", "no such file")], str(path)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError([Problem("", f"cannot be read as UTF-8 text ({error})")], str(path)) from None
    return parse_text(text, str(path))

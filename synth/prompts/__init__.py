"""Prompts for language models: Jinja2 templates in files `NAME.md` of this folder.

A line `---user---` separates the system message from the user message. A prompt's version is the hash of its file; it is stored with all
results. A missing template value is an error.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined, Template

from storage.records import Message

_SEPARATOR = "---user---\n"
_ENVIRONMENT = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=False)


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt. version: hash of the file, 12 hex digits. text: the file without the separator."""

    name: str
    version: str
    system: Template
    user: Template
    text: str = ""

    def messages(self, **values: Any) -> tuple[Message, ...]:
        """The system message and the user message.

        Raises:
            jinja2.UndefinedError: a value is missing.
        """
        return (
            Message(role="system", content=self.system.render(values).strip()),
            Message(role="user", content=self.user.render(values).strip()),
        )


@cache
def prompt(name: str) -> Prompt:
    """The prompt of this name.

    Raises:
        FileNotFoundError: there is no such prompt.
        ValueError: its file has no separator.
    """
    data = (Path(__file__).parent / f"{name}.md").read_bytes()
    system, separator, user = data.decode().partition(_SEPARATOR)
    if not separator:
        raise ValueError(f"prompt {name}: no line {_SEPARATOR.strip()!r}")
    version = hashlib.sha256(data).hexdigest()[:12]
    return Prompt(name, version, _ENVIRONMENT.from_string(system), _ENVIRONMENT.from_string(user), system + user)


def versions(*names: str) -> Mapping[str, str]:
    """Name -> version of several prompts, sorted by name."""
    return {name: prompt(name).version for name in sorted(names)}

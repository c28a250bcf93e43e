"""What language models are told, as files that anyone can read and change: `NAME.md` beside this one, Jinja2 inside.

A line `---user---` parts the system message from the user message. A prompt's version is the hash of its file, and goes into the
provenance of whatever was made with it; a value that a template wants and is not given is an error, never an empty place.
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

_MARK = "---user---\n"
_FORM = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=False)


@dataclass(frozen=True, slots=True)
class Prompt:
    """version: of the file's bytes, 12 hexadecimal digits. text: of the file, for who asks how long it is."""

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
        FileNotFoundError: there is none. ValueError: its file does not say where the user message begins.
    """
    data = (Path(__file__).parent / f"{name}.md").read_bytes()
    system, mark, user = data.decode().partition(_MARK)
    if not mark:
        raise ValueError(f"prompt {name}: no line {_MARK.strip()!r}")
    version = hashlib.sha256(data).hexdigest()[:12]
    return Prompt(name, version, _FORM.from_string(system), _FORM.from_string(user), system + user)


def versions(*names: str) -> Mapping[str, str]:
    """Of several prompts, for provenance."""
    return {name: prompt(name).version for name in sorted(names)}

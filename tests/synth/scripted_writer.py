"""A scripted stand-in for a language model that writes specs, and specs for it to write."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import yaml

from storage.records import Message
from synth.engines.base import ChatAnswer, ChatRequest
from synth.worlds.declarative.generate import generate

WORKSHOP = (Path(__file__).parent / "car_workshop.yaml").read_text(encoding="utf-8")
BROKEN = WORKSHOP.replace("repair.status == open", "repair.statos == open", 1).replace(
    "{type: ref, to: mechanic}", "{type: ref, to: mechanik}", 1
)
"""A typo in a field and an entity that does not exist."""
RARE = WORKSHOP.replace("weights: {open: 4, waiting: 3}", "weights: {open: 0.02, waiting: 3}")
"""It compiles, but in most seeds hardly a repair is open, and a task about such a one cannot be drawn."""
_STARTER = files("synth.worlds.declarative").joinpath("starter.yaml").read_text(encoding="utf-8")
RENAMED = re.sub(r"\bmember\b", "driver", re.sub(r"(?<!-)\btool(?=\b|_)", "vehicle", _STARTER)).replace("_tool:", "_vehicle:")
"""The starter, in which everything is called otherwise."""


def fenced(text: str) -> str:
    """As models answer."""
    return f"Here is the spec.\n\n```yaml\n{text}\n```\nIt has everything."


def generated(seed: int) -> str:
    """A new domain, in full."""
    return yaml.safe_dump(generate(seed), allow_unicode=True, sort_keys=False)


class ScriptedWriter:
    """Scripted: gives each attempt (they have seeds of their own) the answers of its script in order, the last for ever, and raises an
    exception where one stands. The same request gets the same answer, as from a cache. requests: those that were new, in order."""

    name = "scripted:writer"

    def __init__(self, *scripts: Sequence[str | Exception]) -> None:
        self._scripts = scripts
        self._given: dict[tuple[int, tuple[Message, ...]], str | Exception] = {}
        self._begun: dict[int, int] = {}
        self.requests: list[ChatRequest] = []

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer]:
        found = [self._said(request) for request in requests]
        answers = []
        for text in found:
            if isinstance(text, Exception):
                raise text
            answers.append(ChatAnswer(Message(role="assistant", content=text), "stop", prompt_tokens=1000, completion_tokens=200, usd=0.5))
        return answers

    def _said(self, request: ChatRequest) -> str | Exception:
        key = request.seed, request.messages
        if key not in self._given:
            self.requests.append(request)
            script = self._scripts[self._begun.setdefault(request.seed, len(self._begun))]
            place = sum(seed == request.seed for seed, _ in self._given)
            self._given[key] = script[min(place, len(script) - 1)]
        return self._given[key]

"""The scripted user: says its turns in order, whatever the assistant answers. It has goals and a turn plan, and knows no tools."""

from __future__ import annotations

from collections.abc import Sequence

from storage.records import Message
from synth.blueprints import TurnPlan


class ScriptedUser:
    def __init__(self, turns: Sequence[TurnPlan]) -> None:
        self._texts = [turn.text for turn in turns]

    def speak(self, dialogue: Sequence[Message]) -> str | None:
        said = sum(message.role == "user" for message in dialogue)
        return self._texts[said] if said < len(self._texts) else None

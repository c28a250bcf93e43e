"""The scripted user: says its turns in order, whatever the assistant answers. It has goals and a turn plan, and knows no tools."""

from __future__ import annotations

from collections.abc import Sequence

from storage.records import Cost, Message
from synth.blueprints.blueprint import TurnPlan


class ScriptedUser:
    cost = Cost()

    def __init__(self, turns: Sequence[TurnPlan]) -> None:
        self._texts = [turn.text for turn in turns]
        self._said = 0

    @property
    def turns(self) -> tuple[int, int]:
        return self._said, self._said

    def speak(self, dialogue: Sequence[Message]) -> str | None:
        said = sum(message.role == "user" for message in dialogue)
        if said >= len(self._texts):
            return None
        self._said = said + 1
        return self._texts[said]

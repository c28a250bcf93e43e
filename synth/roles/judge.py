"""The scripted judge: grades by rule, 1 to 5, what a language model would be asked for where rules cannot tell.

planning: a point off for every call beyond the plan (retries of planned faults are no extras), 1 where the plan is not covered.
fidelity: 5 where every answer holds only what was said or shown, else 1. presentation: the replies are in the user's language, and none
is empty, overlong, or still holds a placeholder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from storage.records import Language, Message
from synth.roles.base import Grades
from synth.tasks.reward import presentation

LEAST_GRADE = 4
"""What every grade of an accepted trajectory must reach."""


class ScriptedJudge:
    """Grades one conversation. observations: the observer's checks; extra_calls: as `observer.extra_calls`."""

    def __init__(self, language: Language, observations: Mapping[str, bool], extra_calls: int | None) -> None:
        self._language, self._observations, self._extra_calls = language, observations, extra_calls

    def grade(self, dialogue: Sequence[Message]) -> Grades:
        grounded = all(holds for name, holds in self._observations.items() if name.endswith(("grounded_answer", "grounded_arguments")))
        planning = 1 if self._extra_calls is None else max(1, 5 - self._extra_calls)
        return Grades(planning=planning, fidelity=5 if grounded else 1, presentation=self._presentation(dialogue))

    def _presentation(self, dialogue: Sequence[Message]) -> int:
        texts = [message.content or "" for message in dialogue if message.role == "assistant" and not message.tool_calls]
        return round(1 + 4 * min((presentation(text, self._language) for text in texts), default=0.0))

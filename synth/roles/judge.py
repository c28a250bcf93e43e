"""The scripted judge: grades by rule, 1 to 5, what a language model would be asked for where rules cannot tell.

planning: a point off for every call beyond the plan (retries of planned faults are no extras), 1 where the plan is not covered.
fidelity: 5 where every answer holds only what was said or shown, else 1. presentation: the replies are in the user's language, and none
is empty, overlong, or still holds a placeholder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from storage.records import Language, Message
from synth.reading import has_chinese
from synth.roles.base import Grades

LEAST_GRADE = 4
"""What every grade of an accepted trajectory must reach."""
_LONGEST_REPLY = 2000
_PLACEHOLDER = re.compile(r"\{\w*\}|\bNone\b|\bnan\b")
_WORD = re.compile(r"[A-Za-z]{3}")


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
        if not texts or any(not text.strip() or len(text) > _LONGEST_REPLY or _PLACEHOLDER.search(text) for text in texts):
            return 1
        return 5 if all(self._is_own_language(text) for text in texts) else 3

    def _is_own_language(self, text: str) -> bool:
        """A text of numbers and identifiers alone is of every language."""
        if has_chinese(text):
            return self._language == "zh"
        return self._language == "en" or not _WORD.search(text)

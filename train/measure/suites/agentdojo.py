"""AgentDojo's user tasks in its four suites (workspace, travel, banking, slack), without an attack: what it calls utility.

Theirs is the task's own utility function. Ours asks for the end state of its ground truth, and for the values in its expected output
(`facts_in`). A task's utility may accept several end states, and reads the words that it looks for from its own code, which no data tell:
there the two differ.

What it does not measure: security. Injection tasks are left out.
Source: Debenedetti et al., AgentDojo, NeurIPS 2024; agentdojo 0.1.35, benchmark version 1.2.2. 15 steps as in its tool loop.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from storage.records import Fact
from train.measure.suites.child_suite import ChildEpisode, ChildSuite
from train.measure.suites.outcome import fact_of
from train.measure.suites.suite import SuiteCase

_MARKS = re.compile(r"(?:^|\s)\d\.(?=\s|[a-z]|$)\s*")
_PARTS = re.compile(r"[\n;]|,\s+|:\s+")
_FIGURE = re.compile(r"[$£€]?\d[\d,]*(?:\.\d+)?")
_MOST_WORDS = 6


class AgentDojoSuite(ChildSuite):
    """97 tasks of one request."""

    name = "agentdojo"
    note = "user tasks without an attack (utility); security is not measured"
    max_steps = 15

    def facts(self, row: Mapping[str, Any]) -> tuple[Fact, ...]:
        return facts_in(row["answer"], " ".join(row["user"]))

    def open(self, case: SuiteCase) -> ChildEpisode:
        return ChildEpisode(self, case)


def facts_in(output: str, request: str) -> tuple[Fact, ...]:
    """The values in an expected output, which is a list of them or a sentence: short parts as they are, of longer ones the figures.

    What the request itself says is no fact; marks of a list (`1.`) are none either.
    """
    facts: dict[str, Fact] = {}
    for part in _PARTS.split(_MARKS.sub("\n", output)):
        text = part.strip(" -.")
        words = text.split()
        is_list = len(words) > 1 and all(_FIGURE.fullmatch(word) for word in words)
        values = words if is_list else [text] if len(words) <= _MOST_WORDS else _FIGURE.findall(text)
        for value in values:
            if value and value.casefold() not in request.casefold():
                facts.setdefault(value, fact_of(value))
    return tuple(facts.values())

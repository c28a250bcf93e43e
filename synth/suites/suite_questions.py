"""What the users of suites say, for the contamination gate: a held-out set a suite.

tau2: the reason for the call, what the user knows and its instructions, joined as the scripted user says them, and the reason alone.
AgentDojo: the prompts of its user tasks. Both are read by the suite's own program, so its environment must be there.

A program takes up to three seconds to start, so its answer is kept in the environment, for the packages that are installed there; where
that cannot be written, the program is asked each time.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Literal

from storage.files import replace_atomically
from storage.records import content_id
from synth.suites.child import PROGRAM, Child, environment_of

SuiteName = Literal["tau2-retail", "tau2-airline", "agentdojo"]


def suite_questions(name: SuiteName) -> list[str]:
    """Every question of a suite, in its order.

    Raises:
        BadInput: the suite's environment is not installed. SuiteFailure: its program failed.
    """
    environment = environment_of(name)
    path, version = environment / f"headrace-questions-{name}.json", _version(environment)
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept["version"] == version:
            return [str(text) for text in kept["questions"]]
    with Child(name) as child:
        rows = child.request("describe")["cases"]
    questions = [text for row in rows for text in dict.fromkeys((" ".join(row["user"]), row["user"][0]))]
    with contextlib.suppress(OSError):
        replace_atomically(path, lambda file: file.write_text(json.dumps({"version": version, "questions": questions}), encoding="utf-8"))
    return questions


def _version(environment: Path) -> str:
    """A hash of what decides the questions: the installed packages, and the code that reads them."""
    packages = sorted(path.name for path in environment.glob("lib/python*/site-packages/*.dist-info"))
    return content_id("questions", packages, PROGRAM.read_text(encoding="utf-8"), Path(__file__).read_text(encoding="utf-8"))

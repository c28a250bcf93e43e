"""What the users of suites say, for the contamination gate: a held-out set a suite.

tau2: the reason for the call, what the user knows and its instructions, joined as the scripted user says them, and the reason alone.
AgentDojo: the prompts of its user tasks. Both are read by the suite's own program, so its environment must be there.
"""

from __future__ import annotations

from typing import Literal

from synth.suites.child import Child

SuiteName = Literal["tau2-retail", "tau2-airline", "agentdojo"]


def suite_questions(name: SuiteName) -> list[str]:
    """Every question of a suite, in its order.

    Raises:
        BadInput: the suite's environment is not installed. SuiteFailure: its program failed.
    """
    with Child(name) as child:
        rows = child.request("describe")["cases"]
    return [text for row in rows for text in dict.fromkeys((" ".join(row["user"]), row["user"][0]))]

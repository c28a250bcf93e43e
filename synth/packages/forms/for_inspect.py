"""Inspect (UK AI Security Institute): one file with a task, a solver that offers the world's tools, and a scorer that replays the calls."""

from __future__ import annotations

from synth.packages.forms.form import Form, headrace_requirement, template
from synth.packages.package_contents import Contents

_REQUIREMENT, _PYTHON = "inspect_ai>=0.3.200,<0.4", ">=3.11,<3.14"


def _files(contents: Contents) -> dict[str, str]:
    return {
        "headrace_tasks.py": template("inspect/headrace_tasks.py"),
        "requirements.txt": f"{headrace_requirement()}\n{_REQUIREMENT}\n",
        **contents.data("data"),
    }


def _commands(contents: Contents) -> str:
    return """pip install -r requirements.txt
inspect eval headrace_tasks.py --model openai/MODEL   # -T split=eval_out: tasks that are held out"""


FORM = Form(
    "inspect",
    _REQUIREMENT,
    _PYTHON,
    _files,
    _commands,
    (
        "A call that Inspect itself refuses (an unknown tool, arguments that do not fit the schema) never reaches the world, and the "
        "verdict does not see it.",
        "The graded reward R is metadata of the score; the score is 0 or 1.",
    ),
)

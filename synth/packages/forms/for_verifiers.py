"""verifiers 0.4 (Prime Intellect): a taskset with typed tasks, a shared tool server (MCP), and the reward by replay of the trace."""

from __future__ import annotations

from synth.packages.forms.form import Form, pyproject, template
from synth.packages.package_contents import Contents

_REQUIREMENT, _PYTHON = "verifiers>=0.4,<0.5", ">=3.11,<3.14"


def _files(contents: Contents) -> dict[str, str]:
    build = f"""[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[tool.hatch.build.targets.wheel]
packages = ["{contents.name}"]
"""
    return {
        "pyproject.toml": pyproject(contents, _REQUIREMENT, _PYTHON, build),
        f"{contents.name}/__init__.py": f'from {contents.name}.taskset import HeadraceTaskset\n\n__all__ = ["HeadraceTaskset"]\n',
        f"{contents.name}/taskset.py": template("verifiers/taskset.py"),
        f"{contents.name}/servers.py": template("verifiers/servers.py"),
        **contents.data(f"{contents.name}/data"),
    }


def _commands(contents: Contents) -> str:
    name = contents.name
    return f"""pip install -e . uv
vf-validate {name} --runtime.type subprocess   # no model: the expert plan of every task passes, doing nothing fails
vf-eval {name} --env.agent.harness.id null --env.agent.runtime.type subprocess -m MODEL -n 10 --no-push
# with --env.taskset.split eval_out: tasks that are held out"""


FORM = Form(
    "verifiers",
    _REQUIREMENT,
    _PYTHON,
    _files,
    _commands,
    ("The graded reward R is on the trace (`info.headrace`); the reward is 0 or 1.",),
)

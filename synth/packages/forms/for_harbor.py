"""Harbor 0.24, task schema 1.4: a folder a task. The world is a service of its own, and the verifier a container of its own.

One idea: the agent is root in its container, so nothing in it can be trusted. The world runs in the service `world`, which the agent
reaches as an MCP server by HTTP; its log of calls is collected as an artifact after the agent's container was stopped, and a separate
verifier container replays it. Only that container holds the plan and the success criteria.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from storage.records import Plan, Success, Task
from synth.packages.episode_server import ANSWER
from synth.packages.forms.form import Form, headrace_requirement, template
from synth.packages.package_contents import Contents, task_lines, world_lines
from synth.packages.runtime import WORLDS_FILE, expert_turns, request, system_prompt

_REQUIREMENT, _PYTHON = "harbor>=0.24,<0.25", ">=3.12,<3.14"
LOG = "/log/calls.jsonl"
ENVIRONMENT = "synth.packages.checks.harbor_bubblewrap:BubblewrapEnvironment"
"""Import path of an environment that needs no Docker."""


def _files(contents: Contents) -> dict[str, str]:
    files: dict[str, str] = {}
    for split, tasks in contents.tasks.items():
        for task in tasks:
            files |= {f"{split}/{task.id}/{path}": text for path, text in _task_files(task, contents.name).items()}
    return files


def _task_files(task: Task, name: str) -> Mapping[str, str]:
    worlds = world_lines([task.world])
    public = task.model_copy(update={"plan": Plan(), "success": Success(), "slots": {}})
    *played, last = (message for message in expert_turns(task) if message.role == "assistant")
    functions = [call.function for message in played for call in message.tool_calls]
    calls = [{"name": function.name, "arguments": json.loads(function.arguments)} for function in functions]
    script = [*calls, {"name": ANSWER, "arguments": {"text": last.content}}]
    return {
        "task.toml": _configuration(task, name),
        "instruction.md": _instruction(task),
        "environment/Dockerfile": "FROM python:3.12-slim\nWORKDIR /app\n",
        "environment/docker-compose.yaml": template("harbor/docker-compose.yaml"),
        "environment/world/Dockerfile": _dockerfile("COPY data /world/data", _SERVE),
        f"environment/world/data/{task.use}.jsonl": task_lines([public]),
        f"environment/world/data/{WORLDS_FILE}": worlds,
        "solution/solve.sh": "#!/bin/sh\nexec python3 /solution/solve.py\n",
        "solution/solve.py": template("harbor/solve.py"),
        "solution/calls.json": json.dumps(script, ensure_ascii=False, indent=1) + "\n",
        "tests/Dockerfile": _dockerfile("COPY . /tests\nRUN mkdir -p /logs/verifier && chmod +x /tests/test.sh"),
        "tests/test.sh": _TEST,
        f"tests/data/{task.use}.jsonl": task_lines([task]),
        f"tests/data/{WORLDS_FILE}": worlds,
    }


_SERVE = f'CMD ["python", "-m", "synth.packages.episode_server", "--data", "/world/data", "--log", "{LOG}", "--host", "0.0.0.0"]'
_TEST = f"#!/bin/sh\nexec python -m synth.packages.replay_log --data /tests/data --log {LOG} --out /logs/verifier/reward.json\n"


def _dockerfile(copy: str, command: str = "") -> str:
    end = f"{command}\n" if command else ""
    return f'FROM python:3.12-slim\nRUN pip install --no-cache-dir "{headrace_requirement()}"\n{copy}\n{end}'


def _configuration(task: Task, name: str) -> str:
    keywords = json.dumps(["tool-use", task.world.partition("@")[0], task.use])
    return f"""schema_version = "1.4"
artifacts = [{{ source = "{LOG}", service = "world" }}]

[task]
name = "headrace/{name}-{task.id}"
description = "A tool-use task made by Headrace, judged by a replay of its calls"
keywords = {keywords}

[metadata]
world = {json.dumps(task.world)}
intent = {json.dumps(task.intent)}
language = "{task.language}"
difficulty = {task.difficulty}
split = "{task.use}"

[environment]
build_timeout_sec = 900.0

[[environment.mcp_servers]]
name = "world"
transport = "streamable-http"
url = "http://world:8000/mcp"

[agent]
timeout_sec = 600.0

[verifier]
environment_mode = "separate"
timeout_sec = 120.0
"""


def _instruction(task: Task) -> str:
    system = system_prompt(task)
    return f"""{f"{system}{chr(10)}{chr(10)}" if system else ""}A user asks:

{request(task)}

Use the tools of the MCP server `world` (http://world:8000/mcp), and no other source. When you are done, call its tool `{ANSWER}` once, with
your answer to the user as `text`. Only calls of that server count.
"""


def _commands(contents: Contents) -> str:
    split = next(iter(contents.tasks))
    return f"""pip install "{_REQUIREMENT}"
harbor run -p {split} -a oracle           # with Docker; -a nop scores 0; any agent that takes MCP servers plays them"""


FORM = Form(
    "harbor",
    _REQUIREMENT,
    _PYTHON,
    _files,
    _commands,
    ("The final answer is a call of the tool `answer`, not a message.",),
)

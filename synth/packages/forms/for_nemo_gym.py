"""NeMo Gym 0.4 (NVIDIA): a resources server, its configuration, and rows in the Responses API's form."""

from __future__ import annotations

import json

from storage.records import JSON, Task
from synth.packages.forms.form import Form, headrace_requirement, template
from synth.packages.package_contents import Contents
from synth.packages.runtime import tool_schemas

_REQUIREMENT, _PYTHON = "nemo-gym>=0.4,<0.5", ">=3.12,<3.14"
_EXAMPLES = 5
_LICENCES = {
    "apache-2.0": "Apache 2.0",
    "mit": "MIT",
    "cc-by-4.0": "Creative Commons Attribution 4.0 International",
    "cc-by-sa-4.0": "Creative Commons Attribution-ShareAlike 4.0 International",
    "cc-by-nc-3.0": "CC BY-NC 3.0",
    "gpl-3.0": "GNU General Public License v3.0",
}
"""SPDX identifier, in lower case -> what NeMo Gym calls the licence; it accepts no others."""
_UNKNOWN_LICENCE = "TBD"
"""NeMo Gym demands a licence of data sets for training and validation, and this is its word for one that is not known."""
_TYPES = {"train": "train", "eval_in": "validation", "eval_out": "validation"}


def server_folder(name: str) -> str:
    """The path that NeMo Gym looks for a resources server at."""
    return f"resources_servers/{name}"


def agent_name(name: str) -> str:
    return f"{name}_simple_agent"


def dataset_type(split: str) -> str:
    """What NeMo Gym calls a split of this name."""
    return _TYPES[split]


def _files(contents: Contents) -> dict[str, str]:
    name = contents.name
    folder = server_folder(name)
    rows = {split: [_row(task, name) for task in tasks] for split, tasks in contents.tasks.items()}
    example = next(iter(rows.values()))[:_EXAMPLES]
    files = {f"{folder}/data/{split}.jsonl": "".join(lines) for split, lines in {**rows, "example": example}.items()}
    return {
        f"{folder}/app.py": template("nemo_gym/app.py"),
        f"{folder}/requirements.txt": f"{headrace_requirement()}\n",
        f"{folder}/configs/{name}.yaml": _config(name, list(rows), licence_of(contents)),
        **files,
        **contents.data(f"{folder}/tasks"),
    }


def _row(task: Task, name: str) -> str:
    """A task without its plan and its success criteria, as a request of the Responses API."""
    tools: list[dict[str, JSON]] = [{"type": "function", "strict": False, **tool} for tool in tool_schemas(task)]
    opening = [{"role": message.role, "content": message.content} for message in task.messages]
    row = {
        "responses_create_params": {"input": opening, "tools": tools, "parallel_tool_calls": False},
        "task_id": task.id,
        "agent_ref": {"type": "responses_api_agents", "name": agent_name(name)},
    }
    return json.dumps(row, ensure_ascii=False) + "\n"


def licence_of(contents: Contents) -> str:
    """The licence of the requests as NeMo Gym names it."""
    return _LICENCES.get((contents.licence or "").lower().replace(" ", "-"), _UNKNOWN_LICENCE)


def _config(name: str, splits: list[str], licence: str) -> str:
    datasets = "".join(
        f"      - {{name: {split}, type: {_TYPES[split]}, jsonl_fpath: {server_folder(name)}/data/{split}.jsonl, license: {licence}}}\n"
        for split in splits
    )
    return f"""{name}_resources_server:
  resources_servers:
    {name}:
      entrypoint: app.py
      domain: agent
      verified: false
      description: Tool-use tasks made by Headrace, judged by a replay
{agent_name(name)}:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      max_steps: 40
      resources_server: {{type: resources_servers, name: {name}_resources_server}}
      model_server: {{type: responses_api_models, name: policy_model}}
      datasets:
{datasets}      - {{name: example, type: example, jsonl_fpath: {server_folder(name)}/data/example.jsonl}}
"""


def _commands(contents: Contents) -> str:
    name = contents.name
    folder = server_folder(name)
    split = next(iter(contents.tasks))
    return f"""pip install "{_REQUIREMENT}" uv
gym eval run --resources-server {name} --model-type vllm_model --model MODEL --model-url URL --model-api-key KEY \\
  --agent {agent_name(name)} --split {_TYPES[split]} --input {folder}/data/{split}.jsonl --output rollouts.jsonl"""


FORM = Form(
    "nemo-gym",
    _REQUIREMENT,
    _PYTHON,
    _files,
    _commands,
    (
        "The graded reward R is the field `r` of a verified rollout; the reward is 0 or 1.",
        "A licence that NeMo Gym has no name for, or that is not one for all requests: `license` of the configuration is `TBD` then, and "
        "the section Licence below has what was stated.",
    ),
)

"""OpenEnv 0.10 (Hugging Face): an environment server; `reset` gives a request and tools, a call of `answer` ends the episode."""

from __future__ import annotations

from synth.packages.forms.form import Form, headrace_requirement, pyproject, template
from synth.packages.package_contents import Contents

_REQUIREMENT, _PYTHON = "openenv>=0.10,<0.11", ">=3.11,<3.14"


def _files(contents: Contents) -> dict[str, str]:
    build = """[project.scripts]
server = "server.app:main"

[build-system]
requires = ["setuptools>=61"]
build-backend = "setuptools.build_meta"

[tool.setuptools]
packages = ["server"]
"""
    dockerfile = f"""FROM python:3.12-slim
RUN pip install --no-cache-dir "{headrace_requirement()}" "{_REQUIREMENT}"
WORKDIR /app/env
COPY . /app/env
EXPOSE 8000
CMD ["python", "-m", "server.app", "--port", "8000"]
"""
    manifest = f"""spec_version: 1
name: {contents.name}
version: 0.1.0
type: space
runtime: fastapi
app: server.app:app
port: 8000
validation:
  reward: {{range: [0.0, 1.0], oracle_tolerance: 0.0, floor_margin: 0.1}}
  resources: {{cpu: 1.0, memory_mb: 1024, disk_mb: 2048, episode_timeout_s: 60.0}}
  capabilities: {{verifier: {{kind: reward_channel}}}}
  types: {{tags: [tool-use]}}
"""
    return {
        "openenv.yaml": manifest,
        "pyproject.toml": pyproject(contents, _REQUIREMENT, _PYTHON, build),
        "__init__.py": "",
        "server/__init__.py": "",
        "server/app.py": template("openenv/openenv_app.py"),
        "server/environment.py": template("openenv/openenv_environment.py"),
        "server/Dockerfile": dockerfile,
        **contents.data("data"),
    }


def _commands(contents: Contents) -> str:
    return """pip install "$(grep -o 'headrace[^"]*' pyproject.toml | head -1)" "openenv>=0.10,<0.11"
python -m server.app --port 8000   # then: openenv validate --url http://localhost:8000"""


FORM = Form(
    "openenv",
    _REQUIREMENT,
    _PYTHON,
    _files,
    _commands,
    (
        "The final answer is a call of the tool `answer`, not a message.",
        "The graded reward R is in the metadata of the last observation; the reward is 0 or 1, at the end.",
    ),
)

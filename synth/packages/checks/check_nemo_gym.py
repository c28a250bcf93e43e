"""`gym eval run`: NeMo Gym starts its model, agent and resources servers, and collects verified rollouts on the scripted model."""

from __future__ import annotations

import shutil

from synth.packages.checks.ecosystem_tool import PackageFolder, Rewards, Tool, json_lines
from synth.packages.forms.for_nemo_gym import agent_name, dataset_type, server_folder


def rewards(package: PackageFolder, policy: str, tool: Tool) -> Rewards:
    copy, environments = tool.scratch / "package", tool.scratch / "environments"
    if not copy.exists():  # NeMo Gym writes beside the data
        shutil.copytree(package.folder, copy)
        for server in (server_folder(package.name), "responses_api_agents/simple_agent", "responses_api_models/vllm_model"):
            (environments / server).mkdir(parents=True)
            (environments / server / ".venv").symlink_to(tool.programs.parent)
    found: dict[str, float] = {}
    for split in package.tasks:
        out = tool.scratch / f"rollouts-{policy}-{split}.jsonl"
        command = [
            "gym", "eval", "run", "--resources-server", package.name, "--model-type", "vllm_model", "--agent", agent_name(package.name),
            "--split", dataset_type(split), "--input", f"{server_folder(package.name)}/data/{split}.jsonl", "--output", str(out),
            "--model", policy, "--model-url", tool.model_url, "--model-api-key", "none", "--concurrency", str(tool.jobs),
            "+skip_venv_if_present=true", f"+uv_venv_dir={environments}",
        ]  # fmt: skip
        tool.run(command, package, f"gym-{policy}-{split}", copy)
        found |= {row["task_id"]: float(row["reward"]) for row in json_lines(out)}
    return found

"""`vf-validate` (gold and noop, no model) and `vf-eval` with harness `null` on the scripted model."""

from __future__ import annotations

from typing import Any

from storage.errors import HeadraceError
from synth.packages.checks.ecosystem_tool import PackageFolder, Rewards, Tool, json_lines


def rewards(package: PackageFolder, policy: str, tool: Tool) -> Rewards:
    found: dict[str, float] = {}
    for split in package.tasks:
        _validate(package, split, tool)
        run = f"{policy}-{split}"
        command = [
            "vf-eval", package.name, "--env.taskset.split", split, "--env.agent.harness.id", "null",
            "--env.agent.runtime.type", "subprocess", "-m", policy, "--no-push", "--no-rich",
            "--client.base-url", tool.model_url, "--client.api-key-var", "SCRIPTED_KEY", "-c", str(tool.jobs), "-o", str(tool.scratch),
            "--run.name", run, "--run.dir", run, "--clean",
        ]  # fmt: skip
        tool.run(command, package, f"vf-eval-{run}", SCRIPTED_KEY="none")
        for trace in _traces(tool, run):
            reward = (trace.get("rewards") or {}).get("success")
            if reward is not None:
                found[trace["task"]["data"]["id"]] = float(reward["score"])
    return found


def _traces(tool: Tool, run: str) -> list[dict[str, Any]]:
    return [trace for row in json_lines(tool.scratch / run / "traces.jsonl") for trace in row.get("traces", [row])]


def _validate(package: PackageFolder, split: str, tool: Tool) -> None:
    run = f"validate-{split}"
    results = tool.scratch / run / "results.jsonl"
    if results.exists():
        return
    command = ["vf-validate", package.name, "--taskset.split", split, "--runtime.type", "subprocess", "-o", str(tool.scratch)]
    tool.run([*command, "--run.name", run, "--run.dir", run], package, f"vf-{run}")
    invalid = [row for row in json_lines(results) if row.get("valid") is not True]
    if invalid:
        raise HeadraceError(f"vf-validate found {len(invalid)} invalid tasks in split {split}; see {results}")

"""`harbor run` with the agents `oracle` and `nop`; every service in bubblewrap, because no Docker daemon need run."""

from __future__ import annotations

import json

from synth.packages.checks.ecosystem_tool import PackageFolder, Rewards, Tool
from synth.packages.forms.for_harbor import ENVIRONMENT
from synth.packages.scripted_model import ORACLE


def rewards(package: PackageFolder, policy: str, tool: Tool) -> Rewards:
    agent = "oracle" if policy == ORACLE else "nop"
    found: dict[str, float] = {}
    for split in package.tasks:
        jobs = tool.scratch / f"harbor-{agent}-{split}"
        command = [
            "harbor", "run", "-p", str(package.folder / split), "-a", agent, "--env", ENVIRONMENT, "--jobs-dir", str(jobs), "--quiet",
            "--yes", "--n-concurrent", str(tool.jobs),
        ]  # fmt: skip
        tool.run(command, package, f"harbor-{agent}-{split}")
        for path in jobs.glob("*/*/result.json"):
            result = json.loads(path.read_text(encoding="utf-8"))
            reward = ((result.get("verifier_result") or {}).get("rewards") or {}).get("reward")
            if reward is not None:
                found[result["task_name"].rpartition("/")[2].removeprefix(f"{package.name}-")] = float(reward)
    return found

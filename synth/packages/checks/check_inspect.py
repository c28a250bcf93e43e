"""`inspect eval` on the scripted model, as an OpenAI-compatible provider; scores from its JSON log."""

from __future__ import annotations

import json

from synth.packages.checks.ecosystem_tool import PackageFolder, Rewards, Tool


def rewards(package: PackageFolder, policy: str, tool: Tool) -> Rewards:
    found: dict[str, float] = {}
    for split in package.tasks:
        logs = tool.scratch / f"inspect-{policy}-{split}"
        command = [
            "inspect", "eval", "headrace_tasks.py", "--model", f"openai-api/scripted/{policy}", "-T", f"split={split}",
            "--log-dir", str(logs), "--log-format", "json", "--display", "none", "--max-connections", str(tool.jobs),
        ]  # fmt: skip
        keys = {"SCRIPTED_BASE_URL": tool.model_url, "SCRIPTED_API_KEY": "none"}
        tool.run(command, package, f"inspect-{policy}-{split}", package.folder, **keys)
        for path in logs.glob("*.json"):
            for sample in json.loads(path.read_text(encoding="utf-8")).get("samples") or []:
                found |= {str(sample["id"]): float(score["value"]) for score in (sample.get("scores") or {}).values()}
    return found

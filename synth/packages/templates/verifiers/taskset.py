"""Tasks of Headrace as a verifiers taskset: the tools come from one MCP server, the reward is a replay of the trace."""

from pathlib import Path
from typing import Any

import verifiers.v1 as vf

from synth.packages.runtime import Package, expert_turns, judge, judge_openai, request, system_prompt

from .servers import HeadraceState, HeadraceTools, text_of

PACKAGE = Package(Path(__file__).parent / "data")


class HeadraceData(vf.TaskData):
    """A task without its plan and its success criteria: these stay in the package."""


class HeadraceTaskConfig(vf.TaskConfig):
    """No settings of its own."""


class HeadraceTask(vf.Task[HeadraceData, HeadraceState, HeadraceTaskConfig]):
    async def setup(self, trace: vf.Trace, runtime: vf.Runtime) -> None:
        trace.state.task_id = self.data.id or ""

    async def validate(self, runtime: vf.Runtime) -> bool:
        """Whether the expert plan passes: what `vf-validate` calls gold."""
        task = PACKAGE.task(self.data.id or "")
        return judge(task, expert_turns(task)).success

    @vf.reward(weight=1.0)
    async def success(self, trace: vf.Trace) -> float:
        """1 if all checks of the verdict hold. Every call of the trace is replayed in a fresh world."""
        verdict = judge_openai(PACKAGE.task(self.data.id or ""), [_openai(message) for message in _turns(trace)])
        trace.info["headrace"] = {"checks": verdict.checks, "r": verdict.reward}
        return float(verdict.success)


class HeadraceConfig(vf.TasksetConfig):
    split: str = "train"
    """`train`, or `eval_in` and `eval_out`, which are held out."""
    tools: vf.SharedToolsetConfig = vf.SharedToolsetConfig()
    task: HeadraceTaskConfig = HeadraceTaskConfig()


class HeadraceTaskset(vf.Taskset[HeadraceTask, HeadraceConfig]):
    def load(self) -> list[HeadraceTask]:
        return [
            HeadraceTask(HeadraceData(id=task.id, name=task.id, prompt=request(task), system_prompt=system_prompt(task)), self.config.task)
            for task in PACKAGE.tasks(self.config.split)
        ]

    @classmethod
    def toolsets(cls, config: HeadraceConfig) -> list[vf.Toolset]:
        return [HeadraceTools(config.tools)]


def _turns(trace: vf.Trace) -> list[Any]:
    """The messages after the opening."""
    messages = list(trace.messages)
    while messages and messages[0].role in ("system", "user"):
        messages.pop(0)
    return messages


def _openai(message: Any) -> dict[str, Any]:
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.tool_call_id, "content": text_of(message.content)}
    calls = [{"id": call.id, "function": {"name": call.name, "arguments": call.arguments}} for call in message.tool_calls or ()]
    return {"role": message.role, "content": text_of(message.content), "tool_calls": calls}

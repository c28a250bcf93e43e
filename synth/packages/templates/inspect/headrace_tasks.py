"""Tasks of Headrace for Inspect: `inspect eval headrace_tasks.py --model MODEL`, with `-T split=eval_in` for those that are held out.

Each sample has an episode of its own: a world, and a log of the calls. The score is the verdict on a replay of that log and the answer.
"""

from pathlib import Path
from typing import Any

from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ChatMessageSystem, ChatMessageUser
from inspect_ai.scorer import Score, Scorer, Target, accuracy, scorer, stderr
from inspect_ai.solver import Generate, Solver, TaskState, generate, solver
from inspect_ai.tool import Tool, ToolDef, ToolParams

from synth.packages.runtime import Episode, Episodes, Package, request, system_prompt, tool_schemas

PACKAGE = Package(Path(__file__).parent / "data")
EPISODES = Episodes()


@task
def headrace(split: str = "train") -> Task:
    return Task(
        dataset=MemoryDataset([_sample(each) for each in PACKAGE.tasks(split)]), solver=[world_tools(), generate()], scorer=verdict()
    )


def _sample(each: Any) -> Sample:
    system = system_prompt(each)
    opening = [ChatMessageSystem(content=system)] if system else []
    about = {"world": each.world, "intent": each.intent, "language": each.language, "difficulty": each.difficulty}
    return Sample(id=each.id, input=[*opening, ChatMessageUser(content=request(each))], metadata=about)


@solver
def world_tools() -> Solver:
    """Starts the sample's episode and offers its tools."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        each = PACKAGE.task(str(state.sample_id))
        episode = EPISODES.start(state.uuid, each)
        state.tools = [_tool(episode, schema) for schema in tool_schemas(each)]
        return state

    return solve


def _tool(episode: Episode, schema: dict[str, Any]) -> Tool:
    async def execute(**arguments: Any) -> str:
        return episode.call(schema["name"], arguments).content

    parameters = ToolParams.model_validate(schema["parameters"])
    return ToolDef(execute, schema["name"], schema["description"], parameters, max_output=0).as_tool()


@scorer(metrics=[accuracy(), stderr()])
def verdict() -> Scorer:
    async def score(state: TaskState, target: Target) -> Score:
        found = EPISODES.get(state.uuid).judge(state.output.completion)
        EPISODES.end(state.uuid)
        failed = [name for name, holds in found.checks.items() if not holds]
        return Score(
            value=int(found.success),
            explanation=f"failed: {', '.join(failed)}" if failed else "all checks hold",
            metadata={"r": found.reward},
        )

    return score

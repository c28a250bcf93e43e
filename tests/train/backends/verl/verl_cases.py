"""Cases of `test_agent_loop.py`, played in verl's own environment: `.venv-verl/bin/python verl_cases.py FOLDER` prints facts as JSON.

FOLDER is what `benchmarks/cluster/verl_sections/verl_stage.py` wrote. A case is a function of the stage; its name is its key.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

from omegaconf import open_dict

from benchmarks.cluster.verl_sections import verl_play
from benchmarks.cluster.verl_sections.verl_doubles import LOGPROB, MemoryQueue
from benchmarks.cluster.verl_sections.verl_masks import mask_errors
from benchmarks.cluster.verl_sections.verl_play import Stage, broken_worlds
from storage.records import Message
from synth.rollouts.episode import Episode
from train.backends.rollout_lines import json_lines
from train.backends.verl import agent_loop


def expert(stage: Stage) -> dict[str, Any]:
    index, script = calling(stage)
    (played,) = stage.play(index, [script])
    calls = list(stage.worker.llm_client.seen)
    tag = dict(stage.queue.tags["train"]["u_0_0"])
    return {
        "fields": plain(played["extra_fields"]),
        "num_turns": int(plain(played["num_turns"])),
        "metrics": plain(played["metrics"]),
        "reward": float(played["rm_scores"].sum()),
        "versions": [tag["min_global_steps"], tag["max_global_steps"]],
        "prompts_grow": all(later[1][: len(before[1])] == before[1] for before, later in pairwise(calls)),
        "limits": [call[2]["max_tokens"] for call in calls],
        "answers": len(script),
        "line": lines(stage)[-1],
    }


def wrong_masks(stage: Stage) -> dict[str, Any]:
    """Wrong tokens counted for an expert's rollout as verl stored it, with an observation trained, and with a token that nobody said."""
    index, script = calling(stage)
    (played,) = stage.play(index, [script])
    trained, other = (dict(played) for _ in range(2))
    trained["response_mask"] = played["response_mask"].clone()
    trained["response_mask"][int(played["response_mask"].argmin())] = 1
    other["responses"] = played["responses"].clone()
    other["responses"][1] += 1
    return {"errors": [mask_errors(stage.tokenizer, each, stage.wholes[index], LOGPROB) for each in (played, trained, other)]}


def cut(stage: Stage) -> dict[str, Any]:
    """An answer without an end."""
    (played,) = stage.play(next(iter(stage.rows)), [[stage.ids("I am thinking about it ") * 1_000]])
    return {**facts(played), "outcome": plain(played["extra_fields"])["headrace"]["outcome"]}


def no_room(stage: Stage) -> dict[str, Any]:
    """What the tools say does not fit the response length any more."""
    index, script = calling(stage)
    with changed(stage, response_length=len(script[0]) + 5):
        (played,) = stage.play(index, [script])
    return {**facts(played), "first_answer": len(script[0]), "outcome": plain(played["extra_fields"])["headrace"]["outcome"]}


def malformed(stage: Stage) -> dict[str, Any]:
    """A good call and a malformed one."""
    index, script = calling(stage)
    call = stage.tokenizer.decode(script[0]).removesuffix("<|im_end|>")
    (played,) = stage.play(index, [[stage.ids(f'{call}\n<tool_call>\n{{"name": }}\n</tool_call><|im_end|>')]])
    return {**facts(played), "calls": plain(played["extra_fields"])["headrace"]["calls"]}


def dropped(stage: Stage) -> dict[str, Any]:
    """What verl stored of a group whose first world breaks, and the last line of what was written of it."""
    index, script = calling(stage)
    before = len(lines(stage))
    with broken_worlds(1):
        stored = stage.play(index, [script, script])
    written = [line for line in lines(stage)[before:] if line["reward"] is None]
    return {"stored": len(stored), "status": stage.queue.tags["train"]["u"]["status"], "lines": written}


def silent_engine(stage: Stage) -> dict[str, Any]:
    stored = stage.play(next(iter(stage.rows)), [[[]]])
    return {"stored": len(stored), "failure": lines(stage)[-1]["failure"]}


def long_prompt(stage: Stage) -> dict[str, Any]:
    with changed(stage, prompt_length=10):
        stored = stage.play(next(iter(stage.rows)), [stage.nothing])
    return {"stored": len(stored), "failure": lines(stage)[-1]["failure"]}


def old_trainer(stage: Stage) -> dict[str, Any]:
    stage.config.trainer.use_v1 = False
    try:
        return {"stored": len(stage.play(next(iter(stage.rows)), [stage.nothing]))}
    finally:
        stage.config.trainer.use_v1 = True


def own_world(stage: Stage) -> dict[str, Any]:
    """A task in a world that only the store has; how often the store was read in all."""
    index = next(index for index, row in stage.rows.items() if "@" in json.loads(row["extra_info"]["task"])["world"])
    agent_loop._registered.clear()
    with patch.object(agent_loop, "register_stored", wraps=agent_loop.register_stored) as read:
        rewards = [float(played["rm_scores"].sum()) for played in stage.play(index, [stage.scripts[index]] * 3)]
    return {"rewards": rewards, "read": read.call_count}


def slow_world(stage: Stage) -> dict[str, Any]:
    """Four worlds that block for 0.3 s at each call: the steps of another coroutine meanwhile, and the seconds of the group."""
    index, script = calling(stage)
    call, ticks = Episode._call, 0

    def slow(episode: Episode, message: Message) -> list[Message]:
        time.sleep(0.3)
        return call(episode, message)

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    ticking = asyncio.get_event_loop().create_task(tick())
    begun = time.monotonic()
    with patch.object(Episode, "_call", slow):
        stage.play(index, [script] * 4)
    ticking.cancel()
    return {"ticks": ticks, "seconds": time.monotonic() - begun, "calls": len(script) - 1}


def sft(stage: Stage) -> dict[str, Any]:
    return {"errors": verl_play.sft_errors(verl_play._config(FOLDER / "sft"))}


def configurations(stage: Stage) -> dict[str, Any]:
    return verl_play.rejections(FOLDER / "configurations")


def wrong_configuration(stage: Stage) -> dict[str, Any]:
    wrong = verl_play._config(FOLDER / "rl")
    wrong.actor_rollout_ref.actor.loss_agg_mode = "by-the-moon"
    with verl_play.stubbed_imports():
        return {"error": verl_play._rejection(wrong)}


# ---- parts ----------------------------------------------------------------------------------------------------------------------


def calling(stage: Stage) -> tuple[str, Any]:
    """A row whose expert calls a tool, and the expert's answers."""
    return next((index, script) for index, script in stage.scripts.items() if len(script) > 1)


def facts(played: dict[str, Any]) -> dict[str, Any]:
    return {
        "reward": float(played["rm_scores"].sum()),
        "response": len(played["responses"]),
        "trained": int(played["response_mask"].sum()),
        "logprobs": len(played["rollout_log_probs"]),
    }


def plain(value: Any) -> Any:
    return value.data if hasattr(value, "data") else value


def lines(stage: Stage) -> list[dict[str, Any]]:
    return [line for path in sorted((FOLDER / "rl" / "rollouts").glob("*.jsonl")) for line in json_lines(path)]


@contextmanager
def changed(stage: Stage, **lengths: int) -> Iterator[None]:
    rollout = stage.config.actor_rollout_ref.rollout
    before = {name: rollout[name] for name in lengths}
    with open_dict(rollout):
        rollout.update(lengths)
        yield
        rollout.update(before)


CASES: list[Callable[[Stage], dict[str, Any]]] = [
    *(
        expert,
        wrong_masks,
        cut,
        no_room,
        malformed,
        dropped,
        silent_engine,
        long_prompt,
        old_trainer,
        own_world,
        slow_world,
        sft,
        configurations,
        wrong_configuration,
    )
]

if __name__ == "__main__":
    FOLDER = Path(sys.argv[1])
    with MemoryQueue() as queue:
        stage = Stage(verl_play._config(FOLDER / "rl"), queue, json.loads((FOLDER / "experts.json").read_text()))
        found = {case.__name__: case(stage) for case in CASES}
    print(json.dumps(found))

"""A policy x tasks x k: every draw is a live conversation in a world of its own, with a typed outcome.

One idea: whose fault it was decides the outcome. A malformed call, an unknown tool, or using up the turns, the tokens or the model's
window is a `policy_failure` with reward 0; an exception of ours (the engine, the world) is an `infra_failure`, one of the verifier a
`judge_failure`, and neither has a reward, so that it can enter no rate.
Engines that can hold a conversation over their own cache (`hf:`) are given whole conversations; all others are asked turn by turn,
all open conversations in one batch.
Draw d of a task has a seed of its own, from (seed, task, d): it is the same draw whatever else is rolled out beside it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import polars as pl

from storage.records import Cost, Message, Outcome, Rollout, SampledTurn, Task, Tool, content_id
from storage.store import Part, Store, part_id
from synth.engines.base import ChatAnswer, ChatRequest, Engine, EngineFailure
from synth.verify import judge
from synth.worlds import WORLDS, make_world
from synth.worlds.base import World

VERSION = 2
Progress = Callable[[str, int, int], None]
"""(label, done, total)"""
MAX_TURNS = 8
MAX_TOKENS = 64


@runtime_checkable
class Conversing(Protocol):
    """An engine that holds whole conversations: see `synth.engines.hf.HFEngine.converse`."""

    def converse(self, requests: Sequence[ChatRequest], reply: Callable[[int, ChatAnswer], Sequence[Message] | None]) -> list[Any]:
        """After every answer, `reply(index of the request, answer)` gives the messages that go on, or None. One trace a request."""


@dataclass(slots=True)
class Episode:
    """One conversation on its way and, once `outcome` is set, over."""

    task: Task
    draw: int
    max_turns: int
    messages: list[Message] = field(default_factory=list)
    turns: list[SampledTurn] = field(default_factory=list)
    outcome: Outcome | None = None
    reward: float | None = None
    checks: dict[str, bool] = field(default_factory=dict)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    _world: World | None = None

    def __post_init__(self) -> None:
        self.messages = list(self.task.messages)

    def step(self, answer: ChatAnswer) -> list[Message] | None:
        """Takes an answer in, makes its calls in the world, and returns what goes on the conversation; None when it is over."""
        message = answer.message
        self.messages.append(message)
        self.turns.append(SampledTurn(token_ids=answer.token_ids, logprobs=answer.logprobs, policy_version=answer.policy_version))
        self.prompt_tokens += answer.prompt_tokens
        self.completion_tokens += answer.completion_tokens
        if answer.finish_reason == "length":
            return self._fail("ended_in_time")
        if not message.tool_calls:
            if "<tool_call>" in (message.content or ""):
                return self._fail("well_formed")
            return self._judge()
        if len(self.turns) >= self.max_turns:
            return self._fail("ended_in_time")
        try:
            return self._call(message)
        except Exception:  # whatever a world raises is our fault
            self.outcome = Outcome.INFRA_FAILURE
            return None

    def close(self) -> None:
        """Ends a conversation that got no further answer: it outgrew the model's window."""
        if self.outcome is None:
            self._fail("ended_in_time")

    def _call(self, message: Message) -> list[Message]:
        if self._world is None:
            self._world = make_world(self.task.world, self.task.world_seed)
        results = [
            Message(role="tool", tool_call_id=call.id, content=self._world.call(call.function.name, call.function.arguments).content)
            for call in message.tool_calls
        ]
        self.messages += results
        return results

    def _judge(self) -> list[Message] | None:
        try:
            changes = self._world.changes() if self._world is not None else {}
        except Exception:
            self.outcome = Outcome.INFRA_FAILURE
            return None
        try:
            verdict = judge(self.task, self.messages, changes)
        except Exception:
            self.outcome = Outcome.JUDGE_FAILURE
            return None
        self.outcome = Outcome.SUCCESS if verdict.success else Outcome.POLICY_FAILURE
        self.reward, self.checks = verdict.reward, verdict.checks
        return None

    def _fail(self, check: str) -> list[Message] | None:
        self.outcome, self.reward, self.checks = Outcome.POLICY_FAILURE, 0.0, {check: False}
        return None

    def record(self, policy_id: str, teacher: str, seed: int) -> Rollout:
        """The finished conversation as it is stored."""
        assert self.outcome is not None
        return Rollout(
            id=content_id("rollout", self.task.id, policy_id, seed, self.draw, self.max_turns, [turn.token_ids for turn in self.turns]),
            task_id=self.task.id,
            messages=tuple(self.messages),
            outcome=self.outcome,
            reward=self.reward,
            checks=self.checks,
            teacher=teacher,
            cost=Cost(prompt_tokens=self.prompt_tokens, completion_tokens=self.completion_tokens),
            policy_id=policy_id,
            draw=self.draw,
            turns=tuple(self.turns),
        )


def request_seed(*parts: object) -> int:
    """A 63-bit seed that any change of any part changes."""
    return int(content_id("seed", *parts)[5:], 16) >> 1


def play(
    engine: Engine, episodes: Sequence[Episode], *, temperature: float, seed: int, max_tokens: int = MAX_TOKENS, tools: bool = True
) -> list[Any]:
    """Runs episodes to their end, all side by side; returns the engine's traces (empty for engines that keep none).

    Args:
        temperature: 0 is greedy. seed: of the whole batch; each episode derives its own.
        max_tokens: of one answer. tools: whether the request carries the tools' signatures (a tiny policy's template ignores them).
    """
    requests = [
        ChatRequest(
            messages=episode.task.messages,
            tools=_tools(episode.task) if tools else (),
            temperature=temperature,
            max_tokens=max_tokens,
            seed=request_seed(seed, episode.task.id, episode.draw),
        )
        for episode in episodes
    ]
    try:
        if isinstance(engine, Conversing):
            return engine.converse(requests, lambda index, answer: episodes[index].step(answer))
        _take_turns(engine, episodes, requests)
    except EngineFailure:
        for episode in episodes:
            if episode.outcome is None:
                episode.outcome = Outcome.INFRA_FAILURE
    finally:
        for episode in episodes:
            episode.close()
    return []


def _take_turns(engine: Engine, episodes: Sequence[Episode], requests: Sequence[ChatRequest]) -> None:
    open_now = list(zip(episodes, requests, strict=True))
    while open_now:
        answers = engine.chat([request for _, request in open_now])
        going_on = []
        for (episode, request), answer in zip(open_now, answers, strict=True):
            if episode.step(answer) is not None:
                again = ChatRequest(tuple(episode.messages), request.tools, request.temperature, request.max_tokens, request.seed)
                going_on.append((episode, again))
        open_now = going_on


def _tools(task: Task) -> tuple[Tool, ...]:
    by_name = {tool.name: tool for tool in WORLDS[task.world].tools}
    return tuple(by_name[name] for name in task.tools)


def rollout(
    engine: Engine,
    tasks: Sequence[Task],
    k: int,
    *,
    temperature: float = 1.0,
    seed: int = 0,
    max_turns: int = MAX_TURNS,
    max_tokens: int = MAX_TOKENS,
    policy_id: str = "",
    batch_tasks: int = 32,
    first_draw: int = 0,
    progress: Progress | None = None,
) -> list[Rollout]:
    """k draws of every task, in the order of the tasks and then of the draws.

    Args:
        temperature: 0 is greedy; then k > 1 is a waste. batch_tasks: how many tasks run side by side.
        first_draw: number of the first draw, for a second probe that is independent of the first.
    """
    records: list[Rollout] = []
    for batch in _batches(tasks, batch_tasks):
        episodes = [Episode(task, first_draw + draw, max_turns) for task in batch for draw in range(k)]
        play(engine, episodes, temperature=temperature, seed=seed, max_tokens=max_tokens)
        records += [episode.record(policy_id, engine.name, seed) for episode in episodes]
        if progress is not None:
            progress("rollouts", len(records), len(tasks) * k)
    return records


def _batches(tasks: Sequence[Task], size: int) -> Iterator[Sequence[Task]]:
    for start in range(0, len(tasks), size):
        yield tasks[start : start + size]


def rollouts_frame(rollouts: Sequence[Rollout], purpose: str) -> pl.DataFrame:
    """Rollouts as rows of table `rollouts`."""
    rows = [
        {
            "rollout_id": content_id("rollout", rollout.id, purpose),
            "task_id": rollout.task_id,
            "policy_id": rollout.policy_id,
            "purpose": purpose,
            "draw": rollout.draw,
            "outcome": rollout.outcome.value,
            "reward": rollout.reward,
            "checks": json.dumps(rollout.checks),
            "messages": json.dumps([message.to_openai() for message in rollout.messages], ensure_ascii=False),
            "turns": json.dumps([turn.model_dump() for turn in rollout.turns]),
        }
        for rollout in rollouts
    ]
    schema = {"draw": pl.Int32, "reward": pl.Float64}
    return pl.DataFrame(rows, schema_overrides=schema, infer_schema_length=None)


def rollout_parts(
    store: Store,
    engine: Engine,
    tasks: Sequence[Task],
    k: int,
    *,
    purpose: str,
    policy_id: str,
    temperature: float = 1.0,
    seed: int = 0,
    max_turns: int = MAX_TURNS,
    max_tokens: int = MAX_TOKENS,
    part_tasks: int = 128,
    progress: Progress | None = None,
) -> list[Part]:
    """`rollout`, written to the store in parts of `part_tasks` tasks; parts that are there already are not made again. Not committed.

    purpose: `probe`, `eval_in`, ...: why they were made; a policy's greedy and sampled rollouts have different purposes.
    """
    parts: list[Part] = []
    for start, batch in enumerate(_batches(tasks, part_tasks)):
        parameters = {
            "k": k,
            "purpose": purpose,
            "temperature": temperature,
            "seed": seed,
            "max_turns": max_turns,
            "max_tokens": max_tokens,
        }
        identity = part_id("rollouts", [policy_id, *(task.id for task in batch)], parameters, VERSION)
        part = store.find(identity)
        if part is None:
            made = rollout(
                engine, batch, k, temperature=temperature, seed=seed, max_turns=max_turns, max_tokens=max_tokens, policy_id=policy_id
            )
            part = store.write("rollouts", identity, rollouts_frame(made, purpose))
        parts.append(part)
        if progress is not None:
            progress(purpose, min(len(tasks), (start + 1) * part_tasks) * k, len(tasks) * k)
    return parts

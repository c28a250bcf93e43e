"""Conversations of a policy, each live in a world of its own, to a typed outcome.

One idea: whose fault it was decides the outcome. A malformed call, an unknown tool, or using up the turns, the tokens or the model's
window is a `policy_failure` with reward 0; an exception of ours (the engine, the world) or a world that is gone is an `infra_failure`, an
exception or nonsense of the verifier a `judge_failure`, and neither has a reward, so that it can enter no rate.
Engines that can hold a conversation over their own cache (`hf:`) are given whole conversations; of all others many are held side by side,
each in a thread of its own.
A trace is exact: the tokens and log-probabilities are those that were sampled. The prompt of every turn must begin with what the turns
before it were sampled from and as; where a server has rendered it otherwise, the turns from there on are not trained on (`is_exact`).

What it does not do: begin again what was spoilt, repeat a task, or store (`synth/rollouts/draws.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

from storage.records import Cost, Message, Outcome, Rollout, SampledTurn, Task, Tool, content_id
from synth.engines.base import ChatAnswer, ChatRequest, Engine, EngineFailure, side_by_side
from synth.tasks.verify import Verdict, judge
from synth.worlds import WORLDS
from synth.worlds.base import World

MAX_TURNS = 8
MAX_TOKENS = 64
IN_FLIGHT = 64
_LONGEST_FAILURE = 300


@runtime_checkable
class Conversing(Protocol):
    """An engine that holds whole conversations: see `synth.engines.local.hf.HFEngine.converse`."""

    def converse(self, requests: Sequence[ChatRequest], reply: Callable[[int, ChatAnswer], Sequence[Message] | None]) -> None:
        """After every answer, `reply(index of the request, answer)` gives the messages that go on, or None."""


@dataclass(frozen=True, slots=True)
class Trace:
    """A conversation token by token. ids: what follows the prompt, observations included; mask is 1, and logprobs are set, where the
    policy wrote the token. All are empty where the engine told no tokens."""

    prompt_ids: list[int] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


def trace(turns: Sequence[SampledTurn]) -> Trace:
    """The turns of a conversation as one sequence of tokens; what a turn that is not exact has sampled stands in no mask."""
    result = Trace()
    for turn in turns:
        if not turn.is_exact or not (result.prompt_ids or turn.context_ids):
            continue
        if result.prompt_ids:
            _add(result, turn.context_ids, [0.0] * len(turn.context_ids), 0)
        else:
            result.prompt_ids.extend(turn.context_ids)
        _add(result, turn.token_ids, turn.logprobs, 1)
    return result


def _add(to: Trace, ids: Sequence[int], logprobs: Sequence[float], mask: int) -> None:
    to.ids.extend(ids)
    to.mask.extend([mask] * len(ids))
    to.logprobs.extend(logprobs)


@dataclass(slots=True)
class Episode:
    """One conversation on its way and, once `outcome` is set, over.

    kind: the task's world; `play` finds it where it is not given.
    attempts: how often it was begun.
    failure: what spoilt it, where that was no doing of the policy's.
    is_unanswered: the engine spoilt it.
    is_lost: the task's world is gone, so that beginning again would change nothing.
    """

    task: Task
    draw: int
    max_turns: int
    kind: type[World] | None = None
    messages: list[Message] = field(default_factory=list)
    turns: list[SampledTurn] = field(default_factory=list)
    outcome: Outcome | None = None
    reward: float | None = None
    checks: dict[str, bool] = field(default_factory=dict)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    attempts: int = 1
    failure: str = ""
    is_unanswered: bool = False
    is_lost: bool = False
    _world: World | None = None
    _known: tuple[int, ...] = ()
    """The tokens up to here, as the policy saw and wrote them."""

    def __post_init__(self) -> None:
        self.messages = list(self.task.messages)

    def step(self, answer: ChatAnswer) -> list[Message] | None:
        """Takes an answer in, makes its calls in the world, and returns what goes on the conversation; None when it is over."""
        message = answer.message
        self.messages.append(message)
        self._keep(answer)
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
        except Exception as error:  # whatever a world raises is our fault
            return self._broken_world(error)

    def end_unanswered(self, failure: EngineFailure) -> None:
        """Ends a conversation that its engine gave no answer."""
        self.is_unanswered = True
        self._spoilt(Outcome.INFRA_FAILURE, _describe_error(failure))

    def lost(self, why: str) -> None:
        """Ends a conversation that cannot be held, now or later."""
        self.is_lost = True
        self._spoilt(Outcome.INFRA_FAILURE, why)

    def close(self) -> None:
        """Ends a conversation that got no further answer: it outgrew the model's window."""
        if self.outcome is None:
            self._fail("ended_in_time")

    def _call(self, message: Message) -> list[Message]:
        if self._world is None:
            self._world = self._kind()(self.task.world_seed)
        results = [
            Message(role="tool", tool_call_id=call.id, content=self._world.call(call.function.name, call.function.arguments).content)
            for call in message.tool_calls
        ]
        self.messages += results
        return results

    def _kind(self) -> type[World]:
        if self.kind is None:
            raise LookupError("the episode was given no world")
        return self.kind

    def _judge(self) -> list[Message] | None:
        try:
            changes = self._world.changes() if self._world is not None else {}
        except Exception as error:
            return self._broken_world(error)
        try:
            verdict = judge(self._kind(), self.task, self.messages, changes)
            if not (isinstance(verdict, Verdict) and isinstance(verdict.success, bool) and 0 <= verdict.reward <= 1):
                raise ValueError(f"the verifier said {verdict!r}")
        except Exception as error:
            return self._spoilt(Outcome.JUDGE_FAILURE, _describe_error(error))
        self.outcome = Outcome.SUCCESS if verdict.success else Outcome.POLICY_FAILURE
        self.reward, self.checks = verdict.reward, verdict.checks
        return None

    def _fail(self, check: str) -> list[Message] | None:
        self.outcome, self.reward, self.checks = Outcome.POLICY_FAILURE, 0.0, {check: False}
        return None

    def _broken_world(self, error: Exception) -> list[Message] | None:
        return self._spoilt(Outcome.INFRA_FAILURE, f"world {self.task.world}: {_describe_error(error)}")

    def _spoilt(self, outcome: Outcome, why: str) -> list[Message] | None:
        self.outcome, self.failure = outcome, why[:_LONGEST_FAILURE]
        return None

    def _keep(self, answer: ChatAnswer) -> None:
        """Keeps what was sampled, and looks whether its prompt begins with what was sampled before."""
        start = len(self._known)
        if answer.prompt_ids[:start] != self._known:
            start = self._unsettle(answer.prompt_ids)
        self.turns.append(
            SampledTurn(
                token_ids=answer.token_ids,
                logprobs=answer.logprobs,
                policy_version=answer.policy_version,
                context_ids=answer.prompt_ids[start:],
            )
        )
        self._known = (*answer.prompt_ids, *answer.token_ids) if answer.prompt_ids else ()

    def _unsettle(self, prompt: tuple[int, ...]) -> int:
        """Marks the turns from the first on that the prompt renders otherwise; returns where it stands there."""
        place = 0
        for index, turn in enumerate(self.turns):
            sampled = (*turn.context_ids, *turn.token_ids)
            if turn.is_exact and prompt[place : place + len(sampled)] != sampled:
                drifted = {"is_exact": False, "context_ids": ()}
                self.turns[index:] = [one.model_copy(update=drifted) for one in self.turns[index:]]
                break
            place += len(sampled) if turn.is_exact else 0
        return place

    def record(self, policy_id: str, teacher: str, seed: int) -> Rollout:
        """The finished conversation as it is stored: the same draw has another id where it came out otherwise."""
        assert self.outcome is not None
        tokens, spoken = [turn.token_ids for turn in self.turns], [message.to_openai() for message in self.messages]
        return Rollout(
            id=content_id("rollout", self.task.id, policy_id, seed, self.draw, self.max_turns, tokens, spoken, self.outcome),
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
            attempts=self.attempts,
            failure=self.failure,
        )


def _describe_error(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def request_seed(*parts: object) -> int:
    """A 63-bit seed that any change of any part changes."""
    return int(content_id("seed", *parts)[5:], 16) >> 1


def play(
    engine: Engine,
    episodes: Sequence[Episode],
    *,
    temperature: float,
    seed: int,
    max_tokens: int = MAX_TOKENS,
    tools: bool = True,
    in_flight: int = IN_FLIGHT,
) -> None:
    """Runs episodes to their end, all side by side.

    Args:
        temperature: 0 is greedy. seed: of the whole batch; each episode derives its own.
        max_tokens: of one answer. tools: whether the request carries the tools' signatures (a tiny policy's template ignores them).
        in_flight: conversations at once with an engine that is asked turn by turn.

    Raises:
        BudgetSpent: the engine may be asked nothing more.
    """
    grouped = _held(episodes)
    requests = [
        ChatRequest(
            messages=episode.task.messages,
            tools=offered if tools else (),
            temperature=temperature,
            max_tokens=max_tokens,
            seed=request_seed(seed, episode.task.id, episode.draw),
            is_traced=True,
        )
        for episode, offered in grouped
    ]
    episodes = [episode for episode, _ in grouped]
    if not isinstance(engine, Conversing):
        pairs = list(zip(episodes, requests, strict=True))
        side_by_side(lambda pair: _take_turns(engine, *pair), pairs, in_flight, "rollouts", lambda *_: None)
        return
    try:
        engine.converse(requests, lambda index, answer: episodes[index].step(answer))
    except EngineFailure as failure:
        for episode in episodes:
            if episode.outcome is None:
                episode.end_unanswered(failure)
    for episode in episodes:
        episode.close()


def _take_turns(engine: Engine, episode: Episode, request: ChatRequest) -> None:
    goes_on = True
    while goes_on:
        try:
            (answer,) = engine.chat([request])
        except EngineFailure as failure:
            episode.end_unanswered(failure)
            return
        goes_on = episode.step(answer) is not None
        request = replace(request, messages=tuple(episode.messages))


def _held(episodes: Sequence[Episode]) -> list[tuple[Episode, tuple[Tool, ...]]]:
    """The episodes that can be held, each with its task's tools; the others are lost."""
    groups: list[tuple[Episode, tuple[Tool, ...]]] = []
    for episode in episodes:
        try:
            episode.kind = episode.kind or world_of(episode.task)
            groups.append((episode, tools_of(episode.kind, episode.task)))
        except Exception as error:  # whatever keeps a world from being made
            episode.lost(f"world {episode.task.world}: {_describe_error(error)}")
    return groups


def world_of(task: Task) -> type[World]:
    """The world that a task names.

    Raises:
        LookupError: it is gone.
    """
    if task.world not in WORLDS:
        raise LookupError("it is gone")
    return WORLDS[task.world]


def tools_of(world: type[World], task: Task) -> tuple[Tool, ...]:
    """The tools that a task offers, of its world.

    Raises:
        LookupError: one of them is gone.
    """
    by_name = {tool.name: tool for tool in world.tools}
    if missing := [name for name in task.tools if name not in by_name]:
        raise LookupError(f"it has no tool {missing[0]} any more")
    return tuple(by_name[name] for name in task.tools)

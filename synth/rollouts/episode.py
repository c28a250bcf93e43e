"""Conversations of a policy, each in a world of its own, up to a typed outcome.

One idea: the cause decides the outcome. A malformed call, an unknown tool, or exceeding the limit of turns, tokens or the model's window is
a `policy_failure` with the reward of the goals reached before it. An exception of the engine or the world, or a missing world, is an
`infra_failure`; an exception or an invalid result of the verifier is a `judge_failure`. These two have no reward, so they enter no rate.
Engines that hold a conversation over their own cache (`hf:`) get whole conversations; for all others many conversations run at once, each
in its own thread. A trace is exact: its tokens and log-probabilities are those that were sampled. The prompt of every turn must begin with
the tokens of the turns before it; where a server has rendered them differently, the turns from there on are not trained on (`is_exact`).

A conversation may start from the first turns of the expert's (`expert_prefix.py`): they are context, and the judge sees the whole.

A task with several user turns goes on after an answer that passes: `synth/conversations/conversation_play.py` is its user, its tools and
its judge.

Not done here: restarting failed conversations, repeating a task, storing (`synth/rollouts/draws.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

from storage.records import JSON, Cost, Message, Outcome, Rollout, SampledTurn, Task, Tool, content_id
from synth.context.offered_tools import tools_of
from synth.context.view import ViewedWorld, open_world
from synth.conversations.conversation_play import ConversationPlay, blueprint_of
from synth.engines.base import ChatAnswer, ChatRequest, Engine, EngineFailure, side_by_side
from synth.engines.local.call_texts import is_broken_call
from synth.rollouts.expert_prefix import ExpertPrefix
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
        """After every answer calls `reply(index of the request, answer)`, which returns the next messages, or None at the end."""


@dataclass(frozen=True, slots=True)
class Trace:
    """A conversation as tokens; all lists are empty if the engine reports no tokens.

    ids: the tokens after the prompt, observations included.
    mask: 1 for a token of the policy, else 0.
    logprobs: log-probability of each token of the policy, 0 for the others.
    """

    prompt_ids: list[int] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


def trace(turns: Sequence[SampledTurn]) -> Trace:
    """The turns of a conversation as one sequence of tokens, without the turns that are not exact."""
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
    """One conversation; it is over once `outcome` is set.

    kind: the task's world; None lets `play` look it up.
    max_turns: most answers for one user turn.
    attempts: how often it was started.
    failure: the error, for a failure that the policy did not cause.
    is_unanswered: the engine failed.
    is_lost: the task's world does not exist any more, so another attempt would fail too.
    is_judged_elsewhere: a conversation that ended by itself gets no outcome here; `changes` is set instead, for the caller to judge by.
    changes: `World.changes()` at the end.
    prefix: turns of the expert that it starts from; None: it starts at the request.
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
    is_judged_elsewhere: bool = False
    changes: dict[str, JSON] | None = None
    prefix: ExpertPrefix | None = None
    _world: World | ViewedWorld | None = None
    _dialogue: ConversationPlay | None = None
    _turn_steps: int = 0
    """Answers since the user spoke last."""
    _known: tuple[int, ...] = ()
    """The tokens so far, as sampled."""

    def __post_init__(self) -> None:
        self.messages = list(self.opening)
        self._turn_steps = self.prefix.turns if self.prefix else 0

    @property
    def opening(self) -> tuple[Message, ...]:
        """The messages that the policy goes on from."""
        return self.prefix.messages if self.prefix else self.task.messages

    def step(self, answer: ChatAnswer) -> list[Message] | None:
        """Adds an answer, executes its calls in the world, and returns their results; None if the conversation is over."""
        message = answer.message
        self.messages.append(message)
        self._add_turn(answer)
        self._turn_steps += 1
        self.prompt_tokens += answer.prompt_tokens
        self.completion_tokens += answer.completion_tokens
        if answer.finish_reason == "length":
            return self._end_as_policy_failure("ended_in_time")
        if not message.tool_calls:
            if is_broken_call(message):
                return self._end_as_policy_failure("well_formed")
            return self._judge() if self.task.conversation is None else self._end_turn()
        if self._turn_steps >= self.max_turns:
            return self._end_as_policy_failure("ended_in_time")
        try:
            return self._call(message)
        except Exception as error:  # no exception of a world counts as the policy's failure
            return self._broken_world(error)

    def end_unanswered(self, failure: EngineFailure) -> None:
        """Ends the conversation after a failure of the engine."""
        self.is_unanswered = True
        self._end_with_failure(Outcome.INFRA_FAILURE, _describe_error(failure))

    def end_lost(self, why: str) -> None:
        """Ends a conversation whose world or tools do not exist any more."""
        self.is_lost = True
        self._end_with_failure(Outcome.INFRA_FAILURE, why)

    def close(self) -> None:
        """Ends a conversation without a further answer: it exceeded the model's window."""
        if self.outcome is None:
            self._end_as_policy_failure("ended_in_time")

    def _call(self, message: Message) -> list[Message]:
        if self.task.conversation is not None:
            results = self._play().call(message)
            self.messages += results
            return results
        world = self._open()
        results = [
            Message(role="tool", tool_call_id=call.id, content=world.call(call.function.name, call.function.arguments).content)
            for call in message.tool_calls
        ]
        self.messages += results
        return results

    def _open(self) -> World | ViewedWorld:
        """The world of the conversation, in its present state."""
        if self._world is None:
            self._world = open_world(self._kind(), self.task) if self.prefix is None else self.prefix.restored(self._kind(), self.task)
        return self._world

    def _kind(self) -> type[World]:
        if self.kind is None:
            raise LookupError("the episode was given no world")
        return self.kind

    def _judge(self) -> list[Message] | None:
        try:
            is_untouched = self._world is None and self.prefix is None
            changes = {} if is_untouched else self._open().changes()
        except Exception as error:
            return self._broken_world(error)
        if self.is_judged_elsewhere:
            self.changes = dict(changes)
            return None
        try:
            verdict = sound_verdict(judge(self._kind(), self.task, self.messages, changes))
        except Exception as error:
            return self._end_with_failure(Outcome.JUDGE_FAILURE, _describe_error(error))
        self.outcome = Outcome.SUCCESS if verdict.success else Outcome.POLICY_FAILURE
        self.reward, self.checks = verdict.reward, verdict.checks
        return None

    def _play(self) -> ConversationPlay:
        if self._dialogue is None:
            self._dialogue = ConversationPlay(self._kind(), blueprint_of(self.task), self.task.context)
        return self._dialogue

    def _end_turn(self) -> list[Message] | None:
        """Judges a turn of a task with several user turns; returns what the user says next, None if the conversation is over."""
        try:
            play = self._play()
        except Exception as error:
            return self._broken_world(error)
        try:
            said = play.end_turn(self.messages)
        except Exception as error:
            return self._end_with_failure(Outcome.JUDGE_FAILURE, _describe_error(error))
        if said is not None:
            self.messages.append(said)
            self._turn_steps = 0
            return [said]
        self.outcome = Outcome.SUCCESS if play.passed else Outcome.POLICY_FAILURE
        self.reward, self.checks = play.reward, play.checks
        return None

    def _end_as_policy_failure(self, check: str) -> list[Message] | None:
        reward = self._dialogue.reward if self._dialogue is not None else 0.0
        earlier = self._dialogue.checks if self._dialogue is not None else {}
        self.outcome, self.reward, self.checks = Outcome.POLICY_FAILURE, reward, earlier | {check: False}
        return None

    def _broken_world(self, error: Exception) -> list[Message] | None:
        return self._end_with_failure(Outcome.INFRA_FAILURE, f"world {self.task.world}: {_describe_error(error)}")

    def _end_with_failure(self, outcome: Outcome, why: str) -> list[Message] | None:
        self.outcome, self.failure = outcome, why[:_LONGEST_FAILURE]
        return None

    def _add_turn(self, answer: ChatAnswer) -> None:
        """Stores the sampled turn, and checks that its prompt begins with the tokens so far."""
        start = len(self._known)
        if answer.prompt_ids[:start] != self._known:
            start = self._mark_inexact(answer.prompt_ids)
        self.turns.append(
            SampledTurn(
                token_ids=answer.token_ids,
                logprobs=answer.logprobs,
                policy_version=answer.policy_version,
                context_ids=answer.prompt_ids[start:],
            )
        )
        self._known = (*answer.prompt_ids, *answer.token_ids) if answer.prompt_ids else ()

    def _mark_inexact(self, prompt: tuple[int, ...]) -> int:
        """Marks as not exact all turns from the first that the prompt renders differently; returns its position in the prompt."""
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
        """The finished conversation as a record. Its id covers tokens and outcome: a draw that ends differently has another id."""
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


def sound_verdict(verdict: object) -> Verdict:
    """The verdict, as it is.

    Raises:
        ValueError: a verifier, which may be the user's, returned something else.
    """
    if not (isinstance(verdict, Verdict) and isinstance(verdict.success, bool) and 0 <= verdict.reward <= 1):
        raise ValueError(f"the verifier said {verdict!r}")
    return verdict


def _describe_error(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def request_seed(*parts: object) -> int:
    """A 63-bit seed, a hash of the parts."""
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
    """Runs episodes concurrently to their end.

    Args:
        temperature: 0 is greedy.
        seed: seed of the batch; each episode derives its own.
        max_tokens: limit of one answer.
        tools: whether the request holds the tools' signatures (a tiny policy's template ignores them).
        in_flight: concurrent conversations with an engine that is called turn by turn.

    Raises:
        BudgetSpent: the engine's budget is spent.
    """
    grouped = with_tools(episodes)
    requests = [
        request_of(episode, offered if tools else (), temperature=temperature, seed=seed, max_tokens=max_tokens)
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


def request_of(episode: Episode, tools: tuple[Tool, ...], *, temperature: float, seed: int, max_tokens: int) -> ChatRequest:
    """The first request of an episode; its seed is a function of `seed`, task and draw."""
    return ChatRequest(
        messages=episode.opening,
        tools=tools,
        temperature=temperature,
        max_tokens=max_tokens,
        seed=request_seed(seed, episode.task.id, episode.draw),
        is_traced=True,
    )


def with_tools(episodes: Sequence[Episode]) -> list[tuple[Episode, tuple[Tool, ...]]]:
    """The episodes whose world and tools exist, each with its task's tools; ends the others as lost."""
    groups: list[tuple[Episode, tuple[Tool, ...]]] = []
    for episode in episodes:
        try:
            episode.kind = episode.kind or world_of(episode.task)
            groups.append((episode, tools_of(episode.kind, episode.task)))
        except Exception as error:  # any error while the world is made
            episode.end_lost(f"world {episode.task.world}: {_describe_error(error)}")
    return groups


def world_of(task: Task) -> type[World]:
    """The world that a task names.

    Raises:
        LookupError: it is gone.
    """
    if task.world not in WORLDS:
        raise LookupError("it is gone")
    return WORLDS[task.world]

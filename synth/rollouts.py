"""A policy x tasks x k: every draw is a live conversation in a world of its own, with a typed outcome.

One idea: whose fault it was decides the outcome. A malformed call, an unknown tool, or using up the turns, the tokens or the model's
window is a `policy_failure` with reward 0; an exception of ours (the engine, the world) is an `infra_failure`, one of the verifier a
`judge_failure`, and neither has a reward, so that it can enter no rate. An `infra_failure` is begun again, a few times; where so many are
left that the engine must be gone, nothing is kept.
Engines that can hold a conversation over their own cache (`hf:`) are given whole conversations; of all others many are held side by side,
each in a thread of its own.
Draw d of a task has a seed of its own, from (seed, task, d): it is the same draw whatever else is rolled out beside it.
A trace is exact: the tokens and log-probabilities are those that were sampled. The prompt of every turn must begin with what the turns
before it were sampled from and as; where a server has rendered it otherwise, the turns from there on are not trained on (`is_exact`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import polars as pl

from storage.records import JSON, Cost, Message, Outcome, Rollout, SampledTurn, Task, Tool, content_id
from storage.schema import TABLES
from storage.store import Part, Store, part_id
from synth.engines.base import ChatAnswer, ChatRequest, Engine, EngineFailure
from synth.side_by_side import is_dead, side_by_side
from synth.verify import judge
from synth.worlds import WORLDS, make_world
from synth.worlds.base import World

VERSION = 3
Progress = Callable[[str, int, int], None]
"""(label, done, total)"""
MAX_TURNS = 8
MAX_TOKENS = 64
IN_FLIGHT = 64
RETRIES = 2
PART_TASKS = 32
"""What a kill can cost: the rollouts of so many tasks."""
_LONGEST_FAILURE = 300


@runtime_checkable
class Conversing(Protocol):
    """An engine that holds whole conversations: see `synth.engines.hf.HFEngine.converse`."""

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
    found = Trace()
    for turn in turns:
        if not turn.is_exact or not (found.prompt_ids or turn.context_ids):
            continue
        if found.prompt_ids:
            _add(found, turn.context_ids, [0.0] * len(turn.context_ids), 0)
        else:
            found.prompt_ids.extend(turn.context_ids)
        _add(found, turn.token_ids, turn.logprobs, 1)
    return found


def _add(to: Trace, ids: Sequence[int], logprobs: Sequence[float], mask: int) -> None:
    to.ids.extend(ids)
    to.mask.extend([mask] * len(ids))
    to.logprobs.extend(logprobs)


@dataclass(slots=True)
class Episode:
    """One conversation on its way and, once `outcome` is set, over.

    attempts: how often it was begun. failure: what spoilt it, where that was no doing of the policy's; is_unanswered: it was the engine.
    """

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
    attempts: int = 1
    failure: str = ""
    is_unanswered: bool = False
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
            return self._spoilt(Outcome.INFRA_FAILURE, error)

    def unanswered(self, failure: EngineFailure) -> None:
        """Ends a conversation that its engine gave no answer."""
        self.is_unanswered = True
        self._spoilt(Outcome.INFRA_FAILURE, failure)

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
        except Exception as error:
            return self._spoilt(Outcome.INFRA_FAILURE, error)
        try:
            verdict = judge(self.task, self.messages, changes)
        except Exception as error:
            return self._spoilt(Outcome.JUDGE_FAILURE, error)
        self.outcome = Outcome.SUCCESS if verdict.success else Outcome.POLICY_FAILURE
        self.reward, self.checks = verdict.reward, verdict.checks
        return None

    def _fail(self, check: str) -> list[Message] | None:
        self.outcome, self.reward, self.checks = Outcome.POLICY_FAILURE, 0.0, {check: False}
        return None

    def _spoilt(self, outcome: Outcome, error: Exception) -> list[Message] | None:
        self.outcome, self.failure = outcome, f"{type(error).__name__}: {error}"[:_LONGEST_FAILURE]
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
            attempts=self.attempts,
            failure=self.failure,
        )


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
    requests = [
        ChatRequest(
            messages=episode.task.messages,
            tools=_tools(episode.task) if tools else (),
            temperature=temperature,
            max_tokens=max_tokens,
            seed=request_seed(seed, episode.task.id, episode.draw),
            is_traced=True,
        )
        for episode in episodes
    ]
    if not isinstance(engine, Conversing):
        pairs = list(zip(episodes, requests, strict=True))
        side_by_side(lambda pair: _take_turns(engine, *pair), pairs, in_flight, "rollouts", lambda *_: None)
        return
    try:
        engine.converse(requests, lambda index, answer: episodes[index].step(answer))
    except EngineFailure as failure:
        for episode in episodes:
            if episode.outcome is None:
                episode.unanswered(failure)
    for episode in episodes:
        episode.close()


def _take_turns(engine: Engine, episode: Episode, request: ChatRequest) -> None:
    goes_on = True
    while goes_on:
        try:
            (answer,) = engine.chat([request])
        except EngineFailure as failure:
            episode.unanswered(failure)
            return
        goes_on = episode.step(answer) is not None
        request = replace(request, messages=tuple(episode.messages))


def _play_to_the_end(
    engine: Engine, episodes: Sequence[Episode], retries: int, *, temperature: float, seed: int, max_tokens: int, in_flight: int
) -> list[Episode]:
    """`play`, and again from the start what was spoilt by no doing of the policy's."""
    over = list(episodes)
    for attempt in range(1, retries + 2):
        places = [place for place, episode in enumerate(over) if episode.outcome is None]
        play(engine, [over[place] for place in places], temperature=temperature, seed=seed, max_tokens=max_tokens, in_flight=in_flight)
        spoilt = [place for place in places if over[place].outcome is Outcome.INFRA_FAILURE]
        if not spoilt or attempt > retries:
            break
        for place in spoilt:
            over[place] = Episode(over[place].task, over[place].draw, over[place].max_turns, attempts=attempt + 1)
    unanswered = [episode.failure for episode in over if episode.is_unanswered]
    if is_dead(len(unanswered), len(over)):
        raise EngineFailure(f"{engine.name} left {len(unanswered)} of {len(over)} rollouts without an answer: {unanswered[0]}")
    return over


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
    batch_tasks: int = PART_TASKS,
    first_draw: int = 0,
    in_flight: int = IN_FLIGHT,
    retries: int = RETRIES,
    progress: Progress | None = None,
) -> list[Rollout]:
    """k draws of every task, in the order of the tasks and then of the draws.

    Args:
        temperature: 0 is greedy; then k > 1 is a waste. batch_tasks: how many tasks run side by side.
        first_draw: number of the first draw, for a second probe that is independent of the first.
        in_flight: see `play`. retries: how often a rollout is begun again that the engine or the world has spoilt.

    Raises:
        EngineFailure: half of a batch had no answer. BudgetSpent: see `play`.
    """
    records: list[Rollout] = []
    for batch in _batches(tasks, batch_tasks):
        episodes = [Episode(task, first_draw + draw, max_turns) for task in batch for draw in range(k)]
        over = _play_to_the_end(engine, episodes, retries, temperature=temperature, seed=seed, max_tokens=max_tokens, in_flight=in_flight)
        records += [episode.record(policy_id, engine.name, seed) for episode in over]
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
            "turns": json.dumps([turn.model_dump(exclude_defaults=True) for turn in rollout.turns]),
            "attempts": rollout.attempts,
            "failure": rollout.failure or None,
        }
        for rollout in rollouts
    ]
    return pl.DataFrame(rows, schema=TABLES["rollouts"].columns)


@dataclass(frozen=True)
class Draws:
    """How often a task is rolled out: until its draws settle what they are made for.

    Args:
        looks: numbers of draws after which is looked, rising; the last is the most.
        is_settled: of successes, rated draws, and draws that would be left.
        rule: what that follows, as JSON: part of what a part is known by.
    """

    looks: Sequence[int]
    is_settled: Callable[[int, int, int], bool]
    rule: Mapping[str, JSON]

    @classmethod
    def each(cls, k: int) -> Draws:
        """k of every task."""
        return cls((k,), lambda *_: True, {})

    @property
    def most(self) -> int:
        return self.looks[-1]

    def is_over(self, made: Sequence[Rollout]) -> bool:
        """Of the draws of one task so far."""
        rated = [rollout.outcome is Outcome.SUCCESS for rollout in made if rollout.outcome.is_rated]
        return self.is_settled(sum(rated), len(rated), self.most - len(made))


def rollout_until(engine: Engine, tasks: Sequence[Task], draws: Draws, *, first_draw: int = 0, **options: Any) -> list[Rollout]:
    """`rollout` with its options, each task as often as it takes; in the order of the tasks and then of the draws."""
    made: dict[str, list[Rollout]] = {task.id: [] for task in tasks}
    undecided, before = list(tasks), 0
    for look in draws.looks:
        for one in rollout(engine, undecided, look - before, first_draw=first_draw + before, **options):
            made[one.task_id].append(one)
        undecided, before = [task for task in undecided if not draws.is_over(made[task.id])], look
    return [one for task in tasks for one in made[task.id]]


def rollout_parts(
    store: Store,
    engine: Engine,
    tasks: Sequence[Task],
    draws: int | Draws,
    *,
    purpose: str,
    policy_id: str,
    temperature: float = 1.0,
    seed: int = 0,
    max_turns: int = MAX_TURNS,
    max_tokens: int = MAX_TOKENS,
    first_draw: int = 0,
    part_tasks: int = PART_TASKS,
    progress: Progress | None = None,
) -> list[Part]:
    """`rollout`, written to the store in parts of `part_tasks` tasks; parts that are there already are not made again. Not committed.

    Args:
        draws: of every task, or how many it takes.
        purpose: `probe`, `eval_in`, ...: why they were made; a policy's greedy and sampled rollouts have different purposes.

    Raises:
        EngineFailure, BudgetSpent: see `rollout`; parts that are whole are kept.
    """
    parts: list[Part] = []
    wanted = Draws.each(draws) if isinstance(draws, int) else draws
    for start, batch in enumerate(_batches(tasks, part_tasks)):
        parameters = {
            "k": draws if isinstance(draws, int) else dict(draws.rule),
            "purpose": purpose,
            "temperature": temperature,
            "seed": seed,
            "max_turns": max_turns,
            "max_tokens": max_tokens,
        } | ({"first_draw": first_draw} if first_draw else {})
        identity = part_id("rollouts", [policy_id, *(task.id for task in batch)], parameters, VERSION)
        part = store.find(identity)
        if part is None:
            made = rollout_until(
                engine,
                batch,
                wanted,
                first_draw=first_draw,
                temperature=temperature,
                seed=seed,
                max_turns=max_turns,
                max_tokens=max_tokens,
                policy_id=policy_id,
            )
            part = store.write("rollouts", identity, rollouts_frame(made, purpose))
        parts.append(part)
        if progress is not None:
            progress(purpose, min(len(tasks), (start + 1) * part_tasks) * wanted.most, len(tasks) * wanted.most)
    return parts

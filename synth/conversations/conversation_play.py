"""One conversation of a task with several user turns: executes calls, judges each turn, and says what the user says next."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from storage.context.settings import PolicyContext
from storage.records import JSON, Message, Task, Tool
from synth.blueprints.blueprint import Blueprint
from synth.context.offered_tools import tools_of
from synth.context.view import PolicyView
from synth.conversations.conversation_judge import ConversationJudge, TurnVerdict
from synth.roles.world_tools import WorldTools
from synth.worlds.base import World

MAX_STEPS_PER_TURN = 8
"""Messages of the assistant for one user turn: what a rollout may have, so that no admitted task needs more."""
Act = Callable[[Sequence[Message], Sequence[Tool]], Message]
"""(messages so far, tools on offer) -> the assistant's next message."""


def blueprint_of(task: Task) -> Blueprint:
    """The blueprint that a task with several user turns holds; one object for all draws of a task, because reading it takes 2 ms."""
    assert task.conversation is not None
    return _read(_Document(task.conversation))


class _Document:
    """A blueprint as JSON, equal to itself alone."""

    __slots__ = ("content",)

    def __init__(self, content: Mapping[str, JSON]) -> None:
        self.content = content

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Document) and self.content is other.content

    def __hash__(self) -> int:
        return id(self.content)


@lru_cache(maxsize=512)
def _read(document: _Document) -> Blueprint:
    return Blueprint.model_validate(document.content)


class ConversationPlay:
    """The user, the tools and the judge of one conversation.

    verdicts: on the turns so far.
    judge: of its turns.

    Args:
        context: how the policy sees the world; None: as it is.
    """

    def __init__(self, world: type[World], blueprint: Blueprint, context: PolicyContext | None = None) -> None:
        self._blueprint = blueprint
        self._world = world(blueprint.world_seed)
        self._view = PolicyView(context, self._world.system_prompt) if context is not None else None
        if self._view is not None:
            self._view.hear(blueprint.turns[0].text)
        self._tools = WorldTools(self._world, blueprint, self._view)
        self.judge = ConversationJudge(world, blueprint, context)
        self.verdicts: list[TurnVerdict] = []

    def call(self, message: Message) -> list[Message]:
        """The results of an assistant message's calls.

        Raises:
            ToolsFailed: the world or its sandbox failed.
        """
        return [self._tools.run(call) for call in message.tool_calls]

    def end_turn(self, messages: Sequence[Message]) -> Message | None:
        """Judges the turn that the assistant has ended with a text, the last of the messages. Returns what the user says next; None if the
        conversation is over: at its end, or after a turn that failed."""
        turn = len(self.verdicts)
        self.verdicts.append(self.judge_now(messages))
        if not self.verdicts[-1].passed or turn + 1 == len(self._blueprint.turns):
            return None
        said = self._blueprint.turns[turn + 1].text
        if self._view is not None:
            self._view.hear(said)
        return Message(role="user", content=said)

    def judge_now(self, messages: Sequence[Message]) -> TurnVerdict:
        """The verdict on the open turn as if it ended with these messages. The conversation stays as it is."""
        return self.judge.judge_turn(len(self.verdicts), messages, self._world.changes(), self._tools.injected)

    @property
    def passed(self) -> bool:
        """Whether all turns were played and passed."""
        return len(self.verdicts) == len(self._blueprint.turns) and all(verdict.passed for verdict in self.verdicts)

    @property
    def reward(self) -> float:
        """R, in [0, 1], so far."""
        return self.judge.reward(self.verdicts)

    @property
    def checks(self) -> dict[str, bool]:
        """`turn_N.CHECK` -> whether it holds, of all turns so far."""
        return {f"turn_{at}.{name}": holds for at, verdict in enumerate(self.verdicts) for name, holds in verdict.checks.items()}

    def changes(self) -> dict[str, JSON]:
        """The changes of the world's state so far."""
        return self._world.changes()

    def state(self) -> dict[str, JSON]:
        """The world's state."""
        return self._world.state()

    def close(self) -> None:
        self._world.close()


def run_conversation(
    world: type[World], task: Task, act: Act, *, max_steps: int = MAX_STEPS_PER_TURN
) -> tuple[tuple[Message, ...], ConversationPlay]:
    """A whole conversation with an assistant, and its verdicts; it also ends where a turn takes more than `max_steps` messages."""
    play, messages = ConversationPlay(world, blueprint_of(task), task.context), list(task.messages)
    tools = tools_of(world, task)
    steps = 0
    try:
        while steps < max_steps:
            answer = act(messages, tools)
            messages.append(answer)
            steps += 1
            if answer.tool_calls:
                messages += play.call(answer)
                continue
            said = play.end_turn(messages)
            if said is None:
                break
            messages.append(said)
            steps = 0
    finally:
        play.close()
    return tuple(messages), play

"""A stored conversation that is taken up again: replayed in its world up to a turn of the assistant, then continued by hand.

One idea: all calls are made anew in a fresh world of the same seed, so what is done next is as real as what was recorded, and a result
that differs from the recorded one shows. The judge is that of the task; of a conversation that a blueprint planned, turn by turn.
Programs (`run_python`) are not run again: their recorded result stands, and none is run by hand. Nothing is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from storage.errors import BadInput
from storage.records import CODE_TOOL, JSON, FunctionCall, Message, Task, Tool, ToolCall
from synth.blueprints.blueprint import Blueprint
from synth.context.offered_tools import tools_of
from synth.context.view import open_world
from synth.conversations.conversation_play import ConversationPlay, blueprint_of
from synth.tasks.verify import judge
from synth.worlds.base import World

OF_THE_ANSWER = frozenset(
    ("ended_with_text", "own_words", "facts", "grounded_answer", "to_the_point", "refusal", "question", "asked_for", "ended_in_time")
)
"""Checks that only an answer of the assistant can pass or fail."""


@dataclass(frozen=True, slots=True)
class ReplayedCall:
    """A recorded call that was made again. turn: of the assistant, from 1. recorded: None if the record has no result of it.
    is_rerun: False for a program, whose recorded result stands. before, after: the state of the world, if states are kept."""

    turn: int
    call: ToolCall
    recorded: str | None
    result: str
    is_rerun: bool = True
    before: Mapping[str, JSON] | None = None
    after: Mapping[str, JSON] | None = None

    @property
    def is_equal(self) -> bool:
        return self.recorded == self.result


class ConversationFork:
    """A conversation at a turn, and what is done from there.

    messages: so far. replayed: the calls that were made again. tools: those on offer.
    is_over: whether the answer was given that ends the conversation.

    Args:
        kind: the world of the origin.
        origin: the task of the conversation, or the blueprint that planned it.
        recorded: its messages, opening included.
        turn: messages of the assistant that are replayed, with their results and what the user said to them.
        check_time: is called before every call, and may raise.
        keeps_states: whether replayed calls have the states around them.
    """

    def __init__(
        self,
        kind: type[World],
        origin: Task | Blueprint,
        recorded: Sequence[Message],
        turn: int,
        check_time: Callable[[], None],
        *,
        keeps_states: bool = False,
    ) -> None:
        self.origin, self.kind, self._check_time, self._keeps_states = origin, kind, check_time, keeps_states
        self.messages: list[Message] = []
        self.replayed: list[ReplayedCall] = []
        self.is_over = False
        self._by_hand = 0
        if isinstance(origin, Blueprint) or origin.conversation is not None:
            blueprint = origin if isinstance(origin, Blueprint) else blueprint_of(origin)
            context = None if isinstance(origin, Blueprint) else origin.context
            self._play: ConversationPlay | None = ConversationPlay(kind, blueprint, context)
        else:
            self._play, self._world = None, open_world(kind, origin)
        self.tools = _offered(kind, origin)
        try:
            self._replay(recorded, turn)
        except BaseException:
            self.close()
            raise

    def call(self, tool: str, arguments: str) -> str:
        """The result of one more call. arguments: JSON text, as a policy would write it.

        Raises:
            BadInput: the tool runs programs.
        """
        if tool == CODE_TOOL:
            raise BadInput(f"{CODE_TOOL} runs a program, and none is run here")
        self._by_hand += 1
        call = ToolCall(id=f"by_hand_{self._by_hand}", function=FunctionCall(name=tool, arguments=arguments))
        self.messages.append(Message(role="assistant", tool_calls=(call,)))
        result = self._execute(call)
        self.messages.append(Message(role="tool", tool_call_id=call.id, content=result))
        return result

    def answer(self, text: str) -> str | None:
        """Ends the assistant's turn with a text. Returns what the user says next; None if the conversation is over."""
        said = self._end_turn(Message(role="assistant", content=text))
        if said is not None:
            self.messages.append(said)
        return None if said is None else said.content

    def checks(self) -> dict[str, bool]:
        """The criteria of success -> whether each holds, as if the conversation ended now; of a planned conversation, those of the turn
        that is open, or that was answered last if none is."""
        if self._play is None:
            assert isinstance(self.origin, Task)
            return judge(self.kind, self.origin, self.messages, self.changes()).checks
        return self._play.verdicts[-1].checks if self._is_played(self._play) else self._play.judge_now(self.messages).checks

    def expected_changes(self) -> Mapping[str, JSON]:
        """The changes of the state that the task asks for; of a planned conversation, by the end of the open turn."""
        if self._play is None:
            assert isinstance(self.origin, Task)
            return self.origin.success.changes
        by_turn = self._play.judge.expected_changes
        return by_turn[min(len(self._play.verdicts), len(by_turn) - 1)]

    def changes(self) -> dict[str, JSON]:
        """The changes of the state since the start."""
        return self._world.changes() if self._play is None else self._play.changes()

    def state(self) -> dict[str, JSON]:
        """The state of the world."""
        return self._world.state() if self._play is None else self._play.state()

    def close(self) -> None:
        (self._play or self._world).close()

    def _replay(self, recorded: Sequence[Message], turn: int) -> None:
        done = 0
        for place, message in enumerate(recorded):
            if message.role == "assistant":
                if done == turn:
                    return
                done += 1
                if message.tool_calls:
                    self._call_again(message, recorded[place + 1 :], done)
                elif not self.is_over:
                    self._end_turn(message)
                else:
                    self.messages.append(message)
            elif message.role != "tool":
                self.messages.append(message)
                self.is_over = False

    def _call_again(self, message: Message, later: Sequence[Message], turn: int) -> None:
        """Makes the calls of a message again; results stand in the order of the calls."""
        self.messages.append(message)
        recorded: dict[str | None, str] = {}
        for answer in takewhile(lambda one: one.role == "tool", later):
            recorded.setdefault(answer.tool_call_id, answer.content or "")
        for call in message.tool_calls:
            is_program = call.function.name == CODE_TOOL
            before = self.state() if self._keeps_states else None
            result = recorded.get(call.id, "") if is_program else self._execute(call)
            after = self.state() if self._keeps_states else None
            self.replayed.append(ReplayedCall(turn, call, recorded.get(call.id), result, not is_program, before, after))
            self.messages.append(Message(role="tool", tool_call_id=call.id, content=result))

    def _execute(self, call: ToolCall) -> str:
        self._check_time()
        if self._play is None:
            return self._world.call(call.function.name, call.function.arguments).content
        (result,) = self._play.call(Message(role="assistant", tool_calls=(call,)))
        return result.content or ""

    def _end_turn(self, message: Message) -> Message | None:
        self.messages.append(message)
        said = None if self._play is None or self._is_played(self._play) else self._play.end_turn(self.messages)
        self.is_over = said is None
        return said

    @staticmethod
    def _is_played(play: ConversationPlay) -> bool:
        return len(play.verdicts) == len(play.judge.expected_changes)


def _offered(kind: type[World], origin: Task | Blueprint) -> tuple[Tool, ...]:
    if isinstance(origin, Task):
        return tools_of(kind, origin)
    by_name = {tool.name: tool for tool in kind.tools}
    return tuple(by_name[name] for name in origin.tools if name in by_name)

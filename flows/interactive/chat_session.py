"""A chat with a policy in a live world. Every call of the policy, every result and every answer is an event.

One idea: a line is a request or a /command. It produces events, which a terminal draws and a script reads as JSON.
A conversation takes at most as many requests as the conversations that the policy learned from, because a tiny policy that learned from one
request per conversation fails at a second. A further request opens a new conversation in the same world.
A task that `/task` proposes begins in a fresh world, because its success criteria compare with that state. The verifier judges it, as in
every evaluation (`synth/tasks/verify.py`).

Only `/save` writes a file.
"""

from __future__ import annotations

import difflib
import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.interactive.world_repl import LEAVE, Need, WorldSession, draw_need, draw_task
from storage.errors import BadInput
from storage.outside.safe_text import safe_text
from storage.records import CODE_TOOL, JSON, Language, Message, Task, Tool, is_error
from synth.engines.base import ChatAnswer, ChatRequest, Engine
from synth.engines.local.call_texts import is_broken_call
from synth.rollouts.episode import MAX_TOKENS, MAX_TURNS, request_seed
from synth.sandbox import SandboxError
from synth.tasks.solver import NotAdmitted
from synth.tasks.verify import judge
from synth.worlds.run_python import missing

COMMANDS: dict[str, tuple[str, str]] = {
    "/task": ("[INTENT]", "propose a request that the policy may know; an empty line sends it, and the verifier judges the answer"),
    "/changes": ("", "what the calls changed in the world"),
    "/state": ("[ENTITY [ID]]", "the state of the world"),
    "/tools": ("", "the tools of the world"),
    "/intents": ("", "the intents of this world"),
    "/reset": ("[SEED]", "a fresh world and a new conversation"),
    "/save": ("FILE", "write the conversations so far, as JSONL"),
    "/help": ("", "show this list"),
    "/quit": ("", "leave; quit, exit and Ctrl-D leave too; Ctrl-C leaves at the prompt and stops a running answer"),
}
"""Command -> its arguments, and what it does."""
STOPPED: dict[str, str] = {
    "window": "the conversation exceeds the policy's window; the next request opens a new one",
    "tokens": "the policy used all tokens of one message (--answer-tokens)",
    "turns": "the policy used all its messages without an answer (--max-turns)",
    "malformed": "the policy's call is not well-formed",
}
"""Reason why the policy gave no complete answer -> text for the user."""
_WORLD_COMMANDS = ("/changes", "/state", "/tools", "/intents")
_EXAMPLES = 3
_SEED_DIGITS = 18


@dataclass(frozen=True)
class Event:
    """Something that happened, with its data as JSON values. Kinds and their data:

    start: policy, world, tools and more; the command emits it.
    request: content.
    call: id, name, arguments.
    result: id, content, is_error.
    answer: content, stopped (key of `STOPPED`, or empty), calls, tokens, seconds.
    task: intent, difficulty, request, calls, answer.
    verdict: accepted, failed (checks), reward.
    note, warning, error: text.
    """

    kind: str
    data: Mapping[str, JSON]


@dataclass(frozen=True)
class ChatSettings:
    """Settings of a chat.

    temperature: sampling temperature; 0 is greedy.
    answer_tokens: most tokens of one message of the policy.
    max_turns: most messages of the policy per request.
    requests: most requests per conversation; None: no limit.
    language: language of proposed requests.
    canonical: word proposed requests in the short plain way.
    """

    temperature: float = 0.0
    answer_tokens: int = MAX_TOKENS
    max_turns: int = MAX_TURNS
    requests: int | None = None
    language: Language = "en"
    canonical: bool = False


@dataclass
class Conversation:
    """One conversation with the policy.

    seed: seed of the world.
    messages: all messages, in OpenAI's order.
    task: the task that the verifier judges by; None: no verdict.
    accepted: the last verdict; None before the first.
    is_full: the conversation exceeds the policy's window.
    """

    seed: int
    messages: list[Message]
    task: Task | None = None
    accepted: bool | None = None
    is_full: bool = False

    @property
    def requests(self) -> int:
        return sum(message.role == "user" for message in self.messages)


class Chat:
    """A chat of one user with one policy in one world.

    Args:
        engine: engine of the policy.
        world, seed: see `make_world`; the seed also decides the sampling and the proposed tasks.
        settings: see `ChatSettings`.
        on_event: called with every event.
        policy: name of the policy in saved conversations; empty: the engine's name.
        needs: needs that `/task` draws from; empty: all needs of the world.
        find_unknown_words: returns the words of a text that the policy does not know.
    """

    def __init__(
        self,
        engine: Engine,
        world: str,
        seed: int,
        settings: ChatSettings,
        on_event: Callable[[Event], None],
        *,
        policy: str = "",
        needs: Sequence[Need] = (),
        find_unknown_words: Callable[[str], Sequence[str]] = lambda text: (),
    ) -> None:
        self.engine, self.settings, self._on_event = engine, settings, on_event
        self._needs, self._find_unknown_words = needs, find_unknown_words
        self.policy = policy or engine.name
        self.world_session = WorldSession(world, seed, lambda text: self.emit("note", text=text))
        self.conversations: list[Conversation] = []
        self._current: Conversation | None = None
        self._proposed_request, self._saved_paths = "", set[Path]()
        self._rng = random.Random(f"chat/{world}/{seed}")

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools offered to the policy: those of the task, or all that this machine can execute."""
        offered = {tool.name: tool for tool in self.world_session.world.tools}
        if self._current is not None and self._current.task is not None:
            return tuple(offered[name] for name in self._current.task.tools)
        return tuple(tool for name, tool in offered.items() if name != CODE_TOOL or not missing())

    def emit(self, kind: str, **data: JSON) -> None:
        self._on_event(Event(kind, data))

    def handle(self, line: str) -> bool:
        """Execute a line: a request or a /command. Returns False to leave.

        Raises:
            BadInput: a file cannot be written.
            EngineFailure, SandboxError: the engine did not answer, or the world could not execute a call; the conversation can continue.
            BudgetSpent: the budget of the engine is spent.
        """
        text = safe_text(line.encode("utf-8", errors="replace")).strip()
        word, _, rest = text.partition(" ")
        if text.lower() in LEAVE:
            return False
        if word in COMMANDS:
            self._run_command(word, rest.strip())
        elif word.startswith("/"):
            near = difflib.get_close_matches(word, COMMANDS, n=1, cutoff=0.5)
            self.emit("note", text=f"no command {word}; {f'did you mean {near[0]}?' if near else '/help lists them'}")
        elif text:
            self.ask(text)
        elif self._proposed_request:
            self.ask(self._proposed_request)
        return True

    # ---- requests -----------------------------------------------------------------------------------------------------

    def ask(self, text: str) -> None:
        """Send a request and hold the conversation until the answer. Judges it if an open task exists. Raises: see `handle`."""
        conversation = self._current_or_new()
        self.emit("request", content=text)
        if unknown := self._find_unknown_words(text):
            self.emit("warning", text=f"the policy never learned these words and may confuse them with others: {', '.join(unknown)}")
        proposed, self._proposed_request = self._proposed_request, ""
        conversation.messages.append(Message(role="user", content=text))
        try:
            stopped = self._run_to_answer(conversation)
        except BaseException:
            if conversation.messages[-1].role == "user":
                conversation.messages.pop()
                self._proposed_request = proposed
            raise
        if conversation.task is not None and not conversation.accepted:
            self._judge(conversation, conversation.task, stopped)

    def _current_or_new(self) -> Conversation:
        """The current conversation, or a new one if the current one takes no further request."""
        current = self._current
        if current is None or current.is_full or (self.settings.requests is not None and current.requests >= self.settings.requests):
            return self._open()
        return current

    def _open(self, task: Task | None = None) -> Conversation:
        prompt = self.world_session.world.system_prompt
        first_messages = [Message(role="system", content=prompt)] if prompt else []
        self._current = Conversation(self.world_session.seed, first_messages, task)
        self.conversations.append(self._current)
        return self._current

    def _run_to_answer(self, conversation: Conversation) -> str:
        """Continue the conversation until the policy answers. Returns "", or the key of `STOPPED` if there is no complete answer."""
        start, calls, tokens = time.monotonic(), 0, 0
        content, stopped = "", "turns"
        for turn in range(self.settings.max_turns):
            (answer,) = self.engine.chat([self._build_request(conversation, turn)])
            message, reason = answer.message, self._stop_reason(answer)
            tokens += answer.completion_tokens
            if reason or not message.tool_calls:
                conversation.messages.append(message)
                content, stopped = message.content or "", reason
                break
            if turn + 1 < self.settings.max_turns:
                calls += len(message.tool_calls)
                conversation.messages += [message, *self._execute_calls(message)]
        conversation.is_full = stopped == "window"
        self.emit("answer", content=content, stopped=stopped, calls=calls, tokens=tokens, seconds=round(time.monotonic() - start, 3))
        return stopped

    def _build_request(self, conversation: Conversation, turn: int) -> ChatRequest:
        return ChatRequest(
            messages=tuple(conversation.messages),
            tools=self.tools,
            temperature=self.settings.temperature,
            max_tokens=self.settings.answer_tokens,
            seed=request_seed(self.world_session.seed, "chat", len(self.conversations), conversation.requests, turn),
        )

    def _stop_reason(self, answer: ChatAnswer) -> str:
        if answer.finish_reason == "length":
            return "window" if answer.completion_tokens < self.settings.answer_tokens else "tokens"
        return "malformed" if is_broken_call(answer.message) else ""

    def _execute_calls(self, message: Message) -> list[Message]:
        results = []
        for call in message.tool_calls:
            self.emit("call", id=call.id, name=call.function.name, arguments=call.function.arguments)
            content = self.world_session.world.call(call.function.name, call.function.arguments).content
            self.emit("result", id=call.id, content=content, is_error=is_error(content))
            results.append(Message(role="tool", tool_call_id=call.id, content=content))
        return results

    # ---- tasks ----------------------------------------------------------------------------------------------------------

    def _judge(self, conversation: Conversation, task: Task, stopped: str) -> None:
        """Judge by the rules of `synth/rollouts/episode.py`: an incomplete answer fails."""
        if stopped:
            conversation.accepted = False
            self.emit("verdict", accepted=False, failed=["well_formed" if stopped == "malformed" else "ended_in_time"], reward=0.0)
            return
        world = self.world_session.world
        verdict = judge(type(world), task, conversation.messages, world.changes())
        conversation.accepted = verdict.success
        failed = [name for name, holds in verdict.checks.items() if not holds]
        self.emit("verdict", accepted=verdict.success, failed=failed, reward=round(verdict.reward, 4))

    def _propose(self, intent: str) -> None:
        if intent and intent not in self.world_session.world.intents:
            self.emit("note", text=f"no intent {intent!r} in this world; /intents lists them")
            return
        try:
            task = self._draw_task(intent)
        except NotAdmitted as reason:
            self.emit("note", text=f"no task in seed {self.world_session.seed}: {reason}")
            return
        self.world_session.world.reset(self.world_session.seed)
        self._open(task)
        self._proposed_request = task.messages[-1].content or ""
        calls = [{"name": call.tool, "arguments": call.arguments} for call in task.plan.calls]
        expected: dict[str, Any] = {"request": self._proposed_request, "calls": calls, "answer": task.plan.answer}
        self.emit("task", intent=task.intent, difficulty=task.difficulty, **expected)

    def _draw_task(self, intent: str = "") -> Task:
        """Raises NotAdmitted, SandboxError: see `draw_task`."""
        world = self.world_session.world
        intents = [name for name in dict.fromkeys(name for name, _ in self._needs) if intent in ("", name)]

        def next_need() -> Need:
            if not intents:
                return draw_need(world, self._rng, intent or None)
            drawn_intent = self._rng.choice(intents)
            return self._rng.choice([need for need in self._needs if need[0] == drawn_intent])

        return draw_task(world, self.world_session.seed, next_need, self.settings.language, self._rng, canonical=self.settings.canonical)

    def examples(self) -> list[str]:
        """Up to three requests that the policy may know, each of another intent."""
        requests: dict[str, str] = {}
        for _ in range(4 * _EXAMPLES):
            if len(requests) == _EXAMPLES:
                break
            try:
                task = self._draw_task()
            except (NotAdmitted, SandboxError):
                continue
            requests.setdefault(task.intent, task.messages[-1].content or "")
        return list(requests.values())

    # ---- commands ---------------------------------------------------------------------------------------------------------

    def _run_command(self, word: str, rest: str) -> None:
        if word in _WORLD_COMMANDS:
            self.world_session.handle(f"{word[1:]} {rest}")
        elif word == "/task":
            self._propose(rest)
        elif word == "/reset":
            self._reset(rest)
        elif word == "/save":
            self._save(rest)
        else:
            lines = [f"  {f'{name} {arguments}':<20} {about}" for name, (arguments, about) in COMMANDS.items()]
            self.emit("note", text="\n".join(["write a request, or:", *lines]))
            self.show_examples()

    def show_examples(self) -> None:
        """Emit a note with example requests."""
        if examples := self.examples():
            self.emit("note", text="\n".join(["example requests:", *(f"  {text}" for text in examples), "/help lists the commands"]))

    def _reset(self, seed: str) -> None:
        if seed and not (seed.isdecimal() and len(seed) <= _SEED_DIGITS):
            self.emit("note", text=f"write /reset, or /reset SEED with a whole number of at most {_SEED_DIGITS} digits")
            return
        self._current, self._proposed_request = None, ""
        self.world_session.handle(f"seed {seed or self.world_session.seed}")

    def _save(self, name: str) -> None:
        conversations = [conversation for conversation in self.conversations if conversation.requests]
        if not name or not conversations:
            self.emit("note", text="write /save FILE" if conversations else "there is no conversation yet")
            return
        path = Path(name)
        try:
            path = path.expanduser()
            with path.open("w" if path.resolve() in self._saved_paths else "x", encoding="utf-8") as file:
                file.writelines(json.dumps(self._row(conversation), ensure_ascii=False) + "\n" for conversation in conversations)
        except FileExistsError:
            raise BadInput(f"{path} exists; name another file") from None
        except (OSError, RuntimeError) as error:  # RuntimeError: no such home directory
            reason = error.strerror if isinstance(error, OSError) else error
            raise BadInput(f"{path}: the file cannot be written ({reason})") from None
        self._saved_paths.add(path.resolve())
        self.emit("note", text=f"wrote {path}: {len(conversations)} conversation{'s' if len(conversations) > 1 else ''}")

    def _row(self, conversation: Conversation) -> dict[str, JSON]:
        about = {"policy": self.policy, "world": self.world_session.world.name, "world_seed": conversation.seed}
        task: dict[str, JSON] | None = None
        if conversation.task is not None:
            task = {"intent": conversation.task.intent, "slots": conversation.task.slots, "accepted": conversation.accepted}
        return {**about, "task": task, "messages": [message.to_openai() for message in conversation.messages]}

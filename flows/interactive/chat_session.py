"""A person talks to a policy in a live world: every call that it makes, what the world answers and what it says is told as an event.

One idea: a line is a request or a /command, and what comes of it is a series of events, which a terminal draws and a script reads as JSON.
A conversation takes no more requests than those that the policy learned from: one more opens another conversation, in the world as it
stands. A tiny policy that knows one request a conversation is lost in the second.
A task that `/task` proposes begins in a fresh world, because its success criteria are about what changed since then; its verdict is the
verifier's, as in every evaluation (`synth/tasks/verify.py`).

Nothing is stored but what `/save` writes.
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

from flows.interactive.world_repl import Need, Session, any_need, draw_task
from storage.errors import BadInput
from storage.records import CODE_TOOL, JSON, Language, Message, Task, Tool, is_error
from synth.engines.base import ChatAnswer, ChatRequest, Engine
from synth.rollouts.episode import MAX_TOKENS, MAX_TURNS, request_seed
from synth.sandbox import SandboxError
from synth.sandbox.safe_text import safe_text
from synth.tasks.solver import NotAdmitted
from synth.tasks.verify import judge
from synth.worlds.run_python import missing

COMMANDS: dict[str, tuple[str, str]] = {
    "/task": ("[INTENT]", "propose a request that it may be up to; an empty line sends it, and the verifier judges the answer"),
    "/changes": ("", "what the calls have changed in the world"),
    "/state": ("[ENTITY [ID]]", "what the world holds"),
    "/tools": ("", "the tools that it has"),
    "/intents": ("", "the jobs that are asked for in this world"),
    "/reset": ("[SEED]", "a fresh world, and a conversation from the start"),
    "/save": ("FILE", "the conversations so far, as JSONL"),
    "/help": ("", "this"),
    "/quit": ("", "leave; so do Ctrl-D and, at the prompt, Ctrl-C, which stops an answer while there is one"),
}
"""What it takes, and what it does."""
STOPPED: dict[str, str] = {
    "window": "the conversation has outgrown its window; the next request opens another one",
    "tokens": "it used up the tokens of one message (--answer-tokens)",
    "turns": "it used up its messages without an answer (--max-turns)",
    "malformed": "its call is not well-formed",
}
"""Why what came is no whole answer."""
_OF_THE_WORLD = ("/changes", "/state", "/tools", "/intents")
_EXAMPLES = 3
_SEED_DIGITS = 18


@dataclass(frozen=True)
class Event:
    """What happened, and its particulars, all of them JSON.

    request: content. call: id, name, arguments. result: id, content, is_error. answer: content, stopped (of `STOPPED`, or empty),
    calls, tokens, seconds. task: intent, difficulty, request, calls, answer. verdict: accepted, failed (checks), reward.
    note, warning, error: text. The command adds `start`.
    """

    kind: str
    said: Mapping[str, JSON]


@dataclass(frozen=True)
class ChatSettings:
    """temperature: 0 is greedy. answer_tokens: of one message of the policy. max_turns: of its messages to one request. requests: of one
    conversation, None for no limit. canonical: whether proposed requests are worded in the short plain way."""

    temperature: float = 0.0
    answer_tokens: int = MAX_TOKENS
    max_turns: int = MAX_TURNS
    requests: int | None = None
    language: Language = "en"
    canonical: bool = False


@dataclass
class Conversation:
    """seed: of its world. task: what the verifier judges it by, if anything. is_full: it fits the policy's window no more."""

    seed: int
    messages: list[Message]
    task: Task | None = None
    accepted: bool | None = None
    is_full: bool = False

    @property
    def requests(self) -> int:
        return sum(message.role == "user" for message in self.messages)


class Chat:
    """One person, one policy, one world.

    Args:
        world, seed: see `make_world`; the seed also decides what is sampled, and which tasks are proposed.
        tell: takes every event as it happens.
        policy: what saved conversations call it; the engine's name where it is empty.
        needs: what `/task` draws from; nothing for all that can be asked in the world.
        unread: the words of a text that the policy cannot read.
    """

    def __init__(
        self,
        engine: Engine,
        world: str,
        seed: int,
        settings: ChatSettings,
        tell: Callable[[Event], None],
        *,
        policy: str = "",
        needs: Sequence[Need] = (),
        unread: Callable[[str], Sequence[str]] = lambda text: (),
    ) -> None:
        self.engine, self.settings, self._tell, self._needs, self._unread = engine, settings, tell, needs, unread
        self.policy = policy or engine.name
        self.session = Session(world, seed, lambda text: self.tell("note", text=text))
        self.conversations: list[Conversation] = []
        self._current: Conversation | None = None
        self._proposed, self._saved = "", set[Path]()
        self._rng = random.Random(f"chat/{world}/{seed}")

    @property
    def tools(self) -> tuple[Tool, ...]:
        """Those that are on offer: of the task, or all that this machine can execute."""
        offered = {tool.name: tool for tool in self.session.world.tools}
        if self._current is not None and self._current.task is not None:
            return tuple(offered[name] for name in self._current.task.tools)
        return tuple(tool for name, tool in offered.items() if name != CODE_TOOL or not missing())

    def tell(self, kind: str, **said: JSON) -> None:
        self._tell(Event(kind, said))

    def handle(self, line: str) -> bool:
        """Does what a line says; False to leave.

        Raises:
            BadInput: a file cannot be written. EngineFailure, SandboxError: the engine did not answer, or the world could not execute a
                call; the conversation can go on. BudgetSpent: the engine may be asked nothing more.
        """
        text = safe_text(line.encode("utf-8", errors="replace")).strip()
        word, _, rest = text.partition(" ")
        if word in ("/quit", "/exit"):
            return False
        if word in COMMANDS:
            self._command(word, rest.strip())
        elif word.startswith("/"):
            near = difflib.get_close_matches(word, COMMANDS, n=1, cutoff=0.5)
            self.tell("note", text=f"no command {word}; {f'did you mean {near[0]}?' if near else '/help lists them'}")
        elif text:
            self.ask(text)
        elif self._proposed:
            self.ask(self._proposed)
        return True

    # ---- requests -----------------------------------------------------------------------------------------------------

    def ask(self, text: str) -> None:
        """One request, answered; and judged, while there is a task that is not done. Raises: see `handle`."""
        conversation = self._conversation()
        self.tell("request", content=text)
        if unread := self._unread(text):
            self.tell("warning", text=f"it never learned these words, and may take them for others: {', '.join(unread)}")
        proposed, self._proposed = self._proposed, ""
        conversation.messages.append(Message(role="user", content=text))
        try:
            stopped = self._answer(conversation)
        except BaseException:
            if conversation.messages[-1].role == "user":
                conversation.messages.pop()
                self._proposed = proposed
            raise
        if conversation.task is not None and not conversation.accepted:
            self._judge(conversation, conversation.task, stopped)

    def _conversation(self) -> Conversation:
        """The one that is open, or another, where it takes no further request."""
        now = self._current
        if now is None or now.is_full or (self.settings.requests is not None and now.requests >= self.settings.requests):
            return self._open()
        return now

    def _open(self, task: Task | None = None) -> Conversation:
        prompt = self.session.world.system_prompt
        opening = [Message(role="system", content=prompt)] if prompt else []
        self._current = Conversation(self.session.seed, opening, task)
        self.conversations.append(self._current)
        return self._current

    def _answer(self, conversation: Conversation) -> str:
        """Holds the conversation up to an answer; returns why there is none, of `STOPPED`, or nothing."""
        began, calls, tokens = time.monotonic(), 0, 0
        content, stopped = "", "turns"
        for turn in range(self.settings.max_turns):
            (answer,) = self.engine.chat([self._request(conversation, turn)])
            message, why = answer.message, self._stopped(answer)
            tokens += answer.completion_tokens
            if why or not message.tool_calls:
                conversation.messages.append(message)
                content, stopped = message.content or "", why
                break
            if turn + 1 < self.settings.max_turns:
                calls += len(message.tool_calls)
                conversation.messages += [message, *self._results(message)]
        conversation.is_full = stopped == "window"
        self.tell("answer", content=content, stopped=stopped, calls=calls, tokens=tokens, seconds=round(time.monotonic() - began, 3))
        return stopped

    def _request(self, conversation: Conversation, turn: int) -> ChatRequest:
        return ChatRequest(
            messages=tuple(conversation.messages),
            tools=self.tools,
            temperature=self.settings.temperature,
            max_tokens=self.settings.answer_tokens,
            seed=request_seed(self.session.seed, "chat", len(self.conversations), conversation.requests, turn),
        )

    def _stopped(self, answer: ChatAnswer) -> str:
        if answer.finish_reason == "length":
            return "window" if answer.completion_tokens < self.settings.answer_tokens else "tokens"
        is_text = not answer.message.tool_calls
        return "malformed" if is_text and "<tool_call>" in (answer.message.content or "") else ""

    def _results(self, message: Message) -> list[Message]:
        results = []
        for call in message.tool_calls:
            self.tell("call", id=call.id, name=call.function.name, arguments=call.function.arguments)
            content = self.session.world.call(call.function.name, call.function.arguments).content
            self.tell("result", id=call.id, content=content, is_error=is_error(content))
            results.append(Message(role="tool", tool_call_id=call.id, content=content))
        return results

    # ---- tasks ----------------------------------------------------------------------------------------------------------

    def _judge(self, conversation: Conversation, task: Task, stopped: str) -> None:
        """By the rules of `synth/rollouts/episode.py`: what is no whole answer fails."""
        if stopped:
            conversation.accepted = False
            self.tell("verdict", accepted=False, failed=["well_formed" if stopped == "malformed" else "ended_in_time"], reward=0.0)
            return
        verdict = judge(type(self.session.world), task, conversation.messages, self.session.world.changes())
        conversation.accepted = verdict.success
        failed = [name for name, holds in verdict.checks.items() if not holds]
        self.tell("verdict", accepted=verdict.success, failed=failed, reward=round(verdict.reward, 4))

    def _propose(self, intent: str) -> None:
        if intent and intent not in self.session.world.intents:
            self.tell("note", text=f"no intent {intent!r} in this world; /intents lists them")
            return
        try:
            task = self._drawn(intent)
        except NotAdmitted as refused:
            self.tell("note", text=f"no task in seed {self.session.seed}: {refused}")
            return
        self.session.world.reset(self.session.seed)
        self._open(task)
        self._proposed = task.messages[-1].content or ""
        calls = [{"name": call.tool, "arguments": call.arguments} for call in task.plan.calls]
        told: dict[str, Any] = {"request": self._proposed, "calls": calls, "answer": task.plan.answer}
        self.tell("task", intent=task.intent, difficulty=task.difficulty, **told)

    def _drawn(self, intent: str = "") -> Task:
        """Raises NotAdmitted, SandboxError: see `draw_task`."""
        world = self.session.world
        own = [name for name in dict.fromkeys(name for name, _ in self._needs) if intent in ("", name)]

        def need() -> Need:
            if not own:
                return any_need(world, self._rng, intent or None)
            chosen = self._rng.choice(own)
            return self._rng.choice([each for each in self._needs if each[0] == chosen])

        return draw_task(world, self.session.seed, need, self.settings.language, self._rng, canonical=self.settings.canonical)

    def examples(self) -> list[str]:
        """A few requests, of different intents where there are several, that it may be up to."""
        found: dict[str, str] = {}
        for _ in range(4 * _EXAMPLES):
            if len(found) == _EXAMPLES:
                break
            try:
                task = self._drawn()
            except (NotAdmitted, SandboxError):
                continue
            found.setdefault(task.intent, task.messages[-1].content or "")
        return list(found.values())

    # ---- commands ---------------------------------------------------------------------------------------------------------

    def _command(self, word: str, rest: str) -> None:
        if word in _OF_THE_WORLD:
            self.session.handle(f"{word[1:]} {rest}")
        elif word == "/task":
            self._propose(rest)
        elif word == "/reset":
            self._reset(rest)
        elif word == "/save":
            self._save(rest)
        else:
            told = [f"  {f'{name} {takes}':<20} {about}" for name, (takes, about) in COMMANDS.items()]
            self.tell("note", text="\n".join(["say what you want, or:", *told]))
            self.hint()

    def hint(self) -> None:
        """Tells what it can be asked."""
        if examples := self.examples():
            self.tell("note", text="\n".join(["ask it, for example:", *(f"  {text}" for text in examples), "/help lists the commands"]))

    def _reset(self, seed: str) -> None:
        if seed and not (seed.isdecimal() and len(seed) <= _SEED_DIGITS):
            self.tell("note", text=f"write /reset, or /reset SEED with a whole number of at most {_SEED_DIGITS} digits")
            return
        self._current, self._proposed = None, ""
        self.session.handle(f"seed {seed or self.session.seed}")

    def _save(self, name: str) -> None:
        talks = [talk for talk in self.conversations if talk.requests]
        if not name or not talks:
            self.tell("note", text="write /save FILE" if talks else "nothing was said yet")
            return
        path = Path(name)
        try:
            path = path.expanduser()
            with path.open("w" if path.resolve() in self._saved else "x", encoding="utf-8") as file:
                file.writelines(json.dumps(self._row(talk), ensure_ascii=False) + "\n" for talk in talks)
        except FileExistsError:
            raise BadInput(f"{path} exists; name another file") from None
        except (OSError, RuntimeError) as error:  # RuntimeError: no such home directory
            why = error.strerror if isinstance(error, OSError) else error
            raise BadInput(f"{path}: nothing can be written there ({why})") from None
        self._saved.add(path.resolve())
        self.tell("note", text=f"wrote {path}: {len(talks)} conversation{'s' if len(talks) > 1 else ''}")

    def _row(self, talk: Conversation) -> dict[str, JSON]:
        about = {"policy": self.policy, "world": self.session.world.name, "world_seed": talk.seed}
        task = None if talk.task is None else {"intent": talk.task.intent, "slots": talk.task.slots, "accepted": talk.accepted}
        return {**about, "task": task, "messages": [message.to_openai() for message in talk.messages]}

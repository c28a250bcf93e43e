"""A world as the policy sees it: results shortened, reminders behind them, and the context's own tools answered.

One idea: the view holds no part of the world's state, and the world knows nothing of the view. Its tools change nothing in the world: a
page of a result is of the result as it was, and notes are the view's.

What it does not do: cut the list of tools (`synth/conversations/task_in_context.py`), or judge (`synth/tasks/verify.py`).
After iFlow CLI and ROME (arXiv 2512.24873), whose agents work behind such a layer; the rules are ours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from storage.context.context_tools import READ_MORE, READ_NOTES, WRITE_NOTE, added_tools
from storage.context.settings import PolicyContext
from storage.records import JSON, Task, canonical_json, parse_arguments, plain_json
from synth.context.marks import add_reminder
from synth.context.shorten import Shortener
from synth.worlds.base import Observation, World

MAX_NOTES, MAX_NOTE_CHARS = 50, 500
_MOST_RULES, _LONGEST_REQUEST = 3, 400
_WORD = re.compile(r"[a-z]{4,}")
_STEM = 5
_SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])")
_ARGUMENTS: Mapping[str, Mapping[str, type]] = {READ_MORE: {"id": str, "from": int}, WRITE_NOTE: {"text": str}, READ_NOTES: {}}


class PolicyView:
    """The view of one conversation.

    system_prompt: of the world; reminders quote its rules.
    """

    def __init__(self, context: PolicyContext, system_prompt: str) -> None:
        self._context, self._system_prompt = context, system_prompt
        self._own = frozenset(added_tools(context))
        self._shortener = Shortener(context.observation_chars) if context.observation_chars is not None else None
        self._notes: list[str] = []
        self._request, self._called, self._results = "", list[str](), 0

    def hear(self, request: str) -> None:
        """Takes what the user says: the open request from now on."""
        self._request, self._called, self._results = request, [], 0

    def answers(self, tool: str) -> bool:
        """Whether a tool is one of the context's own."""
        return tool in self._own

    def answer(self, tool: str, arguments: str | Mapping[str, JSON]) -> str:
        """The result of a call of one of the context's own tools."""
        parsed = parse_arguments(arguments) if isinstance(arguments, str) else dict(arguments)
        if problem := _problem(tool, parsed):
            return self._remind(tool, canonical_json({"error": problem}))
        assert parsed is not None
        if tool == READ_MORE:
            assert self._shortener is not None
            return self._remind(tool, self._shortener.page(parsed["id"], parsed["from"]))
        return self._remind(tool, self._write_note(parsed["text"]) if tool == WRITE_NOTE else plain_json({"notes": self._notes}))

    def show(self, tool: str, content: str) -> str:
        """A result of the world's tool, as the policy sees it."""
        return self._remind(tool, content if self._shortener is None else self._shortener.shorten(content))

    def _write_note(self, text: str) -> str:
        if not text.strip() or len(text) > MAX_NOTE_CHARS or len(self._notes) >= MAX_NOTES:
            return canonical_json({"error": f"a note has 1 to {MAX_NOTE_CHARS} characters, and there are at most {MAX_NOTES}"})
        self._notes.append(text)
        return plain_json({"notes_kept": len(self._notes)})

    def _remind(self, tool: str, content: str) -> str:
        """The result, with the reminder behind every n-th."""
        every = self._context.reminder_every
        self._results += 1
        if tool not in self._own:
            self._called.append(tool)
        if every is None or self._results % every:
            return content
        request = self._request if len(self._request) <= _LONGEST_REQUEST else f"{self._request[:_LONGEST_REQUEST]} ..."
        rules = self._rules()
        return add_reminder(content, f"The user asked: {request}" + (f"\nRules: {' '.join(rules)}" if rules else ""))

    def _rules(self) -> list[str]:
        """The sentences of the system prompt that share most words with the request and the tools called so far, in their order."""
        known = _stems(" ".join([self._request, *self._called]))
        sentences = [each.strip() for each in _SENTENCE.split(self._system_prompt)]
        shared = {sentence: len(known & _stems(sentence)) for sentence in sentences if sentence}
        best = sorted((one for one, count in shared.items() if count), key=lambda one: -shared[one])[:_MOST_RULES]
        return [sentence.removeprefix("Rules: ") for sentence in shared if sentence in best]


def _stems(text: str) -> set[str]:
    return {word[:_STEM] for word in _WORD.findall(text.lower())}


def _problem(tool: str, arguments: Mapping[str, JSON] | None) -> str:
    """What is wrong with the arguments of a context tool's call; empty if nothing is."""
    wanted = _ARGUMENTS[tool]
    if arguments is None:
        return "the arguments are no JSON object"
    if wrong := sorted(arguments.keys() ^ wanted.keys()):
        return f"{tool} takes {', '.join(wanted) or 'no arguments'}; {wrong[0]} is {'missing' if wrong[0] in wanted else 'unknown'}"
    for name, kind in wanted.items():
        if not isinstance(arguments[name], kind) or isinstance(arguments[name], bool):
            return f"{name} must be {'an integer' if kind is int else 'a text'}"
    return ""


class ViewedWorld:
    """A world behind a view: what is called and judged where a task has a context."""

    def __init__(self, world: World, view: PolicyView) -> None:
        self.world, self.view = world, view

    def call(self, tool: str, arguments: str | Mapping[str, JSON]) -> Observation:
        """As `World.call`, of the world's tools and the context's."""
        if self.view.answers(tool):
            content = self.view.answer(tool, arguments)
            return Observation(content, content.startswith('{"error"'))
        observed = self.world.call(tool, arguments)
        return Observation(self.view.show(tool, observed.content), observed.is_error)

    def changes(self) -> dict[str, JSON]:
        """Of the world."""
        return self.world.changes()

    def state(self) -> dict[str, JSON]:
        """Of the world."""
        return self.world.state()

    def close(self) -> None:
        self.world.close()


def open_world(kind: type[World], task: Task) -> World | ViewedWorld:
    """A fresh world of a task with one request, as its policy sees it."""
    return view_world(kind(task.world_seed, task.given), task)


def view_world(world: World, task: Task) -> World | ViewedWorld:
    """A world behind a fresh view of the task; the world itself if the task has no context."""
    if task.context is None:
        return world
    view = PolicyView(task.context, world.system_prompt)
    for message in task.messages:
        if message.role == "user":
            view.hear(message.content or "")
    return ViewedWorld(world, view)

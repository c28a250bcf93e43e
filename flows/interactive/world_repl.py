"""A world at a prompt: call its tools, see the changes, draw a task and run its expert plan.

One idea: a line is a command or a call (`get_loan {"loan": "l012"}` or `get_loan loan=l012`). Every answer is text, so the same session
runs at a terminal and from a pipe. It stores nothing.
"""

from __future__ import annotations

import difflib
import json
import random
import shlex
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from storage.records import Language, Task
    from synth.worlds.base import World

HELP = """  tools                      all tools
  help TOOL                  parameters of a tool
  TOOL {json}                call a tool; or TOOL key=value key=value ...
  state [ENTITY [ID]]        the state of the world
  changes                    differences from the start
  intents                    the intents of the world
  task [INTENT] [en|zh]      draw a task and show its request; then `solve` runs the expert plan
  snapshot, restore          save the state, restore it
  seed N                     a fresh world of another seed
  quit                       leave; exit and Ctrl-D leave too
A command may begin with a slash, as in `headrace chat`."""
LEAVE = ("quit", "exit", "/quit", "/exit")
"""Lines that leave a chat or a world's prompt, in upper or lower case. The end of the input (Ctrl-D) leaves too."""
Need = tuple[str, frozenset[str]]
"""An intent and the names of its slots that are filled."""
_ROWS = 20
_TRIES = 40
_OPTIONAL_SHARE = 0.35
"""Probability that an optional slot is filled."""


class WorldSession:
    """A world and the user's session with it. say: called with each text for the user."""

    def __init__(self, name: str, seed: int, say: Callable[[str], None]) -> None:
        from synth.worlds import make_world

        self.world: World = make_world(name, seed)
        self.seed, self.say = seed, say
        self.saved_state: object | None = None
        self.task: Task | None = None
        self.rng = random.Random(f"try/{name}/{seed}")
        self._commands: dict[str, Callable[[list[str]], None]] = {
            "tools": self._tools,
            "help": self._help,
            "state": self._state,
            "changes": self._changes,
            "intents": self._intents,
            "task": self._draw,
            "solve": self._solve,
            "snapshot": self._snapshot,
            "restore": self._restore,
            "seed": self._reseed,
        }

    def first_words(self) -> list[str]:
        """All words that a line can begin with."""
        return [*self._commands, "quit", *(tool.name for tool in self.world.tools)]

    def handle(self, line: str) -> bool:
        """Execute a line. Returns False to leave."""
        word, _, rest = line.strip().removeprefix("/").partition(" ")
        if line.strip().lower() in LEAVE:
            return False
        if word in self._commands:
            self._commands[word](rest.split())
        elif any(tool.name == word for tool in self.world.tools):
            self._call(word, rest.strip())
        elif word:
            near = difflib.get_close_matches(word, self.first_words(), n=1, cutoff=0.5)
            self.say(f"no command or tool {word!r}; {f'did you mean {near[0]}?' if near else 'help lists them'}")
        return True

    # ---- tools --------------------------------------------------------------------------------------------------------

    def _tools(self, rest: list[str]) -> None:
        width = max(len(tool.name) for tool in self.world.tools)
        for tool in self.world.tools:
            self.say(f"{tool.name:<{width}} {'*' if tool.changes_state else ' '} {tool.description}")
        self.say("* changes the state")

    def _help(self, rest: list[str]) -> None:
        tool = next((tool for tool in self.world.tools if rest and tool.name == rest[0]), None)
        if tool is None:
            self.say(HELP)
            return
        self.say(f"{tool.name}: {tool.description}")
        required = tool.parameters.get("required", ())
        for name, schema in tool.parameters["properties"].items():
            about = {key: value for key, value in schema.items() if key not in ("description", "x-grounded")}
            description = f"  {schema['description']}" if "description" in schema else ""
            self.say(f"  {name}{'' if name in required else ' (optional)'}{description}  {json.dumps(about, ensure_ascii=False)}")

    def _call(self, tool: str, rest: str) -> None:
        try:
            arguments = read_arguments(rest)
        except ValueError:
            self.say(f'write {tool} {{"key": "value"}} or {tool} key=value')
            return
        from synth.sandbox import SandboxError

        try:
            self.say(self.world.call(tool, arguments).content)
        except SandboxError as error:
            self.say(str(error))

    # ---- state --------------------------------------------------------------------------------------------------------

    def _state(self, rest: list[str]) -> None:
        value: Any = self.world.state()
        for part in rest:
            if not isinstance(value, dict) or part not in value:
                known = ", ".join(list(value)[:_ROWS]) if isinstance(value, dict) else "nothing below it"
                self.say(f"no {part}; there is {known}")
                return
            value = value[part]
        if not rest:
            self.say(", ".join(f"{name} ({len(part)})" if isinstance(part, dict) else name for name, part in value.items()))
        elif isinstance(value, dict) and len(rest) == 1:
            for key, row in list(value.items())[:_ROWS]:
                self.say(f"{key} {json.dumps(row, ensure_ascii=False)}")
            if len(value) > _ROWS:
                self.say(f"... and {len(value) - _ROWS} more")
        else:
            self.say(json.dumps(value, ensure_ascii=False))

    def _changes(self, rest: list[str]) -> None:
        changes = self.world.changes()
        for path, value in changes.items():
            self.say(f"{path} = {json.dumps(value, ensure_ascii=False)}")
        if not changes:
            self.say("nothing has changed")

    def _snapshot(self, rest: list[str]) -> None:
        self.saved_state = self.world.snapshot()
        self.say("saved")

    def _restore(self, rest: list[str]) -> None:
        if self.saved_state is None:
            self.say("there is no saved state; use `snapshot` first")
            return
        self.world.restore(self.saved_state)
        self.say("restored the saved state")

    def _reseed(self, rest: list[str]) -> None:
        if not rest or not rest[0].isdecimal():
            self.say(f"this is seed {self.seed}; write seed N for another seed")
            return
        self.seed, self.saved_state, self.task = int(rest[0]), None, None
        self.world.reset(self.seed)
        self.say(f"a fresh world of seed {self.seed}")

    # ---- tasks --------------------------------------------------------------------------------------------------------

    def _intents(self, rest: list[str]) -> None:
        for name, intent in self.world.intents.items():
            calls = " > ".join(intent.shape(frozenset(slot.name for slot in intent.slots if slot.is_required)).tools)
            self.say(f"{name}: {calls or ('refused' if intent.refusal else 'answered')}{f' ({intent.refusal})' if intent.refusal else ''}")

    def _draw(self, rest: list[str]) -> None:
        from synth.sandbox import SandboxError
        from synth.tasks.solver import NotAdmitted
        from synth.worlds.declarative.languages import LANGUAGE_NAMES

        spoken = self.world.languages
        language: Any = next((each for each in rest if each in ("en", "zh")), spoken[0])
        if language not in spoken:
            self.say(f"no request of {self.world.name} is in {LANGUAGE_NAMES[language]}; its `languages` are {', '.join(spoken)}")
            return
        intents = [name for name in rest if name not in ("en", "zh")]
        if intents and intents[0] not in self.world.intents:
            self.say(f"no intent {intents[0]!r}; `intents` lists them")
            return

        def next_need() -> Need:
            return draw_need(self.world, self.rng, intents[0] if intents else None)

        try:
            self.task = draw_task(self.world, self.seed, next_need, language, self.rng)
        except NotAdmitted as reason:
            self.say(f"no task in seed {self.seed}: {reason}")
        except SandboxError as error:
            self.say(str(error))
        else:
            self.say(f"[{self.task.intent}, difficulty {self.task.difficulty}] {self.task.messages[-1].content}")

    def _solve(self, rest: list[str]) -> None:
        if self.task is None:
            self.say("there is no task; use `task` first")
            return
        self.world.reset(self.seed)
        for call in self.task.plan.calls:
            self.say(f"> {call.tool} {json.dumps(call.arguments, ensure_ascii=False)}")
            self.say(self.world.call(call.tool, call.arguments).content)
        self.say(f"= {self.task.plan.answer}")


def draw_need(world: World, rng: random.Random, intent: str | None = None) -> Need:
    """Draw the slots of an intent. Without `intent`, draw one that this machine can execute."""
    name = intent or rng.choice(world.jobs()).name
    return name, frozenset(slot.name for slot in world.intents[name].slots if slot.is_required or rng.random() < _OPTIONAL_SHARE)


def draw_task(
    world: World, seed: int, next_need: Callable[[], Need], language: Language, rng: random.Random, *, canonical: bool = False
) -> Task:
    """Draw needs until one gives a task in the world of this seed, at most 40 times.

    next_need: draws a need.
    language: the preferred one; a world that has no requests in it takes its first.
    canonical: use short plain wording, which a tiny policy can read.

    Raises:
        NotAdmitted: no drawn need gave a task.
        SandboxError: a task needs a program, and this machine cannot run it.
    """
    from storage.records import Frame
    from synth.tasks.solver import NotAdmitted, admit
    from synth.tasks.wording import render

    kind, failure = type(world), NotAdmitted("none_drawn")
    language = kind.language_near(language)
    for _ in range(_TRIES):
        intent, slots = next_need()
        frame = Frame(world=world.name, intent=intent, slots=kind(seed).draw_slots(intent, slots, rng))
        try:
            text = render(kind, frame, language, rng, canonical=canonical)
            return admit(kind, frame, text=text, language=language, seed=seed, division="seed")
        except NotAdmitted as refused:
            failure = refused
    raise failure


def read_arguments(text: str) -> str:
    """The arguments of a call as JSON text, from JSON or from `loan=l012 days=7`; JSON is not checked.

    Raises:
        ValueError: it is neither.
    """
    return text if text.startswith("{") else json.dumps(dict(_pairs(text)), ensure_ascii=False)


def _pairs(text: str) -> Iterator[tuple[str, Any]]:
    """Yield names and values of a text such as `loan=l012 days=7`. Raises ValueError if a part has no `=`."""
    for part in shlex.split(text):
        name, is_pair, value = part.partition("=")
        if not is_pair:
            raise ValueError(part)
        try:
            yield name, json.loads(value)
        except ValueError:
            yield name, value

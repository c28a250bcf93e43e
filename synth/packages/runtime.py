"""What an exported package needs of Headrace: its tasks, one episode of a task, the tools as JSON schemas, and the verdict.

One idea: a package is data (`data/*.jsonl`) and a few lines in its ecosystem's own form; all that knows a world is behind this module. An
episode keeps its own log of calls, and its verdict replays that log in a fresh world (`synth.tasks.verify.verify`), so no result in the
log is believed.

It does not play a user: tasks in which the user goes on are not packaged. It speaks no protocol (`episode_server.py` does).
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from storage.errors import BadInput, HeadraceError
from storage.records import JSON, FunctionCall, Message, Task, Tool, ToolCall
from synth.context.offered_tools import tools_of
from synth.context.view import open_world
from synth.tasks.solver import expert_messages
from synth.tasks.verify import Verdict, verify
from synth.worlds import WORLDS
from synth.worlds.arguments import without_marks
from synth.worlds.base import Observation

SPLITS = ("train", "eval_in", "eval_out")
"""`Task.use`: each is a file of its own, so a task that is held out is never among those to train on."""
WORLDS_FILE = "worlds.jsonl"
MAX_EPISODES = 4096


class Package:
    """The tasks of a package's data folder; the worlds in it are known in this process afterwards."""

    def __init__(self, data: Path) -> None:
        """Raises BadInput: there is no package, or a world is of another version than when the package was written."""
        self.data = data
        if not (data / WORLDS_FILE).is_file():
            raise BadInput(f"{data} has no {WORLDS_FILE}; it is not the data folder of a package")
        for row in _rows(data / WORLDS_FILE):
            _register(row, data)
        self._tasks = {
            split: {task.id: task for task in map(Task.model_validate, _rows(data / f"{split}.jsonl"))}
            for split in SPLITS
            if (data / f"{split}.jsonl").is_file()
        }

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that have tasks, `train` first."""
        return tuple(self._tasks)

    def tasks(self, split: str = "train") -> list[Task]:
        """The tasks of a split in their order. Raises BadInput: the package has no such split."""
        if split not in self._tasks:
            raise BadInput(f"{self.data} has no split {split!r}; it has {', '.join(self._tasks)}")
        return list(self._tasks[split].values())

    def task(self, task_id: str) -> Task:
        """The task of that id in any split. Raises BadInput: there is none."""
        for tasks in self._tasks.values():
            if task_id in tasks:
                return tasks[task_id]
        raise BadInput(f"{self.data} has no task {task_id}")


def _rows(path: Path) -> Iterator[dict[str, JSON]]:
    with path.open(encoding="utf-8") as lines:
        yield from (json.loads(line) for line in lines if line.strip())


def _register(row: Mapping[str, JSON], data: Path) -> None:
    """Makes a world of the user's own known, and checks the version of any other."""
    name = row["world"]
    if row["spec"] is not None:
        from synth.worlds.declarative.compile import compile_spec

        WORLDS.register_later(name, partial(compile_spec, row["spec"], name=name, where=f"world {name} of {data}"))
    if (version := WORLDS[name].version) != row["version"]:
        raise BadInput(f"{data} was written for version {row['version']} of world {name}; this Headrace has version {version}")


class Episode:
    """One attempt at a task: a world of its own, and the log of its calls."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self._world = open_world(WORLDS[task.world], task)
        self.log: list[Message] = []
        """A message with one call, and its result, in turn."""

    def call(self, tool: str, arguments: str | Mapping[str, JSON]) -> Observation:
        """The result of a call, JSON text; a bad call gives an object with the key `error`, never an exception."""
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        call = ToolCall(id=f"call_{len(self.log) // 2}", function=FunctionCall(name=tool, arguments=text))
        result = self._world.call(tool, text)
        self.log += [Message(role="assistant", tool_calls=(call,)), Message(role="tool", content=result.content, tool_call_id=call.id)]
        return result

    def judge(self, answer: str) -> Verdict:
        """The verdict on the calls so far, replayed, and this answer."""
        return judge(self.task, [*self.log, Message(role="assistant", content=answer)])

    def close(self) -> None:
        self._world.close()


class EpisodeLost(HeadraceError):
    """An episode is asked for that is not kept: an error of the infrastructure, never a reward of 0."""


class Episodes:
    """Episodes by a key of the caller's (a session, a sample). At most `most` are kept: the one that was used longest ago goes first, and
    whoever asks for it later gets an error, not a fresh one."""

    def __init__(self, most: int = MAX_EPISODES) -> None:
        self._episodes: OrderedDict[str, Episode] = OrderedDict()
        self._most = most

    def start(self, key: str, task: Task) -> Episode:
        """A new episode under the key; an earlier one is dropped."""
        self.end(key)
        while len(self._episodes) >= self._most:
            self._episodes.popitem(last=False)[1].close()
        self._episodes[key] = Episode(task)
        return self._episodes[key]

    def get(self, key: str) -> Episode:
        """Raises EpisodeLost: no episode of this key was started, or it was dropped."""
        if key not in self._episodes:
            raise EpisodeLost(f"no episode is kept for {key}: none was started, or {self._most:,} others were used since")
        self._episodes.move_to_end(key)
        return self._episodes[key]

    def end(self, key: str) -> None:
        """Drops the episode of the key, if there is one."""
        if (episode := self._episodes.pop(key, None)) is not None:
            episode.close()


def resume(task: Task, calls: Iterable[tuple[str, str]]) -> Episode:
    """An episode in which these calls were made: tool, and arguments as JSON text."""
    episode = Episode(task)
    for tool, arguments in calls:
        episode.call(tool, arguments)
    return episode


def judge(task: Task, turns: Sequence[Message]) -> Verdict:
    """The verdict on a conversation after its opening. Every call is replayed: a result that differs from the replay fails the check
    `observations`. A conversation that is empty, or does not end with a text, fails."""
    return verify(WORLDS[task.world], task, [*task.messages, *turns])


def judge_openai(task: Task, turns: Sequence[Mapping[str, JSON]]) -> Verdict:
    """`judge` of messages in OpenAI form, without the opening; a message that has not this form makes the conversation fail."""
    try:
        messages = [Message.model_validate({key: value for key, value in turn.items() if value is not None}) for turn in turns]
    except ValueError:
        return Verdict(False, 0.0, {"well_formed": False})
    return judge(task, messages)


def expert_turns(task: Task) -> list[Message]:
    """The executed expert plan after the opening: messages with one call each, their results, and the answer."""
    return expert_messages(WORLDS[task.world], task)[len(task.messages) :]


def system_prompt(task: Task) -> str | None:
    """The opening's system message."""
    return next((message.content for message in task.messages if message.role == "system"), None)


def request(task: Task) -> str:
    """The user's request."""
    return next(message.content or "" for message in task.messages if message.role == "user")


def tool_schemas(task: Task) -> list[dict[str, JSON]]:
    """The tools on offer, in the order of the prompt: name, description, and parameters as a JSON schema in which every parameter has a
    description (Inspect demands one); the marks of Headrace (`x-grounded`) are left out."""
    return [_schema(tool) for tool in tools_of(WORLDS[task.world], task)]


def _schema(tool: Tool) -> dict[str, JSON]:
    parameters = without_marks(tool.parameters)
    for name, schema in parameters.get("properties", {}).items():
        schema.setdefault("description", name.replace("_", " "))
    return {"name": tool.name, "description": tool.description, "parameters": parameters}

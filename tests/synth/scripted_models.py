"""Scripted stand-ins for language models that play roles: engines that read what they are told and answer by rule."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence

from storage.records import JSON, Message
from synth.engines.base import ChatAnswer, ChatRequest, EngineFailure

Answering = Callable[[ChatRequest], str | Message]


class Standing:
    """An engine that answers by a function of the request; 100 prompt tokens and 10 of the answer each. `asked`: all requests."""

    def __init__(self, answering: Answering, name: str = "openai:scripted") -> None:
        self.name, self._answering = name, answering
        self.asked: list[ChatRequest] = []
        self._lock = threading.Lock()

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer]:
        with self._lock:
            self.asked += requests
        found = []
        for request in requests:
            said = self._answering(request)
            message = said if isinstance(said, Message) else Message(role="assistant", content=said)
            found.append(ChatAnswer(message, "stop", prompt_tokens=100, completion_tokens=10, usd=0.001))
        return found


def silent(_: ChatRequest) -> str:
    raise EngineFailure("nobody answers")


def reciting(conversations: Iterable[Sequence[Message]]) -> Answering:
    """Says what the assistant said in these conversations at the same point; "I cannot." at any other."""
    known = {_key(talk[:at]): message for talk in conversations for at, message in enumerate(talk) if message.role == "assistant"}
    return lambda request: known.get(_key(request.messages), "I cannot.")


def _key(dialogue: Sequence[Message]) -> str:
    return json.dumps([message.to_openai() for message in dialogue])


def parroting(request: ChatRequest) -> str:
    """A user that says word for word what it is told to say."""
    return (request.messages[1].content or "").rpartition("What your next message is to say:\n")[2]


def judging(grade: Callable[[str], int]) -> Answering:
    """A judge whose criteria are always the same, and whose grades follow from the conversation that it is shown."""

    def answering(request: ChatRequest) -> str:
        shown = request.messages[1].content or ""
        if "The conversation:" not in shown:
            return json.dumps({name: [f"The {name} is as it should be."] for name in ("planning", "fidelity", "presentation")})
        given = grade(shown.partition("The conversation:")[2])
        return json.dumps({name: {"why": "so it is", "grade": given} for name in ("planning", "fidelity", "presentation")})

    return answering


def planning(request: ChatRequest) -> str:
    """A planner that asks for one thing of the domain, with an example's values, in one sentence; told that this will not do, it takes the
    next example."""
    shown = request.messages[1].content or ""
    tries = sum(message.role == "assistant" for message in request.messages)
    offers = re.findall(r"^- (\w+) \(of this domain\)\n((?:  .*\n)*)", shown, re.MULTILINE)
    examples = [(intent, found) for intent, block in offers for found in re.findall(r"for example (.*)", block)]
    intent, example = examples[tries % len(examples)]
    slots: dict[str, JSON] = json.loads(example)
    words = dict(re.findall(r"(\w+) \(([^)]+)\)", shown))
    wish = "我想要：" if "Chinese" in shown.splitlines()[0] else "I would like this: "
    said = wish + ", ".join(words.get(str(value), str(value)) for value in slots.values())
    goal: Mapping[str, JSON] = {
        "intent": intent,
        "slots": slots,
        "request": said,
        **dict.fromkeys(("withheld", "reveal", "check")),
        "fault": False,
        **dict.fromkeys(("chained", "joint", "asks_first", "dropped"), False),
    }
    return json.dumps({"persona": "plain", "parallel": False, "goals": [goal]}, ensure_ascii=False)

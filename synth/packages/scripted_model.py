"""A scripted stand-in for a language model: an OpenAI-compatible server that plays the expert plan, or does nothing.

One idea: the model's name says what it plays (`oracle`, `idle`), and the conversation says which task it is: the request, and the results
so far. So an ecosystem's own tool can run a package whole, with its own loop, tools and scorer, and no model.

It answers `/v1/chat/completions`; asked to stream, it sends the whole message as one event. It is for checks of packages; nothing is
trained or measured on it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from storage.records import JSON, Message, Task
from synth.packages.runtime import expert_turns, request

ORACLE, IDLE = "oracle", "idle"
IDLE_ANSWER = "Done."


class ScriptedModel:
    """Answers by task."""

    def __init__(self, tasks: Iterable[Task]) -> None:
        self._turns: dict[str, list[list[Message]]] = {}
        for task in tasks:
            self._turns.setdefault(request(task), []).append(expert_turns(task))

    def answer(self, model: str, messages: Sequence[Mapping[str, Any]]) -> dict[str, JSON]:
        """The next message: of the expert of the task that these messages are about, or the idle model's."""
        if model.rpartition("/")[2] != ORACLE:
            return {"role": "assistant", "content": IDLE_ANSWER}
        results = [_text(message["content"]) for message in messages if message["role"] == "tool"]
        experts = next((self._turns[text] for message in messages if (text := _text(message.get("content"))) in self._turns), [])
        fitting = (turns for turns in experts if [turn.content for turn in turns if turn.role == "tool"][: len(results)] == results)
        turns = next(fitting, None)
        if turns is None:
            return {"role": "assistant", "content": "I do not know this task."}
        return turns[2 * len(results)].to_openai()


def _text(content: Any) -> str:
    """The text of a message's content, which may be a list of parts."""
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content or ""


def _completion(model: str, message: Mapping[str, JSON], key: str) -> dict[str, JSON]:
    """The answer as an object of the API. key: `message`, or `delta` for an event of a stream."""
    calls = [{"index": index, **call} for index, call in enumerate(message.get("tool_calls") or ())]
    content = {**message, "tool_calls": calls} if calls else dict(message)
    choice = {"index": 0, key: content, "finish_reason": "tool_calls" if calls else "stop"}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    kind = "chat.completion" if key == "message" else "chat.completion.chunk"
    return {"id": "chatcmpl-scripted", "object": kind, "created": 0, "model": model, "choices": [choice], "usage": usage}


@contextmanager
def serve_model(model: ScriptedModel) -> Iterator[str]:
    """The base URL of a running server on loopback (`http://127.0.0.1:PORT/v1`)."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send(json.dumps({"object": "list", "data": [{"id": name, "object": "model"} for name in (ORACLE, IDLE)]}).encode())

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            message = model.answer(str(body["model"]), body["messages"])
            if body.get("stream"):
                events = "".join(f"data: {event}\n\n" for event in (json.dumps(_completion(body["model"], message, "delta")), "[DONE]"))
                self._send(events.encode(), "text/event-stream")
            else:
                self._send(json.dumps(_completion(body["model"], message, "message")).encode())

        def _send(self, content: bytes, kind: str = "application/json") -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()

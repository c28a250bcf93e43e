"""An engine behind a chat server of OpenAI's form, as model `mock`."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

from storage.records import Message
from synth.engines.base import ChatAnswer, ChatRequest


class Model(Protocol):
    def chat(self, requests: list[ChatRequest]) -> list[ChatAnswer]: ...


@contextmanager
def chat_server(model: Model) -> Iterator[str]:
    """The base URL of a server that answers with the model."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(model))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()


def _handler(model: Model) -> type[BaseHTTPRequestHandler]:
    mutex = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send({"data": [{"id": "mock"}]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            text = "pong"
            if body["max_tokens"] > 1:  # else the engine checks the server
                messages = tuple(Message.model_validate(message) for message in body["messages"])
                with mutex:
                    text = str(model.chat([ChatRequest(messages, seed=body["seed"])])[0].message.content)
            choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            self._send({"choices": [choice], "usage": {"prompt_tokens": 1000, "completion_tokens": 200}})

        def _send(self, value: Any) -> None:
            data = json.dumps(value).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler

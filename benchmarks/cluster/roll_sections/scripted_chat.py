"""A scripted server in OpenAI's form: it answers each request with the next text that is recorded for its conversation.

One idea: a conversation is known by its opening, and the next text by the number of answers in it, so any number of conversations, and
another attempt at one, are answered without state. Every token of a text has the log-probability `LOGPROB`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LOGPROB = -0.5


def key_of(messages: Sequence[Mapping[str, Any]]) -> str:
    """Of a conversation: its messages up to the first of the user."""
    first = next(place for place, message in enumerate(messages) if message["role"] == "user")
    return json.dumps([[message["role"], message["content"]] for message in messages[: first + 1]], ensure_ascii=False)


class ScriptedChat:
    """Serves from entering to leaving the context; `url` is its base URL.

    Args:
        answers: key of a conversation -> its texts; beyond the last one, the last again.
        tokens: number of tokens of a text.
    """

    def __init__(self, answers: Mapping[str, Sequence[str]], tokens: Callable[[str], int]) -> None:
        outer, self.requests = self, 0

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.requests += 1
                texts = answers[key_of(body["messages"])]
                done = sum(message["role"] == "assistant" for message in body["messages"])
                payload = json.dumps(_completion(texts[min(done, len(texts) - 1)], tokens)).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(payload)))
                self.end_headers()
                self.wfile.write(payload)

            def log_message(self, format: str, *args: object) -> None:
                del format, args

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> ScriptedChat:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _completion(text: str, tokens: Callable[[str], int]) -> dict[str, Any]:
    said = [{"token": "", "logprob": LOGPROB, "bytes": None, "top_logprobs": []} for _ in range(tokens(text))]
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "logprobs": {"content": said}, "finish_reason": "stop"}
    return {"id": "scripted", "object": "chat.completion", "created": 0, "model": "scripted", "choices": [choice]}

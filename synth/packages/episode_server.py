"""One episode of one task as an HTTP service: `python -m synth.packages.episode_server --data DIR --log FILE`.

One idea: a harness whose agent is root in its own container (Harbor) must not hold the world, or the agent could write the log itself. The
world is a service of its own, and its log leaves that service only after the agent has stopped. The service speaks MCP (streamable HTTP:
JSON-RPC by POST at `/mcp`, one JSON answer each), because every Harbor agent reads MCP servers from the task. Tool `answer` takes the final
answer and ends the episode.

The log has one JSON object a line: a call (`tool`, `arguments`) or the answer (`answer`); no results, which the verifier computes itself.

It does not keep sessions, stream, or import an MCP library; it needs the standard library and Headrace. It never sees the plan or the
success criteria: the task in its data has neither.
Source: the Model Context Protocol, versions 2025-03-26 to 2026-07-28: initialize, server/discover, tools/list, tools/call, ping.
"""

from __future__ import annotations

import argparse
import json
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from storage.records import JSON
from synth.packages.runtime import Episode, Package, tool_schemas
from synth.worlds.base import Observation

ANSWER = "answer"
ANSWER_TOOL: dict[str, JSON] = {
    "name": ANSWER,
    "description": "Gives the user your final answer and ends the task. Call it once, after all other calls.",
    "parameters": {
        "type": "object",
        "properties": {"text": {"type": "string", "description": "the answer, in the user's language"}},
        "required": ["text"],
        "additionalProperties": False,
    },
}
PROTOCOLS = ("2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26")
_METHOD_NOT_FOUND, _INVALID_PARAMS = -32601, -32602
MAX_BODY = 1 << 20


class LoggedEpisode:
    """An episode whose calls and answer are appended to a file as they happen; one call at a time."""

    def __init__(self, episode: Episode, log: Path) -> None:
        self._episode, self._log, self._lock = episode, log, threading.Lock()
        self.tools = [*tool_schemas(episode.task), ANSWER_TOOL]
        self._is_over = False
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("", encoding="utf-8")

    def call(self, tool: str, arguments: Mapping[str, JSON]) -> Observation:
        """The result of a call; after the answer every call is refused."""
        with self._lock:
            if self._is_over:
                return Observation(json.dumps({"error": "the task is over: the answer was given"}), is_error=True)
            if tool == ANSWER:
                text = arguments.get("text")
                if not isinstance(text, str):
                    return Observation(json.dumps({"error": "answer needs the argument text, a string"}), is_error=True)
                self._is_over = True
                self._write({"answer": text})
                return Observation(json.dumps({"ok": True}))
            self._write({"tool": tool, "arguments": dict(arguments)})
            return self._episode.call(tool, arguments)

    def _write(self, entry: Mapping[str, JSON]) -> None:
        with self._log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")


def respond(episode: LoggedEpisode, request: Mapping[str, Any]) -> dict[str, JSON] | None:
    """The JSON-RPC response to a request; None for a notification."""
    if "id" not in request:
        return None
    params = request.get("params")
    answer = _METHODS.get(str(request.get("method")))
    response: dict[str, JSON] = {"jsonrpc": "2.0", "id": request["id"]}
    if answer is None:
        return {**response, "error": {"code": _METHOD_NOT_FOUND, "message": f"no method {request.get('method')}"}}
    try:
        return {**response, "result": answer(episode, params if isinstance(params, dict) else {})}
    except (KeyError, TypeError, ValueError) as error:
        return {**response, "error": {"code": _INVALID_PARAMS, "message": f"invalid parameters: {error}"}}


def _about() -> dict[str, JSON]:
    return {"capabilities": {"tools": {}}, "serverInfo": {"name": "headrace-world", "version": "1"}}


def _initialize(_: LoggedEpisode, params: Mapping[str, Any]) -> dict[str, JSON]:
    asked = params.get("protocolVersion")
    return {"protocolVersion": asked if asked in PROTOCOLS[1:] else PROTOCOLS[1], **_about()}


def _discover(_: LoggedEpisode, __: Mapping[str, Any]) -> dict[str, JSON]:
    return {"supportedVersions": list(PROTOCOLS), **_complete(), **_about()}


def _complete() -> dict[str, JSON]:
    """What version 2026-07-28 demands of a result: its type, and for how long it may be cached."""
    return {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


def _list_tools(episode: LoggedEpisode, _: Mapping[str, Any]) -> dict[str, JSON]:
    tools = [{"name": tool["name"], "description": tool["description"], "inputSchema": tool["parameters"]} for tool in episode.tools]
    return {"tools": tools, **_complete()}


def _call_tool(episode: LoggedEpisode, params: Mapping[str, Any]) -> dict[str, JSON]:
    arguments = params.get("arguments") or {}
    if not isinstance(arguments, dict):
        raise ValueError("arguments must be an object")
    observation = episode.call(str(params["name"]), arguments)
    return {"content": [{"type": "text", "text": observation.content}], "isError": observation.is_error, "resultType": "complete"}


_METHODS: dict[str, Callable[[LoggedEpisode, Mapping[str, Any]], dict[str, JSON]]] = {
    "initialize": _initialize,
    "server/discover": _discover,
    "ping": lambda _, __: {},
    "tools/list": _list_tools,
    "tools/call": _call_tool,
}


def serve(episode: LoggedEpisode, host: str = "127.0.0.1", port: int = 0) -> ThreadingHTTPServer:
    """A server that is bound and not yet running; `serve_forever` runs it. port: 0 for any free one (`server_address`)."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            """`/health` says that the service is up; there is no stream of server messages."""
            self._send(200 if self.path == "/health" else 405, {"status": "healthy"} if self.path == "/health" else None)

        def do_POST(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            if self.path != "/mcp" or size > MAX_BODY:
                self.close_connection = True
                self._send(404 if self.path != "/mcp" else 413, None)
                return
            try:
                request = json.loads(self.rfile.read(size))
                assert isinstance(request, dict)
            except (ValueError, AssertionError):
                self._send(400, None)
                return
            response = respond(episode, request)
            self._send(202 if response is None else 200, response)

        def _send(self, status: int, body: Mapping[str, JSON] | None) -> None:
            content = b"" if body is None else json.dumps(body, ensure_ascii=False).encode()
            self.send_response(status)
            if body is not None:
                self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Nothing: the log of calls is the episode's."""

    return ThreadingHTTPServer((host, port), Handler)


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="data folder with one task")
    parser.add_argument("--log", type=Path, required=True, help="file of the calls")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args()
    package = Package(options.data)
    task = package.tasks(package.splits[0])[0]
    serve(LoggedEpisode(Episode(task), options.log), options.host, options.port).serve_forever()


if __name__ == "__main__":
    main()

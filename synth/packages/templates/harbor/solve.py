"""Plays the expert's calls (`calls.json`) on the task's MCP server; it needs the standard library alone."""

import json
import pathlib
import urllib.request
from typing import Any

URL = "http://world:8000/mcp"


def post(method: str, params: dict[str, Any], number: int | None) -> Any:
    body = {"jsonrpc": "2.0", "method": method, "params": params} | ({} if number is None else {"id": number})
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    with urllib.request.urlopen(urllib.request.Request(URL, json.dumps(body).encode(), headers), timeout=60) as answer:
        text = answer.read()
    return json.loads(text) if text else None


client = {"name": "headrace-expert", "version": "1"}
post("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}, 0)
post("notifications/initialized", {}, None)
for number, call in enumerate(json.loads(pathlib.Path(__file__).with_name("calls.json").read_text(encoding="utf-8")), 1):
    print(call["name"], post("tools/call", call, number))

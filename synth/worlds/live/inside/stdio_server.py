"""A small MCP server over stdio for the programs in this folder: JSON-RPC 2.0, one message a line, protocol 2025-06-18.

It answers initialize, ping, tools/list and tools/call, one after the other. The standard library only.
"""

import json
import sys
import traceback

PROTOCOL = "2025-06-18"


class ToolFailed(Exception):
    """The tool refused; the message is its result, marked as an error."""


def serve(name, tools, call, instructions=""):
    """Serves until stdin ends. tools: as tools/list gives them. call: (name, arguments) -> JSON value; raises ToolFailed."""
    out = sys.stdout
    sys.stdout = sys.stderr  # what a tool prints is no message
    for line in sys.stdin:
        if not line.strip():
            continue
        try:
            message = json.loads(line)
        except ValueError:
            answer(out, {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "no JSON"}})
            continue
        if "id" not in message or "method" not in message:
            continue
        method, params = message["method"], message.get("params") or {}
        reply = {"jsonrpc": "2.0", "id": message["id"]}
        if method == "initialize":
            info = {"protocolVersion": params.get("protocolVersion", PROTOCOL), "capabilities": {"tools": {}}}
            reply["result"] = info | {"serverInfo": {"name": name, "version": "1"}, "instructions": instructions}
        elif method == "ping":
            reply["result"] = {}
        elif method == "tools/list":
            reply["result"] = {"tools": tools}
        elif method == "tools/call":
            reply["result"] = result_of(call, params.get("name"), params.get("arguments") or {})
        else:
            reply["error"] = {"code": -32601, "message": "no method " + str(method)}
        answer(out, reply)


def result_of(call, name, arguments):
    try:
        value = call(name, arguments)
    except ToolFailed as error:
        return {"content": [{"type": "text", "text": str(error)}], "isError": True}
    except Exception as error:
        traceback.print_exc(limit=5)
        return {"content": [{"type": "text", "text": type(error).__name__ + ": " + str(error)}], "isError": True}
    return {"content": [{"type": "text", "text": value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}]}


def answer(out, message):
    out.write(json.dumps(message, ensure_ascii=False) + "\n")
    out.flush()

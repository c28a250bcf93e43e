"""A small MCP server for tests that is odd in one way: `python odd_server.py ODDITY`. JSON-RPC over stdio, by hand."""

import json
import os
import sys
import time
import uuid

ODDITY = sys.argv[1]
STATE = {"is_on": False}
PICTURE = "iVBORw0KGgo="
LEAF = {"type": "object", "properties": {"a": {"type": "string"}}}


def tool(name, properties=None, **more):
    return {"name": name, "description": "Do " + name + ".", "inputSchema": {"type": "object", "properties": properties or {}, **more}}


def fan_out(levels):
    """Definitions each of which names the next one ten times."""
    definitions = {f"d{levels}": LEAF}
    for level in range(levels):
        inner = {f"p{number}": {"$ref": f"#/$defs/d{level + 1}"} for number in range(10)}
        definitions[f"d{level}"] = {"type": "object", "properties": inner}
    return definitions


CIRCLE = {"node": {"type": "object", "properties": {"name": {"type": "string"}, "next": {"$ref": "#/$defs/node"}}}}
TOOLS = {
    "many": [tool(f"tool_{number}") for number in range(2000)],
    "pages": [tool(f"tool_{number}") for number in range(25)],
    "circle": [tool("walk", {"node": {"$ref": "#/$defs/node"}}, **{"$defs": CIRCLE})],
    "fan_out": [tool("grow", {"tree": {"$ref": "#/$defs/d0"}}, **{"$defs": fan_out(12)}), tool("look")],
    "named_like_ours": [tool("run_python", {"code": {"type": "string"}}), tool("look")],
    "changes": [tool("look"), tool("unlock")],
    "kinds": [tool("look"), tool("wait"), tool("structured")],
    "echo": [tool("look"), tool("fail"), tool("say"), tool("store")],
    "odd_schemas": [
        tool(
            "choose",
            {
                "none": {"enum": []},
                "small": {"type": "number", "maximum": 0.5},
                "any": {"type": "array", "items": True},
                "definitions": {"type": "string"},
                "2fa": {"type": "string"},
            },
            required=["small", "any", "definitions", "2fa"],
        )
    ],
    "choices": [tool("look", {"form": {"enum": ["plain", "rich", "dated", "marked"]}})],
    "toggles": [tool("look"), tool("toggle")],
    "slow": [tool("look"), tool("ponder")],
}.get(ODDITY, [tool("touch")])


def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def listed(cursor):
    if ODDITY == "echo":
        return {"tools": [{**each, "description": "Its key is " + os.environ["ODD_KEY"]} for each in TOOLS]}
    if ODDITY != "pages":
        return {"tools": TOOLS}
    first = int(cursor or 0)
    more = {"nextCursor": str(first + 10)} if first + 10 < len(TOOLS) else {}
    return {"tools": TOOLS[first : first + 10], **more}


def called(name, token, arguments):
    if arguments.get("form") == "dated":
        return {"content": [{"type": "text", "text": f"seen at {time.time():.6f}"}]}
    if arguments.get("form") == "marked":
        return {"content": [{"type": "text", "text": f"seen as {uuid.uuid4()}"}]}
    if ODDITY == "changes" and name == "unlock" and len(TOOLS) == 2:
        TOOLS.append(tool("hidden"))
        send({"method": "notifications/tools/list_changed"})
    if ODDITY == "echo":
        key = os.environ["ODD_KEY"]
        if name == "store":
            with open("key.txt", "w") as file:
                file.write("the key is " + key)
        content = [{"type": "text", "text": "the key is " + key + " and as JSON " + json.dumps({"key": key})}]
        structured = {"structuredContent": {"key": int(key) if key.isdigit() else key}} if name == "look" else {}
        return {"content": content, **structured, "isError": name == "fail"}
    if name == "toggle":
        STATE["is_on"] = not STATE["is_on"]
        return {"content": [{"type": "text", "text": "on" if STATE["is_on"] else "off"}]}
    if ODDITY == "slow" and name == "ponder":
        time.sleep(2.1)
    if name == "wait":
        for step in range(6):
            time.sleep(0.3)
            send({"method": "notifications/progress", "params": {"progressToken": token, "progress": step, "total": 6}})
    if name == "structured":
        return {"content": [], "structuredContent": {"sum": 3}}
    if ODDITY == "kinds" and name == "look":
        file = {"uri": "file:///notes.txt", "mimeType": "text/plain"}
        return {
            "content": [
                {"type": "text", "text": "seen"},
                {"type": "image", "mimeType": "image/png", "data": PICTURE},
                {"type": "resource", "resource": {**file, "text": "of a file"}},
                {"type": "resource_link", "name": "notes", **file},
            ]
        }
    return {"content": [{"type": "text", "text": "done"}]}


def main():
    for line in sys.stdin:
        message = json.loads(line)
        method, params = message.get("method"), message.get("params") or {}
        if "id" not in message:
            continue
        if method == "initialize":
            version = "2020-01-01" if ODDITY == "old" else params["protocolVersion"]
            capabilities = {"tools": {"listChanged": True}}
            result = {"protocolVersion": version, "capabilities": capabilities, "serverInfo": {"name": "odd", "version": "1"}}
        elif method == "tools/list":
            result = listed(params.get("cursor"))
        elif method == "tools/call":
            result = called(params["name"], (params.get("_meta") or {}).get("progressToken"), params.get("arguments") or {})
        else:
            result = {}
        send({"id": message["id"], "result": result})


if __name__ == "__main__":
    main()

"""A small MCP server of notes for tests: `python notes_server.py [LIE]`. Its state is notes.json in the working folder.

Without a lie it is honest. Each lie is one way in which real servers are not what they say.
"""

import json
import os
import random
import sys
import threading
import time
import uuid

sys.path.insert(0, os.environ.get("STDIO_SERVER", "/run/headrace"))
try:
    from stdio_server import ToolFailed, serve
except ImportError:  # a test reads its constants
    ToolFailed, serve = Exception, None

LIES = (
    "",
    "read_writes",
    "clock",
    "random_ids",
    "memory_only",
    "shared",
    "errors_as_text",
    "late",
    "error_with_effect",
    "cache",
    "next_id",
    "cursor",
    "order",
)
LIE = sys.argv[1] if len(sys.argv) > 1 else ""
FILE = os.environ.get("SHARED_FILE", "notes.json") if LIE == "shared" else "notes.json"
MEMORY = {"next": 100, "cursor": 0}
START = {
    f"n{number}": {"title": title, "shelf": shelf, "text": text}
    for number, (title, shelf, text) in enumerate(
        [
            ("groceries", "kitchen", "milk and bread"),
            ("ferry", "travel", "leaves at 09:40"),
            ("rent", "office", "due on the first"),
            ("plumber", "office", "call about the tap"),
            ("recipe", "kitchen", "two eggs and flour"),
            ("passport", "travel", "renew in June"),
        ],
        1,
    )
}
SHELVES = ("kitchen", "travel", "office")


def load():
    if LIE == "memory_only" or (LIE == "cache" and "notes" in MEMORY):
        return MEMORY.setdefault("notes", json.loads(json.dumps(START)))
    notes = json.load(open(FILE)) if os.path.exists(FILE) else json.loads(json.dumps(START))
    MEMORY["notes"] = notes
    return notes


def save(notes):
    MEMORY["notes"] = notes
    if LIE == "memory_only":
        return
    if LIE == "late":
        threading.Timer(0.5, write, [json.dumps(notes)]).start()
    else:
        write(json.dumps(notes))


def write(text):
    with open(FILE + ".new", "w") as file:
        file.write(text)
    os.replace(FILE + ".new", FILE)


def call(name, arguments):
    notes = load()
    if name == "list_notes":
        keys = sorted(notes)
        if LIE == "order":
            random.SystemRandom().shuffle(keys)
        if LIE == "cursor":
            MEMORY["cursor"] = (MEMORY["cursor"] + 1) % len(keys)
            keys = keys[MEMORY["cursor"] :]
        return [{"note_id": key, "title": notes[key]["title"], "shelf": notes[key]["shelf"]} for key in keys]
    if name == "add_note":
        number = MEMORY["next"] if LIE == "next_id" else 1 + max(int(key[1:]) for key in notes) if LIE != "random_ids" else 0
        MEMORY["next"] += 1
        key = f"n{number}" if LIE != "random_ids" else uuid.uuid4().hex
        notes[key] = {"title": arguments["title"], "shelf": "office", "text": arguments["text"]}
        save(notes)
        added = {"note_id": key, "title": arguments["title"]}
        return added | (
            {"added_at": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) + f".{time.time_ns() % 10**6:06d}"} if LIE == "clock" else {}
        )
    note = notes.get(arguments["note_id"])
    if note is None:
        if LIE == "errors_as_text":
            return "Error: no such note"
        raise ToolFailed("no such note")
    if name == "get_note":
        if LIE == "read_writes":
            note["views"] = note.get("views", 0) + 1
            save(notes)
        return note | {"note_id": arguments["note_id"]}
    if name == "move_note":
        if arguments["shelf"] not in SHELVES:
            if LIE == "error_with_effect":
                note["shelf"] = "lost"
                save(notes)
            raise ToolFailed("no such shelf; there are " + ", ".join(SHELVES))
        note["shelf"] = arguments["shelf"]
    elif name == "remove_note":
        del notes[arguments["note_id"]]
    save(notes)
    return {"note_id": arguments["note_id"], "done": True}


def tool(name, description, properties, *, reads=False):
    schema = {"type": "object", "properties": {key: {"type": "string", "description": text} for key, text in properties.items()}}
    schema |= {"required": list(properties), "additionalProperties": False}
    return {"name": name, "description": description, "inputSchema": schema, "annotations": {"readOnlyHint": reads}}


TOOLS = [
    tool("list_notes", "List all notes.", {}, reads=True),
    tool("get_note", "Get a note.", {"note_id": "Id of the note."}, reads=True),
    tool("add_note", "Add a note.", {"title": "Title of the note.", "text": "Text of the note."}),
    tool("move_note", "Move a note to a shelf.", {"note_id": "Id of the note.", "shelf": "kitchen, travel or office"}),
    tool("remove_note", "Remove a note.", {"note_id": "Id of the note."}),
]

if __name__ == "__main__":
    if LIE != "memory_only" and not os.path.exists(FILE):
        save(json.loads(json.dumps(START)))
        time.sleep(0.6 if LIE == "late" else 0)
    serve("notes", TOOLS, call, "You look after the notes of an office.")

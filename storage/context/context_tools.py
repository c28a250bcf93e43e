"""The signatures of the tools that a policy's context adds to those of a world: what was left out of a result, and notes.

They are no world's tools, so no table of tools holds them; `synth/context/view.py` answers their calls.
"""

from __future__ import annotations

from typing import Any

from storage.context.settings import PolicyContext

READ_MORE, WRITE_NOTE, READ_NOTES = "read_more", "write_note", "read_notes"
NOTE_TOOLS = frozenset({WRITE_NOTE, READ_NOTES})


def _function(name: str, description: str, properties: dict[str, dict[str, str]]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    return {"name": name, "description": description, "parameters": parameters}


FUNCTIONS = {
    READ_MORE: _function(
        READ_MORE,
        "Shows more of a result that was shortened. A mark in the result names the id, and where to go on.",
        {
            "id": {"type": "string", "description": "The id in the mark, such as r1."},
            "from": {"type": "integer", "description": "The first item or character to show, as in the mark."},
        },
    ),
    WRITE_NOTE: _function(
        WRITE_NOTE,
        "Keeps a note for yourself. It changes nothing else.",
        {"text": {"type": "string", "description": "The note, at most 500 characters."}},
    ),
    READ_NOTES: _function(READ_NOTES, "Shows the notes that you have written in this conversation.", {}),
}
"""Name -> name, description and parameters, as in an OpenAI request."""


def added_tools(context: PolicyContext | None) -> tuple[str, ...]:
    """The names of the tools that a context adds, in the order in which they stand after the world's."""
    if context is None:
        return ()
    return (READ_MORE,) * (context.observation_chars is not None) + (WRITE_NOTE, READ_NOTES) * context.notes

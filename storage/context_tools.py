"""The tools that a policy's context adds to those of a world: what was left out of a result, and notes.

They are no world's tools: calls of them change no world, and `synth/context/view.py` answers them.
"""

from __future__ import annotations

from storage.policy_context import PolicyContext
from storage.records import Tool

READ_MORE, WRITE_NOTE, READ_NOTES = "read_more", "write_note", "read_notes"
NOTE_TOOLS = frozenset({WRITE_NOTE, READ_NOTES})
_SERVER = "context"


def _tool(name: str, description: str, **properties: dict[str, str]) -> Tool:
    parameters = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    return Tool(name=name, description=description, parameters=parameters, server=_SERVER, domain=_SERVER)


CONTEXT_TOOLS = {
    tool.name: tool
    for tool in (
        _tool(
            READ_MORE,
            "Shows more of a result that was shortened. A mark in the result names the id, and where to go on.",
            **{
                "id": {"type": "string", "description": "The id in the mark, such as r1."},
                "from": {"type": "integer", "description": "The first item or character to show, as in the mark."},
            },
        ),
        _tool(
            WRITE_NOTE,
            "Keeps a note for yourself. It changes nothing else.",
            text={"type": "string", "description": "The note, at most 500 characters."},
        ),
        _tool(READ_NOTES, "Shows the notes that you have written in this conversation."),
    )
}
"""Name -> tool."""


def context_tools(context: PolicyContext | None) -> tuple[Tool, ...]:
    """The tools that a context adds, in the order in which they stand after the world's."""
    if context is None:
        return ()
    names = (READ_MORE,) * (context.observation_chars is not None) + (WRITE_NOTE, READ_NOTES) * context.notes
    return tuple(CONTEXT_TOOLS[name] for name in names)

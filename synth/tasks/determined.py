"""Whether a request determines its plan: every value of the plan's arguments is said, looked up by a key, or a default.

One idea: a plan that sets an address that nobody named can be executed and verified, and still no reader of the request could find it. So
an argument may take a value that only an earlier result holds if it names an individual (an id, a code, a name), or if its call only reads;
any other value must be in the request. What stands for itself in a slot (an open name) must be in the request as it stands.

What it does not do: judge the wording, or arguments that hold texts of the policy's own (a query, a program); say whether what a result
shows is the only candidate. The latter is the planner's part: an intent's solver, or the paths of a plan that was found (`live/plans.py`:
a field, the only entry, or the one entry that has a value which is said).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from storage.records import CODE_TOOL, JSON, Message, Task, parse_arguments
from synth.tasks.conversation_context import ConversationContext
from synth.text.claims import normalise
from synth.text.slot_kinds import Vocabulary
from synth.worlds.base import World

_KEY_WORDS = frozenset(
    ("id", "ids", "uuid", "uid", "key", "code", "number", "no", "name", "names", "path", "paths", "email", "ref", "slug")
)
FREE_TEXTS = frozenset(("content", "text", "query", "sql", "code", "message", "body", "edits"))
"""Names of arguments that hold texts of the policy's own."""
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")


def undetermined(world: type[World], task: Task, messages: Sequence[Message], forms: frozenset[str]) -> list[str]:
    """What the request does not determine: names of arguments (`tool.argument`) and of slots.

    Args:
        messages: the expert's conversation, opening included.
        forms: of the slots, as calls may hold them (`World.slot_forms`), normalised.
    """
    tools = {tool.name: tool for tool in world.tools}
    said = ConversationContext(forms)
    shown = ConversationContext(frozenset())
    found: list[str] = []
    for place, message in enumerate(messages):
        text = normalise(message.content or "")
        if message.role in ("user", "system"):
            said.texts.append(text)
        elif message.role == "tool":
            shown.texts.append(text)
        for call in message.tool_calls if place >= len(task.messages) else ():
            tool = tools.get(call.function.name)
            if tool is None or tool.name == CODE_TOOL:
                continue
            properties = tool.parameters.get("properties", {})
            for name, value in (parse_arguments(call.function.arguments) or {}).items():
                schema = properties.get(name, {})
                for inner_name, inner_schema, leaf in _leaves(name, schema, value):
                    if _is_own_text(inner_name, leaf) and not schema.get("x-grounded"):
                        continue
                    is_said = said.supports(leaf) or (not schema.get("x-grounded") and _are_digits_said(leaf, said))
                    if _is_free(inner_schema, leaf) or is_said:
                        continue
                    may_look_up = not tool.changes_state or is_key(inner_name, inner_schema) or is_key(name, schema)
                    if not (may_look_up and shown.supports(leaf)):
                        found.append(f"{tool.name}.{inner_name}")
    return [*found, *_unsaid_slots(world, task)]


def is_key(name: str, schema: Mapping[str, Any]) -> bool:
    """Whether an argument names an individual: by its pattern, or by the last word of its name."""
    words = _WORDS.findall(name)
    return "pattern" in schema or bool(words and words[-1].lower() in _KEY_WORDS)


def _are_digits_said(value: JSON, said: ConversationContext) -> bool:
    """Whether a whole number is the digits of something that is said: 22 of `p022`."""
    digits = rf"(?<!\d)0*{value}(?!\d)"
    return isinstance(value, int) and any(re.search(digits, text) for text in (*said.texts, *said.forms))


def _is_own_text(name: str, value: JSON) -> bool:
    """Whether a value is a text of the policy's own; a `code` of one word is a value like any other."""
    return isinstance(value, str) and name.lower() in FREE_TEXTS and (name.lower() != "code" or " " in value.strip())


def _is_free(schema: Mapping[str, Any], value: JSON) -> bool:
    return "enum" in schema or isinstance(value, bool) or value is None or value == schema.get("default", ...)


def _leaves(name: str, schema: Mapping[str, Any], value: JSON) -> Iterator[tuple[str, Mapping[str, Any], JSON]]:
    """The scalars of an argument, each with its name and schema."""
    if isinstance(value, Mapping):
        properties = schema.get("properties") or {}
        for key, inner in value.items():
            yield from _leaves(key, properties.get(key) or {}, inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(name, schema.get("items") or {}, inner)
    else:
        yield name, schema, value


def _unsaid_slots(world: type[World], task: Task) -> Iterator[str]:
    """Slots of open names that no text of the opening holds."""
    context = ConversationContext(frozenset(), [normalise(message.content or "") for message in task.messages])
    for slot in world.intents[task.intent].slots:
        kind = world.kinds[slot.kind]
        value = task.slots.get(slot.name)
        if value is None or not (isinstance(kind, Vocabulary) and kind.is_open):
            continue
        spellings = {str(value), *kind.names[str(value)].values()}
        if not any(context.supports(spelling) for spelling in spellings):
            yield f"slot {slot.name}"

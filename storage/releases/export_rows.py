"""Rows of an export: which columns each trainer reads, and the form of the messages in them.

One idea: a call's arguments are an *object* in every row, because most chat templates encode what they get as JSON. Arrow structs would
invent null arguments, so objects are stored as JSON: in Parquet with the type `arrow.json`, which `datasets` reads back as dictionaries,
or as text where the trainer parses it.

    trl   messages, tools: lists of JSON objects | prompt, tools, task columns
    verl  messages, tools: JSON text             | prompt, data_source, agent_name, reward_model, extra_info (docs of verl 0.9)
    roll  messages, tools: JSON text, tag        | the same with ground_truth (ROLL's RLVR columns)
    atif, sharegpt: `trajectory_rows.py`

What it does not do: write files, or choose items.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Literal

import pyarrow as pa

from storage.context.context_tools import FUNCTIONS
from storage.errors import HeadraceError
from storage.records import JSON, Message, canonical_json, parse_arguments
from storage.releases.release import RELEASED_AT_SQL, ReleasedItem
from storage.store import Store

Format = Literal["trl", "verl", "roll", "atif", "sharegpt"]
TRAJECTORIES: tuple[Format, ...] = ("atif", "sharegpt")
"""Formats of conversations alone, as JSONL alone (`trajectory_rows.py`)."""
Arguments = Literal["object", "text"]
Calls = Literal["parallel", "single"]
Signatures = Mapping[tuple[str, str], dict[str, JSON]]
"""(world, name) -> the tool in OpenAI form, without the `x-` marks of Headrace."""


@dataclass(frozen=True)
class MessageForm:
    """Form of tool calls in exported messages.

    arguments: `object`, or `text`, a JSON text, for the few templates that concatenate it (the original template of DeepSeek-V3).
    calls: `parallel` leaves messages as they are; `single` writes one call per message, each followed by its result, for templates that
        take only one (Llama 3.1, Llama 3.2, gpt-oss).
    """

    arguments: Arguments = "object"
    calls: Calls = "parallel"


DEFAULT_FORM = MessageForm()
_TEXT = pa.string()
_OBJECTS = pa.list_(pa.json_())
_OPENING = pa.list_(pa.struct([("role", _TEXT), ("content", _TEXT)]))
_ABOUT = [
    ("task_id", _TEXT),
    ("world", _TEXT),
    ("intent", _TEXT),
    ("language", _TEXT),
    ("difficulty", pa.int32()),
    ("weight", pa.float64()),
]
_OF_CONVERSATION = [("id", _TEXT), ("kind", _TEXT), ("teacher", _TEXT), ("reward", pa.float64()), *_ABOUT]
_EXTRA_INFO = [
    ("index", pa.int64()),
    ("split", _TEXT),
    ("tools", _TEXT),
    ("task", _TEXT),
    ("tool_selection", pa.list_(_TEXT)),
    *_ABOUT,
]

SCHEMAS: Mapping[tuple[Format, str], pa.Schema] = {
    ("trl", "conversations"): pa.schema([("messages", _OBJECTS), ("tools", _OBJECTS), *_OF_CONVERSATION]),
    ("trl", "prompts"): pa.schema([("prompt", _OBJECTS), ("tools", _OBJECTS), *_ABOUT, ("task", _TEXT)]),
    ("verl", "conversations"): pa.schema([("messages", _TEXT), ("tools", _TEXT), *_OF_CONVERSATION]),
    ("verl", "prompts"): pa.schema(
        [
            ("prompt", _OPENING),
            ("data_source", _TEXT),
            ("agent_name", _TEXT),
            ("ability", _TEXT),
            ("reward_model", pa.struct([("style", _TEXT), ("ground_truth", _TEXT)])),
            ("extra_info", pa.struct(_EXTRA_INFO)),
        ]
    ),
    ("roll", "conversations"): pa.schema([("id", _TEXT), ("messages", _TEXT), ("tools", _TEXT), ("tag", _TEXT), *_OF_CONVERSATION[1:]]),
    ("roll", "prompts"): pa.schema(
        [("id", _TEXT), ("messages", _TEXT), ("tools", _TEXT), ("tag", _TEXT), ("ground_truth", _TEXT), *_ABOUT]
    ),
}
"""(trainer, kind of rows) -> columns."""


def as_table(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """The rows as columns; JSON objects are texts of the type `arrow.json`, so that no row gets the keys of another."""
    objects = [name for name in schema.names if schema.field(name).type == _OBJECTS]
    plain = pa.schema([(name, pa.list_(_TEXT) if name in objects else schema.field(name).type) for name in schema.names])
    encoded = [{**row, **{name: None if row[name] is None else [_as_text(item) for item in row[name]] for name in objects}} for row in rows]
    return pa.Table.from_pylist(encoded, schema=plain).cast(schema)


def signatures(store: Store, release_id: str) -> Signatures:
    """The tools of a store as they were at a release.

    The version is the last one committed before the release, else the first one after it. Items do not record the version of their tools,
    so an item that is older than the last version of a tool gets a newer signature.
    """
    rows = store.query(
        f"""SELECT world, name, description, parameters FROM tools JOIN (SELECT part_id, rowid - {RELEASED_AT_SQL} AS late FROM parts)
              USING (part_id)
            QUALIFY row_number() OVER (PARTITION BY world, name ORDER BY late > 0, abs(late), tool_id) = 1""",
        [release_id],
    )
    return {
        (world, name): {
            "type": "function",
            "function": {"name": name, "description": description, "parameters": _remove_marks(json.loads(parameters))},
        }
        for world, name, description, parameters in rows.iter_rows()
    }


def _remove_marks(schema: JSON) -> JSON:
    if isinstance(schema, dict):
        return {key: _remove_marks(value) for key, value in schema.items() if not key.startswith("x-")}
    return [_remove_marks(value) for value in schema] if isinstance(schema, list) else schema


def offered_tools(item: ReleasedItem, tools: Signatures) -> list[dict[str, JSON]]:
    """The tools on offer in an item, in the order of its prompt.

    Raises:
        HeadraceError: a signature is not in the store.
    """
    world, offered = item.setting.world, item.setting.tools
    known = {**{(world, name): {"type": "function", "function": function} for name, function in FUNCTIONS.items()}, **tools}
    if missing := next((name for name in offered if (world, name) not in known), None):
        raise HeadraceError(f"tool {missing} of world {world} is not in the store's table of tools; run `headrace synthesize` first")
    return [known[world, name] for name in offered]


def has_object_arguments(item: ReleasedItem) -> bool:
    """Whether the arguments of each call in an item are a JSON object. A policy's own rollout may hold a call with other text."""
    messages = item.conversation.messages if item.conversation is not None else ()
    return all(parse_arguments(call.function.arguments) is not None for message in messages for call in message.tool_calls)


def chat_messages(messages: Sequence[Message], form: MessageForm) -> list[dict[str, JSON]]:
    """Messages as chat templates take them: no absent fields, and empty content where a message only calls."""
    chosen = split_calls(messages) if form.calls == "single" else messages
    return [_chat_message(message, form.arguments) for message in chosen]


def _chat_message(message: Message, arguments: Arguments) -> dict[str, JSON]:
    fields = message.to_openai()
    fields["content"] = message.content or ""
    for call in fields.get("tool_calls", ()) if arguments == "object" else ():
        call["function"]["arguments"] = parse_arguments(call["function"]["arguments"])
    return fields


def split_calls(messages: Sequence[Message]) -> Iterator[Message]:
    """Each call of a message becomes a message, followed by its result; text of the message stays with its first call."""
    position = 0
    while position < len(messages):
        message = messages[position]
        position += 1
        if len(message.tool_calls) < 2:
            yield message
            continue
        results = list(takewhile(lambda later: later.role == "tool", messages[position:]))
        position += len(results)
        for index, call in enumerate(message.tool_calls):
            yield message.model_copy(update={"tool_calls": (call,), "content": None if index else message.content})
            yield from (result for result in results if result.tool_call_id == call.id)


def row_of(item: ReleasedItem, index: int, split: str, format: Format, form: MessageForm, tools: list[dict[str, JSON]]) -> dict[str, Any]:
    """A row of the exported JSONL; `index` is its position among the rows of its kind in the split."""
    if item.conversation is not None:
        return _conversation_row(item, format, form, tools)
    return _prompt_row(item, index, split, format, form, tools)


def about(item: ReleasedItem) -> dict[str, Any]:
    """The columns that every row has: task, world, language and weight."""
    task = item.task
    return {
        "task_id": task.id if task else None,
        "world": item.setting.world,
        "intent": task.intent if task else None,
        "language": item.setting.language,
        "difficulty": task.difficulty if task else None,
        "weight": item.item.weight,
    }


def _conversation_row(item: ReleasedItem, format: Format, form: MessageForm, tools: list[dict[str, JSON]]) -> dict[str, Any]:
    assert item.conversation is not None
    messages = chat_messages(item.conversation.messages, form)
    row = {"id": item.item.item_id, "kind": item.item.kind, "teacher": item.conversation.teacher, "reward": item.conversation.reward}
    row |= about(item)
    if format == "trl":
        return {"messages": messages, "tools": tools or None, **row}
    texts = {"messages": _as_text(messages), "tools": _as_text(tools)}
    return {**texts, "tag": item.setting.world, **row} if format == "roll" else {**texts, **row}


def _prompt_row(
    item: ReleasedItem, index: int, split: str, format: Format, form: MessageForm, tools: list[dict[str, JSON]]
) -> dict[str, Any]:
    task = item.task
    assert task is not None
    described = about(item)
    opening, spec = chat_messages(task.messages, form), canonical_json(task.model_dump(mode="json"))
    if format == "trl":
        return {"prompt": opening, "tools": tools or None, **described, "task": spec}
    offered = _as_text(tools)
    if format == "roll":
        return {"id": task.id, "messages": _as_text(opening), "tools": offered, "tag": task.world, "ground_truth": spec, **described}
    return {
        "prompt": opening,
        "data_source": f"headrace/{task.world}",
        "agent_name": "headrace",
        "ability": "tool_use",
        "reward_model": {"style": "rule", "ground_truth": task.id},
        "extra_info": {"index": index, "split": split, "tools": offered, "task": spec, "tool_selection": list(task.tools), **described},
    }


def _as_text(value: JSON) -> str:
    return json.dumps(value, ensure_ascii=False)

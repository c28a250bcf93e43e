"""Arguments for a tool: from the records near one that it is about, from its schema, or made up where a text is free.

One idea: a proposal is a template with a slot for every value, so that what execution keeps is a plan already.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from storage.records import JSON
from synth.explore.sql import Statement, propose_statement, takes_sql
from synth.explore.value_records import Record, Records, Value, slot_name, words_of
from synth.worlds.live.live_spec import DATA
from synth.worlds.live.lock import LiveTool
from synth.worlds.live.plans import PlanCall

OPTIONAL_SHARE = 0.2
NEAR_SHARE = 0.85
MOST_DEPTH = 4
_NOUNS = ("garden", "harbour", "lantern", "meadow", "orchard", "pebble", "quarry", "ribbon", "saddle", "thimble", "velvet", "willow")
_CHOICES = re.compile(r"^[\"'`]?([\w -]{2,40}?)[\"'`]?(?:, [\"'`]?([\w -]{2,40}?)[\"'`]?)*,? or [\"'`]?([\w -]{2,40}?)[\"'`]?\.?$")
_NO_CHOICE = frozenset(("string", "list", "value", "empty", "optional", "name", "line", "id", "number", "null", "none"))
_REPLACING = ("new", "target", "replacement")
_PATHS = frozenset(("path", "file", "filename", "directory", "folder", "source", "destination"))


@dataclass
class Proposal:
    """A call with slots. slots: name -> value. labels: what requests call them. about: the record that it is about."""

    tool: LiveTool
    call: PlanCall
    slots: dict[str, JSON]
    labels: dict[str, str]
    about: Record | None = None
    statement: Statement | None = None


@dataclass
class Proposer:
    """Proposes calls of tools. tables: rows by table, for tools that take SQL."""

    records: Records
    tables: Mapping[str, list[dict[str, JSON]]]
    rng: random.Random
    _matches: dict[tuple[str, str], list[tuple[float, str]]] = field(default_factory=dict)

    def propose(self, tool: LiveTool, about: Record | None = None, *, is_writer: bool = False) -> Proposal | None:
        """A call of the tool; None if a required parameter has no value. about: the record to take values from; drawn if None."""
        properties: Mapping[str, Any] = tool.parameters.get("properties") or {}
        required = set(tool.parameters.get("required") or ())
        proposal = Proposal(tool, PlanCall(tool=tool.name, arguments={}), {}, {}, about)
        arguments: dict[str, Any] = {}
        for name in sorted(properties, key=lambda name: (name not in required, list(properties).index(name))):
            schema = properties[name]
            if name not in required and self.rng.random() > OPTIONAL_SHARE:
                continue
            description = f"{schema.get('description', '')} {tool.description}"
            if takes_sql(name, description) and self.tables:
                statement = propose_statement(self.tables, description, self.rng)
                if statement is None:
                    return None
                proposal.statement = statement
                proposal.slots |= statement.slots
                proposal.labels |= statement.labels
                arguments[name] = {"text": statement.text}
                continue
            source = self._source(name, name, schema, proposal, tool, is_writer, 0)
            if source is None:
                if name in required:
                    return None
                continue
            arguments[name] = source
        proposal.call = PlanCall(tool=tool.name, arguments=arguments)
        return proposal

    def _source(
        self, slot: str, name: str, schema: Mapping[str, Any], proposal: Proposal, tool: LiveTool, is_writer: bool, depth: int
    ) -> JSON | None:
        schema = _first_choice(schema)
        kind = _type_of(schema)
        if depth > MOST_DEPTH:
            return None
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            choices = [each for each in schema["enum"] or () if each is not None]
            return self._said(slot, name, self.rng.choice(choices), proposal) if choices else None
        if kind == "boolean":
            return self.rng.random() < 0.5
        if kind == "array":
            inner = self._source(slot, name, schema.get("items") or {"type": "string"}, proposal, tool, is_writer, depth + 1)
            return None if inner is None else [inner]
        if kind == "object":
            return self._object(slot, schema, proposal, tool, is_writer, depth)
        value = self._value(name, schema, kind, proposal, tool, is_writer)
        return None if value is None else self._said(slot, name, value, proposal)

    def _object(self, slot: str, schema: Mapping[str, Any], proposal: Proposal, tool: LiveTool, is_writer: bool, depth: int) -> JSON | None:
        made: dict[str, JSON] = {}
        for name, inner in (schema.get("properties") or {}).items():
            is_required = name in (schema.get("required") or ())
            if is_required or self.rng.random() < OPTIONAL_SHARE:
                source = self._source(
                    name if name not in proposal.slots else f"{slot}_{name}", name, inner, proposal, tool, is_writer, depth + 1
                )
                if source is None and is_required:
                    return None
                if source is not None:
                    made[name] = source
        return made or None

    def _said(self, slot: str, name: str, value: JSON, proposal: Proposal) -> JSON:
        slot = slot_name(slot)
        proposal.slots[slot] = value
        proposal.labels[slot] = " ".join(words_of(name)) or name
        return {"said": slot}

    def _value(self, name: str, schema: Mapping[str, Any], kind: str, proposal: Proposal, tool: LiveTool, is_writer: bool) -> Value | None:
        """A value for a scalar parameter."""
        description = str(schema.get("description", ""))
        if kind == "string" and (listed := _listed(description)):
            return self.rng.choice(listed)
        words = set(words_of(name))
        found = self._replacement(name, proposal) or self._from_records(name, description, kind, proposal, schema)
        if kind == "string" and words & _PATHS:
            return self._path(words, found, is_writer)
        is_content = kind == "string" and words & {
            "content",
            "text",
            "message",
            "description",
            "note",
            "summary",
            "title",
            "comment",
            "insight",
            "observation",
        }
        if is_writer and is_content and (found is None or self.rng.random() < 0.7):
            return self._made_up()
        if is_writer and found is not None and kind == "string" and words == {"name"} and self.rng.random() < 0.3:
            return self._made_up(2).title()
        if found is not None:
            return found
        if kind in ("integer", "number"):
            low = int(schema.get("minimum", min(1, schema.get("maximum", 1))))
            return self.rng.randint(low, max(low, int(schema.get("maximum", low + 9))))
        if "default" in schema:
            return None
        return self._made_up() if is_writer else None

    def _replacement(self, name: str, proposal: Proposal) -> Value | None:
        """For `new_item_ids` beside `item_ids`: another individual of the collection that the old one is in; None for any other parameter,
        or if there is none."""
        first, _, old_name = name.partition("_")
        old = proposal.slots.get(old_name) if first in _REPLACING else None
        others = [
            each.key
            for record in self.records.by_key.get(str(old), ())
            if record.parent is not None and record.key is not None
            for each in record.parent.inner
            if each.collection == record.collection and each.key not in (None, record.key)
        ]
        return self.rng.choice([key for key in others if key is not None]) if others else None

    def _from_records(self, name: str, description: str, kind: str, proposal: Proposal, schema: Mapping[str, Any]) -> Value | None:
        """A value of a field that is called like the parameter; of a record near the one that the proposal is about, if there is one."""
        key = (name, description)
        matches = self._matches.get(key)
        if matches is None or self.rng.random() < 0.02:
            matches = self._matches[key] = self.records.matching(name, description)
        if not matches:
            return None
        best = [each for score, each in matches if score >= 0.5 * matches[0][0]][:6]
        wanted = int if kind == "integer" else float if kind == "number" else str
        pattern = schema.get("pattern")

        def fits(value: Value) -> bool:
            if wanted is str:
                return (
                    isinstance(value, str)
                    and bool(value.strip())
                    and value not in proposal.slots.values()
                    and (not pattern or bool(re.search(pattern, value)))
                )
            return isinstance(value, int) or (wanted is float and isinstance(value, float))

        if proposal.about is not None and self.rng.random() < NEAR_SHARE:
            near = [
                (value, record)
                for record in self.records.near(proposal.about)[:120]
                for each, value in record.values()
                if each in best and fits(value)
            ]
            if near:
                return self.rng.choice(near[:12])[0]
        values = [pair for each in best[:2] for pair in self.records.names[each][:2000] if fits(pair[0])]
        if not values:
            return None
        value, record = self.rng.choice(values)
        if proposal.about is None:
            proposal.about = record
        return value

    def _path(self, words: set[str], found: Value | None, is_writer: bool) -> str | None:
        known = [str(value) for value, _ in self.records.names.get("path", ())]
        if not known:
            return None
        old = str(found) if found is not None and str(found) in known else self.rng.choice(known)
        if not is_writer or ("destination" not in words and self.rng.random() < 0.5):
            return old
        folder, _, name = old.rpartition("/")
        stem, dot, suffix = name.partition(".")
        return f"{folder or DATA}/{self.rng.choice(_NOUNS)}{dot}{suffix}" if stem else old

    def _made_up(self, count: int = 3) -> str:
        return " ".join(self.rng.sample(_NOUNS, count))


def _first_choice(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """A schema with the first choice of several (`anyOf`, `oneOf`) that is not null."""
    for _ in range(8):
        choices = schema.get("anyOf") or schema.get("oneOf")
        if not (isinstance(choices, list) and choices):
            break
        rest = {key: value for key, value in schema.items() if key not in ("anyOf", "oneOf")}
        schema = {**rest, **next((each for each in choices if isinstance(each, Mapping) and each.get("type") != "null"), {})}
    return schema


def _type_of(schema: Mapping[str, Any]) -> str:
    kind = schema.get("type", "object" if "properties" in schema else "string")
    return next((each for each in kind if each != "null"), "string") if isinstance(kind, list) else str(kind)


def _listed(description: str) -> list[str]:
    """The values that a description lists: `no longer needed or ordered by mistake.`"""
    text = description.strip().removesuffix(".")
    if " or " not in text or len(text) > 120 or not _CHOICES.match(text) or _NO_CHOICE & set(text.lower().replace(",", "").split()):
        return []
    parts = [part.strip(" \"'`") for part in re.split(r", or |, | or ", text)]
    return [part for part in parts if part] if len(parts) > 1 and all(len(part.split()) <= 4 for part in parts) else []

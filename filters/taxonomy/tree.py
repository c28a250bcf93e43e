"""The tree of classes that queries are labelled with: nodes with dotted ids, and an implicit `other` below every inner node.

A tree is data that people can read and edit. A class has a name, a description, example texts, cue words, and the worlds' intents that
belong to it; prototypes and thresholds are computed from these. A tree is checked as a whole when it is created. Its id is a hash of its
content, so equal trees have equal ids.

This module does not label (`annotate.py`), read or write files (`yaml_form.py`), or keep versions (`versions.py`).
Source: forced `Other` at every node: STAgent (2512.24957), taxonomy evolution.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from pydantic import Field

from storage.errors import BadInput
from storage.records import Record, content_id
from synth.worlds import WITH_LEXICON, WORLDS

OTHER = "other"
MAX_NODES, MAX_DEPTH, MAX_EXAMPLES, MAX_TEXT = 2_000, 6, 64, 2_000
_SEGMENT = re.compile(r"\w+")
_LISTED_PROBLEMS = 5


class Node(Record):
    """A class. Only leaves (nodes without children) have examples, cues and intents; what fits no child belongs to the node's `other`."""

    id: str = Field(description="Dotted path from the top class; lower-case words joined by underscores.")
    name: str = Field("", description="For people.")
    description: str = Field("", description="What belongs here; stands in for examples where a leaf has none.")
    examples: tuple[str, ...] = Field((), description="Texts that belong here; the leaf's prototype is the mean of their vectors.")
    cues: tuple[str, ...] = Field((), description="Words or phrases that speak for this leaf wherever they stand in a text.")
    intents: tuple[str, ...] = Field((), description="Intents of worlds (world/intent): a query grounded to one has this leaf.")

    @property
    def parent(self) -> str:
        """Id of the node above; empty for a top class."""
        return self.id.rpartition(".")[0]

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts of the prototype."""
        return self.examples or (self.description,)


@dataclass(frozen=True)
class Tree:
    """A checked tree; make it with `tree_of`. nodes: ascending by path."""

    nodes: tuple[Node, ...]

    @cached_property
    def id(self) -> str:
        return content_id("taxonomy", [node.model_dump(mode="json") for node in self.nodes])

    @cached_property
    def leaves(self) -> tuple[Node, ...]:
        inner = {node.parent for node in self.nodes}
        return tuple(node for node in self.nodes if node.id not in inner)

    @cached_property
    def leaf_of_intent(self) -> dict[str, str]:
        """`world/intent` -> id of its leaf."""
        return {intent: leaf.id for leaf in self.leaves for intent in leaf.intents}

    def without(self, top: str) -> Tree:
        """The tree without a node and all below it."""
        return tree_of(node for node in self.nodes if not is_below(node.id, top))


def is_below(node: str, other: str) -> bool:
    """Whether a node is `other` or stands below it; all stand below the root, whose id is empty."""
    return not other or node == other or node.startswith(f"{other}.")


def other_of(node: str) -> str:
    """The label of rows that fit no child of an inner node; of the root: `other`."""
    return f"{node}.{OTHER}" if node else OTHER


def ancestors(node: str) -> Iterator[str]:
    """All nodes from the top class down to the node itself."""
    parts = node.split(".")
    return (".".join(parts[:depth]) for depth in range(1, len(parts) + 1))


def tree_of(nodes: Iterable[Node], where: str = "taxonomy") -> Tree:
    """The tree of these nodes.

    Raises:
        BadInput: the nodes form no tree; the message lists the first five problems with the nodes' ids.
    """
    ordered = tuple(sorted(nodes, key=lambda node: node.id.split(".")))
    if problems := list(_problems(ordered)):
        more = f"; and {len(problems) - _LISTED_PROBLEMS} more" if len(problems) > _LISTED_PROBLEMS else ""
        raise BadInput(f"{where}: {'; '.join(problems[:_LISTED_PROBLEMS])}{more}")
    return Tree(ordered)


def _problems(nodes: Sequence[Node]) -> Iterator[str]:
    if len(nodes) > MAX_NODES:
        yield f"{len(nodes):,} nodes, at most {MAX_NODES:,} are taken"
    ids = {node.id for node in nodes}
    inner = {node.parent for node in nodes}
    seen_ids: set[str] = set()
    holder: dict[tuple[str, str], str] = {}
    for node in nodes:
        yield from (f"{node.id}: {problem}" for problem in _own_problems(node, node.id in inner))
        if node.id in seen_ids:
            yield f"{node.id}: stands twice; keep one"
        if node.parent and node.parent not in ids:
            yield f"{node.id}: its parent {node.parent} is missing; add it, or rename the node"
        seen_ids.add(node.id)
        for kind, texts in (("example", node.examples), ("intent", node.intents)):
            for text in texts:
                first = holder.setdefault((kind, text), node.id)
                if first != node.id:
                    yield f"{node.id}: the {kind} {_short(text)} is in {first} as well; keep it in one"


def _own_problems(node: Node, is_inner: bool) -> Iterator[str]:
    parts = node.id.split(".")
    for part in parts:
        if not _SEGMENT.fullmatch(part) or part != part.lower():
            yield f"{part!r} is no part of an id; use lower-case letters, digits and _"
        elif part == OTHER:
            yield "`other` is below every node anyway; leave it out"
    if len(parts) > MAX_DEPTH:
        yield f"{len(parts)} levels deep, at most {MAX_DEPTH} are taken"
    if is_inner and (node.examples or node.cues or node.intents):
        yield "it has children, so examples, cues and intents belong to these; move them down"
    if not is_inner and not any(text.strip() for text in node.texts):
        yield "a leaf needs examples (texts that belong to it), or a description at least"
    if len(node.examples) > MAX_EXAMPLES:
        yield f"{len(node.examples)} examples, at most {MAX_EXAMPLES} are taken"
    for kind, texts in (("example", node.examples), ("cue", node.cues), ("intent", node.intents)):
        if len(set(texts)) < len(texts):
            yield f"one {kind} stands twice; keep one"
        if any(not text.strip() for text in texts):
            yield f"one {kind} is empty; take it out"
    for text in (node.name, node.description, *node.examples, *node.cues):
        if len(text) > MAX_TEXT:
            yield f"{_short(text)} is longer than {MAX_TEXT:,} characters; shorten it"
    for intent in node.intents:
        world, _, name = intent.partition("/")
        if world not in WITH_LEXICON or name not in WORLDS[world].intents:
            yield f"there is no intent {intent}; the worlds are {', '.join(WITH_LEXICON)}, an intent is written world/intent"


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:40]}…")

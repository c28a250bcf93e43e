"""A few labelled requests improve a world's reader: they are examples of their intents, without the values.

One idea: what users of a business say for an intent is mostly the same few turns; a request without its values is one of them, and stands
beside the world's own wording where texts are compared with intents. Weights stay as they are.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from filters.reading.declaration import ReadableWorld
from filters.reading.labels.fit import Labelled

Turn = tuple[str, str, str]
"""World, intent, and a request for it without values."""
FOLDS = 5


def turns_of(examples: Iterable[Labelled]) -> tuple[Turn, ...]:
    """The requests without the values that are written in them."""
    return tuple(dict.fromkeys((each.world, each.intent, _bare(each)) for each in examples))


def _bare(example: Labelled) -> str:
    text = example.text
    for value in sorted((str(value) for values in example.values.values() for value in values), key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", " ", text, flags=re.IGNORECASE)
    return re.sub(r"\s+", " ", text).strip()


def taught(worlds: Sequence[ReadableWorld], turns: Iterable[Turn]) -> list[ReadableWorld]:
    """The worlds, with these turns among the examples of their intents."""
    by_intent: dict[tuple[str, str], list[str]] = {}
    for world, intent, text in turns:
        by_intent.setdefault((world, intent), []).append(text)

    def with_turns(world: ReadableWorld) -> ReadableWorld:
        intents = {
            name: replace(intent, examples=(*intent.examples, *by_intent.get((world.name, name), ())))
            for name, intent in world.intents.items()
        }
        return replace(world, intents=intents)

    return [with_turns(world) for world in worlds]


def folds(examples: Sequence[Labelled]) -> Iterator[tuple[list[Labelled], list[Labelled]]]:
    """(examples to teach, examples to measure), each example measured once; equal texts are on one side."""
    sides = [hashlib.blake2b(each.text.encode(), digest_size=2).digest()[0] % FOLDS for each in examples]
    for fold in range(FOLDS):
        measured = [each for each, side in zip(examples, sides, strict=True) if side == fold]
        if measured:
            yield [each for each, side in zip(examples, sides, strict=True) if side != fold], measured

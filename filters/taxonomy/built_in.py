"""The first tree of every store: the leaves of the worlds' intents, with examples in the worlds' wordings.

The city's leaves are STAgent's (2512.24957: 5 top classes, 16 groups, 30 leaves); the shop adds leaves. Examples are drawn from the worlds'
wordings with a fixed seed, languages and intents in turn, half of them with small talk before or after the request.
"""

from __future__ import annotations

import random
from functools import lru_cache
from importlib.resources import files

import yaml

from filters.taxonomy.tree import Node, Tree, ancestors, tree_of
from storage.records import Frame, Language
from synth.haystack.usual_values import usual_values
from synth.tasks.wording import LANGUAGES, joiner, load_templates, render
from synth.worlds import WITH_LEXICON, WORLDS

EXAMPLES = 24
_SEED = 0
_OPTIONAL = 0.3
"""Chance that an example states an optional slot."""


@lru_cache(maxsize=1)
def built_in() -> Tree:
    """The tree of the grounded worlds, built once a process (about 0.3 s)."""
    descriptions: dict[str, str] = yaml.safe_load((files("filters.taxonomy") / "descriptions.yaml").read_text(encoding="utf-8"))
    intents: dict[str, list[str]] = {}
    for world in WITH_LEXICON:
        for name, intent in WORLDS[world].intents.items():
            intents.setdefault(intent.leaf, []).append(f"{world}/{name}")
    ids = dict.fromkeys(node for leaf in intents for node in ancestors(leaf))
    rng = random.Random(_SEED)
    return tree_of(
        Node(
            id=node,
            name=node.rpartition(".")[2].replace("_", " "),
            description=descriptions.get(node, ""),
            examples=_examples(intents[node], rng) if node in intents else (),
            intents=tuple(intents.get(node, ())),
        )
        for node in ids
    )


def _examples(intents: list[str], rng: random.Random) -> tuple[str, ...]:
    """Up to EXAMPLES distinct texts; an intent that can be worded in few ways gives fewer."""
    examples: dict[str, None] = {}
    for number in range(2 * EXAMPLES):
        if len(examples) == EXAMPLES:
            break
        world, _, name = intents[number // len(LANGUAGES) % len(intents)].partition("/")
        examples[_word_request(world, name, LANGUAGES[number % len(LANGUAGES)], rng)] = None
    return tuple(examples)


def _word_request(world: str, name: str, language: Language, rng: random.Random) -> str:
    slots = [slot for slot in WORLDS[world].intents[name].slots if slot.is_required or rng.random() < _OPTIONAL]
    values = {slot.name: rng.choice(usual_values(world, slot.kind)) for slot in slots}
    text = render(WORLDS[world], Frame(world=world, intent=name, slots=values), language, rng)
    families, around = load_templates(WORLDS[world]), rng.random()
    if around < 0.25:
        return rng.choice(families.openers[language]) + joiner(language) + text
    return text + joiner(language) + rng.choice(families.closers[language]) if around < 0.5 else text

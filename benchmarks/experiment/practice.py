"""The base policies: each knows words and how to write a call, and nothing of the experiments' domains.

A policy of half a million weights spends most of its training on learning to copy words and to write a call at all, which says little
about the data of an arm. So all arms of a seed start from one policy that has practised single plain requests, acts and look-ups, in other
themes. In each practised conversation the nouns are replaced by drawn ones, made of words of all themes, so that the base has read every
word that it will need; a noun that an experiment's domain has is never drawn.
"""

from __future__ import annotations

import itertools
import os
import pickle
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.experiment.cells import WORK
from benchmarks.experiment.conversations import SEED_FRAMES, drawer
from benchmarks.experiment.domains import SETTING_THEMES, THEMES, practice_domains
from benchmarks.worlds_sections.evolution import clusters_by_domain
from storage.files import replace_atomically
from storage.records import FunctionCall, Message
from synth.blueprints.blueprint import Blueprint
from synth.worlds.declarative.common_names import plural_of
from synth.worlds.declarative.generate.components import Noun, themes
from train import tiny
from train.proxy.token_training import Example, TokenTraining, encode, train
from train.spec import TinyConfig

REQUESTS = 16_000
_NOUN_DRAWS = 4
_LONGEST = 180
"""Most tokens of a practised conversation."""
_REPLAYED = 3_000
_REPLAY = 1 / 3
"""Tokens of practice in a token of an arm's data."""
TRAINING = TokenTraining(tokens=8_000_000)
TINY = TinyConfig(positions=640)


def train_base(tokenizer: Any, base: int, folder: Path) -> None:
    """Trains a base policy, and writes its model folder, unless it exists."""
    if folder.exists():
        return
    model = tiny.build_model(TINY, tokenizer, base)
    examples = encode(tokenizer, [messages for number in range(_NOUN_DRAWS) for messages in practice(base, number)])
    train(model, [example for example in examples if example.tokens <= _LONGEST], TRAINING, seed=base)
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = folder.with_name(f".draft-{folder.name}-{os.getpid()}")
    tiny.save_policy(model, tokenizer, draft)
    draft.rename(folder)


def practice(base: int, number: int = 0) -> list[tuple[Message, ...]]:
    """Expert conversations of one plain request, with nouns drawn for the `number`-th time. The requests are those of all bases."""
    rng = random.Random(f"practice/{base}/{number}")
    return [_with_drawn_nouns(messages, rng) for messages in _requests(WORK / f"practice-{REQUESTS}.pickle")]


def with_replay(tokenizer: Any, base: int, data: Sequence[Example]) -> list[Example]:
    """The data, and a third as many tokens of the base's practice, so that an arm forgets less of it; fewer for very large data."""
    practised = _replayed(tokenizer, base)
    totals = np.cumsum([example.tokens for example in practised])
    return [*data, *practised[: int(np.searchsorted(totals, _REPLAY * sum(example.tokens for example in data)))]]


@lru_cache(maxsize=2)
def _replayed(tokenizer: Any, base: int) -> list[Example]:
    rng = random.Random(f"replay/{base}")
    requests = rng.sample(_requests(WORK / f"practice-{REQUESTS}.pickle"), _REPLAYED)
    examples = encode(tokenizer, [_with_drawn_nouns(messages, rng) for messages in requests])
    return [example for example in examples if example.tokens <= _LONGEST]


def _requests(path: Path) -> list[tuple[Message, ...]]:
    """REQUESTS conversations, half of them acts, evenly over the practice domains; drawn now unless the file has them."""
    if not path.exists():
        rng = random.Random("practice")
        draw, by_domain = drawer(SEED_FRAMES, rng), clusters_by_domain([world.name for world in practice_domains()])
        domains, drawn = itertools.cycle(sorted(by_domain)), dict[bool, list[tuple[Message, ...]]]({True: [], False: []})
        while len(drawn[True]) + len(drawn[False]) < REQUESTS:
            domain = next(domains)
            is_wanted = is_act if len(drawn[True]) <= len(drawn[False]) else is_look_up
            conversation = draw(rng.choice(by_domain[domain]), domain, is_wanted)
            if conversation is not None:
                drawn[is_wanted is is_act].append(conversation.messages)
        replace_atomically(path, lambda draft: draft.write_bytes(pickle.dumps([*drawn[True], *drawn[False]])) and None)
    requests: list[tuple[Message, ...]] = pickle.loads(path.read_bytes())
    return requests


def is_act(blueprint: Blueprint) -> bool:
    """Whether one plain request for a change is all that the user says."""
    return _is_plain(blueprint) and bool(blueprint.goals[0].changes)


def is_look_up(blueprint: Blueprint) -> bool:
    """Whether one plain question that tools answer is all that the user says."""
    return _is_plain(blueprint) and bool(blueprint.nodes) and not blueprint.goals[0].changes and blueprint.goals[0].refusal is None


def _is_plain(blueprint: Blueprint) -> bool:
    return len(blueprint.goals) == 1 and len(blueprint.turns) == 1 and not blueprint.turns[0].cues and not blueprint.perturbations


@dataclass(frozen=True)
class _Nouns:
    """The generator's nouns. by_form: each as it is written in a sentence or a name. kept: nouns that a draw must not give."""

    every: tuple[Noun, ...]
    by_form: Mapping[str, Noun]
    kept: frozenset[str]
    pattern: re.Pattern[str]


@lru_cache(maxsize=1)
def _nouns() -> _Nouns:
    every = {noun.en: noun for theme in themes() for noun in theme.nouns.values()}
    kept = {noun.en for theme in themes() if theme.key in (*THEMES, *SETTING_THEMES) for noun in theme.nouns.values()}
    by_form = {form.replace(" ", glue): noun for noun in every.values() for form in (noun.en, noun.plural) for glue in " _"}
    forms = sorted(by_form, key=lambda form: (-len(form), form))
    pattern = re.compile(rf"(?<![a-zA-Z])({'|'.join(map(re.escape, forms))})(?![a-z])")
    return _Nouns(tuple(every.values()), by_form, frozenset(kept), pattern)


def _draw_noun(rng: random.Random, is_compound: bool) -> str:
    """The first words of one noun, if it is to be a compound, and the last word of another."""
    nouns = _nouns()
    while True:
        drawn = " ".join([*rng.choice(nouns.every).en.split()[:-1], rng.choice(nouns.every).en.split()[-1]])
        drawn = drawn if is_compound else drawn.split()[-1]
        if drawn not in nouns.kept and is_compound == (" " in drawn):
            return drawn


def _with_drawn_nouns(messages: Sequence[Message], rng: random.Random) -> tuple[Message, ...]:
    """The messages with each noun replaced by one of as many words, the same everywhere in the conversation."""
    nouns, drawn = _nouns(), dict[str, str]()

    def replaced_form(match: re.Match[str]) -> str:
        form = match[1]
        noun = nouns.by_form[form]
        if noun.en not in drawn:
            drawn[noun.en] = _draw_noun(rng, " " in noun.en)
        is_plural = form.replace("_", " ") == noun.plural != noun.en
        written = plural_of(drawn[noun.en]) if is_plural else drawn[noun.en]
        return written.replace(" ", "_") if "_" in form else written

    def replaced(text: str) -> str:
        return nouns.pattern.sub(replaced_form, text)

    def with_replaced(message: Message) -> Message:
        calls = [
            call.model_copy(
                update={"function": FunctionCall(name=replaced(call.function.name), arguments=replaced(call.function.arguments))}
            )
            for call in message.tool_calls
        ]
        return message.model_copy(update={"content": message.content and replaced(message.content), "tool_calls": tuple(calls)})

    return tuple(with_replaced(message) for message in messages)

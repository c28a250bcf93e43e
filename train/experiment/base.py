"""The policy that every arm of a seed starts from: it can copy and look up, and write one expression; of tools it knows nothing.

One idea: a policy of half a million parameters from scratch spends most of what it reads on learning to copy, which says nothing about the
conversations of an arm. What a language model brings along is made here instead, once a seed, the same for all arms: random words said
again, a value found by its key, a name found by some of its words, and tiny code tasks (`code_tasks.py`). Words are those of the
vocabulary, drawn blindly: nothing here says which tool does what.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from storage.records import Message
from train import tiny
from train.experiment.code_tasks import draw_code_tasks
from train.experiment.config import Learning
from train.experiment.learn import examples_of, train
from train.spec import TinyConfig

VERSION = 1
_WORD = re.compile(r"▁([a-z]{2,})")
_TASKS, _CODE_TASKS = 20_000, 6_000
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def make_base(tokenizer: Any, shape: TinyConfig, learning: Learning, seed: int, folder: Path) -> list[float]:
    """Trains a base policy and writes its model folder; returns its losses."""
    words = sorted(match[1] for token in tokenizer.get_vocab() if (match := _WORD.fullmatch(token)))
    conversations = [*copying(words, _TASKS, seed), *(task.conversation() for task in draw_code_tasks(_CODE_TASKS, f"train/{seed}"))]
    model = tiny.build_model(shape, tokenizer, seed)
    losses = train(model, examples_of(tokenizer, conversations), learning, seed=seed)
    tiny.save_policy(model, tokenizer, folder)
    return losses


def phrases() -> list[str]:
    """Texts with every word and mark that these exchanges have beside the vocabulary's."""
    made = copying(["some", "word", "and", "more", "of", "them", "there", "are"], 200, 0)
    texts = [message.content or "" for messages in made for message in messages]
    return texts + [tiny.render(task.conversation()) for task in draw_code_tasks(200, "phrases")]


def copying(words: Sequence[str], count: int, seed: int) -> list[tuple[Message, ...]]:
    """`count` exchanges: say this again, what is the value of this key, which name has these words."""
    rng = random.Random(f"copying/{seed}")
    return [
        (Message(role="user", content=asked), Message(role="assistant", content=answer))
        for asked, answer in (rng.choice((_said, _said, _looked_up, _found))(words, rng) for _ in range(count))
    ]


def _said(words: Sequence[str], rng: random.Random) -> tuple[str, str]:
    text = " ".join(_item(words, rng) for _ in range(rng.randint(2, 7)))
    return f"say {text}", text


def _looked_up(words: Sequence[str], rng: random.Random) -> tuple[str, str]:
    keys = rng.sample(words, rng.randint(3, 8))
    values = {key: _item(words, rng) for key in keys}
    row = ",".join(f'"{key}":"{value}"' for key, value in values.items())
    key = rng.choice(keys)
    return f"{{{row}}}\nwhat is {key}", f"{key} is {values[key]}"


def _found(words: Sequence[str], rng: random.Random) -> tuple[str, str]:
    names = [rng.choices(words, k=rng.choice((2, 3, 4))) for _ in range(rng.randint(3, 8))]
    name, item = rng.choice(names), _identifier(rng)
    some = rng.sample(name, len(name) - rng.randint(0, 1))
    return f"{'; '.join(map(' '.join, names))}\nfind {' '.join(some)} for {item}", f"{' '.join(name)} {item}"


def _item(words: Sequence[str], rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.35:
        return _identifier(rng)
    return str(rng.randrange(1, 1000)) if kind < 0.45 else " ".join(rng.choices(words, k=rng.choice((1, 1, 2, 3))))


def _identifier(rng: random.Random) -> str:
    return f"{rng.choice(_LETTERS)}{rng.randrange(100):0{rng.choice((3, 3, 4))}d}"

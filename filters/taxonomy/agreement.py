"""Measures the accuracy of an annotator's labels and a reader's frames on generated requests with known meaning.

A request that was worded from a frame has this frame, and the leaf of its intent. So agreement is a count, with a Wilson interval. A fifth
of the requests ask for nothing that a world offers; a reader should return no frame for them. Requests that the engine did not answer are
counted apart and belong to no rate.

Limit: generated wordings are easier than a team's own log (the parser reads nearly all of them). Agreement is an upper bound, and separates
a useless model from a usable one.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from filters import normalised_text
from filters.grounding import ground
from filters.grounding.ground_model import Reading
from filters.lexicon_worlds import lexicon_worlds
from filters.taxonomy.annotate import Annotator, is_other
from filters.taxonomy.tree import Tree
from storage.records import Frame, Language
from synth.engines.encoder import Vectors
from synth.haystack.combinations import combinations_of
from synth.haystack.noise import junk
from synth.intervals import wilson
from synth.tasks.solver import training_seed
from synth.tasks.wording import render
from synth.worlds import WITH_LEXICON, WORLDS

_ZH_SHARE, _JUNK_SHARE = 0.35, 0.2
_UNANSWERED = "engine_failure"

Read = Callable[[Sequence[str]], Sequence[Reading]]
"""Reads normalised texts: one reading each."""


@dataclass(frozen=True, slots=True)
class Known:
    """norm: a normalised text. frame: the frame that it was worded from; None if it asks for nothing."""

    norm: str
    frame: Frame | None


@dataclass(frozen=True, slots=True)
class Agreement:
    """right: correct answers, of `of`. misses: wrong answers by kind. unanswered: requests without an answer, not in `of`."""

    right: int
    of: int
    misses: dict[str, int] = field(default_factory=dict)
    unanswered: int = 0

    @property
    def rate(self) -> float:
        """0..1; 0 of nothing."""
        return self.right / self.of if self.of else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson, 95 %."""
        return wilson(self.right, self.of)


def generate_requests(rows: int, seed: int) -> list[Known]:
    """Requests in English and Chinese, intents in turns, a fifth of them junk. Texts are distinct, so there may be fewer than `rows`."""
    rng = random.Random(f"agreement/{seed}")
    worlds = {name: WORLDS[name](training_seed(rng.randrange(1000))) for name in WITH_LEXICON}
    combinations = [one for name in WITH_LEXICON for one in combinations_of(name)]
    intents = sorted({(one.world, one.intent) for one in combinations})
    rng.shuffle(intents)
    texts: list[str] = []
    frames: list[Frame | None] = []
    for number in range(rows - round(_JUNK_SHARE * rows)):
        world, intent = intents[number % len(intents)]
        slots = rng.choice([one.slots for one in combinations if (one.world, one.intent) == (world, intent)])
        frame = Frame(world=world, intent=intent, slots=worlds[world].draw_slots(intent, frozenset(slots), rng))
        language: Language = "zh" if rng.random() < _ZH_SHARE else "en"
        texts.append(render(WORLDS[world], frame, language, rng))
        frames.append(frame)
    texts += junk(rows - len(texts), _ZH_SHARE, np.random.default_rng(seed))["text"].to_list()
    frames += [None] * (rows - len(frames))
    distinct = dict(zip(_normalise(texts)["norm"], frames, strict=True))
    return [Known(norm, frame) for norm, frame in distinct.items()]


def measure_labels(annotator: Annotator, known_rows: Sequence[Known], encode: Callable[[Sequence[str]], Vectors], tree: Tree) -> Agreement:
    """How many requests get the leaf of their intent. Requests without a frame, or whose intent has no leaf, do not count.

    Raises what the annotator raises.
    """
    leaf_of = tree.leaf_of_intent
    leaves = {
        one.norm: leaf_of[key]
        for one in known_rows
        if one.frame is not None and (key := f"{one.frame.world}/{one.frame.intent}") in leaf_of
    }
    labels = annotator.annotate(list(leaves), encode(list(leaves)), tree).labels
    misses = Counter(
        "other" if is_other(label) else "another_leaf" for label, leaf in zip(labels, leaves.values(), strict=True) if label != leaf
    )
    return Agreement(len(labels) - misses.total(), len(labels), dict(sorted(misses.items())))


def measure_frames(read: Read, known_rows: Sequence[Known]) -> Agreement:
    """How many requests get their frame, or none if they have none. misses: `another_frame`, `frame_of_nothing`, or the reason why
    there was none.

    Raises what the reader raises.
    """
    right, unanswered, misses = 0, 0, Counter[str]()
    for one, reading in zip(known_rows, read([one.norm for one in known_rows]), strict=True):
        if reading.reason == _UNANSWERED:
            unanswered += 1
        elif (reading.frame and reading.frame.id) == (one.frame and one.frame.id):
            right += 1
        elif reading.frame is not None:
            misses["another_frame" if one.frame else "frame_of_nothing"] += 1
        else:
            misses[str(reading.reason)] += 1
    return Agreement(right, right + misses.total(), dict(sorted(misses.items())), unanswered)


def parse_frames(norm: Sequence[str]) -> list[Reading]:
    """The parser's readings of normalised texts, to compare a model with."""
    rows = pl.DataFrame({"norm": list(norm)}, schema={"norm": pl.String})
    rows = rows.with_columns(language=normalised_text.languages(rows["norm"]))
    frames = ground.step(rows, lexicon_worlds(), ungrounded=True)
    return [
        Reading(None, why) if why else Reading(Frame(world=world, intent=intent, slots=json.loads(slots)))
        for why, world, intent, slots in frames.select("ungrounded", "world", "intent", "slots").iter_rows()
    ]


def _normalise(texts: Sequence[str]) -> pl.DataFrame:
    return normalised_text.step(pl.DataFrame({"row": range(len(texts)), "text": list(texts)}, schema={"row": pl.UInt32, "text": pl.String}))

"""Reads requests in registered worlds, each text in its own language: English by `reader.py`, Chinese by `chinese/`.

One idea: a world is declared once for each language that it speaks, and a text is read in the worlds that speak its language. A text with a
Chinese character is Chinese: English words in it are values and names. Twins are told by their English declarations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from filters.reading.chinese.chinese_reader import ChineseReader
from filters.reading.declaration import ReadableWorld
from filters.reading.labels.fit import Labelled, is_equal
from filters.reading.labels.teaching import Turn, taught
from filters.reading.of_world import readable_world
from filters.reading.reader import Reader
from filters.reading.readings import PossibleFrame, Reading
from storage.records import Language
from synth.tasks.wording import LANGUAGES
from synth.text.claims import has_chinese
from synth.worlds.base import World

T = TypeVar("T")
UNREAD = Reading("", "", (), 0.0, (), 0)
"""What is read of a text in a language that no world speaks."""


def language_of(text: str) -> Language:
    return "zh" if has_chinese(text) else "en"


def readable_worlds(worlds: Iterable[type[World]], language: Language) -> list[ReadableWorld]:
    """Those of the worlds that speak this language, as the reader sees them."""
    return [readable for world in worlds if (readable := readable_world(world, language)) is not None]


class WorldReader:
    """Reads requests in some worlds. turns: of labelled requests. id_patterns: as of `Reader`.

    declared: the worlds as they are read, in English where they speak it.
    """

    def __init__(self, worlds: Sequence[type[World]], *, turns: Sequence[Turn] = (), id_patterns: Sequence[str] = ()) -> None:
        english, chinese = (taught(readable_worlds(worlds, language), turns_in(turns, language)) for language in LANGUAGES)
        self.declared = {world.name: world for world in (*chinese, *english)}
        self._english = Reader(english, id_patterns=id_patterns) if english else None
        same = self._english.twin_names if self._english is not None else {}
        self._chinese = ChineseReader(chinese, id_patterns=id_patterns, twins=same) if chinese else None

    def read(self, texts: Sequence[str]) -> list[Reading]:
        """The likeliest frame of each text, however unlikely; `UNREAD` where no world speaks its language."""
        return self._each(texts, lambda reader, some: reader.read(some), UNREAD)

    def possible(self, texts: Sequence[str]) -> list[list[PossibleFrame]]:
        """The intents that each text may ask for, the likeliest first; none where no world speaks its language."""
        return self._each(texts, lambda reader, some: reader.possible(some), [])

    def _each(self, texts: Sequence[str], read: Callable[[Reader | ChineseReader, Sequence[str]], Sequence[T]], nothing: T) -> list[T]:
        found = [nothing] * len(texts)
        for language, reader in (("en", self._english), ("zh", self._chinese)):
            places = [place for place, text in enumerate(texts) if language_of(text) == language]
            if reader is not None and places:
                for place, one in zip(places, read(reader, [texts[place] for place in places]), strict=True):
                    found[place] = one
        return found

    def is_right(self, reading: Reading, example: Labelled) -> bool:
        """Whether a reading is what the example says, or the same in a twin of its intent."""
        twins = self._english.twins if self._english is not None else {}
        return any(self._agree(reading, each) for each in example.alternatives(twins))

    def _agree(self, reading: Reading, example: Labelled) -> bool:
        if (reading.world, reading.intent) != (example.world, example.intent):
            return False
        slots = self.declared[reading.world].intents[reading.intent].slots
        said = {value.slot: value.value for value in reading.values}
        return said.keys() == example.values.keys() and all(is_equal(slots[name], said[name], example.values[name]) for name in said)


def turns_in(turns: Iterable[Turn], language: Language) -> list[Turn]:
    return [turn for turn in turns if language_of(turn[2]) == language]

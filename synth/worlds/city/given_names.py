"""Places and lines of the city under the names that a request says.

One idea: a name that the city does not have stands for a landmark (or a line) of its seed, which a hash chooses, one of the kind that the
name ends with if it ends with one (Park, 公园). What goes into a tool has the landmark's own name in its place, and what comes out has the
given name wherever the landmark is named: in results, stops, routes and pages. So every rule holds, and a seed's city stays one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache

import orjson

from storage.records import JSON, Given, Language, content_id
from synth.text.claims import has_chinese
from synth.text.slot_kinds import Vocabulary
from synth.worlds.base import Intent
from synth.worlds.city.map.place_names import LANDMARK_KINDS, landmarks
from synth.worlds.city.vocabulary import CATEGORIES, KINDS

GIVEN_KINDS = ("place", "line")
_LONGEST = 60
_NO_NAME = re.compile(r"[^\w \-'’.&·()（）/,]|\d{5,}|_")
_EVERYDAY = frozenset({"home", "here", "work", "office", "家", "公司", "这里", "我家", "附近", "单位"})


def given_for(intent: Intent, slots: Mapping[str, JSON]) -> Given:
    """The places and lines of the slots, where one of them is a name that the city does not have; nothing else.

    A name that stands in a word or name of the city, and what can be no name, is not given. Known values are listed beside a new name: no
    other name stands for them.
    """
    found: dict[str, list[dict[str, JSON]]] = {}
    for kind in GIVEN_KINDS:
        said = [str(slots[slot.name]) for slot in intent.slots if slot.kind == kind and slot.name in slots]
        unknown = [name for name in said if name not in _names(kind)]
        if any(not _can_be_given(name) for name in unknown):
            return {}
        if unknown:
            found[kind] = [{"name": name} for name in sorted(set(said))]
    return found


def names_given(given: Given) -> dict[str, tuple[str, ...]]:
    """The names that the city does not have: each with its spellings."""
    return {name: (name,) for kind, rows in given.items() for name in (str(row["name"]) for row in rows) if name not in _names(kind)}


class GivenNames:
    """What stands for what in a city of one seed. own: kind and given name -> canonical value of the city's own."""

    def __init__(self, seed: int, given: Given) -> None:
        self.own: dict[tuple[str, str], str] = {}
        own_spelling: dict[str, str] = {}
        given_spelling: dict[str, str] = {}
        for kind, rows in given.items():
            names = [str(row["name"]) for row in rows]
            taken = {name for name in names if name in _names(kind)}
            for name in names:
                if name not in _names(kind):
                    key = _stand_in(kind, name, seed, taken)
                    taken.add(key)
                    self.own[kind, name] = key
                    spelled = _names(kind)[key]
                    own_spelling[name.lower()] = spelled["zh" if has_chinese(name) else "en"]
                    given_spelling |= dict.fromkeys(spelled.values(), orjson.dumps(name).decode()[1:-1])
        self._given = {(kind, key): name for (kind, name), key in self.own.items()}
        self._own_spelling, self._given_spelling = own_spelling, given_spelling
        self._given_names, self._own_names = _any_of(own_spelling, re.IGNORECASE), _any_of(given_spelling)

    def with_own_names(self, arguments: Mapping[str, JSON]) -> Mapping[str, JSON]:
        """The arguments of a tool, with the city's own names in what is searched for (`query`)."""
        query = arguments.get("query")
        if not self.own or not isinstance(query, str):
            return arguments
        return {**arguments, "query": self._given_names.sub(lambda match: self._own_spelling.get(match[0].lower(), match[0]), query)}

    def with_given_names(self, content: str) -> str:
        """What a tool returns, as JSON text, with the given names."""
        return self._own_names.sub(lambda match: self._given_spelling[match[0]], content) if self.own else content

    def to_own(self, intent: Intent, slots: Mapping[str, JSON]) -> dict[str, JSON]:
        """Slots with the city's own values."""
        kinds = {slot.name: slot.kind for slot in intent.slots}
        return {name: self.own.get((kinds[name], str(value)), value) for name, value in slots.items()}

    def to_given(self, intent: Intent, slots: Mapping[str, JSON]) -> dict[str, JSON]:
        """Slots with the given names."""
        kinds = {slot.name: slot.kind for slot in intent.slots}
        return {name: self._given.get((kinds[name], str(value)), value) for name, value in slots.items()}

    def without_stand_ins(self, names: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        """Known names (`World.known_names`) without those that stand for given ones."""
        own = {spelling for kind, key in self.own.items() for spelling in _names(kind[0])[key].values()}
        return {name: spelled for name, spelled in names.items() if name not in own}


def _names(kind: str) -> Mapping[str, Mapping[Language, str]]:
    vocabulary = KINDS[kind]
    assert isinstance(vocabulary, Vocabulary)
    return vocabulary.names


def _can_be_given(name: str) -> bool:
    is_name = 2 <= len(name) <= _LONGEST and _NO_NAME.search(name) is None and any(character.isalpha() for character in name)
    return is_name and name.casefold() not in _EVERYDAY and _any_of([name], re.IGNORECASE).search(_meanings()) is None


@cache
def _meanings() -> str:
    """All words and names of the city, a line each."""
    spelled = {text for kind in KINDS.values() if isinstance(kind, Vocabulary) for names in kind.names.values() for text in names.values()}
    return "\n".join(sorted(spelled | {text for category in CATEGORIES.values() for text in (category.en, category.zh)}))


def _stand_in(kind: str, name: str, seed: int, taken: set[str]) -> str:
    keys = [key for key in _names(kind) if key not in taken]
    if kind == "place":
        alike = _alike(name)
        keys = [key for key in keys if key in alike] or keys
    return min(keys, key=lambda key: content_id("given name", seed, name, key))


def _alike(name: str) -> frozenset[str]:
    """Landmarks of the kind that a name ends with."""
    ending = next((en for en, zh, _ in sorted(LANDMARK_KINDS, key=lambda kind: -len(kind[1])) if name.endswith((f" {en}", zh))), None)
    return frozenset(each.key for each in landmarks() if ending is not None and each.en.endswith(f" {ending}"))


def _any_of(texts: Iterable[str], flags: re.RegexFlag = re.NOFLAG) -> re.Pattern[str]:
    """Any of these texts; Latin letters and digits must end where it does."""
    every = "|".join(re.escape(text) for text in sorted(texts, key=len, reverse=True))
    return re.compile(rf"(?<![A-Za-z0-9])(?:{every})(?![A-Za-z0-9])" if every else r"(?!)", flags)

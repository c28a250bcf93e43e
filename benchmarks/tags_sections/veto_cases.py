"""Answers for the benchmark of the grounding veto: faithful paraphrases, and answers with exactly one invented fact.

One idea: both are made of the expert's answer over a real conversation. A faithful one says the same in other words and units, and adds
what observations showed; an invented one keeps the expert's words and gets one number, time, price or name that nothing supports: as a
sentence of its own, as an aside, or in place of what was there. A third of the invented numbers are *swapped*: the right figure as the
wrong kind (a price of 22 told as 22 minutes). Wordings are files, a family each: four for whoever works on the rules
(`development()`), one for the figures (`cases()`); their tasks differ too.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from benchmarks.tags_sections.veto_patterns import SENTENCES, UNIT_OF_ZH, VALUES
from benchmarks.tags_sections.veto_values import PLACE, Value, told
from benchmarks.tags_sections.veto_worlds import UNITS, Conversation, conversations, names_elsewhere, names_of
from storage.records import Language

DEVELOPMENT = ("development", "development_2", "development_3", "development_4")
KINDS = ("number", "time", "price", "name")
EACH = 125
SWAPPED = 42
FAITHFUL = 500
_TRIES = 60
Wordings = Mapping[str, Any]


@dataclass(frozen=True)
class Case:
    """kind: faithful, number, time, price or name. made: how, for telling which wordings fail; the first of an invented one is where the
    fact stands. invented: as it stands in the answer, empty in a faithful one."""

    kind: str
    conversation: Conversation
    answer: str
    made: tuple[str, ...]
    invented: str = ""


def cases() -> list[Case]:
    """What is measured: 500 faithful answers, then 125 invented ones of each kind."""
    return made_of("measure")


def development() -> list[Case]:
    """As many of each family in other wordings over other tasks, to work on the rules with."""
    return [case for family in DEVELOPMENT for case in made_of(family)]


def made_of(family: str, faithful: int = FAITHFUL, each: int = EACH, swapped: int = SWAPPED) -> list[Case]:
    """family: `measure` or one of `DEVELOPMENT`."""
    wordings = read(family)
    drawn = conversations(f"{wordings['seed']}/0")
    rng = random.Random(wordings["seed"])
    found = _take(faithful, (paraphrased(one, wordings[one.language], rng) for one in drawn))
    found += _take(swapped, (with_swapped(one, wordings[one.language], rng) for one in drawn))
    for kind in KINDS:
        wanted = each - swapped if kind == "number" else each
        for elsewhere, count in ((False, wanted - wanted // 2), (True, wanted // 2)) if kind == "name" else ((False, wanted),):
            found += _take(count, (with_invented(kind, one, wordings[one.language], rng, elsewhere=elsewhere) for one in drawn))
    return found


@cache
def read(family: str) -> Wordings:
    found: Wordings = yaml.safe_load(Path(__file__).with_name(f"veto_{family}.yaml").read_text())
    return found


def _take(count: int, made: Iterator[Case | None]) -> list[Case]:
    """As many in English as in Chinese."""
    taken: dict[Language, list[Case]] = {"en": [], "zh": []}
    while sum(map(len, taken.values())) < count:
        case = next(made)
        if case is not None and len(taken[case.conversation.language]) < (count + 1) // 2:
            taken[case.conversation.language].append(case)
    return [case for language in taken.values() for case in language]


# ---- faithful ------------------------------------------------------------------------------------------------------------------


class Teller:
    """Tells values in one conversation, and keeps what it used. mark: stands around every value (bold)."""

    def __init__(self, conversation: Conversation, wordings: Wordings, rng: random.Random, mark: str = "") -> None:
        self.conversation, self.wordings, self.rng, self.mark = conversation, wordings, rng, mark
        self.made: list[str] = []

    def value(self, value: Value) -> str:
        text, style = told(value, self.conversation.language, self.wordings["styles"], self.rng)
        if style:
            self.made.append(f"{value.kind} {style}")
        return f"{self.mark}{text}{self.mark}" if style else text

    def filled(self, template: str, values: Mapping[str, Value]) -> str:
        self.made.append(template)
        text = PLACE.sub(lambda match: self.value(values[match[1]]), template)
        text = _ended(text)
        is_sentence = self.conversation.language == "en" and template[-1] in ".!?" and values.keys().isdisjoint(("id", "word", "name"))
        return text[0].upper() + text[1:] if is_sentence else text

    def matched(self, kind: str, text: str, unit: str = "") -> Value:
        if kind == "count":
            en = unit if unit in UNITS else UNIT_OF_ZH[unit]
            return Value(kind, float(text), (en, UNITS[en]))
        return Value(kind, text if kind in ("clock", "date", "text") else float(text), (self.conversation.currency, ""))

    def sentence(self, sentence: str) -> str:
        """An expert's sentence in other words."""
        language = self.conversation.language
        for name, pattern in SENTENCES[language].items():
            if match := re.search(pattern, sentence):
                groups = {key: self._group(key, text) for key, text in match.groupdict().items()}
                made = self.filled(self.rng.choice(self.wordings["sentences"][name]), groups)
                return sentence[: match.start()] + made + sentence[match.end() :]
        return self.plain(sentence)

    def _group(self, key: str, text: str) -> Value:
        kind = key.rstrip("2")
        if kind == "rest":
            return Value("text", self.plain(text))
        return self.matched("text" if kind in ("name", "word", "id", "label") else kind, text)

    def plain(self, text: str) -> str:
        """A text with its values told in other ways."""
        kept: list[str] = []

        def put(kind: str, match: re.Match[str]) -> str:
            kept.append(self.value(self.matched(kind, *match.groups())))
            return f"\0{chr(0xE000 + len(kept) - 1)}"

        for kind, pattern in VALUES[self.conversation.language].items():
            text = re.sub(pattern, lambda match, kind=kind: put(kind, match), text)  # type: ignore[misc]
        return re.sub("\0(.)", lambda match: kept[ord(match[1]) - 0xE000], text)


def _ended(text: str) -> str:
    """With one full stop where a sentence ends in p.m."""
    return text.replace(".m..", ".m.")


def sentences_of(text: str, language: Language) -> list[str]:
    if language == "zh":
        return [part for part in re.split(r"(?<=[。！？])\s*", text) if part]
    return re.split(r"(?<=[.!?])(?<!No\.) (?=[A-Z\d])", text)


def paraphrased(conversation: Conversation, wordings: Wordings, rng: random.Random) -> Case | None:
    """None where nothing could be told in another way."""
    language = conversation.language
    teller = Teller(conversation, wordings, rng, rng.choice(("", "", "", "**")))
    parts = [teller.sentence(each) for each in sentences_of(conversation.answer, language)]
    parts += _details(teller, rng.choice((0, 1, 1, 2)))
    if not teller.made:
        return None
    if 1 < len(parts) <= len(_NTH[language]) and rng.random() < 0.3:
        mark = rng.choice(wordings["marks"])
        teller.made.append(f"mark {mark}")
        body = "\n" + "\n".join(mark.format(i=at, nth=_NTH[language][at - 1]) + part for at, part in enumerate(parts, 1)) + "\n"
    else:
        body = (" " if language == "en" else "").join(parts)
    if teller.mark:
        teller.made.append("bold")
    text = f"{rng.choice(wordings['before'])}{body}{rng.choice(wordings['after'])}"
    return Case("faithful", conversation, _ended(text.strip()), tuple(teller.made))


_NTH: Mapping[Language, Sequence[str]] = {
    "en": ("First", "Second", "Third", "Fourth", "Fifth", "Sixth", "Seventh", "Eighth", "Ninth", "Tenth"),
    "zh": ("第一", "第二", "第三", "第四", "第五", "第六", "第七", "第八", "第九", "第十"),
}


def _details(teller: Teller, count: int) -> list[str]:
    """So many sentences on what observations showed, each on another row."""
    conversation, rng = teller.conversation, teller.rng
    templates: Sequence[str] = teller.wordings["details"]["city" if conversation.world.name == "city" else "rows"]
    rows = conversation.rows()
    found = []
    for row in rng.sample(rows, min(len(rows), count)):
        suiting = [
            (template, values)
            for values in conversation.fields(row)
            for template in templates
            if all(place in values for place in PLACE.findall(template))
        ]
        if suiting:
            template, values = rng.choice(suiting)
            found.append(teller.filled(template, values))
    return found


# ---- invented ------------------------------------------------------------------------------------------------------------------

_COUNTED: Mapping[str, tuple[str, int, int]] = {
    "seats": ("seats", 13, 480), "items": ("items", 13, 480), "people": ("people", 13, 480), "requests": ("requests", 13, 900),
    "steps": ("steps", 13, 300), "days": ("days", 12, 90), "years": ("years", 11, 70), "points": ("points", 130, 9000),
    "kilos": ("kg", 12, 90),
}  # fmt: skip
_RANGES: Mapping[str, tuple[int, int]] = {
    "distance": (120, 9800), "duration": (13, 175), "percent": (11, 97), "temperature": (3, 44), "number": (13, 480), "price": (12, 2900),
}  # fmt: skip
_VALUE_KINDS = {"number": ("distance", "duration", "percent", "count"), "time": ("clock",), "price": ("price",), "name": ()}


def invent(place: str, conversation: Conversation, rng: random.Random) -> Value | None:
    """A plausible value that nothing supports for a place of a template; None where some draws gave none."""
    seen = conversation.seen
    for _ in range(_TRIES):
        if place == "clock":
            text = f"{rng.randrange(7, 23):02d}:{rng.choice((0, 5, 10, 15, 20, 30, 40, 45, 50, rng.randrange(60))):02d}"
            if not seen.has_time(text):
                return Value("clock", text)
            continue
        unit, low, high = _COUNTED.get(place, (conversation.currency, *_RANGES.get(place, (0, 0))))
        number = rng.randint(low, rng.choice((high, max(low, high // 8))))
        number = number // 10 * 10 if place == "distance" else number
        if not seen.has_number(number):
            return Value("count" if place in _COUNTED else place, float(number), (unit, UNITS.get(unit, "")))
    return None


def with_invented(kind: str, conversation: Conversation, wordings: Wordings, rng: random.Random, *, elsewhere: bool) -> Case | None:
    """elsewhere: a name is one of a world of another seed."""
    name = _name(conversation, rng, elsewhere=elsewhere) if kind == "name" else None
    if kind == "name" and name is None:
        return None
    ways = ("replaced", "aside", "front", "end", "end")
    way = rng.choice(ways)
    teller = Teller(conversation, wordings, rng)
    if way == "replaced":
        return _replaced(kind, teller, name, elsewhere=elsewhere)
    group = "aside" if way == "aside" else "city" if conversation.world.name == "city" else "desk"
    template = rng.choice(wordings["invented"][group][kind])
    (place,) = PLACE.findall(template)
    value = Value("text", name) if name else invent(place, conversation, rng)
    if value is None:
        return None
    teller.wordings = _unambiguous(value, teller.wordings, conversation)
    return _placed(kind, teller, teller.filled(template, {place: value}), way, elsewhere=elsewhere)


def _unambiguous(value: Value, wordings: Wordings, conversation: Conversation) -> Wordings:
    """Without the styles in a larger unit where the figure in that unit is within one of what was seen: 5.5 km where anything was 5."""
    size = {"distance": 1000, "duration": 60}.get(value.kind)
    if size is None or all(abs(float(value.value) / size - other) > 1 for other in conversation.seen.untyped):
        return wordings
    styles = [style for style in wordings["styles"][value.kind] if not _LARGER & set(PLACE.findall(style))]
    return {**wordings, "styles": {**wordings["styles"], value.kind: styles}}


_LARGER = {"km0", "km1", "km2", "km3", "h1", "h2", "h_only", "h_only_word"}


def with_swapped(conversation: Conversation, wordings: Wordings, rng: random.Random) -> Case | None:
    """With a figure that was seen as one kind only, told as another."""
    seen = conversation.seen
    found = []
    for source, values in seen.typed.items():
        others = seen.untyped.union(*(numbers for kind, numbers in seen.typed.items() if kind != source))
        for value in sorted(values - others):
            for claimed, (low, high) in (("distance", (11, 3000)), ("duration", (5, 400)), ("price", (3, 3000)), ("count", (5, 400))):
                if claimed != source and low <= value <= high and value.is_integer() and not seen.has_of_kind(value, claimed):
                    found.append((source, value, claimed))
    if not found:
        return None
    source, value, claimed = rng.choice(found)
    styles = {claimed: [style for style in wordings["styles"][claimed] if PLACE.findall(style)[:1] == ["n"] or "{n} " in style]}
    teller = Teller(conversation, {**wordings, "styles": styles}, rng)
    template = rng.choice(wordings["swapped"][claimed])
    (place,) = PLACE.findall(template)
    unit = place if claimed == "count" else conversation.currency
    text = teller.filled(template, {place: Value(claimed, value, (unit, UNITS.get(unit, "")))})
    made = _placed("number", teller, text, rng.choice(("front", "end", "end")))
    return Case(made.kind, conversation, made.answer, (f"swapped {source} to {claimed}", *made.made), text)


def _placed(kind: str, teller: Teller, text: str, way: str, *, elsewhere: bool = False) -> Case:
    """The expert's answer with the text in front of it, behind it or, as an aside, in its first sentence."""
    conversation = teller.conversation
    between = " " if conversation.language == "en" else ""
    first, *others = sentences_of(conversation.answer, conversation.language)
    if way == "front":
        answer = f"{text}{between}{conversation.answer}"
    elif way == "end":
        answer = f"{conversation.answer}{between}{text}"
    else:
        answer = between.join((first[:-1] + text + first[-1], *others))
    return Case(kind, conversation, _ended(answer), (_way(way, kind, elsewhere=elsewhere), *teller.made), text)


def _way(way: str, kind: str, *, elsewhere: bool) -> str:
    return way if kind != "name" else f"{way}, {'another seed' if elsewhere else 'same world'}"


def _replaced(kind: str, teller: Teller, name: str | None, *, elsewhere: bool) -> Case | None:
    """The expert's answer with one value of the kind exchanged; None where it has none."""
    conversation, rng = teller.conversation, teller.rng
    answer = conversation.answer
    if name is not None:
        names = [fact.value for fact in conversation.task.success.facts if fact.kind in ("name", "id") and fact.value in answer]
        if not names:
            return None
        made = answer.replace(rng.choice(names), name)
        return Case(kind, conversation, made, (_way("replaced", kind, elsewhere=elsewhere),), name)
    patterns = VALUES[conversation.language]
    found = [(each, match) for each in _VALUE_KINDS[kind] for match in re.finditer(patterns[each], answer)]
    if not found:
        return None
    value_kind, match = rng.choice(found)
    value = invent("items" if value_kind == "count" else value_kind, conversation, rng)
    if value is None:
        return None
    if value_kind == "count":
        value = Value("count", value.value, teller.matched("count", *match.groups()).unit)
    teller.wordings = _unambiguous(value, teller.wordings, conversation)
    text = teller.value(value)
    made = _ended(answer[: match.start()] + text + answer[match.end() :])
    return Case(kind, conversation, made, ("replaced", *teller.made), text)


def _name(conversation: Conversation, rng: random.Random, *, elsewhere: bool) -> str | None:
    """A name that nobody brought up; None where there is none to be had."""
    world = conversation.world
    if elsewhere and world.name == "retail":
        return None
    names = names_elsewhere(world, rng) if elsewhere else names_of(world)
    at = conversation.language == "zh"
    for pair in rng.sample(names, min(len(names), _TRIES)):
        if not conversation.seen.has_name(pair):
            return pair[at]
    return None

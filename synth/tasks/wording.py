"""How frames are put into words: templates by intent and language, spellings of values, small talk around a request.

One idea: a template is data (`families.yaml` beside each world, or part of its spec): text with {slot} fields, and optional [parts] that
appear only if all slots inside are given. Slots of the frame that the template does not hold follow in their own phrases (`segments`). So
a few templates for each intent word every combination of its slots, and another file of templates changes the style of all requests.

`render` words one frame; `synth/haystack/generate.py` words hundreds of thousands over columns, from the same parsed templates. Reading
text back is the task of `filters/grounding/`, which uses cue words (`grounding.yaml`), not templates.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from storage.errors import BadInput
from storage.records import JSON, Frame, Language
from synth.text.value_spellings import Synonyms, value_spellings
from synth.text.yaml_loader import TEXT_LOADER
from synth.worlds.base import Intent, World, cached_per_world

LANGUAGES: tuple[Language, ...] = ("en", "zh")
REST = "*"
_PART = re.compile(r"\[([^\[\]]*)\]|\{(\w+|\*)\}|([^\[\]{}]+)")
_FIELD = re.compile(r"\{(\w+)\}")
_ARTICLE = re.compile(r"\b([Aa]) (?=[aeioAEIO][a-z])")
_KEYS = frozenset({"openers", "closers", "segments", "intents", "canonical", "kinds"})
_STYLES = frozenset({"vague", "that", "nouns", "ask"})

Phrases = Mapping[Language, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a template: text with {slot} fields, shown if all its slots are given. is_rest: the other slots follow here."""

    text: str
    slots: tuple[str, ...] = ()
    is_rest: bool = False


@lru_cache(maxsize=4096)
def parse_template(template: str) -> tuple[Piece, ...]:
    """The pieces of a template, in order; without {*}, the other slots follow at the end.

    Raises:
        ValueError: a bracket or brace is open, or brackets are nested.
    """
    pieces: list[Piece] = []
    position = 0
    for match in _PART.finditer(template):
        if match.start() != position:
            break
        position = match.end()
        optional, slot, text = match.groups()
        if optional is not None:
            pieces.append(Piece(optional, tuple(_FIELD.findall(optional))))
        elif slot == REST:
            pieces.append(Piece("", is_rest=True))
        elif slot is not None:
            pieces.append(Piece(f"{{{slot}}}", (slot,)))
        else:
            pieces.append(Piece(text))
    if position != len(template):
        raise ValueError(f"brackets do not match from character {position} on")
    return tuple(pieces) if any(piece.is_rest for piece in pieces) else (*pieces, Piece("", is_rest=True))


@dataclass(frozen=True)
class Templates:
    """The templates and phrases of one world.

    intents: intent -> language -> templates.
    canonical: intent -> language -> short templates.
    segments: slot name -> language -> phrases of a slot that a template does not hold.
    openers, closers: language -> small talk before and after a request.
    kinds: slot kind -> style (`vague`, `that`, `nouns`, `ask`) -> language -> phrases that leave a value open.
    """

    world: str
    intents: Mapping[str, Phrases]
    canonical: Mapping[str, Phrases] = field(default_factory=dict)
    segments: Mapping[str, Phrases] = field(default_factory=dict)
    openers: Phrases = field(default_factory=dict)
    closers: Phrases = field(default_factory=dict)
    kinds: Mapping[str, Mapping[str, Phrases]] = field(default_factory=dict)

    def of_intent(self, intent: str, language: Language, *, canonical: bool = False) -> tuple[str, ...]:
        """The templates of an intent. canonical: only short ones; its first ordinary one if it has no short one in this language."""
        ordinary = self.intents[intent][language]
        return self.canonical.get(intent, {}).get(language, ordinary[:1]) if canonical else ordinary

    def phrases(self, slot: str, language: Language) -> tuple[str, ...]:
        """The phrases of a slot that a template does not hold: its segments, else the bare value."""
        return self.segments.get(slot, {}).get(language) or (f"{{{slot}}}",)


@dataclass(frozen=True)
class Grounding:
    """`grounding.yaml` of a world. synonyms: slot kind -> value -> other names, which `render` uses; the parser uses the other fields."""

    synonyms: Mapping[str, Synonyms]
    readings: Mapping[str, Synonyms]
    cues: Mapping[str, Phrases]
    roles: Mapping[str, Mapping[str, Sequence[str]]]
    intents: Mapping[str, Mapping[str, Any]]
    units: Mapping[str, Phrases]
    fillers: Phrases


@cached_per_world()
def load_grounding(world: type[World]) -> Grounding:
    """The `grounding.yaml` beside a world; for a world whose spec holds its wording, the synonyms in that."""
    world_wording = world.wording
    raw = _yaml(_beside(world, "grounding.yaml")) if world_wording is None else {"synonyms": world_wording.get("synonyms", {})}
    sections = {section.name: raw.get(section.name, {}) for section in fields(Grounding)}
    return Grounding(**sections | {"synonyms": MappingProxyType(sections["synonyms"])})


def load_templates(world: type[World], path: Path | None = None) -> Templates:
    """The templates of a world, with those of a file in place of its own.

    Args:
        path: a YAML file `{world: {intents: ..., segments: ..., openers: ..., closers: ..., canonical: ...}}`. Entries that it does not
            name (an intent, a slot's segments, the closers) keep the world's own templates. `worlds_in` lists its worlds.

    Raises:
        BadInput: the file does not exist or is not of that form; a template names a slot that its intent does not have.
    """
    return _default_templates(world) if path is None else _templates_from(world, path.resolve())


@cached_per_world()
def _default_templates(world: type[World]) -> Templates:
    world_wording = world.wording
    if world_wording is None:
        return _check_templates(world, _parse_templates(world, _yaml(_beside(world, "families.yaml"))), "families.yaml")
    raw = {key: value for key, value in world_wording.items() if key != "synonyms"}
    return _check_templates(world, _parse_templates(world, raw), f"the wording of {world.name}")


def worlds_in(path: Path) -> tuple[str, ...]:
    """The names of the worlds in a file of templates; such worlds need not exist.

    Raises:
        BadInput: the file does not exist, or is no YAML with keys at the top.
    """
    return tuple(_yaml(_existing(path)))


def worded_intents(path: Path) -> dict[str, frozenset[str]]:
    """The intents that a file of templates words, by world."""
    return {world: frozenset(words.get("intents") or ()) for world, words in _yaml(_existing(path)).items()}


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise BadInput(f"{path}: no such file; --families takes a YAML file of wordings")
    return path


@cached_per_world(maxsize=8)
def _templates_from(world: type[World], path: Path) -> Templates:
    raw = _yaml(_existing(path))
    defaults, other = _default_templates(world), _parse_templates(world, raw.get(world.name) or {}, str(path))
    return _check_templates(
        world,
        Templates(world.name, **{key: {**getattr(defaults, key), **getattr(other, key)} for key in _KEYS}),
        str(path),
    )


def _beside(world: type[World], name: str) -> Path:
    assert world.files is not None, f"{world.name} has neither wording nor files"
    return world.files / name


def _yaml(path: Path) -> dict[str, Any]:
    try:
        raw = yaml.load(path.read_text(encoding="utf-8"), Loader=TEXT_LOADER)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: not readable as YAML: {str(error).splitlines()[0]}") from error
    if not isinstance(raw, dict):
        raise BadInput(f"{path}: expected keys and values at the top")
    return raw


def _parse_templates(world: type[World], raw: Mapping[str, Any], where: str = "families.yaml") -> Templates:
    if not isinstance(raw, Mapping) or (unknown := sorted(set(raw) - _KEYS)):
        raise BadInput(
            f"{where}: {world.name}: expected the keys {', '.join(sorted(_KEYS))}"
            + (f", not {unknown[0]!r}" if isinstance(raw, Mapping) else "")
        )

    def phrases(value: Any, key: str) -> Phrases:
        is_right = isinstance(value, Mapping) and all(
            language in LANGUAGES and isinstance(texts, list) and texts and all(isinstance(text, str) for text in texts)
            for language, texts in value.items()
        )
        if not is_right:
            raise BadInput(f"{where}: {world.name}.{key}: expected non-empty lists of texts under en and zh")
        return {language: tuple(texts) for language, texts in value.items()}

    def by_key(entries: Any, section: str) -> dict[str, Phrases]:
        if not isinstance(entries, Mapping):
            raise BadInput(f"{where}: {world.name}.{section}: expected names, and under each of them texts")
        return {key: phrases(value, f"{section}.{key}") for key, value in entries.items()}

    def by_kind() -> dict[str, dict[str, Phrases]]:
        entries = raw.get("kinds") or {}
        if not isinstance(entries, Mapping):
            raise BadInput(f"{where}: {world.name}.kinds: expected slot kinds, and under each of them {', '.join(sorted(_STYLES))}")
        for kind, styles in entries.items():
            if isinstance(styles, Mapping) and (unknown := sorted(set(styles) - _STYLES)):
                raise BadInput(f"{where}: {world.name}.kinds.{kind}: expected {', '.join(sorted(_STYLES))}, not {unknown[0]!r}")
        return {kind: by_key(styles, f"kinds.{kind}") for kind, styles in entries.items()}

    return Templates(
        world=world.name,
        intents=by_key(raw.get("intents") or {}, "intents"),
        canonical=by_key(raw.get("canonical") or {}, "canonical"),
        segments=by_key(raw.get("segments") or {}, "segments"),
        openers=phrases(raw["openers"], "openers") if "openers" in raw else {},
        closers=phrases(raw["closers"], "closers") if "closers" in raw else {},
        kinds=by_kind(),
    )


def _check_templates(world: type[World], templates: Templates, where: str) -> Templates:
    """The templates, unchanged.

    Raises:
        BadInput: an intent lacks a language, a template names a slot that its intent does not have, or a segment another slot.
    """
    intents = world.intents
    for section, worded in (("intents", templates.intents), ("canonical", templates.canonical)):
        if unknown := sorted(set(worded) - set(intents)):
            raise BadInput(f"{where}: {templates.world}.{section}.{unknown[0]}: no such intent")
    for kind, styles in templates.kinds.items():
        if kind not in world.kinds:
            raise BadInput(f"{where}: {templates.world}.kinds.{kind}: the world has no such slot kind")
        if one_sided := sorted(style for style, phrases in styles.items() if not set(world.languages) <= set(phrases)):
            raise BadInput(f"{where}: {templates.world}.kinds.{kind}.{one_sided[0]}: expected texts in {' and in '.join(world.languages)}")
    for slot, phrases in templates.segments.items():
        _check_segments(slot, phrases, f"{where}: {templates.world}.segments.{slot}", intents)
    for name, intent in intents.items():
        slot_names = frozenset(slot.name for slot in intent.slots)
        needed = frozenset(slot.name for slot in intent.slots if slot.is_required) - set(templates.segments)
        for language in world.languages:
            if not templates.intents.get(name, {}).get(language):
                raise BadInput(f"{where}: {templates.world}.intents.{name}: no templates in {language!r}")
            for section, worded in (("intents", templates.intents), ("canonical", templates.canonical)):
                for template in worded.get(name, {}).get(language, ()):
                    _check_template(template, slot_names, needed, f"{where}: {templates.world}.{section}.{name}: {template!r}")
    return templates


def _check_segments(slot: str, phrases: Phrases, where: str, intents: Mapping[str, Intent]) -> None:
    if not any(slot == declared.name for intent in intents.values() for declared in intent.slots):
        raise BadInput(f"{where}: no intent has such a slot")
    for text in (text for texts in phrases.values() for text in texts):
        if set(_FIELD.findall(text)) - {slot} or set("{}[]") & set(_FIELD.sub("", text)):
            raise BadInput(f"{where}: {text!r}: only {{{slot}}} can be put in")


def _check_template(template: str, slot_names: frozenset[str], needed: frozenset[str], where: str) -> None:
    """slot_names: slots of the intent. needed: those that the template must hold, because they have no segments."""
    try:
        used_slots = {slot for piece in parse_template(template) for slot in piece.slots}
    except ValueError as error:
        raise BadInput(f"{where}: {error}") from error
    if unknown := sorted(used_slots - slot_names):
        raise BadInput(f"{where} names the slot {unknown[0]!r}; there are {', '.join(sorted(slot_names))}")
    if missing := sorted(needed - used_slots):
        raise BadInput(f"{where} leaves out the slot {missing[0]!r}")


# ---- wording a frame ----------------------------------------------------------------------------------------------------------


def spellings(world: type[World], intent: str, slot: str, value: JSON, language: Language) -> list[str]:
    """Every spelling of a slot's value, the plainest first."""
    kind = slot_kinds(world, intent)[slot]
    return value_spellings(world.kinds[kind], value, language, load_grounding(world).synonyms.get(kind))


@cached_per_world()
def slot_kinds(world: type[World], intent: str) -> Mapping[str, str]:
    """Slot name -> name of its kind."""
    return {slot.name: slot.kind for slot in world.intents[intent].slots}


def pieces_for(template: str, slot_names: frozenset[str]) -> tuple[tuple[Piece, ...], tuple[str, ...]]:
    """The pieces of a template that a frame with these slots shows, and the other slots, for {*}, in alphabetical order."""
    shown = tuple(piece for piece in parse_template(template) if set(piece.slots) <= slot_names)
    shown_slots = {slot for piece in shown for slot in piece.slots}
    return shown, tuple(sorted(slot_names - shown_slots))


def joiner(language: Language) -> str:
    return "，" if language == "zh" else ", "


def tidy(text: str, language: Language) -> str:
    """Corrects `a apple` to `an apple`, 最贵的的 to 最贵的."""
    return _ARTICLE.sub(r"\1n ", text) if language == "en" else text.replace("的的", "的")


def render(
    world: type[World], frame: Frame, language: Language, rng: random.Random, templates: Templates | None = None, *, canonical: bool = False
) -> str:
    """The frame in words: a template, a spelling of each value, and a phrase for each other slot, all drawn from `rng`.

    Args:
        world: the world of the frame.
        templates: None for the world's own.
        canonical: only short templates and plain names; a slot that the template does not hold follows in its first phrase.

    Raises:
        KeyError: the world has no such intent or slot.
    """
    templates = templates or load_templates(world)
    slot_names = frozenset(frame.slots)
    shown, rest = pieces_for(rng.choice(templates.of_intent(frame.intent, language, canonical=canonical)), slot_names)
    if not canonical:
        rest = tuple(rng.sample(rest, len(rest)))

    def choose(options: Sequence[str]) -> str:
        return options[0] if canonical else rng.choice(options)

    values: dict[str, str] = {}

    def fill(text: str) -> str:
        for slot in _FIELD.findall(text):
            if slot not in values:
                values[slot] = choose(spellings(world, frame.intent, slot, frame.slots[slot], language))
        return _FIELD.sub(lambda match: values[match.group(1)], text)

    suffix = "".join(joiner(language) + fill(choose(templates.phrases(slot, language))) for slot in rest)
    text = "".join(suffix if piece.is_rest else fill(piece.text) for piece in shown)
    return tidy(text, language)

"""Request templates of a domain's intents, in English and Chinese, from nouns, verbs, labels and phrases of the spec.

One idea: a template combines the phrases of the rows (`row_references.py`), the words of the question or action, and a few sentence forms;
the first of each list is the plainest, and is also the short wording. Templates of the spec itself (`says`) are added. `Wording` has all of
them in the form of a `families.yaml`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from storage.records import Language
from synth.worlds.declarative.common_names import participle_of
from synth.worlds.declarative.domain import Act, Domain, Entity, Param, json_value
from synth.worlds.declarative.intents.base import SpecIntent
from synth.worlds.declarative.intents.row_references import IdReference, Phrase, RowReference
from synth.worlds.declarative.language import schema
from synth.worlds.declarative.language.values import Words

_DURATIONS = ("days", "nights", "weeks", "months", "years", "hours", "minutes", "people")

ORDERS: Mapping[Language, tuple[str, ...]] = {
    "en": ("{}", "please {}", "can you {}", "I would like to {}", "I need you to {}", "could you {} for me"),
    "zh": ("请{}", "帮我{}", "我想{}", "麻烦{}", "我要{}", "能帮我{}吗"),
}
_QUESTIONS: Mapping[Language, tuple[str, ...]] = {
    "en": ("what is {}", "please tell me {}", "can you look up {}", "I would like to know {}", "could you check {}"),
    "zh": ("请问{}", "查一下{}", "告诉我{}", "我想知道{}", "帮我看看{}"),
}


def join_lead(lead: str, text: str, language: Language) -> str:
    """`I am m012, please ...`."""
    if not lead:
        return text
    return f"{lead}, {text}" if language == "en" else f"{lead}，{text}"


def questions(phrases: Sequence[Phrase], language: Language, ending: str = "") -> list[str]:
    """Templates that ask for the values which the phrases name."""
    return [join_lead(lead, form.replace("{}", text) + ending, language) for form in _QUESTIONS[language] for lead, text in phrases]


def with_object(verb: str, target: str, language: Language) -> str:
    """The verb with its object: in place of `_`, else after it."""
    gap = " " if language == "en" and target else ""
    return verb.replace("_", target) if "_" in verb else f"{verb}{gap}{target}"


# ---- acts -------------------------------------------------------------------------------------------------------------------------


def _object_of(act: Act) -> str | None:
    """The parameter that is the verb's object: the row acted on, else the first row that is no person."""
    if act.on is not None:
        return act.on.name
    for param in act.params.values():
        if param.type.kind == "ref" and not param.is_person:
            return param.name
    return None


def _subject_of(act: Act) -> str | None:
    """The parameter with the person for whom the action is done; None if the spec has a phrase for each person."""
    persons = (param.name for param in act.params.values() if param.is_person and param.spec.phrase is None)
    return next((name for name in persons if name != _object_of(act)), None)


def act_templates(domain: Domain, act: Act, references: Mapping[str, RowReference], language: Language) -> list[str]:
    """Templates of requests for an action."""
    target, subject = _object_of(act), _subject_of(act)
    templates: list[str] = []
    phrases = references[target].phrases(language) if target is not None else [("", "")]
    for form in ORDERS[language]:
        if subject is not None and language == "en" and form.endswith("for me"):
            continue
        for lead, target_phrase in phrases:
            command = form.replace("{}", _command(domain, act, references, target, target_phrase, subject, language))
            templates += _with_subject(references[subject] if subject is not None else None, lead, command, language)
    are_by_id = all(isinstance(each, IdReference) for each in references.values())
    return [*templates, *(each[language] for each in act.spec.says if are_by_id)]


def _command(
    domain: Domain,
    act: Act,
    references: Mapping[str, RowReference],
    target: str | None,
    target_phrase: str,
    subject: str | None,
    language: Language,
) -> str:
    text = with_object(act.spec.verb[language], target_phrase, language)
    for param in act.params.values():
        if param.name in (target, subject):
            continue
        phrase = _phrase(param, language)
        if param.name in references:
            noun = domain.entities[param.type.entity].noun[language] + (" " if language == "en" else "")
            phrase = phrase.replace(f"{noun}_", "_").replace("_", references[param.name].phrases(language)[-1][1])
        else:
            phrase = phrase.replace("_", f"{{{param.name}}}")
        phrase = f" {phrase}" if language == "en" else f"，{phrase}"
        text += phrase if param.is_required else f"[{phrase}]"
    return text


def _phrase(param: Param, language: Language) -> str:
    """The words of a parameter; `_` is the place of its value."""
    if param.spec.phrase is not None:
        return param.spec.phrase[language]
    label, unit = param.label[language], getattr(param.spec, "unit", "")
    if param.type.kind in ("date", "flag"):
        return "_"
    if param.type.kind == "time":
        return "at _" if language == "en" else "_"
    if unit in _DURATIONS:
        return "for _" if language == "en" else f"{label}_"
    if param.type.kind == "ref":
        return "with _" if language == "en" else "_"
    return f"with {label} _" if language == "en" else f"{label}_"


def _with_subject(subject: RowReference | None, lead: str, command: str, language: Language) -> list[str]:
    """The command with the person for whom it is done: "I am m012, ..." and "... for member m012"."""
    if subject is None:
        return [join_lead(lead, command, language)]
    phrase = subject.phrases(language)[-1][1]
    bare = "".join(f"{{{slot.name}}}" for slot, _ in subject.slots if slot.is_entity)
    if language == "en":
        return [join_lead(f"I am {bare}", command, language), join_lead(lead, f"{command} for {phrase}", language)]
    return [join_lead(f"我是{bare}", command, language), join_lead(lead, f"为{phrase}办理：{command}", language)]


def _done_words(act: Act, entity: Entity | None, key: str, language: Language) -> str:
    """The answer after an action that has no reply in the spec."""
    target = "" if entity is None else f"{entity.noun.en} {key}" if language == "en" else f"{entity.noun.zh}{key}"
    if language == "zh":
        verb = act.spec.done.zh if act.spec.done is not None else act.spec.verb.zh
        return f"已{with_object(verb, target, language).removeprefix('已')}。"
    done = act.spec.done.en if act.spec.done is not None else participle_of(act.spec.verb.en)
    return f"I have {with_object(done, target, language)}."


def reply(domain: Domain, act: Act, values: Mapping[str, Any], language: Language, reply_words: Words | None = None) -> str:
    """The answer after an action: `reply_words`, else the action's reply in the spec, else `_done_words`.

    values: of the parameters; None for a row that is not given.
    """
    words = reply_words or act.spec.reply
    if words is None:
        target = _object_of(act)
        key = values[target] if target is not None else None
        return _done_words(act, domain.entities[act.params[target].type.entity] if target and key else None, key or "", language)
    values_text = {name: _spoken_value(domain, act.params[name], value, language) for name, value in values.items() if value is not None}
    for name, among in act.either.items():
        values_text[name] = next(values_text[each] for each in among if each in values_text)
    return fill(words, values_text, language)


def _spoken_value(domain: Domain, param: Param, value: Any, language: Language) -> str:
    return param.words[value][language] if value in param.words else str(json_value(domain, param.type.kind, value))


def fill(words: Words, values: Mapping[str, Any], language: Language) -> str:
    """The words with values in place of the names in braces."""
    text = words[language]
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", str(value))
    return text


# ---- all wordings of a domain -----------------------------------------------------------------------------------------------------

OPENERS: Mapping[Language, Sequence[str]] = {
    "en": [
        "hello",
        "hi there",
        "good morning",
        "good evening",
        "quick one for you",
        "me again",
        "sorry to bother you",
        "I am in a bit of a hurry",
    ],
    "zh": ["你好", "您好", "在吗", "打扰一下", "早上好", "又来麻烦你了", "我比较着急", "帮家里人问的"],
}
CLOSERS: Mapping[Language, Sequence[str]] = {
    "en": ["thanks", "thank you", "thanks a lot", "no rush", "as soon as you can", "much appreciated", "that is all for now"],
    "zh": ["谢谢", "多谢", "麻烦了", "辛苦了", "不着急", "尽快哦", "就这样"],
}


class Wording(Mapping[str, Any]):
    """All wordings of a domain, in the form of a `families.yaml`; built when they are first read."""

    def __init__(self, domain: Domain, intents: Sequence[SpecIntent]) -> None:
        self._domain, self._intents = domain, intents

    def __getitem__(self, key: str) -> Any:
        return self._families[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._families)

    def __len__(self) -> int:
        return len(self._families)

    @cached_property
    def _families(self) -> dict[str, Any]:
        kinds = {kind for intent in self._intents for kind in intent.kinds}
        templates = {
            intent.name: {language: list(dict.fromkeys(texts)) for language, texts in intent.wordings().items()} for intent in self._intents
        }
        return {
            "intents": templates,
            "canonical": {name: {language: texts[:2] for language, texts in each.items()} for name, each in templates.items()},
            "kinds": {
                kind: {style: self._spoken(texts) for style, texts in styles.items()}
                for kind, styles in _kind_phrases(self._domain).items()
                if kind in kinds
            },
            "openers": self._spoken(OPENERS),
            "closers": self._spoken(CLOSERS),
        }

    def _spoken(self, texts: Mapping[Language, Sequence[str]]) -> dict[Language, Sequence[str]]:
        return {language: texts[language] for language in self._domain.languages}


def _kind_phrases(domain: Domain) -> dict[str, Any]:
    """The phrases that leave a value open or ask for it, by slot kind: rows, fields, and parameters."""
    phrases: dict[str, Any] = {}
    for entity in domain.by_number:
        en, zh, measure = entity.noun.en, entity.noun.zh, entity.spec.measure
        phrases[entity.name] = {
            "vague": {"en": [f"a certain {en}", f"one of the {entity.plural}"], "zh": [f"某{measure}{zh}"]},
            "that": {"en": [f"that {en}"], "zh": [f"那{measure}{zh}"]},
            "nouns": {"en": [en], "zh": [zh]},
            "ask": {"en": [f"Which {en} do you mean?", f"What is the {en} id?"], "zh": [f"请问是哪{measure}{zh}？", f"{zh}编号是多少？"]},
        }
        for field in entity.fields.values():
            if field.type.kind in ("choice", "whole", "real"):
                phrases[f"{entity.name}.{field.name}"] = _ask(field.label, field.spec)
    for act in domain.acts.values():
        for param in act.params.values():
            if param.type.kind != "ref":
                phrases[f"{act.name}.{param.name}"] = _ask(param.label, param.spec)
    return phrases


def _ask(label: Words, spec: Any) -> dict[str, Any]:
    if isinstance(spec, (schema.DateField, schema.DateParam)):
        return {"ask": {"en": ["For which day is that?"], "zh": ["请问是哪一天？"]}}
    if isinstance(spec, (schema.TimeField, schema.TimeParam)):
        return {"ask": {"en": ["At what time is that?"], "zh": ["请问是几点？"]}}
    return {"ask": {"en": [f"Which {label.en} would you like?"], "zh": [f"请问{label.zh}要哪个？"]}}

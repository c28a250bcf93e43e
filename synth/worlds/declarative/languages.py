"""The languages of a spec: which ones its users speak, the spec without other languages, and whether words are in their language.

One idea: a spec of one language is reduced to it before anything else is read, so no later code can take a word of the other language.
Whether English or Chinese is good is not checked, only which of the two it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from storage.records import Language
from synth.text.claims import has_chinese

BOTH: tuple[Language, ...] = ("en", "zh")
LANGUAGE_NAMES: Mapping[Language, str] = {"en": "English", "zh": "Chinese"}
SEPARATOR = " / "
"""Between the English and the Chinese half of words."""
IN_BOTH = "write it in both languages, as: english / 中文, or say `languages: [en]` at the top for a world of English alone"

TABLE = "rows_from"
"""The key of rows of a table, which are in any language."""
_PLACEHOLDER = re.compile(r"\{[^{}]*\}|https?://\S+|\S+@\S+")
_UNTRANSLATED = re.compile(r"(?!\d+(\.\d+)?$)[^a-z()]+")
"""A Chinese half without Chinese characters: an acronym or a placeholder, no number and no name of an expression."""
_LATIN_WORD = re.compile(r"[A-Za-z][A-Za-z0-9'-]*")
_LATIN_IN_CHINESE = frozenset({"kg", "km", "cm", "mm", "gb", "mb", "tb", "app", "wifi"})
"""Words in lower case that Chinese text writes in Latin letters."""


def languages_of(raw: Any) -> tuple[Language, ...]:
    """The languages of a spec's values: those of its key `languages`. Without the key: both if any word is bilingual, else the
    language of most nouns and verbs. An invalid key counts as none; reading the head reports it."""
    named = raw.get("languages") if isinstance(raw, Mapping) else None
    if isinstance(named, (list, tuple)) and named and all(each in BOTH for each in named):
        return tuple(each for each in BOTH if each in named)
    texts = list(_texts(raw, ""))
    if any(halves_of(text) is not None or path.endswith((".en", ".zh")) for path, text in texts):
        return BOTH
    names = [has_chinese(text) for path, text in texts if path.endswith((".noun", ".verb"))]
    return ("zh",) if sum(names) > len(names) / 2 else ("en",)


def reduce_to(raw: Any, language: Language) -> Any:
    """The values of a spec in one language: of bilingual words this language's half, and no text that is in the other language alone where
    it may be missing (measure words, a tool's words)."""
    if isinstance(raw, str):
        halves = halves_of(raw)
        return raw if halves is None else halves[language]
    if isinstance(raw, (list, tuple)):
        return [reduce_to(each, language) for each in raw]
    if not isinstance(raw, Mapping):
        return raw
    if set(raw) == set(BOTH):
        return raw[language]
    reduced = {
        key: each if key == TABLE else reduce_to(each, language) for key, each in raw.items() if key != "measure" or language == "zh"
    }
    words = reduced.get("words")
    if isinstance(words, list):
        reduced["words"] = [each for each in words if has_chinese(str(each)) == (language == "zh")]
    return reduced


def chinese_places(raw: Any) -> Iterator[str]:
    """The places of all texts with Chinese characters; not of given signatures, which are as they are."""
    return (path for path, text in _texts(raw, "") if has_chinese(text) and not path.startswith("signatures."))


def check_chinese(text: str, *, is_name: bool = False) -> None:
    """Checks that words are Chinese. Placeholders, ids, units, acronyms and names with capital letters may be in Latin letters.

    is_name: whether it is a proper name, which may be wholly in Latin letters.

    Raises:
        ValueError: an English word is in it.
    """
    words = _LATIN_WORD.findall(_PLACEHOLDER.sub(" ", text))
    english = [word for word in words if len(word) > 1 and word.islower() and word.isalpha() and word not in _LATIN_IN_CHINESE]
    if not english and not is_name and not has_chinese(text):
        english = [word for word in words if len(word) > 2 and word[1:].islower() and word.isalpha()]
    if english:
        raise ValueError("the Chinese words contain English; translate it, or say `languages: [en]` at the top and write English alone")


def check_english(text: str) -> None:
    """Checks that words are English.

    Raises:
        ValueError: Chinese characters are in it.
    """
    if has_chinese(text):
        raise ValueError("the English words contain Chinese; English comes first, as: english / 中文")


def word_form(languages: Sequence[Language]) -> str:
    """How words are written in a spec of these languages, as the end of a message."""
    return ", as: english / 中文" if len(languages) > 1 else f", in {LANGUAGE_NAMES[languages[0]]}"


def halves_of(text: str) -> Mapping[Language, str] | None:
    """The halves of bilingual words (`lent / 已借出`, `VPN / VPN`, `to _ / _`); None for any other text, such as a division."""
    english, slash, chinese = text.rpartition(SEPARATOR)
    if not slash or has_chinese(english) or not (has_chinese(chinese) or _UNTRANSLATED.fullmatch(chinese.strip())):
        return None
    return {"en": english.strip(), "zh": chinese.strip()}


def _texts(raw: Any, path: str) -> Iterator[tuple[str, str]]:
    """All texts in a spec's values, keys left out, each with its place."""
    if isinstance(raw, str):
        yield path, raw
    elif isinstance(raw, Mapping):
        for key, each in raw.items():
            if key == TABLE:
                continue
            yield from _texts(each, f"{path}.{key}" if path else str(key))
    elif isinstance(raw, (list, tuple)):
        for at, each in enumerate(raw):
            yield from _texts(each, f"{path}[{at}]")

"""The text of a new spec: the starter, or a copy of a library world under another name, in the languages that its author wants.

One idea: the text is edited only where words stand, so the comments and the layout stay. It does not check the spec (`compile.py` does).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from storage.errors import BadInput
from storage.records import Language
from synth.text.yaml_loader import TEXT_LOADER
from synth.worlds.declarative.language.problems import nearest
from synth.worlds.declarative.language.values import check_key
from synth.worlds.declarative.languages import BOTH, halves_of
from synth.worlds.declarative.library_worlds import is_known, library_specs

_LANGUAGES = {
    ("en", "zh"): "languages: [en, zh]             # of your users; words for people are written english / 中文. [en]: English alone",
    ("en",): "languages: [en]                 # of your users; words for people are in English. [en, zh]: in English and in Chinese",
    ("zh",): "languages: [zh]                 # of your users; words for people are in Chinese. [en, zh]: in English and in Chinese",
}
_HEAD = "Change it to your business, then:  headrace worlds check FILE   and   headrace worlds try FILE"
_PLAIN = re.compile(r"[^\W\d_][^:#{}\[\],&*!|>'\"%@`]*")
"""A text that needs no quotes wherever it stands in a spec."""


def copied_worlds() -> tuple[str, ...]:
    """The library worlds whose spec is a whole world: a copy of the others would lack the wording in the files beside them."""
    return tuple(name for name, path in library_specs().items() if not path.with_suffix("").is_dir())


def new_spec(languages: Sequence[Language], like: str | None = None, file: Path = Path("my.yaml")) -> str:
    """The text of a spec.

    Args:
        languages: of its users; words are written in each.
        like: a library world to copy; None for the starter.
        file: where the text will be; a copy gets its name.

    Raises:
        BadInput: no such library world.
    """
    if like is None:
        text = files("synth.worlds.declarative").joinpath("starter.yaml").read_text(encoding="utf-8")
    else:
        if like not in copied_worlds():
            reason = "has its requests in a file beside its spec" if like in library_specs() else "is no world of the library"
            raise BadInput(f"--like {like}: it {reason}, so it cannot be copied; {nearest(like, copied_worlds())}")
        text = f"# A copy of the world `{like}`. {_HEAD}\n" + library_specs()[like].read_text(encoding="utf-8")
        text = re.sub(r"(?m)^domain: .*$", f"domain: {_domain_of(file, like)}", text, count=1)
    if len(languages) == 1:
        text = _in_one_language(text, languages[0])
    text = re.sub(r"(?m)^languages:.*\n", "", text, count=1)
    line = _LANGUAGES[tuple(each for each in BOTH if each in languages)]
    return re.sub(r"(?m)^(domain: .*)$", lambda domain: f"{domain[1]}\n{line}", text, count=1)


def _domain_of(file: Path, like: str) -> str:
    """A domain named after the file, which no world of Headrace has."""
    name = re.sub(r"[^a-z0-9]+", "_", file.stem.lower()).strip("_")[:30].rstrip("_") or like
    try:
        return f"my_{name}" if is_known(check_key(name)) else name
    except ValueError:
        return f"my_{name}"


def _in_one_language(text: str, language: Language) -> str:
    """The text with one half of all bilingual words, and without measure words if it is in English."""
    if language == "en":
        text = re.sub(r"(?m)^ *measure:.*\n", "", text)
    lines = text.splitlines(keepends=True)
    for event in reversed(list(yaml.parse(text, Loader=TEXT_LOADER))):
        halves = halves_of(event.value) if isinstance(event, yaml.ScalarEvent) else None
        if halves is not None:
            _replace(lines, event.start_mark, event.end_mark, _quoted(halves[language]))
    return "".join(lines)


def _replace(lines: list[str], start: Any, end: Any, value: str) -> None:
    """Puts a value in place of what stands between two marks of the parser."""
    lines[start.line : end.line + 1] = [lines[start.line][: start.column] + value + lines[end.line][end.column :]]


def _quoted(text: str) -> str:
    if _PLAIN.fullmatch(text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

"""Secrets that this process knows, and text without them.

One idea: a secret is known by its value, so it is found wherever it stands: in an error of a server that repeats it, in a log, a journal or
a row. Known are the values of environment variables whose names look like those of secrets and that look random, the logins in URLs of the
environment, and what code declares, such as the secrets of a live world. Also found are their spellings in JSON and in URLs.

A value is found where it stands alone, not within a longer word. Values shorter than eight characters, numbers, paths of files, and words
(`SORT_KEY=order_id`, `OPENAI_API_KEY=not-needed`) are not masked: they are in too much text that is no secret, and rows and their hashes
must not depend on the environment of a machine.
What it does not do: guess whether a text that nothing names as a secret is one.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from storage.outside.safe_text import safe

MASK = "(secret)"
LOGIN = re.compile(r"://[^/\s]*:[^/\s]*@|https?://[^/\s]+@|[?&][^=&\s]*(signature|token|secret|sig)=", re.IGNORECASE)
"""A URL with a password, with a token as user name, or with a signature."""
_NAME = re.compile(r"(KEYS?|TOKENS?|SECRETS?|PASSWORDS?|PASSWD|PASSPHRASE|PASS|PWD|CREDENTIALS?)$", re.IGNORECASE)
_USER = re.compile(r"(://)([^/\s@]+(?:@[^/\s@]+)*)@")
_SIGNATURE = re.compile(r"([?&][^=&\s]*(?:signature|token|secret|sig)=)([^&\s'\"]+)", re.IGNORECASE)
_SHORTEST, _SHORTEST_RANDOM = 8, 12
_PREFIXES = ("sk-", "sk_", "pk_", "rk_", "hf_", "ghp_", "gho_", "ghs_", "github_pat_", "glpat-", "xoxb-", "xoxp-", "gsk_", "nvapi-", "r8_")
"""With which providers let their keys begin."""
_BEFORE = re.compile(r"(?:\A|[^A-Za-z0-9]|\\[bfnrt]|\\u[0-9A-Fa-f]{4}|%[0-9A-Fa-f]{2}|[\[\x9b\ufffd][0-9;]*[A-Za-z])\Z")
"""What may stand before a secret: no letter or digit, save the end of an escape of JSON, of a URL or of a terminal."""
_BEFORE_LENGTH = 16
_declared: set[str] = set()


def is_secret_name(name: str) -> bool:
    """Whether a variable or header of this name holds a secret: a word of it is KEY, TOKEN, PASSWORD or the like."""
    return any(_NAME.search(word) for word in re.split(r"[_-]", name))


def holds_secret(value: str) -> bool:
    """Whether a text holds a known secret or the login of a URL."""
    return LOGIN.search(value) is not None or mask(value) != value


def looks_random(value: str) -> bool:
    """Whether a value may be a secret by its looks: a prefix of keys, or twelve characters and more with letters and digits."""
    if value.startswith(_PREFIXES):
        return len(value) >= _SHORTEST
    has_both = any(map(str.isalpha, value)) and any(map(str.isdigit, value))
    return len(value) >= _SHORTEST_RANDOM and has_both and not _is_number(value) and not _is_path(value)


def declare_secrets(*values: str) -> None:
    """Makes values known as secrets for the rest of the process; not those shorter than eight characters, nor numbers."""
    _declared.update(value for value in values if len(value) >= _SHORTEST and not _is_number(value))


def mask(text: str) -> str:
    """The text with every known secret replaced by `(secret)`."""
    pattern = _known()[1]
    return text if pattern is None else pattern.sub(_mask_alone, text)


def mask_values(value: Any) -> Any:
    """A JSON value with known secrets masked in its texts and keys; numbers stay."""
    pattern = _known()[1]
    return value if pattern is None else _mask_values(value, pattern)


def spellings() -> tuple[str, ...]:
    """All known secrets in all spellings, long ones first: to find the rows of a column that `mask` may change."""
    return _known()[0]


def mask_logins(text: str) -> str:
    """The text with the logins and signatures of its URLs replaced by `(secret)`, also unknown ones."""
    if "://" not in text:
        return text
    return _SIGNATURE.sub(rf"\1{MASK}", _USER.sub(rf"\1{MASK}@", text))


def shown(text: str) -> str:
    """The text as it may be shown and logged: safe characters, no known secrets, no logins of URLs."""
    return mask(mask_logins(safe(text)))


def mask_these(text: str, secrets: Iterable[str]) -> str:
    """The text with each of these secrets, of any length, replaced by `(secret)`, also as JSON writes it."""
    for secret in sorted(secrets, key=len, reverse=True):
        for spelling in _json_spellings(secret):
            text = text.replace(spelling, MASK)
    return text


def split_login(url: str) -> tuple[str, str]:
    """A URL without its login, and the login as `user:password`, decoded; empty if it has none. The login becomes a known secret."""
    found = _USER.search(url)
    if found is None:
        return url, ""
    user, _, password = found[2].partition(":")
    login = f"{unquote(user)}:{unquote(password)}"
    declare_secrets(*_parts_of_login(found[2]))
    return url[: found.start(2)] + url[found.end() :], login


def _mask_alone(found: re.Match[str]) -> str:
    """The mask, or the text that was found if it is a piece of a longer word."""
    text, start, end = found.string, found.start(), found.end()
    begins_word = _is_plain(text[start]) and not _BEFORE.search(text, max(0, start - _BEFORE_LENGTH), start)
    ends_word = end < len(text) and _is_plain(text[end - 1]) and _is_plain(text[end])
    return found[0] if begins_word or ends_word else MASK


def _is_plain(letter: str) -> bool:
    return letter.isascii() and letter.isalnum()


def _mask_values(value: Any, pattern: re.Pattern[str]) -> Any:
    if isinstance(value, str):
        return pattern.sub(_mask_alone, value)
    if isinstance(value, Mapping):
        return {_mask_values(key, pattern): _mask_values(inner, pattern) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_mask_values(inner, pattern) for inner in value]
    return value


def _known() -> tuple[tuple[str, ...], re.Pattern[str] | None]:
    return _find(tuple(os.environ.items()), frozenset(_declared))


@lru_cache(maxsize=2)
def _find(environment: tuple[tuple[str, str], ...], declared: Collection[str]) -> tuple[tuple[str, ...], re.Pattern[str] | None]:
    """All spellings of secrets, long ones first, and a pattern that matches them; None if there are none."""
    values = set(declared) | set(_of_environment(dict(environment)))
    found = {spelling for value in values for spelling in (*_json_spellings(value), quote(value, safe=""))}
    ordered = tuple(sorted(found, key=lambda text: (-len(text), text)))
    return ordered, re.compile("|".join(map(re.escape, ordered))) if ordered else None


def _of_environment(environment: Mapping[str, str]) -> Iterator[str]:
    for name, value in environment.items():
        if is_secret_name(name) and looks_random(value):
            yield value
        if "://" in value:
            logins = (part for login in _USER.finditer(value) for part in _parts_of_login(login[2]))
            of_url = (*logins, *(found[2] for found in _SIGNATURE.finditer(value)))
            yield from (part for part in of_url if len(part) >= _SHORTEST and not _is_number(part))


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


def _is_path(value: str) -> bool:
    """Whether a file of this name is there, or its folder could be."""
    try:
        path = Path(value)
        return path.exists() or (path.is_absolute() and path.parent.is_dir() and len(path.parts) > 2)
    except (OSError, ValueError):
        return False


def _parts_of_login(login: str) -> tuple[str, ...]:
    """What must not be seen of a URL's login: the password, or the user name that is a token; and the header made from both. A password
    that is the user name (`postgres:postgres`) is none."""
    user, colon, password = login.partition(":")
    header = base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()
    hidden = password if colon else user
    return (header,) if password == user else (hidden, unquote(hidden), header)


def _json_spellings(secret: str) -> set[str]:
    return {secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}

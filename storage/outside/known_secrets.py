"""Secrets that this process knows, and text without them.

One idea: a secret is known by its value, so it is found wherever it stands: in an error of a server that repeats it, in a log, a journal or
a row. Known are the values of environment variables whose names look like those of secrets, the logins in URLs of the environment, and what
code declares, such as the key that is sent to a server. Also found are their spellings in JSON and in URLs.

Values shorter than eight characters, numbers, and paths of files are not masked: they are in too much text that is no secret.
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
from urllib.parse import quote, unquote

from storage.outside.safe_text import safe

MASK = "(secret)"
LOGIN = re.compile(r"://[^/\s]*:[^/\s]*@|https?://[^/\s]+@|[?&][^=&\s]*(signature|token|secret|sig)=", re.IGNORECASE)
"""A URL with a password, with a token as user name, or with a signature."""
_NAME = re.compile(r"(KEYS?|TOKENS?|SECRETS?|PASSWORDS?|PASSWD|PASSPHRASE|PASS|PWD|CREDENTIALS?)$", re.IGNORECASE)
_USER = re.compile(r"(://)([^/\s@]+(?:@[^/\s@]+)*)@")
_SIGNATURE = re.compile(r"([?&][^=&\s]*(?:signature|token|secret|sig)=)([^&\s'\"]+)", re.IGNORECASE)
_SHORTEST = 8
_declared: set[str] = set()


def is_secret_name(name: str) -> bool:
    """Whether a variable or header of this name holds a secret: a word of it is KEY, TOKEN, PASSWORD or the like."""
    return any(_NAME.search(word) for word in re.split(r"[_-]", name))


def holds_secret(value: str) -> bool:
    """Whether a text holds a known secret or the login of a URL."""
    return LOGIN.search(value) is not None or mask(value) != value


def declare_secrets(*values: str) -> None:
    """Makes values known as secrets for the rest of the process."""
    _declared.update(value for value in values if len(value) >= _SHORTEST)


def mask(text: str) -> str:
    """The text with every known secret replaced by `(secret)`."""
    pattern = _known()[1]
    return text if pattern is None else pattern.sub(MASK, text)


def spellings() -> tuple[str, ...]:
    """All known secrets in all spellings, long ones first; for columns (`mask` is for text)."""
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
        if is_secret_name(name) and len(value) >= _SHORTEST and not value.isdigit() and not _is_path(value):
            yield value
        if "://" in value:
            for login in _USER.finditer(value):
                yield from (part for part in _parts_of_login(login[2]) if len(part) >= _SHORTEST)
            yield from (found[2] for found in _SIGNATURE.finditer(value) if len(found[2]) >= _SHORTEST)


def _is_path(value: str) -> bool:
    try:
        return Path(value).exists()
    except (OSError, ValueError):
        return False


def _parts_of_login(login: str) -> tuple[str, ...]:
    """What must not be seen of a URL's login: the password, or the user name that is a token; and the header made from both."""
    user, colon, password = login.partition(":")
    header = base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()
    hidden = password if colon else user
    return hidden, unquote(hidden), header


def _json_spellings(secret: str) -> set[str]:
    return {secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}

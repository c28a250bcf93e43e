"""Why a model server gave no answer: quota, rate limit, outage, or a wrong URL, model, key or request.

One idea: the cause decides what happens next. A rate limit is waited for, an outage is tried again later, and a wrong URL, model or key or
a used-up quota stops the caller at once, because every other request would meet it too. The message is one line: what happened, where, and
what to do.

What a server says is cut and cleaned before anything else sees it. Providers use the same status for different causes, so codes and words
of the answer count too. It sends nothing (`http.py`).
"""

from __future__ import annotations

import contextlib
import email.utils
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import aiohttp
import orjson

from storage.errors import HeadraceError
from storage.outside.safe_text import one_line

LONGEST_RETRY_AFTER_S = 600.0
"""A server that asks for a longer wait has a limit per hour or day, which counts as a quota."""
_WORDS_BYTES = 2_000
"""Of a body that is no JSON, from which its words are taken."""
_LATER = frozenset({408, 409, 425})
"""Statuses below 500 that the same request may not meet a second time."""
_MAY_HAVE_COST = frozenset({408, 504})
"""Statuses of a time-out on the way: the model may have answered."""
_QUOTA_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "insufficient_credits"})
_QUOTA = re.compile(r"quota|billing|credits?\b|balance", re.IGNORECASE)
_PER_TIME = re.compile(r"per (second|minute|hour)|(retry|try again) (in|after)|rate.?limit", re.IGNORECASE)
"""Words of a limit that passes by itself; some providers call it a quota too."""
_NO_CREDIT = re.compile(r"credit balance|billing hard limit", re.IGNORECASE)
_MODEL_CODES = frozenset({"model_not_found"})
_RATE_CODES = frozenset({"rate_limit_exceeded"})
_MODEL = re.compile(r"\bmodel\b", re.IGNORECASE)
_NO_MODEL = re.compile(r"not a valid model", re.IGNORECASE)
_FILTERED = re.compile(r"moderation|flagged|content (policy|filter)", re.IGNORECASE)
"""Words of a provider that refuses one text, not the key."""


class Cause(StrEnum):
    """Why a server gave no answer."""

    QUOTA = "quota"
    RATE_LIMIT = "rate limit"
    OUTAGE = "outage"
    URL = "URL"
    MODEL = "model"
    KEY = "key"
    REQUEST = "request"
    LENGTH = "length"


_NOT_SENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError)
"""Errors before anything was sent."""
_TEMPORARY = frozenset({Cause.RATE_LIMIT, Cause.OUTAGE})


@dataclass(frozen=True, slots=True)
class Problem:
    """One attempt without an answer.

    what: for the user, such as `status 503` or `connection refused`.
    status, words: of the server's answer; None and empty without one.
    retry_after_s: seconds after which the server wants the next attempt; None if it did not say.
    is_free: whether the attempt certainly cost nothing: it never reached the server, or the server refused it.
    """

    cause: Cause
    what: str
    status: int | None = None
    words: str = ""
    retry_after_s: float | None = None
    is_free: bool = False

    def __str__(self) -> str:
        return f"{self.what}: {self.words}" if self.words else self.what


class ServerError(HeadraceError):
    """A server gave no answer.

    Args:
        who: what is asked, such as `openai:MODEL`. url: of the request.
        tries: attempts so far.
        setting: where the user set the URL. has_key: whether a key was sent.
    """

    def __init__(self, problem: Problem, *, who: str, url: str, tries: int, setting: str, has_key: bool) -> None:
        what, remedy = _describe(problem, tries, setting, has_key)
        super().__init__(f"{who} at {url}: {what} ({problem}){remedy and f'; {remedy}'}")
        self.problem = problem

    @property
    def is_temporary(self) -> bool:
        """Whether another attempt may succeed."""
        return self.problem.cause in _TEMPORARY

    @property
    def is_permanent(self) -> bool:
        """Whether every other request would meet the same, now and later."""
        return not self.is_temporary and self.problem.cause not in (Cause.REQUEST, Cause.LENGTH)


def _describe(problem: Problem, tries: int, setting: str, has_key: bool) -> tuple[str, str]:
    """What happened, and what to do about it."""
    after = f" after {tries} tries" if tries > 1 else ""
    match problem.cause:
        case Cause.QUOTA if (problem.retry_after_s or 0.0) > LONGEST_RETRY_AFTER_S:
            minutes = f"{(problem.retry_after_s or 0.0) / 60:,.0f} min"
            return f"the limit is reached, for {minutes}", "run the same again after that; all answers are kept"
        case Cause.QUOTA:
            return "the quota is used up", "add credit or raise the limit at the provider, then run the same again; all answers are kept"
        case Cause.RATE_LIMIT:
            return f"too many requests{after}", "lower the key in_flight of the section that names the engine, or run the same again later"
        case Cause.OUTAGE:
            is_reached = problem.status is not None
            remedy = "run the same again later" if is_reached else f"start the server, or correct {setting}"
            return f"no answer{after}", remedy
        case Cause.URL:
            return "no model server answers at this URL", f"correct {setting}, which often ends in /v1"
        case Cause.MODEL:
            return "the model is not served", "correct its name, or serve it there"
        case Cause.KEY:
            remedy = "correct OPENAI_API_KEY, or its rights at the provider"
            return ("the key is refused", remedy) if has_key else ("a key is required", "set OPENAI_API_KEY")
        case Cause.REQUEST:
            return "the request is refused", ""
        case Cause.LENGTH:
            return "the answer is too long, and was not read to its end", ""


def problem_of_answer(status: int, headers: Mapping[str, str], body: bytes, *, has_answered: bool, is_served: bool = False) -> Problem:
    """The problem of an answer that cannot be used.

    has_answered: whether this URL has given a good answer before; then the URL is right, and a strange answer is an outage.
    is_served: whether another path of the same server has; then an error in OpenAI's form is about the request.
    """
    words, codes = _words_and_codes(body)
    is_page = is_web_page(headers, body)
    retry_after_s = _parse_retry_after(headers.get("Retry-After"))
    cause = _cause_of_status(status, words, codes, is_page, retry_after_s)
    if cause is Cause.URL and has_answered:
        cause = Cause.OUTAGE
    elif cause is Cause.URL and is_served and not is_page and 400 <= status < 500:
        cause = Cause.REQUEST
    is_error = status >= 300
    what = f"status {status}" if is_error else "a web page" if is_page else "malformed answer"
    is_free = is_error and status not in _MAY_HAVE_COST
    return Problem(cause, what, status, "a web page" if is_page and is_error else words if is_error else "", retry_after_s, is_free)


def problem_of_length(most_bytes: int) -> Problem:
    """The problem of an answer that is longer than this."""
    return Problem(Cause.LENGTH, f"more than {most_bytes:,} bytes")


def _cause_of_status(status: int, words: str, codes: frozenset[str], is_page: bool, retry_after_s: float | None) -> Cause:
    if status >= 500 or status in _LATER:
        return Cause.OUTAGE
    if status == 402 or codes & _QUOTA_CODES or (status in (400, 403) and _NO_CREDIT.search(words)):
        return Cause.QUOTA
    if status == 429:
        is_long = retry_after_s is not None and retry_after_s > LONGEST_RETRY_AFTER_S
        is_quota = retry_after_s is None and _QUOTA.search(words) and not _PER_TIME.search(words)
        return Cause.QUOTA if is_long or is_quota else Cause.RATE_LIMIT
    if codes & _MODEL_CODES or _NO_MODEL.search(words) or (status == 404 and not is_page and _MODEL.search(words)):
        return Cause.MODEL
    if status in (401, 403):
        is_limit = status == 403 and (codes & _RATE_CODES or _PER_TIME.search(words))
        return Cause.RATE_LIMIT if is_limit else Cause.REQUEST if _FILTERED.search(words) else Cause.KEY
    if is_page or status in (404, 405) or 300 <= status < 400:
        return Cause.URL
    return Cause.REQUEST if status >= 300 else Cause.OUTAGE


def problem_of_connection(error: Exception, timeout_s: float, *, has_answered: bool) -> Problem:
    """The problem of a request that got no whole answer. timeout_s: time limit of an attempt. has_answered: as in `problem_of_answer`."""
    cause, what = _cause_of_connection(error, timeout_s, Cause.OUTAGE if has_answered else Cause.URL)
    return Problem(cause, one_line(what), is_free=isinstance(error, _NOT_SENT))


def _cause_of_connection(error: Exception, timeout_s: float, wrong_url: Cause) -> tuple[Cause, str]:
    match error:
        case aiohttp.ConnectionTimeoutError():
            return Cause.OUTAGE, "time-out while connecting"
        case TimeoutError():
            return Cause.OUTAGE, f"time-out, {timeout_s:g} s"
        case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError():
            return wrong_url, "not a URL"
        case aiohttp.ClientConnectorDNSError():
            return wrong_url, f"host {error.host!r} is unknown"
        case aiohttp.ClientSSLError():
            return wrong_url, f"no TLS connection, {type(error).__name__}"
        case aiohttp.ClientPayloadError():
            return Cause.OUTAGE, "the answer was cut short"
        case OSError(errno=int(number)) if number > 0:
            return Cause.OUTAGE, os.strerror(number).lower()
        case aiohttp.ClientConnectorError():
            return Cause.OUTAGE, "no connection"
        case _:
            return Cause.OUTAGE, f"connection lost, {type(error).__name__}"


def is_web_page(headers: Mapping[str, str], body: bytes) -> bool:
    return "text/html" in headers.get("Content-Type", "").lower() or body.lstrip()[:1] == b"<"


def _parse_retry_after(value: str | None) -> float | None:
    """Seconds, from a header `Retry-After` (seconds or a date), at least 0; None without a usable one."""
    if value is None:
        return None
    with contextlib.suppress(ValueError, OverflowError):
        is_count = value.strip().replace(".", "", 1).isdigit()
        return max(0.0, float(value) if is_count else email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    return None


def _words_and_codes(body: bytes) -> tuple[str, frozenset[str]]:
    """The message of an error in OpenAI's form, else the beginning of the body, as one safe line; and its `code` and `type`."""
    with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
        value = orjson.loads(body)
        error = value.get("error", value)
        if not isinstance(error, dict):
            return one_line(str(error)), frozenset()
        codes = frozenset(str(error[key]) for key in ("code", "type") if error.get(key))
        return one_line(str(error["message"])), codes
    return one_line(body[:_WORDS_BYTES].decode(errors="replace")), frozenset()

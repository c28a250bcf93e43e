"""JSON over HTTP to a model server, with many requests in flight and retries.

One idea: at most `in_flight` requests are open; a request that waits for its next attempt keeps its place, so a busy server gets fewer
requests. Retried are rate limits and outages (`server_errors.py`): too many requests, lost connections, time-outs, incomplete bodies,
malformed answers, the statuses 408, 409, 425 and 5xx. All else is raised at the first attempt.

A server may be hostile: an answer is read piece by piece, and no further than a bound on its bytes after decompression; of the answers that
are long, few are held at once; cookies are not kept; redirects, which could lead into the client's own network, are not followed. A login
in the URL is sent as a header, and shown nowhere.

It knows nothing of chats or embeddings, caches nothing, and counts no money (a `Meter` does).
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import random
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol, TypeVar

import aiohttp
import orjson

from storage.outside.known_secrets import declare_secrets, looks_random, split_login
from synth.engines.server_errors import (
    LONGEST_RETRY_AFTER_S,
    Problem,
    ServerError,
    is_web_page,
    problem_of_answer,
    problem_of_connection,
    problem_of_length,
)

Read = TypeVar("Read")
Result = TypeVar("Result")

_LONGEST_WAIT_S = 60.0
_CONNECT_S = 10.0
MOST_BYTES = 8 << 20
"""Bytes of an answer, after decompression, beyond which it is not read. As Python objects, JSON may take thirty times its bytes."""
_ERROR_BYTES = 64 << 10
"""Of an error."""
_LONG_BYTES, _MOST_LONG = 1 << 20, 8
"""Of the answers that are longer than this, so many are read at once; the others wait."""
_MALFORMED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What a parser raises at an answer that is not as it expects."""


def wait_s(attempt: int, retry_after_s: float | None) -> float:
    """Seconds to wait after an attempt (from 1): what the server asked for, up to ten minutes, else doubling up to a minute; plus up to a
    quarter at random, so that requests that failed together are not repeated together."""
    wait = min(2.0 ** (attempt - 1), _LONGEST_WAIT_S) if retry_after_s is None else min(retry_after_s, LONGEST_RETRY_AFTER_S)
    return wait * (1 + random.random() / 4)


class Background:
    """An event loop in its own thread, for synchronous callers. Close it after use."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Waits for the coroutine's result. Callable from any thread but the loop's."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def close(self) -> None:
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
            self.loop.close()


class Meter(Protocol):
    """Counts the attempts of one request."""

    async def reserve(self) -> None:
        """Called before an attempt. May wait, and may raise to cancel the request."""

    def release(self, problem: Problem) -> None:
        """Called after an attempt without an answer."""


class _TooLong(Exception):
    """An answer is longer than its bound."""


class JsonServer:
    """A client of one server, used within one event loop.

    Args:
        url: base URL of all paths.
        key: sent as a bearer token; None for none.
        in_flight: number of concurrent requests.
        timeout_s: time limit of one attempt, in seconds.
        tries: attempts per request.
        name: what errors call the server, such as `openai:MODEL`.
        setting: where the user set the URL, for errors.
    """

    def __init__(
        self, url: str, key: str | None, *, in_flight: int, timeout_s: float, tries: int, name: str, setting: str = "OPENAI_BASE_URL"
    ) -> None:
        self.counts = Counter[str]()
        self.url, login = split_login(url.rstrip("/"))
        declare_secrets(*filter(looks_random, [key or ""]))
        self._headers = {"Content-Type": "application/json"} | _authorization(key, login)
        self._room, self._tries = asyncio.Semaphore(in_flight), tries
        self._timeout_s = timeout_s
        self._in_flight = in_flight
        self._named: dict[str, Any] = {"who": name, "setting": setting, "has_key": bool(key or login)}
        self._answered: set[str] = set()
        """Paths that have given a good answer."""
        self._long_answers = asyncio.Semaphore(_MOST_LONG)
        self._session: aiohttp.ClientSession | None = None

    async def post(
        self,
        path: str,
        body: bytes,
        read: Callable[[Mapping[str, Any]], Read],
        before: Callable[[], None] | None = None,
        *,
        tries: int | None = None,
        most_bytes: int = MOST_BYTES,
        meter: Meter | None = None,
    ) -> Read:
        """The answer, parsed by `read`. `counts` counts all requests: `sent`, and `again: WHY` for each retry.

        Args:
            read: parses the answer (None if the body is empty); raises ValueError, KeyError, TypeError or the like if it is malformed.
            before: called before each attempt; may raise to cancel the request.
            tries: attempts of this request, instead of the default.
            most_bytes: bound of the answer's bytes after decompression.
            meter: is told of each attempt; None: nothing is counted.

        Raises:
            ServerError: a problem that a retry would not change, or the last one of all attempts.
        """
        most, attempt = tries or self._tries, 1
        async with self._room:
            while True:
                if before is not None:
                    before()
                if meter is not None:
                    await meter.reserve()
                self.counts["sent"] += 1
                try:
                    return await self._attempt("POST", path, body, read, attempt, most_bytes)
                except ServerError as error:
                    if meter is not None:
                        meter.release(error.problem)
                    if attempt == most or not error.is_temporary:
                        raise
                    self.counts[f"again: {error.problem.what}"] += 1
                    await asyncio.sleep(wait_s(attempt, error.problem.retry_after_s))
                    attempt += 1

    async def get(self, path: str) -> Any:
        """The JSON at a path, in one attempt. Raises ServerError."""
        return await self._attempt("GET", path, None, lambda answer: answer, 1, MOST_BYTES)

    async def _attempt(
        self, method: str, path: str, body: bytes | None, read: Callable[[Any], Read], attempt: int, most_bytes: int
    ) -> Read:
        """The answer to one request. attempt: its number, from 1. Raises ServerError."""
        has_answered = path in self._answered
        known = {"has_answered": has_answered, "is_served": bool(self._answered)}

        def error(problem: Problem) -> ServerError:
            return ServerError(problem, url=f"{self.url}/{path}", tries=attempt, **self._named)

        try:
            async with self._open().request(method, f"{self.url}/{path}", data=body, allow_redirects=False) as response:
                data = await self._read_body(response, most_bytes)
        except _TooLong:
            raise error(problem_of_length(most_bytes)) from None
        except (aiohttp.ClientError, OSError, ValueError) as failed:
            raise error(problem_of_connection(failed, self._timeout_s, has_answered=has_answered)) from failed
        if response.status < 300 and not is_web_page(response.headers, data):
            try:
                answer = read(orjson.loads(data or b"null"))
            except _MALFORMED as malformed:
                raise error(problem_of_answer(response.status, response.headers, data, **known)) from malformed
            self._answered.add(path)
            return answer
        raise error(problem_of_answer(response.status, response.headers, data, **known))

    async def _read_body(self, response: aiohttp.ClientResponse, most_bytes: int) -> bytes:
        """The body, decompressed; of an error at most its beginning. Raises _TooLong."""
        data, is_error = bytearray(), response.status >= 300
        async with contextlib.AsyncExitStack() as stack:
            is_long = False
            async for chunk in response.content.iter_any():
                data += chunk
                if is_error and len(data) >= _ERROR_BYTES:
                    return bytes(data[:_ERROR_BYTES])
                if len(data) > most_bytes:
                    raise _TooLong
                if not is_long and len(data) > _LONG_BYTES:
                    is_long = True
                    await stack.enter_async_context(self._long_answers)
        return bytes(data)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=self._in_flight, ttl_dns_cache=300)
            timeout = aiohttp.ClientTimeout(total=self._timeout_s, sock_connect=min(_CONNECT_S, self._timeout_s))
            self._session = aiohttp.ClientSession(
                connector=connector, headers=self._headers, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()
            )
        return self._session


def _authorization(key: str | None, login: str) -> dict[str, str]:
    """The header of a login, else of a key."""
    if login:
        return {"Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"}
    return {"Authorization": f"Bearer {key}"} if key else {}

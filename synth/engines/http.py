"""JSON over HTTP to a model server, with many requests in flight and retries.

One idea: at most `in_flight` requests are open; a request that waits for its next attempt keeps its place, so a busy server gets fewer
requests. Retried are lost connections, time-outs, incomplete bodies, the statuses 408, 409, 425, 429 and 5xx, and malformed answers.

It knows nothing of chats or embeddings, caches nothing, and counts no money.
"""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

import aiohttp
import orjson

from storage.errors import HeadraceError

Read = TypeVar("Read")
Result = TypeVar("Result")

RETRIED = frozenset({408, 409, 425, 429})
"""Statuses below 500 that are retried."""
LONGEST_WAIT_S = 60.0
_CONNECT_S = 10.0
_MAX_REASON_LENGTH = 300


class Refused(HeadraceError):
    """The server refused the request for good. status, reason: of its answer."""

    def __init__(self, url: str, status: int, reason: str) -> None:
        super().__init__(f"{url}: refused (status {status}: {reason})")
        self.status, self.reason = status, reason


class Unanswered(HeadraceError):
    """No answer after all attempts."""


def wait_s(attempt: int, retry_after: str | None) -> float:
    """Seconds to wait after an attempt (from 1): `Retry-After` (seconds or a date), else doubling; at most a minute, plus up to a quarter
    at random, so that requests that failed together are not repeated together."""
    wait = 2.0 ** (attempt - 1)
    if retry_after is not None:
        with contextlib.suppress(ValueError):
            is_count = retry_after.strip().replace(".", "", 1).isdigit()
            wait = float(retry_after) if is_count else email.utils.parsedate_to_datetime(retry_after).timestamp() - time.time()
    return min(max(wait, 0.0), LONGEST_WAIT_S) * (1 + random.random() / 4)


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


class JsonServer:
    """A client of one server, used within one event loop.

    Args:
        url: base URL of all paths.
        key: sent as a bearer token; None for none.
        in_flight: number of concurrent requests.
        timeout_s: time limit of one attempt, in seconds.
        tries: attempts per request.
    """

    def __init__(self, url: str, key: str | None, *, in_flight: int, timeout_s: float, tries: int) -> None:
        self.url, self.counts = url.rstrip("/"), Counter[str]()
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        self._room, self._tries = asyncio.Semaphore(in_flight), tries
        self._timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=min(_CONNECT_S, timeout_s))
        self._in_flight = in_flight
        self._session: aiohttp.ClientSession | None = None

    async def post(
        self,
        path: str,
        body: bytes,
        read: Callable[[Mapping[str, Any]], Read],
        before: Callable[[], None] | None = None,
        *,
        tries: int | None = None,
    ) -> Read:
        """The answer, parsed by `read`. `counts` counts all requests: `sent`, and `again: WHY` for each retry.

        Args:
            read: parses the answer (None if the body is empty); raises ValueError, KeyError, TypeError or IndexError if it is malformed.
            before: called before each attempt; may raise to cancel the request.
            tries: attempts of this request, instead of the default.

        Raises:
            Refused: a status that a retry would not change. Unanswered: all attempts failed.
        """
        most = tries or self._tries
        async with self._room:
            for attempt in range(1, most + 1):
                if before is not None:
                    before()
                problem, details, retry_after = "", "", None
                self.counts["sent"] += 1
                try:
                    async with self._open().post(f"{self.url}/{path}", data=body) as response:
                        data = await response.read()
                    if response.status < 300:
                        return read(orjson.loads(data or b"null"))
                    problem = f"status {response.status}"
                    details = f": {words}" if (words := _error_text(data)) else ""
                    if response.status < 500 and response.status not in RETRIED:
                        raise Refused(self.url, response.status, words)
                    retry_after = response.headers.get("Retry-After")
                except TimeoutError:
                    problem = "time-out"
                except aiohttp.ClientPayloadError:
                    problem = "cut short"
                except (aiohttp.ClientError, OSError) as error:
                    problem = f"no connection ({type(error).__name__})"
                except (ValueError, KeyError, TypeError, IndexError):
                    problem = "malformed answer"
                if attempt < most:
                    self.counts[f"again: {problem}"] += 1
                    await asyncio.sleep(wait_s(attempt, retry_after))
        raise Unanswered(f"{self.url}: no answer after {most} tries ({problem}{details})")

    async def get(self, path: str) -> Any:
        """The JSON at a path, in one attempt.

        Raises:
            Refused: any status but success. Unanswered: no connection, or no JSON.
        """
        try:
            async with self._open().get(f"{self.url}/{path}") as response:
                data = await response.read()
                if response.status >= 300:
                    raise Refused(self.url, response.status, _error_text(data))
                return orjson.loads(data)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise Unanswered(f"{self.url}: no answer ({str(error) or type(error).__name__})") from error

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=self._in_flight, ttl_dns_cache=300)
            self._session = aiohttp.ClientSession(connector=connector, headers=self._headers, timeout=self._timeout)
        return self._session


def _error_text(data: bytes) -> str:
    """The message of an error in OpenAI's form, else the beginning of the body."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        value = orjson.loads(data)
        error = value.get("error", value)
        return str(error["message"] if isinstance(error, dict) else error)[:_MAX_REASON_LENGTH]
    return data[:_MAX_REASON_LENGTH].decode(errors="replace").strip()

"""JSON over HTTP to a model server: many requests in flight, what is worth another try tried again, what is not refused in words.

One idea: whoever asks waits; at most `in_flight` requests are with the server, and one that waits before its next try keeps its place, so
a server that says it is busy is asked less. A request is tried again where its answer may never have come (connection lost, time-out, a
body that ends early), where the server says so (408, 409, 425, 429, 5xx), and where the body is not what was asked for.

It knows nothing of chats or embeddings, keeps no answer, and counts no money.
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
"""Statuses below 500 that are worth another try."""
LONGEST_WAIT_S = 60.0
_CONNECT_S = 10.0
_TOLD = 300


class Refused(HeadraceError):
    """The server has answered, and no other try would help. status: of its answer; reason: in its own words."""

    def __init__(self, url: str, status: int, reason: str) -> None:
        super().__init__(f"{url}: refused (status {status}: {reason})")
        self.status, self.reason = status, reason


class Unanswered(HeadraceError):
    """No answer after all tries."""


def wait_s(attempt: int, retry_after: str | None) -> float:
    """Seconds to wait after a try (counted from 1): what the server asks for (seconds, or a date), else twice as long each time; a minute
    at most, and up to a quarter more, so that those who failed together do not come back together."""
    wait = 2.0 ** (attempt - 1)
    if retry_after is not None:
        with contextlib.suppress(ValueError):
            is_count = retry_after.strip().replace(".", "", 1).isdigit()
            wait = float(retry_after) if is_count else email.utils.parsedate_to_datetime(retry_after).timestamp() - time.time()
    return min(max(wait, 0.0), LONGEST_WAIT_S) * (1 + random.random() / 4)


class Background:
    """An event loop in a thread of its own, for callers that have none, or are inside one already. Close it after use."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """What the coroutine returns, or raises. From any thread but the loop's own."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def close(self) -> None:
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
            self.loop.close()


class JsonServer:
    """One server, from within one event loop.

    Args:
        url: what the paths of requests stand behind. key: sent as a bearer token.
        in_flight: requests that are with the server at once. timeout_s: of one try. tries: of one request.
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
        """What `read` makes of the answer. `read` raises ValueError, KeyError or TypeError where it is not what was asked for; `before`
        is called before each try, when the request's turn has come, and may raise to call it off. tries: of this request, instead of the
        server's.

        `counts` tells of all requests: `sent`, and `again: WHY` for each further try.

        Raises:
            Refused: a status that no other try would change. Unanswered: all tries were in vain.
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
                        said = await response.read()
                    if response.status < 300:
                        return read(orjson.loads(said))
                    problem = f"status {response.status}"
                    details = f": {words}" if (words := _words(said)) else ""
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
        """The JSON at a path, in one try.

        Raises:
            Refused: any status but success. Unanswered: no server, or no JSON.
        """
        try:
            async with self._open().get(f"{self.url}/{path}") as response:
                said = await response.read()
                if response.status >= 300:
                    raise Refused(self.url, response.status, _words(said))
                return orjson.loads(said)
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


def _words(said: bytes) -> str:
    """What an error's body says: the message of OpenAI's form, else its beginning."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        value = orjson.loads(said)
        error = value.get("error", value)
        return str(error["message"] if isinstance(error, dict) else error)[:_TOLD]
    return said[:_TOLD].decode(errors="replace").strip()

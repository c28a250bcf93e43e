"""Cache of the answers of costly tools: each call is made once (definition P11).

A key is the hash of tool, version, arguments in one form (defaults filled in, floats to five places, keys sorted) and scope: the time
bucket of a live source, or the hash of the state of a world. Threads that make the same call at the same time wait for one of them; errors
are kept for a minute; calls of tools that change state bypass the cache. The least recently used answers make room when the bytes run out.
A frozen cache answers from its snapshot alone, and a call that is not in it is an error: so an evaluation always sees the same world.

`run_python` has one a process (`run_python.py`). The shipped worlds compute their answers in microseconds and need none; it is for callers
whose tools cost money or time, as docs/worlds.md shows.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from storage.errors import BadInput, HeadraceError
from storage.files import replace_atomically
from storage.records import JSON, Tool, canonical_json
from synth.worlds.base import Observation

MAX_BYTES = 2 * 2**30
ERROR_TTL_S = 60.0
PLACES = 5
ENTRY_BYTES = 200
"""Size of an entry beside its content."""
LATENCIES = 100_000
"""Latest calls over which the percentiles are taken."""
BUCKET_S: Mapping[str, float] = {"places": 30 * 86_400.0, "timetable": 86_400.0, "weather": 3_600.0, "traffic": 300.0}
"""How long an answer of a live source holds, in seconds (P11)."""
FORMAT = "headrace tool cache 1"


class FrozenMiss(HeadraceError):
    """A frozen cache was asked for an answer that its snapshot does not hold."""


@dataclass(frozen=True, slots=True)
class CacheReport:
    """Counts of calls, and what the cache holds.

    hits: answered from memory, with a kept error too.
    shared: waited for another thread's call.
    misses: calls made.
    bypassed: calls of tools that change state.
    unfrozen: calls that a frozen cache made because `may_call` allowed it.
    p50_ms, p95_ms: latency of all calls but the bypassed ones, answered or made; 0 before the first.
    """

    hits: int
    shared: int
    misses: int
    bypassed: int
    unfrozen: int
    evicted: int
    entries: int
    size_bytes: int
    p50_ms: float
    p95_ms: float

    @property
    def calls_saved(self) -> int:
        return self.hits + self.shared


@dataclass(slots=True)
class _Entry:
    observation: Observation
    expires: float | None

    @property
    def size_bytes(self) -> int:
        return len(self.observation.content.encode("utf-8", errors="surrogatepass")) + ENTRY_BYTES


class ToolCache:
    """Safe for threads. clock: seconds; injected by tests, as is `timer`, which measures latencies."""

    def __init__(
        self,
        *,
        max_bytes: int = MAX_BYTES,
        clock: Callable[[], float] = time.monotonic,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._max_bytes, self._clock, self._timer = max_bytes, clock, timer
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._size_bytes = 0
        self._in_flight: dict[str, Future[Observation]] = {}
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(("hits", "shared", "misses", "bypassed", "unfrozen", "evicted"), 0)
        self._latencies: deque[float] = deque(maxlen=LATENCIES)
        self._is_frozen, self._may_call = False, True

    def call(
        self, tool: Tool, version: int | str, arguments: Mapping[str, JSON], run: Callable[[], Observation], *, scope: str = ""
    ) -> Observation:
        """The answer of `tool` to `arguments`, by `run` if it is not known.

        scope: what else the answer depends on: `time_bucket(...)`, or the hash of a world's state. Empty if nothing.

        Raises:
            FrozenMiss: the cache is frozen and does not know.
            Exception: what `run` raises, in every thread that waited for it; it is not kept.
        """
        if tool.changes_state:
            self._count("bypassed")
            return run()
        began = self._timer()
        try:
            return self._answer(cache_key(tool, version, arguments, scope), tool, arguments, run)
        finally:
            with self._lock:
                self._latencies.append(self._timer() - began)

    def report(self) -> CacheReport:
        with self._lock:
            ordered = sorted(self._latencies)
            return CacheReport(
                **self._counts,
                entries=len(self._entries),
                size_bytes=self._size_bytes,
                p50_ms=_percentile_ms(ordered, 0.50),
                p95_ms=_percentile_ms(ordered, 0.95),
            )

    def save(self, path: Path) -> int:
        """Writes a snapshot of all answers but the errors, whole or not at all; returns how many. Equal answers give equal bytes."""
        with self._lock:
            entries = sorted((key, entry.observation.content) for key, entry in self._entries.items() if entry.expires is None)
        lines = [json.dumps(each) + "\n" for each in ({"format": FORMAT, "entries": len(entries)}, *entries)]
        replace_atomically(path, lambda temporary: temporary.write_text("".join(lines), encoding="ascii"))
        return len(entries)

    @classmethod
    def frozen(cls, path: Path, *, may_call: bool = False) -> ToolCache:
        """The cache of a snapshot, which takes no new answers. may_call: whether a miss makes the call, counted as `unfrozen`.

        Raises:
            BadInput: the file is no snapshot, or not whole.
        """
        cache = cls(max_bytes=1 << 62)
        try:
            lines = path.read_text(encoding="ascii").splitlines()
            header = json.loads(lines[0])
            if header["format"] != FORMAT or header["entries"] != len(lines) - 1:
                raise BadInput(f"{path}: line 1 announces {header.get('entries')} answers of {header['format']!r}, {len(lines) - 1} follow")
            for position, line in enumerate(lines[1:], 2):
                key, content = _pair(json.loads(line), path, position)
                cache._keep(key, Observation(content), None)
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise BadInput(f"{path} is no snapshot of a tool cache: {error}") from error
        cache._is_frozen, cache._may_call = True, may_call
        return cache

    def _answer(self, key: str, tool: Tool, arguments: Mapping[str, JSON], run: Callable[[], Observation]) -> Observation:
        mine: Future[Observation] | None = None
        with self._lock:
            cached = self._look_up(key)
            if cached is not None:
                return cached
            in_flight = self._in_flight.get(key)
            if in_flight is not None:
                self._counts["shared"] += 1
            elif not self._is_frozen:
                mine = self._in_flight[key] = Future()
                self._counts["misses"] += 1
        if in_flight is not None:
            return in_flight.result()
        if mine is not None:
            return self._call_once(key, mine, run)
        if not self._may_call:
            shown = canonical_json(arguments)[:200]
            raise FrozenMiss(f"the frozen cache holds no answer of {tool.name} to {shown}; record it first, or allow the call")
        self._count("unfrozen")
        return run()

    def _call_once(self, key: str, mine: Future[Observation], run: Callable[[], Observation]) -> Observation:
        """Makes the call for all threads that wait for it."""
        try:
            observation = run()
        except BaseException as error:
            with self._lock:
                del self._in_flight[key]
            mine.set_exception(error)
            raise
        with self._lock:
            self._keep(key, observation, self._clock() + ERROR_TTL_S if observation.is_error else None)
            del self._in_flight[key]
        mine.set_result(observation)
        return observation

    def _look_up(self, key: str) -> Observation | None:
        """The kept answer, while it holds. The caller has the lock."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry.expires is not None and self._clock() >= entry.expires:
            self._drop(key)
            return None
        self._entries.move_to_end(key)
        self._counts["hits"] += 1
        return entry.observation

    def _keep(self, key: str, observation: Observation, expires: float | None) -> None:
        """An answer larger than the whole cache is not kept. The caller has the lock."""
        entry = _Entry(observation, expires)
        if entry.size_bytes > self._max_bytes:
            return
        self._entries[key] = entry
        self._size_bytes += entry.size_bytes
        while self._size_bytes > self._max_bytes:
            self._drop(next(iter(self._entries)))
            self._counts["evicted"] += 1

    def _drop(self, key: str) -> None:
        self._size_bytes -= self._entries.pop(key).size_bytes

    def _count(self, event: str) -> None:
        with self._lock:
            self._counts[event] += 1


def cache_key(tool: Tool, version: int | str, arguments: Mapping[str, JSON], scope: str = "") -> str:
    """64 hex digits; equal for calls that cannot differ in their answer."""
    parts = {"tool": tool.id, "version": str(version), "arguments": normalise_arguments(arguments, tool.parameters), "scope": scope}
    return hashlib.sha256(canonical_json(parts).encode("utf-8", errors="surrogatepass")).hexdigest()


def normalise_arguments(value: JSON, schema: Mapping[str, JSON]) -> JSON:
    """`value` in the one form that equal arguments share: the schema's defaults filled in at every level, floats rounded to five places,
    whole ones as integers where the schema says number (where it says integer, 5.0 may be refused and 5 not). Null is a value like any
    other."""
    if isinstance(value, Mapping):
        properties: Mapping[str, JSON] = schema.get("properties") or {}
        filled = {name: each["default"] for name, each in properties.items() if isinstance(each, Mapping) and "default" in each} | dict(
            value
        )
        return {name: normalise_arguments(each, _schema_of(properties.get(name))) for name, each in filled.items()}
    if isinstance(value, list | tuple):
        return [normalise_arguments(each, _schema_of(schema.get("items"))) for each in value]
    if isinstance(value, float):
        rounded = round(value, PLACES)
        return int(rounded) if rounded.is_integer() and "number" in _types(schema) else rounded
    return value


def time_bucket(kind: str, now_s: float) -> str:
    """The scope of a live source's answer at `now_s` (seconds since the epoch): `kind` is a key of BUCKET_S."""
    return f"{kind}:{int(now_s // BUCKET_S[kind])}"


def _types(schema: Mapping[str, JSON]) -> Sequence[str]:
    types = schema.get("type", ())
    return (types,) if isinstance(types, str) else types


def _schema_of(value: JSON) -> Mapping[str, JSON]:
    return value if isinstance(value, Mapping) else {}


def _pair(value: JSON, path: Path, position: int) -> tuple[str, str]:
    if not (isinstance(value, list) and len(value) == 2 and all(isinstance(each, str) for each in value)):
        raise BadInput(f"{path}: line {position} is not a key and an answer")
    return value[0], value[1]


def _percentile_ms(ordered: list[float], share: float) -> float:
    return 1_000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0

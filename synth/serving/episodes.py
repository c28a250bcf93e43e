"""The episodes of a server: each has a world of its own, and no call of one is seen by another.

One idea: an episode is a key, and whoever has the key has the state. An MCP session is a key, and so is a name that a client writes into
its URL. An episode begins with its first call and ends when its session ends, when its client ends it, when no call came for `idle_s`,
or when its world fails; then its world is freed. The name of an ended episode is not used again: a client that comes back is told so,
instead of going on in a fresh world without noticing.

A named episode outlives the sessions of its clients, because some connect anew for every call. When the last of them has left, it gives up
its place to the next episode that finds none.

Calls of one episode are executed in the order in which they arrive. Those that may take long (programs, worlds that are no compiled
specs) are executed in threads, side by side with those of other episodes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import anyio
import anyio.to_thread

from storage.records import JSON, canonical_json
from synth.context.view import ViewedWorld
from synth.serving.call_log import CallLog, LogFailed
from synth.serving.served import Served
from synth.worlds.base import Observation, World

_REMEMBERED = 100_000
"""Ended episodes whose names are remembered."""
_AT_ONCE = 16
"""Threads in which worlds execute calls."""


class EpisodeRefused(Exception):
    """The episode cannot be entered. The message says why and what to do."""


@dataclass(frozen=True)
class EpisodeKey:
    """kind: `session` (an MCP session), `named` (in the URL) or `process` (stdio). The same name of two kinds is two episodes."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


@dataclass
class _Episode:
    key: EpisodeKey
    seed: int
    used_at_s: float
    world: World | ViewedWorld | None = None
    calls: int = 0
    waiting: int = 0
    """Calls that are executed or wait for it."""
    sessions: set[str] = field(default_factory=set)
    """MCP sessions that called in it and are open."""
    is_left: bool = False
    """Whether the last of these ended."""
    turn: anyio.Lock = field(default_factory=anyio.Lock)


class Episodes:
    """Safe for all tasks of one event loop.

    most: episodes that may be open at a time; a further one is refused, an open one never dropped for it.
    idle_s: seconds without a call after which an episode ends; None: never.
    clock: seconds, monotonic.
    """

    def __init__(
        self,
        served: Served,
        log: CallLog | None = None,
        *,
        most: int,
        idle_s: float | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.served, self.most, self.idle_s = served, most, idle_s
        self._log, self._clock = log, clock
        self._offered = frozenset(tool.name for tool in served.tools)
        self._quick = served.quick_tools()
        self._open: dict[EpisodeKey, _Episode] = {}
        self._ended: dict[EpisodeKey, str] = {}
        self._threads = anyio.CapacityLimiter(_AT_ONCE)

    def __len__(self) -> int:
        """Number of open episodes."""
        return len(self._open)

    async def call(
        self, key: EpisodeKey, seed: int | None, tool: str, arguments: Mapping[str, JSON], session: str | None = None
    ) -> Observation:
        """Executes one call in the world of an episode, which begins if it is new.

        seed: the one that the client names; None: that of the open episode, or the server's.
        session: the client's MCP session, if it has one.

        Raises:
            EpisodeRefused: the episode has ended, has another seed, or there are too many.
            LogFailed: the call cannot be logged. If it was executed, the episode has ended.
            Exception: the world failed, which is not the client's fault; the episode has ended.
        """
        episode = await self._enter(key, seed)
        episode.waiting += 1
        episode.is_left = False
        if session is not None:
            episode.sessions.add(session)
        try:
            async with episode.turn:
                if key in self._ended:
                    raise EpisodeRefused(self._ended[key])
                if self._log is not None:
                    self._log.check()
                return await self._execute_or_end(episode, tool, arguments)
        finally:
            episode.waiting -= 1
            episode.used_at_s = self._clock()

    async def _execute_or_end(self, episode: _Episode, tool: str, arguments: Mapping[str, JSON]) -> Observation:
        """Executes a call. If that fails, the state is not what the client believes, so the episode ends."""
        try:
            if tool in self._quick:
                return self._execute(episode, tool, arguments)
            return await anyio.to_thread.run_sync(self._execute, episode, tool, arguments, limiter=self._threads)
        except Exception as error:
            self._forget(episode.key, describe_failure(error))
            with anyio.CancelScope(shield=True):
                await _free(episode)
            raise

    def _execute(self, episode: _Episode, tool: str, arguments: Mapping[str, JSON]) -> Observation:
        episode.calls += 1
        try:
            if episode.world is None:
                episode.world = self.served.open(episode.seed)
            if tool in self._offered:
                observation = episode.world.call(tool, arguments)
            else:
                observation = Observation(canonical_json({"error": "no such tool"}), is_error=True)
        except Exception as error:
            self._write(episode, tool, arguments, None, describe_failure(error))
            raise
        self._write(episode, tool, arguments, observation)
        return observation

    def _write(
        self, episode: _Episode, tool: str, arguments: Mapping[str, JSON], observation: Observation | None, failure: str = ""
    ) -> None:
        if self._log is not None:
            about = {
                "episode": str(episode.key),
                "world": self.served.world.name,
                "seed": episode.seed,
                "task": self.served.task_id or None,
                "call": episode.calls,
            }
            self._log.write(about, tool, arguments, observation, failure)

    async def _enter(self, key: EpisodeKey, seed: int | None) -> _Episode:
        if seed is not None and seed != self.served.seed and (why := self.served.why_one_seed):
            raise EpisodeRefused(f"{why}; leave out `seed`")
        while key not in self._open and len(self._open) >= self.most and await self._make_room():
            pass  # another client may have taken the place meanwhile
        # Nothing is awaited from here on: two calls that begin the same episode, or take the last place, come one after the other.
        if key in self._ended:
            raise EpisodeRefused(self._ended[key])
        episode = self._open.get(key)
        if episode is None:
            if len(self._open) >= self.most:
                raise EpisodeRefused(
                    f"{self.most:,} episodes are open, which is the most; end one, try again later, or start the server with more "
                    "(--episodes)"
                )
            episode = self._open[key] = _Episode(key, self.served.seed if seed is None else seed, self._clock())
        elif seed is not None and seed != episode.seed:
            raise EpisodeRefused(f"episode {key.name!r} has seed {episode.seed}, not {seed}; name another episode for another seed")
        return episode

    async def _make_room(self) -> bool:
        """Ends idle episodes; if that frees no place, the one that all clients left first. Returns whether a place may be free."""
        await self.end_idle()
        left = [each for each in self._open.values() if each.is_left and not each.waiting]
        if len(self._open) >= self.most and left:
            await self.end(min(left, key=lambda each: each.used_at_s).key, "its last session ended, and another episode took its place")
            return True
        return len(self._open) < self.most

    def leave(self, key: EpisodeKey, session: str) -> None:
        """Notes that an MCP session ended that called in an episode, if that episode is open."""
        episode = self._open.get(key)
        if episode is not None and session in episode.sessions:
            episode.sessions.remove(session)
            episode.is_left = not episode.sessions

    async def end(self, key: EpisodeKey, why: str = "its client ended it") -> bool:
        """Ends an episode and frees its world, after the call that is being executed. Returns whether it was open."""
        episode = self._forget(key, why)
        if episode is None:
            return False
        with anyio.CancelScope(shield=True):
            async with episode.turn:
                await _free(episode)
        return True

    def _forget(self, key: EpisodeKey, why: str) -> _Episode | None:
        """Takes an episode from the open ones, and remembers why it ended. None: it is not open."""
        episode = self._open.pop(key, None)
        if episode is not None:
            self._ended[key] = f"episode {key.name!r} has ended: {why}; name another episode, or connect again"
            if len(self._ended) > _REMEMBERED:
                del self._ended[next(iter(self._ended))]
        return episode

    async def end_idle(self) -> None:
        """Ends the episodes without a call for `idle_s`."""
        if self.idle_s is None:
            return
        before_s = self._clock() - self.idle_s
        for key in [key for key, each in self._open.items() if not each.waiting and each.used_at_s <= before_s]:
            await self.end(key, f"no call came for {self.idle_s / 60:g} minutes")

    async def end_all(self) -> None:
        for key in list(self._open):
            await self.end(key, "the server stops")

    async def keep_ending_idle(self) -> None:
        """Calls `end_idle` now and then, until it is cancelled."""
        while self.idle_s is not None:
            await anyio.sleep(min(60.0, self.idle_s / 4))
            await self.end_idle()


async def _free(episode: _Episode) -> None:
    """Closes the world of an episode whose turn the caller has."""
    if (world := episode.world) is not None:
        episode.world = None
        await anyio.to_thread.run_sync(world.close)


def describe_failure(error: Exception) -> str:
    """What failed in a call through no fault of the client."""
    return str(error) if isinstance(error, LogFailed) else f"the world failed, not the call: {type(error).__name__}: {error}"

"""What a live world can be relied on for: measured on copies of the server, never believed.

One idea: one sequence of calls is made again and again, in fresh copies, after a restore, beside another copy; observations and states must
be the same. What is the same says what the world may be used for.

| check | holds if |
|---|---|
| starts | the server starts in its box, lists its tools, and answers |
| same_observations | two fresh copies give the same observations for the same calls, but for what is declared volatile |
| same_state | ... and the same states |
| reads_write_nothing | no tool that says it only reads changes the state, or what others read |
| errors_change_nothing | a call that is an error leaves the state as it was |
| state_is_complete | whatever changes what is read, or what the same call returns next, changes the state |
| nothing_comes_late | a second after the calls, the state is what it was |
| errors_are_marked | results that read like errors are errors, by the server or by `errors` |
| snapshot_is_faithful | after a restore, state and observations are those of the snapshot, and the same calls go on as before |
| copies_are_apart | what one copy does is not seen in another |
| tools_stay | (told only if not) the server announces other tools after some calls, and has them |
| keeps_working | (told only if not) the server fails in the middle of the measurement |
| hang_is_survived, crash_is_survived | a server that is stopped, or killed, is noticed, and another copy works |

Uses: `synthesis` needs the same observations, and copies that are apart and can be set back; `verification` also the checks on state, and
restores; `rl` also a reset within a second.
"""

from __future__ import annotations

import json
import random
import re
import signal
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from storage.errors import BadInput
from storage.records import JSON
from synth.explore.probing import READ_NAMES, ProbeCall, Prober, Run
from synth.explore.tool_list import offered_tools
from synth.worlds.live.copies.copy_errors import ServerFailed
from synth.worlds.live.copies.live_server import LiveServer
from synth.worlds.live.live_files import start_digest
from synth.worlds.live.live_spec import LiveSpec, Restore, Volatile
from synth.worlds.live.live_state import differences
from synth.worlds.live.lock import Check, LiveTool, Lock, Use

Progress = Callable[[str], None]
"""Called with what is tried next."""
LATE_S, HANG_S, RL_MS = 1.0, 0.7, 1000.0
MOST_READS, MOST_WRITES = 14, 14
RESTORES = 5
_VOLATILE = {
    "a time": r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?",
    "a date of JavaScript": r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) \w{3} \d\d \d{4} \d\d:\d\d:\d\d GMT[+-]\d{4}(?: \([^)]*\))?",
    "a UUID": r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
    "a time of day": r"\b\d?\d:\d\d:\d\d(?:\s?[AP]M)?",
    "seconds since 1970": r"\b1[5-9]\d{8}(?:\d{3})?(?:\.\d+)?\b",
    "a random hexadecimal number": r"\b[0-9a-f]{12,64}\b",
}
_ERROR_TEXT = re.compile(
    r"^(?:\w+ )?(?:error|exception|failed|failure|invalid|not found|unknown|no such|cannot|could not|traceback)\b[:.]?", re.I
)


@dataclass
class Measured:
    """spec: with what was found: state, volatile patterns, errors. lock: the rest. notes: for the user."""

    spec: LiveSpec
    lock: Lock
    notes: list[str]

    @property
    def failed(self) -> list[Check]:
        return [check for check in self.lock.checks if check.holds is False]


def measure(spec: LiveSpec, *, seed: int = 0, progress: Progress | None = None) -> Measured:
    """Measures a live world. Takes some ten seconds, and some forty starts of the server; longer if its calls are slow.

    Raises:
        BadInput: the server cannot be started, or has no tool that can be offered.
    """
    return _Measurement(spec, random.Random(seed), progress or (lambda _: None)).run()


class _Measurement(Prober):
    def __init__(self, spec: LiveSpec, rng: random.Random, progress: Progress) -> None:
        super().__init__(spec, rng)
        self.progress = progress
        self.hidden: list[ProbeCall] = []
        self.checks: list[Check] = []
        self.notes: list[str] = []

    def run(self) -> Measured:
        self.progress("starting the server")
        server = self.first_start()
        try:
            raw = server.tools()
            self.tools, self.notes = offered_tools(raw, self.spec)
            hinted = {tool.name for tool in raw if tool.is_read_only}
            self.said_to_write = {
                tool.name for tool in raw if tool.is_read_only is False or (tool.is_destructive and not tool.is_read_only)
            }
            instructions = server.instructions
            self.progress(f"calling its {len(self.tools)} tools")
            first = self.probe(server)
            has_other_tools = server.has_tools_changed and server.tools() != raw
        except ServerFailed as failure:
            raise BadInput(f"{self.spec.live}: {failure}") from None
        finally:
            server.close()
        if self.slow:
            told = ", ".join(f"{name} ({seconds:g} s)" for name, seconds in self.slow.items())
            self.notes.append(f"slow, so it was called once and counts in few checks: {told}")
        if not self.spec.has_way_back:
            self.notes.append("it cannot be set back, so only tools that say that they read (or that `reads` names) were called")
        self._check("starts", True, f"{len(self.tools)} tools, {len(first.calls)} calls tried")
        if has_other_tools:
            self._check("tools_stay", False, "the server has other tools after some calls; name those that stay in `only`")
        self._find_error_texts(first)
        way, reset_ms = self._try(first, hinted)
        uses = self._uses(way, reset_ms)
        tools = tuple(sorted(self.tools, key=lambda tool: tool.name))
        lock = Lock(
            spec=self.spec.id,
            tools=tools,
            instructions=instructions,
            folder=start_digest(self.spec),
            restore=way,
            checks=tuple(self.checks),
            uses=uses,
            reset_ms=round(reset_ms, 1),
            call_ms=round(statistics.median(self.call_ms), 2) if self.call_ms else 0.0,
        )
        return Measured(self.spec, lock, self.notes)

    def _try(self, first: Run, hinted: set[str]) -> tuple[Restore, float]:
        """All checks; where the server fails on the way, that is the last one. Returns the way back, and its milliseconds."""
        way: Restore = "none"
        reset_ms = 0.0
        try:
            first = self.repeat(first.calls)
            self._compare_runs(first)
            effects = self._effects(first)
            contradicted = sorted(name for name in hinted if effects.get(name))
            self._classify(effects, hinted)
            self._check_effects(first, contradicted)
            reads, writes = self._split(first)
            self._check_hidden(reads, writes)
            way, reset_ms = self._check_restores(reads, writes)
            self._check_copies(reads, writes)
            self._check_failures(reads or first.calls[:1])
        except ServerFailed as failure:
            self._check("keeps_working", False, f"it fails in the middle: {str(failure)[:160]}")
        return way, reset_ms

    # ---- observations -----------------------------------------------------------------------------------------------------

    def _find_error_texts(self, run: Run) -> None:
        """Results that read like errors and are not marked: their beginnings become patterns."""
        found: set[str] = set()
        for observation in run.observations:
            value = json.loads(observation.content)
            text = value.get("result") if isinstance(value, dict) else None
            if not observation.is_error and isinstance(text, str) and (match := _ERROR_TEXT.match(text)):
                found.add(f"^{re.escape(match[0])}")
        if found:
            self.spec = self.spec.model_copy(update={"errors": tuple(dict.fromkeys((*self.spec.errors, *sorted(found))))})
        self._check("errors_are_marked", not found, f"told as results: {', '.join(sorted(found)[:3])}; now in `errors`" if found else "")

    def _compare_runs(self, first: Run) -> None:
        self.progress("making the same calls in another copy")
        time.sleep(1.1)
        second = self.repeat(first.calls)
        differing = _differing(first, second)
        if differing:
            self._declare_volatile(first, second, differing)
            first_again, second_again = self.repeat(first.calls), self.repeat(first.calls)
            first.observations, first.changes = first_again.observations, first_again.changes
            second, differing = second_again, _differing(first_again, second_again)
        tools = sorted({first.calls[at][0] for at in differing})
        self._check("same_observations", not differing, f"differ: {', '.join(tools)}" if differing else f"{len(first.calls)} calls")
        unlike = [at for at, (one, other) in enumerate(zip(first.changes, second.changes, strict=True)) if one != other]
        detail = (
            ", ".join([path for path, value in first.changes[unlike[0]].items() if second.changes[unlike[0]].get(path) != value][:3])
            if unlike
            else ""
        )
        self._check("same_state", not unlike, f"after {first.calls[unlike[0]][0]}: {detail}"[:200] if unlike else "")

    def _declare_volatile(self, first: Run, second: Run, differing: Sequence[int]) -> None:
        """Patterns that make the differing observations equal, tool by tool: of the usual ones, each that makes more equal."""
        by_tool: dict[str, list[tuple[str, str]]] = {}
        for at in differing:
            by_tool.setdefault(first.calls[at][0], []).append((first.observations[at].content, second.observations[at].content))
        found: list[Volatile] = []
        for tool, pairs in sorted(by_tool.items()):
            unequal, masks = pairs, list[Volatile]()
            for what, pattern in _VOLATILE.items():
                left = [(one, other) for one, other in unequal if re.sub(pattern, "", one) != re.sub(pattern, "", other)]
                masks += [Volatile(pattern=pattern, tool=tool, shown=f"({what})")] if len(left) < len(unequal) else []
                unequal = left
            found += masks if not unequal else []
        if found:
            self.spec = self.spec.model_copy(update={"volatile": (*self.spec.volatile, *found)})
            self.notes.append(f"{', '.join(each.tool for each in found)}: what differs from call to call is masked (`volatile`)")

    # ---- effects ----------------------------------------------------------------------------------------------------------

    def _effects(self, run: Run) -> dict[str, bool]:
        """Tool -> whether a call that is no error changed the state; without the paths that every call changes, which are logs."""
        changed = [set(changes) for changes in run.changes]
        logs = _logs(changed)
        if logs and self.spec.state:
            self._ignore(logs)
        effects: dict[str, bool] = {}
        for (tool, _), observation, paths in zip(run.calls, run.observations, changed, strict=True):
            if not observation.is_error:
                effects[tool] = effects.get(tool, False) or any(path.split("/")[0] not in logs for path in paths)
        self._effective = {tool for tool, has_effect in effects.items() if has_effect}
        self._changed = [{path for path in paths if path.split("/")[0] not in logs} for paths in changed]
        return effects

    def _ignore(self, logs: set[str]) -> None:
        parts = tuple(part.model_copy(update={"ignore": (*part.ignore, *sorted(logs))}) for part in self.spec.state)
        self.spec = self.spec.model_copy(update={"state": parts})
        self.notes.append(f"{', '.join(sorted(logs))}: every call changes it, so it is a log and no state (`ignore`)")

    def _classify(self, effects: Mapping[str, bool], hinted: set[str]) -> None:
        """Whether each tool changes the state: as the spec says, as execution showed, as its hint says, as its name says. A tool of which
        nothing is known counts as one that does, so that its calls are undone between episodes."""

        def changes(tool: LiveTool) -> bool:
            if tool.name in (*self.spec.reads, *self.spec.writes):
                return tool.name in self.spec.writes
            if effects.get(tool.name) or tool.name in self.said_to_write:
                return True
            return tool.name not in hinted and not READ_NAMES.match(tool.name)

        self.tools = [tool.model_copy(update={"changes_state": changes(tool)}) for tool in self.tools]

    def _check_effects(self, run: Run, contradicted: Sequence[str]) -> None:
        self._check(
            "reads_write_nothing",
            not contradicted,
            f"say that they only read, and write: {', '.join(contradicted)}" if contradicted else "",
        )
        guilty = sorted(
            {
                tool
                for (tool, _), observation, paths in zip(run.calls, run.observations, self._changed, strict=True)
                if observation.is_error and paths
            }
        )
        self._check("errors_change_nothing", not guilty, f"errors of {', '.join(guilty)} change the state" if guilty else "")

    def _split(self, run: Run) -> tuple[list[ProbeCall], list[ProbeCall]]:
        """Reads that worked (at most six a tool), and calls that changed the state, or may have."""
        writers = {tool.name for tool in self.tools if tool.changes_state}
        reads: list[ProbeCall] = []
        writes: list[ProbeCall] = []
        for call, observation in zip(run.calls, run.observations, strict=True):
            if observation.is_error or call[0] in self.slow:
                continue
            if call[0] in writers:
                writes.append(call)
            elif sum(each[0] == call[0] for each in reads) < 6 and call not in reads:
                reads.append(call)
        writes = writes[-MOST_WRITES:]
        return self._with_witnesses(reads, writes), writes

    def _with_witnesses(self, reads: Sequence[ProbeCall], writes: Sequence[ProbeCall]) -> list[ProbeCall]:
        """At most 14 of the reads: those first that show something else after the writes."""
        server = self.copy()
        try:
            before = self.repeat(reads, server)
            self.repeat(writes, server)
            after = self.repeat(reads, server)
        finally:
            server.close()
        showing = _differing(before, after)
        rest = [at for at in range(len(reads)) if at not in showing]
        return [reads[at] for at in (*showing, *rest)][:MOST_READS]

    def _check_hidden(self, reads: list[ProbeCall], writes: list[ProbeCall]) -> None:
        """Effects that the state does not show: reads that change what is read, writes that change only what is read, late ones."""
        self.progress("looking for effects that the state does not show")
        server = self.copy()
        try:
            before, again = self.repeat(reads, server), self.repeat(reads, server)
            unsteady = sorted({reads[at][0] for at in _differing(before, again)})
            hidden: set[str] = set()
            for tool, arguments in self._invisible(writes):
                seen = self.repeat(reads, server)
                told = server.call(tool, json.loads(arguments))
                is_seen = bool(_differing(seen, self.repeat(reads, server)))
                if not told.is_error and (is_seen or server.call(tool, json.loads(arguments)) != told):
                    hidden.add(tool)
                    self.hidden.append((tool, arguments))
            self.repeat(writes, server)
            last = self.state(server)
            time.sleep(LATE_S)
            late = differences(last, self.state(server))
        finally:
            server.close()
        if unsteady:
            at = next(at for at, check in enumerate(self.checks) if check.name == "reads_write_nothing")
            self.checks[at] = Check(name="reads_write_nothing", holds=False, detail=f"reading changes what is read: {', '.join(unsteady)}")
        if not self.spec.state and not self.spec.python and any(tool.changes_state for tool in self.tools):
            detail = "tools change something, and no `state` says what: name files, or calls that read"
        else:
            detail = f"the state does not show what these do: {', '.join(sorted(hidden))}" if hidden else ""
        self._check("state_is_complete", not detail, detail)
        self._check("nothing_comes_late", not late, f"changed a second later: {', '.join(list(late)[:3])}" if late else "")

    def _invisible(self, writes: Sequence[ProbeCall]) -> list[ProbeCall]:
        """One call of each tool that is taken for a writer, although no call of it changed the state."""
        calls = {call[0]: call for call in writes if call[0] not in self._effective}
        return list(calls.values())

    # ---- restoring --------------------------------------------------------------------------------------------------------

    def _check_restores(self, reads: list[ProbeCall], writes: list[ProbeCall]) -> tuple[Restore, float]:
        """The first way back that is faithful, and the median of its milliseconds."""
        self.progress("setting copies back")
        ways: tuple[Restore, ...] = ("live", "restart", "replay")
        if self.spec.is_elsewhere:
            ways = ("replay",) if self.spec.has_way_back else ()
        if self.spec.restore != "measured":
            ways = (self.spec.restore,)
        wrong: list[str] = []
        for way in ways:
            reason, times = self._try_restore(way, reads, writes)
            if not reason:
                others = f"; not by {', '.join(wrong)}" if wrong else ""
                self._check("snapshot_is_faithful", True, way + others)
                return way, statistics.median(times)
            wrong.append(f"{way} ({reason})")
        if not ways or self.spec.is_elsewhere:
            self._check(
                "snapshot_is_faithful", None, "a server elsewhere cannot be set back; let `fixed` or `url` hold {copy} if it has namespaces"
            )
        else:
            self._check("snapshot_is_faithful", False, "; ".join(wrong))
        return "none", 0.0

    def _try_restore(self, way: Restore, reads: list[ProbeCall], writes: list[ProbeCall]) -> tuple[str, list[float]]:
        """Why a way back is not faithful, '' if it is; and the milliseconds of each."""
        times: list[float] = []
        server = self.copy()
        try:
            start = server.snapshot()
            split = len(writes) // 2
            began = time.perf_counter()
            server.restore(start, way)
            times += [1000 * (time.perf_counter() - began)]
            self.repeat(writes[:split], server)
            middle, state = server.snapshot(), self.state(server)
            seen = self.repeat(reads, server)
            on = self.repeat(writes[split:], server)
            for _ in range(RESTORES):
                server.call(*_loaded(writes[-1])) if writes else None
                began = time.perf_counter()
                server.restore(middle, way)
                times.append(1000 * (time.perf_counter() - began))
            if self.state(server) != state:
                return "the state differs", times
            again = self.repeat(reads, server)
            if at := _differing(seen, again):
                return f"{reads[at[0]][0]} shows something else", times
            further = self.repeat(writes[split:], server)
            if at := _differing(on, further):
                return f"{writes[split:][at[0]][0]} goes on otherwise", times
            if on.changes != further.changes:
                return "the same calls lead to another state", times
            if wrong := [tool for tool, arguments in self.hidden if not self._is_undone(server, way, tool, arguments)]:
                return f"{wrong[0]} goes on otherwise", times
            if not writes and way != "live":
                began = time.perf_counter()
                server.restore(start, way, is_forced=True)
                times = [1000 * (time.perf_counter() - began)]
        except ServerFailed as failure:
            return str(failure)[:100], times
        finally:
            server.close()
        return "", times[1:] or times

    def _is_undone(self, server: LiveServer, way: Restore, tool: str, arguments: str) -> bool:
        """Whether a call, whose effect the state does not show, is as if it had not been made after a restore."""
        server.call(tool, json.loads(arguments))
        snapshot = server.snapshot()
        told = server.call(tool, json.loads(arguments))
        server.restore(snapshot, way)
        again = server.call(tool, json.loads(arguments))
        return again == told

    def _check_copies(self, reads: list[ProbeCall], writes: list[ProbeCall]) -> None:
        self.progress("trying two copies side by side, a hang and a crash")
        if self.spec.is_elsewhere and self.checks[-1].holds is None:
            self._check("copies_are_apart", None, "a server elsewhere is one for all")
            return
        first, second = self.copy(), self.copy()
        try:
            seen, state = self.repeat(reads, second), self.state(second)
            self.repeat(writes, first)
            again = self.repeat(reads, second)
            differing = _differing(seen, again)
            is_same = self.state(second) == state
            late = self.copy()
            try:
                fresh = self.repeat(reads, late)
                differing += _differing(seen, fresh)
                is_same &= self.state(late) == state
            finally:
                late.close()
        finally:
            first.close()
            second.close()
        detail = f"{reads[differing[0]][0]} shows what another copy did" if differing else "the state shows what another copy did"
        self._check("copies_are_apart", not differing and is_same, "" if not differing and is_same else detail)

    def _check_failures(self, calls: Sequence[ProbeCall]) -> None:
        if self.spec.is_elsewhere or not calls:
            self._check("hang_is_survived", None, "a server elsewhere is not ours to stop" if self.spec.is_elsewhere else "no call works")
            self._check("crash_is_survived", None, "")
            return
        for name, number, kind in (("hang_is_survived", signal.SIGSTOP, "ServerHung"), ("crash_is_survived", signal.SIGKILL, "ServerDied")):
            server = self.copy()
            try:
                server.set_call_time(HANG_S)
                server.signal(number)
                told = ""
                try:
                    server.call(*_loaded(calls[0]))
                except ServerFailed as failure:
                    told = type(failure).__name__
            finally:
                server.close()
            works = self.repeat(calls[:1]).observations
            self._check(name, told == kind and bool(works), "" if told == kind else f"it was told as {told or 'an answer'}")

    # ---- the report -------------------------------------------------------------------------------------------------------

    def _check(self, name: str, holds: bool | None, detail: str = "") -> None:
        self.checks.append(Check(name=name, holds=holds, detail=detail))

    def _uses(self, way: Restore, reset_ms: float) -> tuple[Use, ...]:
        survival = ("hang_is_survived", "crash_is_survived")
        held = {check.name: bool(check.holds) or (check.name in survival and check.holds is None) for check in self.checks}

        def hold(*names: str) -> bool:
            return all(held.get(name, False) for name in names) and held.get("keeps_working", True) and held.get("tools_stay", True)

        uses: list[Use] = []
        if hold("starts", "same_observations", "copies_are_apart", "hang_is_survived", "crash_is_survived") and way != "none":
            uses.append("synthesis")
            if hold("same_state", "reads_write_nothing", "state_is_complete", "nothing_comes_late", "snapshot_is_faithful"):
                uses.append("verification")
                if reset_ms <= RL_MS:
                    uses.append("rl")
        return tuple(uses)


# ---- parts -----------------------------------------------------------------------------------------------------------------


def _differing(first: Run, second: Run) -> list[int]:
    return [at for at, (one, other) in enumerate(zip(first.observations, second.observations, strict=True)) if one != other]


def _logs(changed: Sequence[set[str]]) -> set[str]:
    """Top-level paths that (nearly) every call changes."""
    tops = [{path.split("/")[0] for path in paths} for paths in changed]
    names = set().union(*tops) if tops else set()
    return {name for name in names if len(tops) >= 5 and sum(name in each for each in tops) >= 0.95 * len(tops)}


def _loaded(call: ProbeCall) -> tuple[str, dict[str, JSON]]:
    return call[0], json.loads(call[1])

"""Calls of all tools of a live world, as `conformance.py` needs them: some that work, some that change something, some that are errors.

One idea: nothing is known of the tools but their schemas, so values come from the state and from earlier results, the reads go first, and a
tool that may write is called until it has done something.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from storage.errors import BadInput
from storage.records import JSON
from synth.explore.call_proposals import Proposal, Proposer
from synth.explore.sql import tables_of
from synth.explore.value_records import Records, match
from synth.worlds.base import Observation
from synth.worlds.live.copies.copy_errors import ServerFailed
from synth.worlds.live.copies.live_server import LiveServer
from synth.worlds.live.live_spec import DATA, LiveSpec, StatePart
from synth.worlds.live.live_state import differences
from synth.worlds.live.lock import LiveTool
from synth.worlds.live.loose_json import parse_loosely
from synth.worlds.live.plans import fill

PER_TOOL, MOST_CALLS = 3, 80
WRITE_TRIES, WITNESSES, MOST_CHOICES, SLOW_S = 30, 2, 6, 2.0
READ_NAMES = re.compile(
    r"^(?:get|list|read|search|find|show|describe|query|fetch|look|count|calculate|git_(?:status|log|diff|show|branch))(?![a-z])", re.I
)
_NO_NETWORK = ("getaddrinfo", "ENOTFOUND", "EAI_AGAIN", "Name or service", "name resolution", "ENETUNREACH", "Network is unreachable")
ProbeCall = tuple[str, str]
"""Tool, and arguments as JSON text."""


@dataclass
class Run:
    """Calls with what they returned, and what each changed. state: the last one."""

    calls: list[ProbeCall] = field(default_factory=list)
    observations: list[Observation] = field(default_factory=list)
    changes: list[dict[str, JSON]] = field(default_factory=list)
    state: dict[str, JSON] = field(default_factory=dict)


class Prober:
    """Makes calls in copies of a server, and keeps what they returned and changed.

    spec: of the server; its state is guessed where it says none. call_ms: how long each call took. tools: set before anything is called.
    slow: tools of which a call took longer than two seconds, with the seconds: called once, and in no sequence that is repeated often.
    """

    def __init__(self, spec: LiveSpec, rng: random.Random) -> None:
        self.spec, self.rng = spec, rng
        self.tools: list[LiveTool] = []
        self.call_ms: list[float] = []
        self.slow: dict[str, float] = {}

    def first_start(self) -> LiveServer:
        try:
            return LiveServer(self.spec)
        except ServerFailed as failure:
            text = str(failure)
            needs_network = any(word in text for word in _NO_NETWORK)
            hint = ". It needs the network, which its box has not: install it first, or allow it with --network" if needs_network else ""
            raise BadInput(f"{self.spec.live}: the server cannot be used: {text}{hint}") from None

    def copy(self) -> LiveServer:
        return LiveServer(self.spec)

    def probe(self, server: LiveServer) -> Run:
        """Calls of all tools with values from the state and from results, the reads first."""
        state = self.state(server)
        if not self.spec.state and not self.spec.is_remote and not self.spec.python:
            self.spec = self.spec.model_copy(update={"state": guess_state(list(server.contents()), server)})
            server.spec = self.spec
            state = self.state(server)
        records = Records()
        records.add(state)
        for path in server.contents() if not self.spec.is_remote else ():
            records.add_value("path", f"{DATA}/{path}")
        proposer = Proposer(records, tables_of(state) if any(part.sqlite for part in self.spec.state) else {}, self.rng)
        run = Run(state=state)
        tools = self.tools if self.spec.has_way_back else [tool for tool in self.tools if not tool.changes_state]
        ordered = sorted(tools, key=lambda tool: (tool.changes_state and not READ_NAMES.match(tool.name), tool.name))
        for round_ in range(PER_TOOL):
            for tool in ordered:
                is_writer = tool.changes_state and not READ_NAMES.match(tool.name)
                proposal = proposer.propose(tool, is_writer=is_writer)
                if proposal is None or len(run.calls) >= MOST_CALLS or tool.name in self.slow:
                    continue
                arguments = _arguments(proposal)
                observation = self.call(server, tool.name, arguments, run)
                if not observation.is_error:
                    records.add(parse_loosely(json.loads(observation.content)), at=f"{tool.name}{round_}")
        self._probe_choices(server, [tool for tool in ordered if not tool.changes_state or READ_NAMES.match(tool.name)], run)
        self._probe_writes(server, [tool for tool in ordered if tool.changes_state], proposer, run)
        for tool in [tool for tool in ordered if tool.name not in self.slow][:20] if self.spec.has_way_back else ():
            for wrong in _wrong_arguments(tool, run):
                self.call(server, tool.name, wrong, run)
        return run

    def _probe_choices(self, server: LiveServer, readers: Sequence[LiveTool], run: Run) -> None:
        """Calls of the reads with the choices of their parameters that were not tried: another choice may be another observation."""
        for tool in readers:
            made = [json.loads(arguments) for name, arguments in run.calls if name == tool.name]
            for name, schema in tool.parameters["properties"].items() if made and tool.name not in self.slow else ():
                for choice in (schema.get("enum") or ())[:MOST_CHOICES]:
                    if len(run.calls) < MOST_CALLS and all(arguments.get(name) != choice for arguments in made):
                        self.call(server, tool.name, {**made[0], name: choice}, run)

    def _probe_writes(self, server: LiveServer, writers: Sequence[LiveTool], proposer: Proposer, run: Run) -> None:
        """More calls of the tools that may write, until each has done something; after it, reads that may show it. What failed on the way
        is not kept."""
        readers = [tool for tool in self.tools if tool not in writers or READ_NAMES.match(tool.name)]
        for tool in writers:
            if READ_NAMES.match(tool.name):
                continue
            for _ in range(WRITE_TRIES):
                proposal = proposer.propose(tool, is_writer=True) if tool.name not in self.slow else None
                if proposal is None:
                    break
                tried = Run(state=run.state)
                is_error = self.call(server, tool.name, _arguments(proposal), tried).is_error
                run.state = tried.state
                if is_error:
                    continue
                run.calls += tried.calls
                run.observations += tried.observations
                run.changes += tried.changes
                for reader, arguments in _witnesses(readers, _arguments(proposal)):
                    self.call(server, reader, arguments, run)
                break

    def call(self, server: LiveServer, tool: str, arguments: Mapping[str, JSON], run: Run) -> Observation:
        began = time.perf_counter()
        observation = server.call(tool, arguments)
        took = time.perf_counter() - began
        self.call_ms.append(1000 * took)
        if took > SLOW_S:
            self.slow[tool] = round(took, 1)
        run.calls.append((tool, json.dumps(arguments)))
        run.observations.append(observation)
        state = self.state(server)
        run.changes.append(differences(run.state, state))
        run.state = state
        return observation

    def state(self, server: LiveServer) -> dict[str, JSON]:
        return server.state()

    def repeat(self, calls: Sequence[ProbeCall], server: LiveServer | None = None) -> Run:
        """The calls in a fresh copy, or in this one."""
        used = server or self.copy()
        run = Run()
        try:
            run.state = self.state(used)
            for tool, arguments in calls:
                self.call(used, tool, json.loads(arguments), run)
        finally:
            if server is None:
                used.close()
        return run


# ---- parts -----------------------------------------------------------------------------------------------------------------


def guess_state(paths: Sequence[str], server: LiveServer) -> tuple[StatePart, ...]:
    """What is state, from the files of the private folder: databases, JSON, JSON Lines, else all files; none if there are none."""
    contents = server.contents()
    parts: list[StatePart] = []
    others = []
    for path in paths:
        data = contents[path].data
        if data is None:
            continue
        if data.startswith(b"SQLite format 3\0"):
            parts.append(StatePart(sqlite=path))
        elif path.endswith(".jsonl"):
            parts.append(StatePart(jsonl=path))
        elif path.endswith(".json") and len(data) > 2:
            parts.append(StatePart.model_validate({"json": path}))
        elif not path.endswith(("-wal", "-shm", "-journal")):
            others.append(path)
    if not parts or others:
        ignore = tuple(part.sqlite or part.jsonl or part.json_file or "" for part in parts)
        parts.append(StatePart(files="**", ignore=(*ignore, *((".git",) if any(path.startswith(".git/") for path in paths) else ()))))
    return tuple(parts)


def _wrong_arguments(tool: LiveTool, run: Run) -> list[dict[str, JSON]]:
    """Arguments of the right types that name nothing; and those of a call that worked, with one that names nothing in each."""
    wrong = _all_wrong(tool)
    if wrong is None:
        return []
    worked: dict[str, JSON] = next(
        (json.loads(call[1]) for call, seen in zip(run.calls, run.observations, strict=True) if call[0] == tool.name and not seen.is_error),
        {},
    )
    half_wrong = [{**worked, name: wrong[name]} for name in worked if len(worked) > 1 and isinstance(wrong.get(name), str)]
    return [wrong, *half_wrong[:3]]


def _all_wrong(tool: LiveTool) -> dict[str, JSON] | None:
    wrong: dict[str, JSON] = {}
    for name in tool.parameters.get("required") or ():
        schema = tool.parameters["properties"].get(name, {})
        kind = schema.get("type")
        if schema.get("enum"):
            wrong[name] = schema["enum"][0]
        elif kind == "string":
            wrong[name] = "no-such-thing-42"
        elif kind in ("integer", "number"):
            wrong[name] = schema.get("maximum", 987_654)
        elif kind == "boolean":
            wrong[name] = True
        elif kind == "array" and (schema.get("items") or {}).get("type") == "string":
            wrong[name] = ["no-such-thing-42"]
        else:
            return None
    return wrong or None


def _arguments(proposal: Proposal) -> dict[str, JSON]:
    return {name: fill(source, proposal.slots, []) for name, source in proposal.call.arguments.items()}


def _witnesses(readers: Sequence[LiveTool], arguments: Mapping[str, JSON]) -> list[tuple[str, dict[str, JSON]]]:
    """Reads whose required arguments are among those of a write, or can be taken from them."""
    values = dict(_scalars(arguments))
    found: list[tuple[str, dict[str, JSON]]] = []
    for tool in readers:
        taken: dict[str, JSON] = {}
        for name in tool.parameters.get("required") or ():
            near = [value for other, value in values.items() if match(name, other) >= 0.7]
            is_list = tool.parameters["properties"].get(name, {}).get("type") == "array"
            if near:
                taken[name] = [near[0]] if is_list else near[0]
        if len(taken) == len(tool.parameters.get("required") or ()):
            found.append((tool.name, taken))
    return found[: 2 * WITNESSES]


def _scalars(value: JSON, name: str = "") -> Iterator[tuple[str, JSON]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _scalars(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from _scalars(inner, name)
    elif isinstance(value, str | int | float):
        yield name, value

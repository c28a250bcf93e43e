"""Figures of compiled domains: how many are admitted and how unlike they are, how fast they compile and answer, what a fork costs.

One idea: domains are tried by seed, in order, as `gen-0`, `gen-1` ...; what is refused is counted by reason, and everything after is
measured on those that were admitted and on the eight that Headrace ships. `replay_figures` makes random sequences of calls over every
kind of world and has another process make them again from their log (`python -m benchmarks.worlds_sections.domains FILE` prints the state
hashes).
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT
from storage.records import CODE_TOOL, JSON, Frame, Tool, canonical_json
from synth.tasks.solver import NotAdmitted, admit, training_seed
from synth.tasks.wording import render
from synth.worlds import WORLDS, make_world
from synth.worlds.base import World
from synth.worlds.declarative.compile import compile_spec
from synth.worlds.declarative.compiled_world import SpecWorld
from synth.worlds.declarative.generate import generate
from synth.worlds.declarative.language.problems import SpecError
from synth.worlds.declarative.library_worlds import library_specs
from synth.writing.shapes import shape_of

DOMAINS, MOST_TRIED = 2_000, 3_000
TASKS_PER_DOMAIN = 5
MIXED_DOMAINS, CALLS_PER_TOOL = 12, 60
FORKS = 1_000
SEQUENCES, TURNS, REPLAYED_DOMAINS = 1_000, 12, 50
_OPTIONAL_SHARE = 0.35

Figures = dict[str, float]


# ---- domains --------------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Tried:
    """names: of the admitted worlds. refused: why the others were not, counted. compile_s: of every one that was admitted."""

    names: list[str] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    compile_s: list[float] = field(default_factory=list)


def try_domains(wanted: int = DOMAINS, most: int = MOST_TRIED, visit: Callable[[type[SpecWorld]], object] = lambda world: None) -> Tried:
    """Generates, compiles and admits domains by seed until `wanted` are admitted or `most` were tried; `visit` sees each that is."""
    tried = Tried()
    for seed in range(most):
        if len(tried.names) == wanted:
            break
        spec = generate(seed)
        begun = time.process_time()
        try:
            world = compile_spec(spec, name=f"gen-{seed}")
        except SpecError as error:
            tried.refused[_kind_of(error.problems[0].text)] += 1
            continue
        tried.compile_s.append(time.process_time() - begun)
        tried.names.append(world.name)
        visit(world)
    return tried


def _kind_of(problem: str) -> str:
    """The first words of a problem, without what is particular to one domain."""
    return re.split(r"[(:;,'\"]", problem)[0].strip()


def domain_figures(wanted: int = DOMAINS) -> Figures:
    """Prints the reasons of refused domains and tasks."""
    shapes, tools, tasks = set[str](), 0, draw_tasks(tuple(library_specs()), TASKS_PER_DOMAIN)

    def visit(world: type[SpecWorld]) -> None:
        nonlocal tools
        shapes.add(shape_of(world))
        tools += len(world.callees)
        tasks.update(draw_tasks([world.name], TASKS_PER_DOMAIN))

    tried = try_domains(wanted, visit=visit)
    for what, reasons in (("domains", tried.refused), ("tasks", tasks)):
        print(f"    {what} refused: " + (", ".join(f"{reason} {count}" for reason, count in reasons.most_common() if reason) or "none"))
    drawn = sum(tasks.values())
    times = sorted(tried.compile_s)
    return {
        "domains_tried": len(tried.names) + sum(tried.refused.values()),
        "domains_admitted": len(tried.names),
        "domains_distinct_shape": len(shapes),
        "tools_total": tools,
        "tasks_drawn": drawn,
        "tasks_solvable_share": tasks[""] / drawn,
        "compile_ms": 1000 * statistics.median(times),
        "compile_p95_ms": 1000 * times[int(0.95 * len(times))],
    }


def draw_tasks(names: Sequence[str], per_domain: int) -> Counter[str]:
    """Tasks drawn in each world as drills are (any intent, its optional slots now and then, a training seed), and why some were refused:
    counted by reason, the admitted ones under the empty one."""
    found: Counter[str] = Counter()
    for name in names:
        rng = random.Random(f"tasks/{name}")
        intents = WORLDS[name].jobs()
        for _ in range(per_domain):
            intent = rng.choice(intents)
            slot_names = frozenset(slot.name for slot in intent.slots if slot.is_required or rng.random() < _OPTIONAL_SHARE)
            seed = training_seed(rng.randrange(2**20))
            frame = Frame(world=name, intent=intent.name, slots=make_world(name, seed).draw_slots(intent.name, slot_names, rng))
            language = rng.choice(("en", "zh"))
            try:
                admit(
                    WORLDS[frame.world],
                    frame,
                    text=render(WORLDS[frame.world], frame, language, rng),
                    language=language,
                    seed=seed,
                    division="seed",
                )
            except NotAdmitted as refused:
                found[refused.reason] += 1
            else:
                found[""] += 1
    return found


# ---- calls ----------------------------------------------------------------------------------------------------------------------


Call = tuple[str, dict[str, JSON]]
"""Tool and arguments."""


def random_call(world: World, rng: random.Random) -> Call:
    """A call that passes the check of arguments as a rule; business rules and conditions may refuse it."""
    tool = rng.choice([tool for tool in world.tools if tool.name != CODE_TOOL])
    properties: Mapping[str, Mapping[str, Any]] = tool.parameters["properties"]
    needed = tool.parameters["required"]
    given = [name for name in properties if name in needed or rng.random() < _OPTIONAL_SHARE]
    return tool.name, {name: _value(world, tool, name, properties[name], rng) for name in given}


def _value(world: World, tool: Tool, name: str, schema: Mapping[str, Any], rng: random.Random) -> Any:
    if not isinstance(world, SpecWorld):
        from benchmarks.worlds_sections.world_calls import _value as value_of_ours

        return value_of_ours(tool, name, schema, rng)
    if "enum" in schema:
        return rng.choice(schema["enum"])
    if schema["type"] == "boolean":
        return rng.random() < 0.5
    if schema["type"] == "integer":
        return rng.randint(schema["minimum"], schema["maximum"])
    if schema["type"] == "number":
        return round(rng.uniform(max(schema["minimum"], 0), min(schema["maximum"], 500)), 1)
    if schema.get("format") == "date":
        return world.domain.iso(rng.randrange(40))
    pattern = schema.get("pattern", "")
    for entity in world.domain.by_number:
        if pattern == f"^{entity.pattern}$":
            return rng.choice(entity.ids)
    if pattern:
        return f"{rng.randrange(6, 20):02d}:{rng.choice(('00', '30'))}"
    return rng.choice(sorted(world.known_names()) or ["nobody"])


def call_figures(names: Sequence[str] | None = None) -> Figures:
    """Calls a second on one core, over a mix of all tools of several domains: every call for the first time, what acts change is put
    back. Only the tables of a seed are there before, as in a world that somebody works in."""
    mixed = names or [*library_specs(), *(f"gen-{seed}" for seed in range(MIXED_DOMAINS))]
    rng = random.Random(1)
    worlds = {(name, seed): make_world(name, seed) for name in mixed for seed in range(4)}
    starts = {key: world.snapshot() for key, world in worlds.items()}
    calls: list[tuple[tuple[str, int], Call]] = []
    for name in mixed:
        for _ in range(CALLS_PER_TOOL * len(WORLDS[name].tools)):
            key = (name, rng.randrange(4))
            calls.append((key, random_call(worlds[key], rng)))
    rng.shuffle(calls)
    for world in worlds.values():  # tables of a seed are made when they are first looked at; that is not part of a call
        world.state()
    begun = time.process_time()
    for key, (tool, arguments) in calls:
        world = worlds[key]
        world.call(tool, arguments)
        world.restore(starts[key])
    return {"spec_calls_per_s": len(calls) / (time.process_time() - begun)}


def fork_figures(name: str = "banking", forks: int = FORKS) -> Figures:
    """What a snapshot and its restoring take on a world that acts have changed, and the bytes of a branch that changes one row."""
    world = make_world(name, 0)
    rng = random.Random(2)
    for _ in range(200):
        world.call(*random_call(world, rng))
    begun = time.perf_counter()
    for _ in range(forks):
        world.restore(world.snapshot())
    restore_ms = 1000 * (time.perf_counter() - begun) / forks
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        trunk = make_world(name, 123_456)
        trunk.state()
        gc.collect()
        state_bytes = tracemalloc.get_traced_memory()[0] - before
        act, rows = _act_on_one_row(trunk)
        start = trunk.snapshot()
        before = tracemalloc.get_traced_memory()[0]
        branches = [_branch(trunk, start, act, rows[number % len(rows)]) for number in range(forks)]
        gc.collect()
        branch_bytes = (tracemalloc.get_traced_memory()[0] - before) / len(branches)
    finally:
        tracemalloc.stop()
    return {"snapshot_restore_ms": restore_ms, "fork_bytes_share": branch_bytes / state_bytes}


def _branch(trunk: World, start: object, act: str, arguments: Mapping[str, JSON]) -> tuple[World, object]:
    """A world of its own from a snapshot of the trunk, one act further, and its snapshot."""
    fork = make_world(trunk.name, 123_456)
    fork.restore(start)
    if fork.call(act, arguments).is_error:
        raise ValueError(f"{trunk.name}: {act} is not possible with {dict(arguments)}")
    return fork, fork.snapshot()


def _act_on_one_row(world: World) -> tuple[str, list[dict[str, JSON]]]:
    """An act that changes one row, and arguments with which it is possible: what most rows allow."""
    assert isinstance(world, SpecWorld)
    start, found = world.snapshot(), dict[str, list[dict[str, JSON]]]()
    for act in world.domain.acts.values():
        if act.on is None or len(act.params) > 1 or len(act.settings) != 1:
            continue
        for key in act.on.ids:
            arguments: dict[str, JSON] = {next(iter(act.params)): key}
            if not world.call(act.name, arguments).is_error:
                found.setdefault(act.name, []).append(arguments)
            world.restore(start)
    name = max(found, key=lambda each: len(found[each]))
    return name, found[name]


# ---- replay ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Log:
    """A sequence of calls in a fresh world; a fork left it before turn `forked_at` and made calls of its own."""

    world: str
    seed: int
    calls: tuple[Call, ...]
    forked_at: int
    fork_calls: tuple[Call, ...]


def draw_logs(names: Sequence[str], count: int, turns: int = TURNS, seed: int = 0) -> list[Log]:
    """Random sequences, evenly over the worlds."""
    logs = []
    for number in range(count):
        rng = random.Random(f"log/{seed}/{number}")
        name, world_seed = names[number % len(names)], rng.randrange(2**20)
        world = make_world(name, world_seed)
        calls = [random_call(world, rng) for _ in range(2 * turns)]
        logs.append(Log(name, world_seed, tuple(calls[:turns]), rng.randrange(turns), tuple(calls[turns:])))
    return logs


def run_log(log: Log) -> tuple[str, str]:
    """State hashes of the trunk and of the fork at their ends, both alive at once, their calls in turns."""
    trunk, fork = make_world(log.world, log.seed), make_world(log.world, log.seed)
    for call in log.calls[: log.forked_at]:
        trunk.call(*call)
    fork.restore(trunk.snapshot())
    rest = log.calls[log.forked_at :]
    for turn in range(max(len(rest), len(log.fork_calls))):
        if turn < len(log.fork_calls):
            fork.call(*log.fork_calls[turn])
        if turn < len(rest):
            trunk.call(*rest[turn])
    return state_hash(trunk), state_hash(fork)


def run_apart(log: Log) -> tuple[str, str]:
    """The same two ends, each in a world that never was forked."""
    ends = []
    for calls in (log.calls, (*log.calls[: log.forked_at], *log.fork_calls)):
        world = make_world(log.world, log.seed)
        for call in calls:
            world.call(*call)
        ends.append(state_hash(world))
    return ends[0], ends[1]


def state_hash(world: World) -> str:
    return hashlib.sha256(canonical_json([world.state(), world.changes()]).encode()).hexdigest()


def replay_elsewhere(logs: Sequence[Log]) -> list[tuple[str, str]]:
    """`run_apart` of logs in a fresh process with another hash seed."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "logs.json"
        rows = [[log.world, log.seed, log.calls, log.forked_at, log.fork_calls] for log in logs]
        file.write_text(json.dumps(rows, ensure_ascii=False), encoding="utf-8")
        environment = {**os.environ, "PYTHONHASHSEED": "4711"}
        command = [sys.executable, "-m", "benchmarks.worlds_sections.domains", str(file)]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return [(pair[0], pair[1]) for pair in json.loads(done.stdout)]


def replay_figures(count: int = SEQUENCES, generated: int = REPLAYED_DOMAINS) -> Figures:
    """How many of the sequences end elsewhere in another process, or touch the trunk that they left."""
    names = ["city", *library_specs(), *(f"gen-{seed}" for seed in range(generated))]
    logs = draw_logs(names, count)
    here = [run_log(log) for log in logs]
    there = replay_elsewhere(logs)
    return {"replay_sequences": len(logs), "replay_mismatches": sum(ours != theirs for ours, theirs in zip(here, there, strict=True))}


def _read(file: Path) -> list[Log]:
    rows = json.loads(file.read_text(encoding="utf-8"))
    return [
        Log(world, seed, tuple((tool, given) for tool, given in calls), at, tuple((tool, given) for tool, given in fork_calls))
        for world, seed, calls, at, fork_calls in rows
    ]


if __name__ == "__main__":
    print(json.dumps([run_apart(log) for log in _read(Path(sys.argv[1]))]))

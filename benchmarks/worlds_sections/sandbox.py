"""Figures of the sandbox, as functions that `make bench worlds` calls: escapes tried and missed, and what a run and a start cost.

An escape counts as tried when the program was let loose in a protected box and its control, with the one protection gone, did harm (the
rest shows nothing); as missed when the protected box let it do harm, or anything of the host or a neighbour was touched or left over.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from benchmarks.harness import ROOT, Figures
from synth.sandbox import Bubblewrap, Docker, Limits, Provider, Sandbox
from synth.worlds.run_python import LIMITS, CodeTool
from tests.synth.sandbox.arena import Arena
from tests.synth.sandbox.escape_programs import ESCAPES
from tests.synth.sandbox.own_engine import docker_engine

CACHE = ROOT / ".cache" / "sandbox"
RUNS = 40
SNIPPETS = 400
PROGRAM = "pass"


def escapes() -> Figures:
    """docker_escapes_tried, docker_escapes_missed, bwrap_escapes_tried, bwrap_escapes_missed."""
    figures: Figures = {}
    with docker_engine(CACHE) as docker:
        for short, provider in (("docker", docker), ("bwrap", Bubblewrap())):
            tried, missed = _escapes_of(provider)
            figures |= {f"{short}_escapes_tried": tried, f"{short}_escapes_missed": missed}
    return figures


def costs() -> Figures:
    """Medians and a rate.

    docker_exec_ratio: a warm run of ours over a bare `docker exec` of the same program, taken in turn.
    bwrap_start_ms: from nothing to a box that waits for its first program.
    code_calls_per_s: snippets of the code tool, one after the other.
    """
    with docker_engine(CACHE) as docker, Sandbox(docker) as sandbox, _bare(docker) as bare:
        sandbox.run(PROGRAM)
        ours, theirs = _in_turn(lambda: sandbox.run(PROGRAM), bare)
    bubblewrap = Bubblewrap()
    starts = [_start_s(bubblewrap) for _ in range(RUNS)]
    with Sandbox(bubblewrap, LIMITS) as sandbox:
        tool = CodeTool(sandbox)
        tool.call({"code": "1"})
        snippets_s = _seconds(lambda: [tool.call({"code": f"rows = [{n}, 2, 3]\nsum(rows) / len(rows)"}) for n in range(SNIPPETS)])
    return {
        "docker_exec_ratio": ours / theirs,
        "bwrap_start_ms": 1_000 * statistics.median(starts),
        "code_calls_per_s": SNIPPETS / snippets_s,
    }


def _escapes_of(provider: Provider) -> tuple[int, int]:
    tried = missed = 0
    with Arena(provider) as arena:
        for escape in ESCAPES:
            if escape.only not in ("", provider.name) or (escape.group and not provider.limits_whole_box):
                continue
            attacked = arena.attack(escape)
            is_held = not attacked.harmed and not attacked.damage
            if not is_held or arena.control(escape).harmed:
                tried += 1
                missed += not is_held
            if not is_held:
                print(f"    missed: {provider.name} {escape.id}: {attacked}", flush=True)
    return tried, missed


@contextmanager
def _bare(docker: Docker) -> Iterator[Callable[[], object]]:
    """A bare `docker exec` of PROGRAM through the same engine, in a warm container of the same limits."""
    client, box = docker.client(), docker.open(Limits())

    def run() -> object:
        return client.exec_start(client.exec_create(box.name, ["python3", "-c", PROGRAM])["Id"])

    try:
        run()
        yield run
    finally:
        box.close()


def _in_turn(one: Callable[[], object], other: Callable[[], object]) -> tuple[float, float]:
    """Median seconds of each."""
    pairs = [(_seconds(one), _seconds(other)) for _ in range(RUNS)]
    return statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs)


def _start_s(provider: Provider) -> float:
    """From nothing to a box that waits for its first program."""
    began = time.perf_counter()
    with Sandbox(provider) as sandbox, sandbox.start() as session:
        took_s = time.perf_counter() - began
        assert session.run(PROGRAM).ok
    return took_s


def _seconds(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began

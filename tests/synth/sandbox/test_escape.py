"""The escape suite: programs that try to get out of a box, to harm what is beside it, or to outlive it.

Covered, on each provider, every act with a control that succeeds once the one protection is gone:
- the network: TCP, UDP, UNIX sockets abstract and by path, raw sockets, netlink, vsock, the host's network namespace and ports;
- using up memory (heap, mappings, memory files, many processes), processes and threads, CPU, wall time, disk, inodes, descriptors, output;
- outliving a run: daemons, processes that fork on and on, stopped ones; System V and POSIX queues;
- files of the host, read, written, deleted, through /proc and through links; writing anything but the work folder; /sys; /proc of root;
- processes of the host: seen, killed, stopped; the box's own process 1: killed, read, its wire written to;
- the next user of the same box: its process 1's limits, priority and scheduling; the work folder's mode, attributes, times and files;
- privileges: capabilities, set-uid programs, user namespaces, mounts, keyrings, io_uring, ptrace, bpf, perf, userfaultfd and kin;
- core files; leaked descriptors and environment; text that deceives readers or terminals.

Not covered: bugs of the kernel, of runc, of bubblewrap and of the processor (side channels, timing); attacks on Docker's engine from
outside; a machine whose bubblewrap can make no control group (memory and CPU are then limited per process only, and the cases that need
more are left out); a program that makes the kernel choose the box's own process 1 when memory runs out (the box is lost, and
the program has failed); filling the host's memory by many boxes at once, each within its limits; devices given to a box on purpose.
What a kernel refuses even without our protection is run, listed as skipped with the reason, and not counted.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.synth.conftest import PROVIDERS, provider_of
from tests.synth.sandbox.arena import Arena
from tests.synth.sandbox.escape_programs import ESCAPES, Escape

FULL_NAME = {"docker": "docker", "bwrap": "bubblewrap"}
CASES = [
    pytest.param(which, escape, id=f"escape-{which}-{escape.id}")
    for which in PROVIDERS
    for escape in ESCAPES
    if escape.only in ("", FULL_NAME[which])
]


@pytest.fixture(scope="module")
def arenas() -> Iterator[dict[str, Arena]]:
    """One arena a provider, made when it is first needed."""
    made: dict[str, Arena] = {}
    yield made
    for arena in made.values():
        arena.__exit__()


@pytest.fixture
def arena(which: str, arenas: dict[str, Arena], request: pytest.FixtureRequest) -> Arena:
    provider = provider_of(which, request)
    if which not in arenas:
        arenas[which] = Arena(provider.showing)
    return arenas[which]


@pytest.mark.parametrize(("which", "escape"), CASES)
def test_a_program_is_contained_and_only_its_protection_holds_it(which: str, escape: Escape, arena: Arena) -> None:
    if escape.group and not arena.limits_whole_box:
        pytest.skip("no control group can be made here: memory is limited per process only")

    attacked = arena.attack(escape)

    assert not attacked.harmed, attacked.said
    assert not attacked.damage

    control = arena.control(escape)

    why = escape.refused.get(FULL_NAME[which]) or escape.refused.get("*")
    if not control.harmed and why:
        pytest.skip(f"not counted: {why}")
    assert control.harmed, f"the control did no harm either, so the case shows nothing: {control.said}"


@pytest.mark.parametrize("which", PROVIDERS)
def test_there_are_programs_enough_of_kinds_enough(which: str) -> None:
    mine = [escape for escape in ESCAPES if escape.only in ("", FULL_NAME[which]) and not escape.refused]

    assert len(mine) >= 40
    assert len({escape.kind for escape in mine}) >= 20

"""Runs untrusted programs where they can do no harm: `pick()` a provider, give it to a `Sandbox`, `run`.

Docker if an engine answers and has the image, else bubblewrap, else none; without one no code tool is offered, and the run has a note.

Covered, on each provider, and shown by the escape tests (`tests/synth/sandbox/`), each of which succeeds without its protection:
- the network: TCP, UDP, UNIX sockets abstract and by path, raw sockets, netlink, vsock, the host's network namespace and ports;
- using up memory (heap, mappings, memory files, many processes), processes and threads, CPU, wall time, disk, inodes, descriptors, output;
- outliving a run: daemons, processes that fork on and on, stopped processes; System V and POSIX queues;
- files of the host, read, written, deleted, through /proc and through links; writing anything but the work folder; /sys; /proc of root;
- processes of the host: seen, killed, stopped; the box's own process 1: killed, read, its connection written to;
- the next user of the same box: its process 1's limits, priority and scheduling; the work folder's mode, attributes, times and files;
- privileges: capabilities, set-uid programs, user namespaces, mounts, keyrings, io_uring, ptrace, bpf, perf, userfaultfd and kin;
- core files; leaked descriptors and environment; text that deceives readers or terminals.

Not covered: bugs of the kernel, of runc, of bubblewrap and of the processor (side channels, timing); attacks on Docker's engine from
outside; a machine whose bubblewrap can make no control group (memory and CPU are then limited per process only, and the cases that need
more are left out); a program that makes the kernel choose the box's own process 1 when memory runs out (the box is lost, and
the program has failed); filling the host's memory by many boxes at once, each within its limits; devices given to a box on purpose.
"""

from __future__ import annotations

from synth.sandbox.base import BoxDied, Limits, Result, SandboxError
from synth.sandbox.box import Provider
from synth.sandbox.bwrap import Bubblewrap
from synth.sandbox.docker import Docker
from synth.sandbox.sandbox import Sandbox, Session

__all__ = ["BoxDied", "Bubblewrap", "Docker", "Limits", "Provider", "Result", "Sandbox", "SandboxError", "Session", "available", "pick"]


def available() -> dict[str, str]:
    """Provider -> the requirement that this machine lacks, and how to install it; empty if it works. Tries each provider."""
    return {provider.name: provider.missing() for provider in (Docker(), Bubblewrap())}


def pick() -> Provider | None:
    """The provider to use on this machine, or None."""
    for provider in (Docker(), Bubblewrap()):
        if not provider.missing():
            return provider
    return None

"""The sandbox's parts that need no box: the filter of system calls, safe text, control groups, owners, the connection."""

from __future__ import annotations

import errno
import math
import os
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synth.sandbox import BoxDied, Limits, bwrap, seccomp, supervisor
from synth.sandbox.box import Connection, is_orphan, mark, new_name

ALLOW, KILL, REFUSED = 0x7FFF0000, 0x80000000, 0x00050000 | errno.EPERM
MACHINES = tuple(seccomp.AUDIT_ARCH)


def verdict(program: bytes, arch: int, number: int, argument: int = 0, second: int = 0) -> int:
    """What the kernel would say: the filter run on one system call."""
    data = struct.pack("<IIQQQ", number, arch, 0, argument, second)
    lines = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    at, value = 0, 0
    while True:
        code, if_true, if_false, operand = lines[at]
        match code:
            case 0x20:
                value = struct.unpack_from("<I", data, operand)[0]
            case 0x06:
                return int(operand)
            case _:
                holds = {0x15: value == operand, 0x35: value >= operand, 0x45: bool(value & operand)}[code]
                at += if_true if holds else if_false
        at += 1


@pytest.mark.parametrize("machine", MACHINES)
@given(number=st.integers(0, 500))
def test_the_filter_refuses_its_list_and_nothing_else(machine: str, number: int) -> None:
    column = MACHINES.index(machine)
    listed = {numbers[column] for numbers in (seccomp.REFUSED | seccomp.OWN).values()}

    found = verdict(seccomp.program(machine), seccomp.AUDIT_ARCH[machine], number, 1)

    if number in listed:
        assert found == REFUSED
    elif number == seccomp.CLONE3[column]:
        assert found == 0x00050000 | errno.ENOSYS
    else:
        assert found == ALLOW


@pytest.mark.parametrize("machine", MACHINES)
@given(family=st.integers(0, 60))
def test_sockets_are_for_families_that_the_network_namespace_holds(machine: str, family: int) -> None:
    for call in (seccomp.SOCKET, seccomp.SOCKETPAIR):
        found = verdict(seccomp.program(machine), seccomp.AUDIT_ARCH[machine], call[MACHINES.index(machine)], family)

        assert found == (ALLOW if family in (1, 2, 10) else 0x00050000 | errno.EAFNOSUPPORT)


@pytest.mark.parametrize("machine", MACHINES)
@given(flag=st.sampled_from([0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000]), others=st.integers(0, 0x1FFFF))
def test_no_clone_makes_a_namespace_and_every_other_may(machine: str, flag: int, others: int) -> None:
    program, arch, clone = seccomp.program(machine), seccomp.AUDIT_ARCH[machine], seccomp.CLONE[MACHINES.index(machine)]

    assert verdict(program, arch, clone, flag | others) == REFUSED
    assert verdict(program, arch, clone, others) == ALLOW


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("call", seccomp.OWN)
def test_limits_and_scheduling_are_a_process_s_own(machine: str, call: str) -> None:
    filter_, arch, column = seccomp.program(machine), seccomp.AUDIT_ARCH[machine], MACHINES.index(machine)
    number, zeros = seccomp.OWN[call][column], seccomp.OWN[call][2]

    assert verdict(filter_, arch, number, 0, 0) == ALLOW
    assert verdict(filter_, arch, number, 1, 0) == REFUSED
    assert verdict(filter_, arch, number, 0, 1) == (ALLOW if zeros == 1 else REFUSED)


def test_calls_of_other_architectures_kill() -> None:
    program = seccomp.program("x86_64")

    assert verdict(program, 0x40000003, 20) == KILL
    assert verdict(program, seccomp.AUDIT_ARCH["x86_64"], 0x40000000 | 39) == KILL
    assert seccomp.program("arm64") == seccomp.program("aarch64")
    with pytest.raises(ValueError, match="riscv64"):
        seccomp.program("riscv64")


def test_control_groups_of_version_1_are_made_under_our_own(tmp_path: Path) -> None:
    for controller in bwrap.CONTROLLERS:
        (tmp_path / controller / "ours").mkdir(parents=True)
        (tmp_path / controller / "ours" / "cgroup.procs").touch()

    homes = bwrap.cgroup_homes(tmp_path, "4:memory:/ours\n3:pids:/ours\n2:cpu,cpuacct:/ours\n")

    assert homes == tuple(tmp_path / controller / "ours" for controller in bwrap.CONTROLLERS)


def test_a_control_group_of_version_2_stands_beside_our_own_where_the_controllers_are_given(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids\n")
    parent = tmp_path / "user.slice"
    (parent / "ours").mkdir(parents=True)
    (parent / "cgroup.procs").touch()
    own = "0::/user.slice/ours\n"

    (parent / "cgroup.subtree_control").write_text("memory pids\n")
    without_cpu = bwrap.cgroup_homes(tmp_path, own)
    (parent / "cgroup.subtree_control").write_text("cpu memory pids\n")

    assert without_cpu == ()
    assert bwrap.cgroup_homes(tmp_path, own) == (parent,)
    for name in ("memory.max", "pids.max", "cpu.max"):
        (parent / name).touch()
    made = bwrap.make_group("headrace-1-2-3", Limits(memory_bytes=2**25, processes=8, cpus=0.5), (parent,))
    assert {name: (made.folders[0] / name).read_text() for name in ("memory.max", "pids.max", "cpu.max")} == {
        "memory.max": str(2**25),
        "pids.max": "9",
        "cpu.max": "50000 100000",
    }


def test_a_box_is_an_orphan_only_when_its_owner_is_gone() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        theirs = f"headrace-{mark(other.pid)}-0"
        while_alive = is_orphan(theirs)
        other.kill()
        other.wait()

        assert not while_alive
        assert is_orphan(theirs)
    assert not is_orphan(new_name())
    place = mark(1).split("-")[0]
    assert is_orphan(f"headrace-{place}-{os.getpid()}-1-0"), "another process had this number"
    assert not is_orphan(f"headrace-{place[::-1]}x-999999999-1-0"), "marked on another machine"
    assert not is_orphan("somebody-elses-1-2-3")


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (struct.pack(supervisor.ANSWER, 0, 0, 2**31, 0, 0), "tampered"),
        (struct.pack(supervisor.ANSWER, 0, 0, 50, 50, 1), "tampered"),
        (struct.pack(supervisor.ANSWER, supervisor.FAILED, 0, supervisor.MESSAGE_BYTES + 1, 0, 0), "tampered"),
        (struct.pack(supervisor.ANSWER, supervisor.ALL_FLAGS + 1, 0, 0, 0, 0), "tampered"),
        (struct.pack(supervisor.ANSWER, 0, 0, 2, 0, 0) + b"x", "ended"),
        (b"\x00\x00", "ended"),
    ],
)
def test_nothing_that_a_supervisor_says_is_believed_by_its_length(sent: bytes, why: str) -> None:
    read, write = os.pipe()
    os.write(write, sent)
    os.close(write)

    with pytest.raises(BoxDied, match=why):
        Connection(read, read).receive(100, time.monotonic() + 5)
    os.close(read)


def test_a_whole_answer_is_read_and_its_error_is_safe_to_show() -> None:
    read, write = os.pipe()
    os.write(write, struct.pack(supervisor.ANSWER, 0, -9, 3, 0, 97) + b"out" + b"v" * 97)
    os.write(write, struct.pack(supervisor.ANSWER, supervisor.FAILED, 0, 5, 0, 0) + b"no\x1b[m")
    connection = Connection(read, read)

    whole, failed = connection.receive(100, time.monotonic() + 5), connection.receive(0, time.monotonic() + 5)

    assert (whole.exit_code, whole.parts, whole.error) == (-9, (b"out", b"", b"v" * 97), None)
    assert failed.error == "no\ufffd[m"
    with pytest.raises(BoxDied, match="stopped answering"):
        connection.receive(0, time.monotonic() + 0.01)
    os.close(read)
    os.close(write)


@pytest.mark.parametrize(
    "wrong",
    [
        {"wall_s": 0.0},
        {"memory_bytes": 1000},
        {"processes": 2},
        {"open_files": -1},
        {"wall_s": math.nan},
        {"cpu_s": 0.5},
        {"wall_s": math.inf},
        {"cpus": 0.001},
    ],
)
def test_limits_that_nothing_could_run_in_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="sandbox"):
        Limits(**wrong)

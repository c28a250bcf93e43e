"""The filter of system calls that every box's supervisor installs in itself before it runs anything: a hand-built BPF program.

One idea: a short list of calls that kernel exploits and escapes need and ordinary programs do not; all others are allowed. A call on the
list fails with EPERM. Namespaces are refused through `unshare`, `setns`, `clone3` (ENOSYS: the C library falls back on `clone`) and the
flags of `clone`; sockets are allowed for the UNIX and Internet families only, which the network namespace contains. A process
may change its own limits, priority and scheduling only, because a box's process 1 serves later sessions too. Calls of another architecture
(32-bit, x32) kill the process. In Docker this filter is added to Docker's profile.
Source: seccomp(2), linux/filter.h, linux/audit.h; numbers from the kernel's syscall tables.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterator

AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALIASES = {"arm64": "aarch64", "amd64": "x86_64"}
"""Names of architectures on macOS and Windows, whose Docker runs Linux."""
X32_BIT = 0x40000000

REFUSED: dict[str, tuple[int | None, int | None]] = {
    # name: (x86_64, aarch64)
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "personality": (135, 92),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "quotactl": (179, 60),
    "acct": (163, 89),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "syslog": (103, 116),
    "ioprio_set": (251, 30),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    "process_madvise": (440, 440),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    # what System V and POSIX queues hold would outlive the run that made it
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
}
OWN: dict[str, tuple[int, int, int]] = {
    # name: (x86_64, aarch64, how many of its first arguments are 0 when the caller means itself)
    "prlimit64": (302, 261, 1),
    "setpriority": (141, 140, 2),
    "sched_setparam": (142, 118, 1),
    "sched_setscheduler": (144, 119, 1),
    "sched_setaffinity": (203, 122, 1),
    "sched_setattr": (314, 274, 1),
}
CLONE, CLONE3, SOCKET, SOCKETPAIR = (56, 220), (435, 435), (41, 198), (53, 199)
NEW_NAMESPACES = 0x7E020000
"""CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET}."""
FAMILIES = (1, 2, 10)
"""AF_UNIX, AF_INET, AF_INET6."""

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER_AT, _ARCH_AT, _ARGUMENT_AT = 0, 4, 16
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000


def program(machine: str) -> bytes:
    """The filter as an array of `struct sock_filter`, for `machine` (as in `platform.machine()`).

    Raises:
        ValueError: the system calls of the machine are not listed here.
    """
    machine = ALIASES.get(machine.lower(), machine)
    if machine not in AUDIT_ARCH:
        raise ValueError(f"no seccomp filter for {machine}: known are {', '.join(AUDIT_ARCH)}")
    column = list(AUDIT_ARCH).index(machine)
    lines = [_line(_LOAD, _ARCH_AT), _line(_EQUAL, AUDIT_ARCH[machine], 1, 0), _line(_RETURN, _KILL), _line(_LOAD, _NUMBER_AT)]
    if machine == "x86_64":
        lines += [_line(_AT_LEAST, X32_BIT, 0, 1), _line(_RETURN, _KILL)]
    for numbers in REFUSED.values():
        number = numbers[column]
        if number is not None:
            lines += [_line(_EQUAL, number, 0, 1), _line(_RETURN, _ERRNO | errno.EPERM)]
    lines += [_line(_EQUAL, CLONE3[column], 0, 1), _line(_RETURN, _ERRNO | errno.ENOSYS)]
    lines += [_line(_EQUAL, CLONE[column], 0, 4), _line(_LOAD, _ARGUMENT_AT), _line(_ANY_BIT, NEW_NAMESPACES, 0, 1)]
    lines += [_line(_RETURN, _ERRNO | errno.EPERM), _line(_RETURN, _ALLOW)]
    for call in (SOCKET, SOCKETPAIR):
        lines += _families(call[column])
    for own in OWN.values():
        lines += _own(own[column], own[2])
    return b"".join([*lines, _line(_RETURN, _ALLOW)])


def _families(number: int) -> Iterator[bytes]:
    """If it is call `number`: allow these families, refuse the others."""
    yield _line(_EQUAL, number, 0, 3 + len(FAMILIES))
    yield _line(_LOAD, _ARGUMENT_AT)
    for left, family in zip(range(len(FAMILIES), 0, -1), FAMILIES, strict=True):
        yield _line(_EQUAL, family, left, 0)
    yield _line(_RETURN, _ERRNO | errno.EAFNOSUPPORT)
    yield _line(_RETURN, _ALLOW)


def _own(number: int, zeros: int) -> Iterator[bytes]:
    """If it is call `number`: allow it where its first arguments, `zeros` of them, are 0, else refuse it."""
    yield _line(_EQUAL, number, 0, 2 * zeros + 2)
    for left in range(zeros, 0, -1):
        yield _line(_LOAD, _ARGUMENT_AT + 8 * (zeros - left))
        yield _line(_EQUAL, 0, 0, 2 * left - 1)
    yield _line(_RETURN, _ALLOW)
    yield _line(_RETURN, _ERRNO | errno.EPERM)


def _line(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)

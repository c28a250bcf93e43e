"""The programs of the escape suite: each tries one thing that a sandboxed program must not be able to do.

A program prints ESCAPED when it has done it. `off` names the one protection that stands in its way: with it gone, in a sandbox that is
protected otherwise, the program succeeds, which shows that it was the protection that held it, and not a slip in the program. Words in
angle brackets («TCP4») are filled in by the arena: targets that the suite made itself, numbers of system calls, limits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from synth.sandbox.base import Protection

PRELUDE = """
import ctypes, errno, os, resource, signal, socket, struct, subprocess, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
def escaped(*words):
    print("ESCAPED", *words, flush=True)
def call(number, *arguments):
    done = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments])
    if done < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return done
"""


@dataclass(frozen=True)
class Escape:
    """judge: how the arena sees harm, by default that ESCAPED was printed. only: the providers it is for, all if empty.
    limits: changes to the suite's limits. group: it needs limits for the whole box.
    refused: by provider, why no control can do harm either; such a case is run and listed, and not counted."""

    kind: str
    name: str
    off: Protection
    program: str
    judge: str = "printed"
    only: str = ""
    group: bool = False
    limits: Mapping[str, float] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return f"{self.kind}/{self.name}"


def _connect(family: str, address: str, kind: str = "STREAM") -> str:
    send = "s.connect(a)" if kind == "STREAM" else "s.sendto(b'hello', a)"
    return f"s = socket.socket(socket.{family}, socket.SOCK_{kind}); s.settimeout(2); a = {address}; {send}; escaped('reached it')"


def _family(number: int, kind: int = 3, protocol: int = 0) -> str:
    return f"socket.socket({number}, {kind}, {protocol}); escaped('a socket of family {number}')"


def _many(make: str, goal: str) -> str:
    """Makes one more than a tenth above a limit, keeping all."""
    return f"""
kept = []
for n in range({goal}):
    {make}
escaped(len(kept))
"""


FORKS = """
def hold():
    time.sleep(20); os._exit(0)
children = []
try:
    for n in range(44):
        pid = os.fork()
        if pid == 0: hold()
        children.append(pid)
    escaped(len(children), 'processes')
finally:
    for pid in children: os.kill(pid, 9)
"""
THREADS = """
threading.stack_size(65536)
stop = threading.Event()
threads = []
try:
    for n in range(44):
        t = threading.Thread(target=stop.wait, daemon=True); t.start(); threads.append(t)
    escaped(len(threads), 'threads')
finally:
    stop.set()
"""
DAEMON_BOMB = """
r, w = os.pipe()
for n in range(44):
    pid = os.fork()
    if pid == 0:
        os.setsid()
        try:
            if os.fork(): os._exit(0)
        except OSError:
            os.write(w, b'!'); os._exit(1)
        os.write(w, b'.'); time.sleep(20); os._exit(0)
    os.waitpid(pid, 0)
answers = b''
while len(answers) < 44: answers += os.read(r, 100)
if answers == b'.' * 44: escaped('44 daemons')
"""
SPAWNS = """
children = []
try:
    for n in range(44): children.append(subprocess.Popen(['sleep', '20']))
    escaped(len(children))
finally:
    for child in children: child.kill()
"""
TREE_MEMORY = """
children = []
for n in range(4):
    r, w = os.pipe(); end_r, end_w = os.pipe(); pid = os.fork()
    if pid == 0:
        kept = bytearray(b'x') * («MEMORY» // 3); os.write(w, b'!'); os.read(end_r, 1); os.write(w, b'!'); os._exit(0)
    os.close(w); os.close(end_r); children.append((r, end_w))
full = [os.read(r, 1) for r, end_w in children]
for r, end_w in children: os.write(end_w, b'.')
alive = [os.read(r, 1) for r, end_w in children]
if full == alive == [b'!'] * 4: escaped('four children hold more than the limit')
"""
BURN = """
while time.process_time() < 1.1: sum(range(10000))
escaped(time.process_time(), 's of CPU')
"""
DAEMON = """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for fd in range(3): os.close(fd)
        time.sleep(20)
    os._exit(0)
time.sleep(.2)
"""
HOPPER = """
if os.fork() == 0:
    os.setsid()
    ends = time.time() + 15
    while time.time() < ends:
        if os.fork(): os._exit(0)
        time.sleep(.002)
    os._exit(0)
time.sleep(.1)
"""
STOPPED = """
if os.fork() == 0:
    signal.pthread_sigmask(signal.SIG_SETMASK, range(1, 64)); os.setsid(); os.kill(os.getpid(), signal.SIGSTOP); os._exit(0)
time.sleep(.1)
"""
ROOT_WRITE = """
for folder in '/ /var/tmp /var /run /run/lock /dev /dev/shm /dev/mqueue /home /etc /usr /mnt /sys /opt'.split():
    try:
        {make}
        escaped(folder)
        {undo}
    except OSError as error: print(folder, error)
"""
CRASH = """
pid = os.fork()
if pid == 0: os.kill(os.getpid(), signal.{signal})
os.waitpid(pid, 0)
cores = [name for name in os.listdir('.') if name.startswith('core')]
if cores: escaped(cores, os.path.getsize(cores[0]))
"""
TRACED_CHILD = """
r, w = os.pipe(); secret = ctypes.create_string_buffer(b'a secret of the child')
pid = os.fork()
if pid == 0: os.write(w, b'!'); time.sleep(20); os._exit(0)
os.read(r, 1)
try:
    {act}
finally:
    os.kill(pid, 9)
"""
SETUID = """
child = subprocess.Popen([{program}], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
try:
    state = user = ''
    while state not in ('S', 'Z') and user != '0':  # until it waits for input or has ended: before, it may not have its user yet
        lines = dict(line.split(':', 1) for line in open(f'/proc/{{child.pid}}/status').read().splitlines())
        state, user = lines['State'].split()[0], lines['Uid'].split()[1]
    if user == '0': escaped('effective user', user)
finally:
    child.kill()
"""
CALLED_PORT = """
s = socket.create_server(('127.0.0.1', «FREE»)); s.settimeout(1)
s.accept(); escaped()
"""
IO_URING = """
parameters = ctypes.create_string_buffer(120)
escaped('ring', call(«NR io_uring_setup», 4, parameters))
"""
NEW_MOUNT = """
call(«NR unshare», 0x10020000)
if libc.mount(b'tmpfs', b'/tmp', b'tmpfs', 0, b'size=4096') == 0: escaped('a mount of its own')
"""
CLONED = """
SIGCHLD = 17
pid = call(«CLONE», {flags} | SIGCHLD, 0, 0, 0, 0)
if pid == 0: os._exit(0)
os.waitpid(pid, 0); escaped('a namespace of its own')
"""
CLONE3 = """
arguments = struct.pack('8Q', 0x10000000, 0, 0, 0, 17, 0, 0, 0)
pid = call(«CLONE3», ctypes.c_char_p(arguments), len(arguments))
if pid == 0: os._exit(0)
os.waitpid(pid, 0); escaped('a namespace of its own')
"""
COMPAT = """
import mmap
code = b'\\x53\\xb8' + struct.pack('<I', 20) + b'\\xcd\\x80\\x5b\\xc3'  # push rbx; mov eax, getpid of 32 bit; int 0x80; pop rbx; ret
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC); page.write(code)
found = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
if found == os.getpid(): escaped('a system call of another architecture, past the list')
"""
PERSONALITY = "call(«NR personality», 0x0040000); escaped('no more random addresses')"
HANDLE = """
about = ctypes.create_string_buffer(struct.pack('Ii', 128, 0) + bytes(128)); where = ctypes.c_int()
call(«NR name_to_handle_at», -100, ctypes.c_char_p(b'/tmp'), about, ctypes.byref(where), 0); escaped('a handle that outlives names')
"""
SHOWN = "«SHOWN»"
ACCESS_LIST = """
entries = [(1, 7, -1), (2, 0, os.getuid()), (4, 0, -1), (16, 7, -1), (32, 0, -1)]
acl = struct.pack('<I', 2) + b''.join(struct.pack('<HHi', *entry) for entry in entries)
os.setxattr('/tmp', 'system.posix_acl_default', acl)
"""
OTHERS_LIMIT = "resource.prlimit(«SUPERVISOR», resource.{name}, ({value}, {value}))"
BY_SIGNAL = "os.kill(«CANARY», signal.{signal}); escaped('signalled a process of the host')"
NOT_ITS_USER = "in a user namespace of its own the kernel lets nobody look into processes of the host"
BWRAP_NEVER = {"bubblewrap": "bubblewrap itself sets no_new_privs and mounts without setuid, always"}
ROOTS_PIPE = {"bubblewrap": "where the host's process is root, nobody may not open its pipes"}
ONLY_ROOT = {"bubblewrap": "where the host's process is not root, there is no root's user to take away"}
KERNEL = {"*": "kernels differ in what they offer to everybody; this one refuses it"}
NO_DEVICES = {"bubblewrap": "the kernel makes no devices for a user namespace"}

ONE_CORE = {"*": "the machine has one processor"}
ROOTS_FOLDER = {"docker": "the work folder is root's there", "bubblewrap": "kernels before 6.6 keep no such attributes of it"}

ESCAPES: tuple[Escape, ...] = (
    # ---- the network: none of the host's listeners is reached
    Escape("network-tcp", "ipv4", "network", _connect("AF_INET", "('127.0.0.1', «TCP4»)")),
    Escape("network-tcp", "ipv6", "network", _connect("AF_INET6", "('::1', «TCP6»)")),
    Escape("network-udp", "ipv4", "network", _connect("AF_INET", "('127.0.0.1', «UDP4»)", "DGRAM"), judge="received"),
    Escape("network-udp", "ipv6", "network", _connect("AF_INET6", "('::1', «UDP6»)", "DGRAM"), judge="received"),
    Escape("network-unix", "abstract", "network", _connect("AF_UNIX", "'\\0«ABSTRACT»'")),
    Escape("network-unix", "path", "mounts", _connect("AF_UNIX", f"'{SHOWN}/socket'")),
    Escape("network-host", "namespace", "network", "if os.readlink('/proc/self/ns/net') == '«NETNS»': escaped('the network of the host')"),
    Escape(
        "network-host",
        "port",
        "network",
        CALLED_PORT,
        judge="reached",
    ),
    Escape("network-family", "netlink", "seccomp", _family(16)),
    Escape("network-family", "netlink-audit", "seccomp", _family(16, 3, 9), refused=KERNEL),
    Escape("network-family", "vsock", "seccomp", _family(40, 1), refused=KERNEL),
    Escape("network-family", "crypto", "seccomp", _family(38, 5), refused=KERNEL),
    Escape("network-raw", "icmp", "capabilities", _family(2, 3, 1)),
    Escape("network-raw", "icmp6", "capabilities", _family(10, 3, 58)),
    # ---- using up what there is
    Escape("fork-bomb", "fork", "processes", FORKS),
    Escape("fork-bomb", "threads", "processes", THREADS),
    Escape("fork-bomb", "daemons", "processes", DAEMON_BOMB),
    Escape("fork-bomb", "spawn", "processes", SPAWNS),
    Escape("memory", "heap", "memory", "kept = bytearray(b'x') * int(«MEMORY» * 1.1); escaped(len(kept))"),
    Escape("memory", "mmap", "memory", "import mmap\nm = mmap.mmap(-1, 71 * 2**20)\nfor n in range(71): m.write(b'x' * 2**20)\nescaped()"),
    Escape("memory", "memfd", "memory", "fd = os.memfd_create('m')\nfor n in range(71): os.write(fd, b'x' * 2**20)\nescaped()", group=True),
    Escape("memory", "children", "memory", TREE_MEMORY, group=True),
    Escape("cpu", "burn", "cpu", BURN, limits={"wall_s": 30.0}),
    Escape("cpu", "deaf", "cpu", "signal.pthread_sigmask(signal.SIG_SETMASK, range(1, 64))\n" + BURN, limits={"wall_s": 30.0}),
    Escape("wall", "sleep", "wall", "time.sleep(1.1); escaped('1.1 s')", limits={"wall_s": 1.0}),
    Escape(
        "wall",
        "deaf",
        "wall",
        "signal.pthread_sigmask(signal.SIG_SETMASK, range(1, 64)); time.sleep(1.1); escaped()",
        limits={"wall_s": 1.0},
    ),
    Escape("wall", "child", "wall", "os.fork() and os.wait() or (os.setsid(), time.sleep(1.1), escaped())", limits={"wall_s": 1.0}),
    Escape("daemon", "double-fork", "sweep", DAEMON, judge="left"),
    Escape("daemon", "hopping", "sweep", HOPPER, judge="left"),
    Escape("daemon", "stopped", "sweep", STOPPED, judge="left"),
    Escape("disk", "file", "disk", "f = open('f', 'wb')\nfor n in range(9): f.write(b'x' * 2**20); f.flush()\nescaped()"),
    Escape("disk", "reserve", "disk", "f = open('f', 'wb'); os.posix_fallocate(f.fileno(), 0, 9 * 2**20); escaped()"),
    Escape("disk", "many-files", "disk", "for n in range(90): open(f'f{n}', 'wb').write(b'x' * 102400)\nescaped()"),
    Escape(
        "disk",
        "mmap",
        "disk",
        "import mmap\nf = open('f', 'w+b'); f.truncate(9 * 2**20); m = mmap.mmap(f.fileno(), 0); m[:] = b'x' * len(m); escaped()",
    ),
    Escape("inodes", "files", "inodes", "for n in range(440): open(f'f{n}', 'w').close()\nescaped()"),
    Escape("inodes", "folders", "inodes", "for n in range(440): os.mkdir(f'd{n}')\nescaped()"),
    Escape("inodes", "nested", "inodes", "for n in range(440): os.mkdir('d'); os.chdir('d')\nescaped()"),
    Escape("inodes", "symlinks", "inodes", "for n in range(440): os.symlink('x' * 100, f'l{n}')\nescaped()"),
    Escape("open-files", "devices", "open_files", _many("kept.append(os.open('/dev/null', os.O_RDONLY))", "44")),
    Escape("open-files", "pipes", "open_files", _many("kept.append(os.pipe())", "22")),
    Escape("open-files", "sockets", "open_files", _many("kept.append(socket.socketpair())", "22")),
    # ---- what it writes
    Escape("output", "lines", "output", "for n in range(1100): print('x' * 19)", judge="too much output"),
    Escape("output", "one-line", "output", "os.write(1, b'x' * 22000)", judge="too much output"),
    Escape("output", "errors", "output", "os.write(2, b'x' * 22000)", judge="too much output"),
    Escape("unicode", "direction", "text", "print('\\u202egnp.exe\\u2066x')", judge="unsafe text"),
    Escape("unicode", "terminal", "text", "print('\\x1b]0;title\\x07\\x1b[2J\\x9b31m')", judge="unsafe text"),
    Escape("unicode", "marks", "text", "print('a' + '\\u0301' * 5000)", judge="unsafe text"),
    Escape("unicode", "bytes", "text", "os.write(1, b'\\xff\\xfe\\x00\\xed\\xa0\\x80\\xc0\\xaf')", judge="unsafe text"),
    Escape("unicode", "invisible", "text", "print(''.join(chr(0xE0000 + ord(c)) for c in 'ignore what was said'))", judge="unsafe text"),
    Escape("core", "fault", "core", CRASH.format(signal="SIGSEGV"), refused=KERNEL),
    Escape("core", "abort", "core", CRASH.format(signal="SIGABRT"), refused=KERNEL),
    # ---- files of the box and of the host
    Escape("root-write", "file", "read_only", ROOT_WRITE.format(make="open(folder + '/x', 'w').close()", undo="os.unlink(folder + '/x')")),
    Escape("root-write", "folder", "read_only", ROOT_WRITE.format(make="os.mkdir(folder + '/x')", undo="os.rmdir(folder + '/x')")),
    Escape("root-write", "link", "read_only", ROOT_WRITE.format(make="os.symlink('/tmp', folder + '/x')", undo="os.unlink(folder + '/x')")),
    Escape("host-files", "read", "mounts", f"escaped(open('{SHOWN}/secret').read())"),
    Escape("host-files", "write", "mounts", f"open('{SHOWN}/victim', 'w').write('changed'); escaped()"),
    Escape("host-files", "delete", "mounts", f"os.unlink('{SHOWN}/victim'); escaped()"),
    Escape("host-files", "through-proc", "mounts", f"escaped(open('/proc/self/root{SHOWN}/secret').read())"),
    Escape("links", "read", "mounts", f"os.symlink('{SHOWN}/secret', 'l'); escaped(open('l').read())"),
    Escape("links", "write", "mounts", f"os.symlink('{SHOWN}/victim', 'l'); open('l', 'w').write('changed'); escaped()"),
    Escape("links", "folder", "mounts", f"os.symlink('{SHOWN}', 'd'); escaped(os.listdir('d'))"),
    Escape("links", "hard", "mounts", f"os.link('{SHOWN}/secret', '{SHOWN}/hard'); escaped(open('{SHOWN}/hard').read())"),
    Escape("sys", "devices", "mounts", "escaped(os.listdir('/sys/devices')[0])"),
    Escape("sys", "block", "mounts", "escaped(os.listdir('/sys/class')[0], open('/sys/devices/system/cpu/online').read())"),
    Escape("proc", "vmallocinfo", "user", "escaped(open('/proc/vmallocinfo').read(60))", refused=ONLY_ROOT),
    Escape("proc", "slabinfo", "user", "escaped(open('/proc/slabinfo').read(20))", refused=ONLY_ROOT),
    # ---- processes of others
    Escape(
        "other-processes",
        "list",
        "pids",
        "escaped(open('/proc/«CANARY»/cmdline').read()[:9]) if 'cat' in open('/proc/«CANARY»/cmdline').read() else 0",
    ),
    Escape("other-processes", "kill", "pids", BY_SIGNAL.format(signal="SIGKILL"), judge="canary died"),
    Escape("other-processes", "stop", "pids", BY_SIGNAL.format(signal="SIGSTOP"), judge="canary stopped"),
    Escape("other-processes", "probe", "pids", "os.kill(«CANARY», 0); escaped()"),
    Escape(
        "other-processes",
        "by-descriptor",
        "pids",
        "signal.pidfd_send_signal(os.pidfd_open(«CANARY»), signal.SIGSTOP); escaped()",
        judge="canary stopped",
    ),
    Escape(
        "other-processes", "environment", "pids", "escaped(open('/proc/«CANARY»/environ').read()[:9])", refused={"bubblewrap": NOT_ITS_USER}
    ),
    Escape("parent", "kill", "pids", "os.kill(os.getppid(), signal.SIGKILL); time.sleep(.1)", judge="box died"),
    Escape("parent", "terminate", "pids", "os.kill(os.getppid(), signal.SIGTERM); time.sleep(.1)", judge="box died"),
    Escape("parent", "interrupt", "pids", "os.kill(os.getppid(), signal.SIGINT); time.sleep(.1)", judge="box died"),
    Escape("supervisor", "memory", "supervisor", "open('/proc/«SUPERVISOR»/mem', 'r+b'); escaped()"),
    Escape("supervisor", "map", "supervisor", "escaped(open('/proc/«SUPERVISOR»/maps').readline())"),
    Escape(
        "supervisor",
        "wire",
        "supervisor",
        "open('/proc/«SUPERVISOR»/fd/11', 'wb', buffering=0).write(b'forged'); escaped()",
        judge="box died",
        refused=ROOTS_PIPE,
    ),
    Escape("supervisor", "environment", "supervisor", "escaped(len(open('/proc/«SUPERVISOR»/environ').read()) * '.' + '.')"),
    Escape("descriptors", "wire", "descriptors", "os.write(11, b'forged'); escaped()", judge="box died"),
    Escape("descriptors", "more", "descriptors", "os.fstat(10); escaped('the way in of the supervisor')"),
    Escape("environment", "variable", "environment", "escaped(os.environ['HEADRACE_CANARY'])"),
    Escape("environment", "proc", "environment", "b'HEADRACE_CANARY' in open('/proc/self/environ', 'rb').read() and escaped()"),
    # ---- whoever gets the box next
    Escape("next-user", "limit-files", "seccomp", OTHERS_LIMIT.format(name="RLIMIT_FSIZE", value=1), judge="next user"),
    Escape("next-user", "limit-processes", "seccomp", OTHERS_LIMIT.format(name="RLIMIT_NPROC", value=0), judge="next user"),
    Escape("next-user", "limit-memory", "seccomp", OTHERS_LIMIT.format(name="RLIMIT_STACK", value=65536), judge="next user"),
    Escape("next-user", "priority", "seccomp", "os.setpriority(os.PRIO_PROCESS, «SUPERVISOR», 19)", judge="next user"),
    Escape("next-user", "priority-of-all", "seccomp", "os.setpriority(os.PRIO_USER, 0, 19)", judge="next user"),
    Escape("next-user", "scheduler", "seccomp", "os.sched_setscheduler(«SUPERVISOR», os.SCHED_IDLE, os.sched_param(0))", judge="next user"),
    Escape("next-user", "processors", "seccomp", "os.sched_setaffinity(«SUPERVISOR», {0})", judge="next user", refused=ONE_CORE),
    Escape("next-user", "files", "reset", "open('left', 'w').write('for the next')", judge="next user"),
    Escape("next-user", "mode", "reset", "os.chmod('/tmp', 0o500)", judge="next user", refused=ROOTS_FOLDER),
    Escape("next-user", "closed", "reset", "os.chmod('/tmp', 0)", judge="next user", refused=ROOTS_FOLDER),
    Escape("next-user", "attribute", "reset", "os.setxattr('/tmp', 'user.x', b'left')", judge="next user", refused=ROOTS_FOLDER),
    Escape("next-user", "access-list", "reset", ACCESS_LIST, judge="next user", refused=ROOTS_FOLDER),
    Escape("next-user", "time", "reset", "os.utime('/tmp', (7, 7))", judge="next user", refused=ROOTS_FOLDER),
    # ---- privileges and dangerous system calls
    Escape("capabilities", "chroot", "capabilities", "os.mkdir('r'); os.chroot('r'); escaped('a root of its own')"),
    Escape(
        "capabilities",
        "chown",
        "capabilities",
        "open('f', 'w'); os.chown('f', 1, 1); escaped()",
        refused={"bubblewrap": "no other user is mapped"},
    ),
    Escape("capabilities", "device", "capabilities", "os.mknod('zero', 0o20666, os.makedev(1, 5)); escaped()", refused=NO_DEVICES),
    Escape("capabilities", "port", "capabilities", "socket.create_server(('127.0.0.1', 80)); escaped()", only="bubblewrap"),
    Escape("setuid", "su", "new_privileges", SETUID.format(program="'su'"), refused=BWRAP_NEVER),
    Escape("setuid", "passwd", "new_privileges", SETUID.format(program="'passwd'"), refused=BWRAP_NEVER),
    Escape("setuid", "call", "capabilities", "os.setuid(1); escaped(os.getuid())", refused={"bubblewrap": "no other user is mapped"}),
    Escape("keyctl", "keyring", "seccomp", "escaped(call(«NR keyctl», 1, 0))"),
    Escape(
        "keyctl",
        "add",
        "seccomp",
        "escaped(call(«NR add_key», ctypes.c_char_p(b'user'), ctypes.c_char_p(b'k'), ctypes.c_char_p(b'v'), 1, -2))",
    ),
    Escape("io_uring", "setup", "seccomp", IO_URING, refused=KERNEL),
    Escape("ptrace", "attach", "seccomp", TRACED_CHILD.format(act="call(«NR ptrace», 16, pid, 0, 0); escaped('attached')")),
    Escape("ptrace", "traceme", "seccomp", "call(«NR ptrace», 0, 0, 0, 0); escaped()"),
    Escape(
        "ptrace",
        "read-memory",
        "seccomp",
        TRACED_CHILD.format(
            act="into = ctypes.create_string_buffer(21); v = lambda b: ctypes.c_char_p(struct.pack('QQ', ctypes.addressof(b), 21)); "
            "call(«NR process_vm_readv», pid, v(into), 1, v(secret), 1, 0); escaped(into.value)"
        ),
    ),
    Escape("mount", "own-namespace", "seccomp", NEW_MOUNT),
    Escape("mount", "fsopen", "seccomp", "call(«NR unshare», 0x10020000); escaped(call(«NR fsopen», ctypes.c_char_p(b'tmpfs'), 0))"),
    Escape("namespaces", "unshare", "seccomp", "call(«NR unshare», 0x10000000); escaped('a user namespace')"),
    Escape("namespaces", "clone", "seccomp", CLONED.format(flags="0x10000000")),
    Escape("namespaces", "clone-network", "seccomp", CLONED.format(flags="0x50000000")),
    Escape("namespaces", "clone3", "seccomp", CLONE3),
    Escape("kernel", "userfaultfd", "seccomp", "escaped(call(«NR userfaultfd», 1))", refused=KERNEL),
    Escape(
        "kernel",
        "perf",
        "seccomp",
        "escaped(call(«NR perf_event_open», ctypes.c_char_p(struct.pack('IIQQQQQ', 1, 112, 1, 0, 0, 0, 0x60) + bytes(64)), 0, -1, -1, 0))",
        refused=KERNEL,
    ),
    Escape(
        "kernel",
        "bpf",
        "seccomp",
        "escaped(call(«NR bpf», 0, ctypes.c_char_p(struct.pack('IIII', 2, 4, 8, 1) + bytes(56)), 72))",
        refused=KERNEL,
    ),
    Escape("kernel", "personality", "seccomp", PERSONALITY),
    Escape("kernel", "handle", "seccomp", HANDLE),
    Escape("kernel", "kcmp", "seccomp", "escaped(call(«NR kcmp», os.getpid(), os.getpid(), 1, 0, 0))", refused=KERNEL),
    Escape("kernel", "architecture", "seccomp", COMPAT, refused=KERNEL),
    Escape("ipc", "shared-memory", "seccomp", "escaped(call(«NR shmget», 0x48, 4096, 0o1666))"),
    Escape("ipc", "queue", "seccomp", "escaped(call(«NR msgget», 0x48, 0o1666))"),
    Escape("ipc", "semaphore", "seccomp", "escaped(call(«NR semget», 0x48, 1, 0o1666))"),
    Escape("ipc", "posix-queue", "seccomp", "escaped(call(«NR mq_open», ctypes.c_char_p(b'q'), 0o102, 0o666, 0))"),
)

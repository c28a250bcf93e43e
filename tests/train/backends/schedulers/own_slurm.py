"""A real Slurm cluster of our own on this machine, for tests and measurements where Slurm is installed and none is at hand.

As root on Debian or Ubuntu, with the packages of `PACKAGES`: two nodes of four CPUs and two GPUs each (files, no devices), a partition
`main` of both and `cpu` of one, and accounts where MariaDB is installed too. The daemons keep all they write in one folder, touch no
configuration of the machine, and end with the `with` block. No cgroup limits a job: memory is watched by slurmstepd.
"""

from __future__ import annotations

import os
import platform
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from train.child_process import dying_with_parent

PACKAGES = ("slurmctld", "slurmd", "slurm-client", "munge")
ACCOUNTS = ("slurmdbd", "mariadb-server")
APT = f"apt-get install -y --no-install-recommends {' '.join((*PACKAGES, *ACCOUNTS))}"
NODES = ("n1", "n2")
_START_S = 60.0
_NODE = "OWN_SLURM_NODE"
"""Environment variable by which the processes of a node are known."""
_CONF = """ClusterName=headrace
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
ReturnToService=2
SlurmdTimeout=10
KillWait=2
SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=0
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=1
JobAcctGatherParams=OverMemoryKill
EnforcePartLimits=ALL
GresTypes=gpu
SlurmdParameters=config_overrides
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=4 RealMemory=4000 Gres=gpu:2
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=4 RealMemory=4000 Gres=gpu:2
PartitionName=main Nodes=n1,n2 Default=YES MaxTime=60 State=UP
PartitionName=cpu Nodes=n1 MaxTime=60 State=UP
"""
_ACCOUNTS_CONF = """AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={ports[3]}
AccountingStoragePass={folder}/munge/socket
AccountingStorageEnforce=associations
"""
_DBD_CONF = """AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
DbdHost=localhost
DbdPort={ports[3]}
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm
PidFile={folder}/slurmdbd.pid
"""


def missing() -> str:
    """Why no cluster of our own can be started here; empty if it can."""
    if platform.system() != "Linux" or os.geteuid() != 0:
        return f"a Slurm cluster of our own needs root on Linux: {APT}"
    lacking = [program for program in ("slurmctld", "slurmd", "sbatch", "munged") if shutil.which(program) is None]
    return f"{', '.join(lacking)} not installed: {APT}" if lacking else ""


class OwnSlurm:
    """A running cluster. configuration: its slurm.conf, for SLURM_CONF. has_accounts: whether sacct answers."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder, self._stack = folder, stack
        self.configuration = folder / "slurm.conf"
        self.has_accounts = all(map(shutil.which, ("slurmdbd", "mariadbd", "mariadb-install-db")))
        self._given = os.environ | {"SLURM_CONF": str(self.configuration), "MYSQL_UNIX_PORT": str(folder / "mysql.sock")}
        self._nodes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Raises RuntimeError: it does not come up."""
        self._write_configuration()
        munge = self._folder / "munge"
        options = [f"--{name}={munge / file}" for name, file in (("key-file", "key"), ("socket", "socket"), ("seed-file", "seed"))]
        options += [f"--pid-file={munge / 'pid'}", f"--log-file={munge / 'log'}"]
        self._daemon("munged", "--foreground", "--force", *options)
        _wait((munge / "socket").exists, "munged")
        if self.has_accounts:
            self._start_accounts()
        self._daemon("slurmctld", "-D", "-i")
        for node in NODES:
            self.start_node(node)
        _wait(lambda: self._says("sinfo", "--noheader", "--Node", "--format=%T").split() == ["idle"] * 3, "slurmctld and slurmd")

    def start_node(self, node: str) -> None:
        self._nodes[node] = self._daemon("slurmd", "-D", "-N", node, mark=node)

    def kill_node(self, node: str) -> None:
        """Ends a node as a power failure does: its daemon, and first of all what runs its jobs, so that nothing reports their end."""
        marks = (f"{_NODE}={node}", f"SLURMD_NODENAME={node}")
        ours = f"SLURM_CONF={self.configuration}"
        self._nodes[node].kill()
        for mark in marks:
            for path in Path("/proc").glob("[0-9]*/environ"):
                with suppress(OSError):
                    if {mark, ours} <= set(path.read_text(errors="replace").split("\0")):
                        os.kill(int(path.parent.name), signal.SIGKILL)

    def _write_configuration(self) -> None:
        for name in ("munge", "state", "log", *(f"spool-{node}" for node in NODES)):
            (self._folder / name).mkdir()
        self._folder.chmod(0o755)
        (self._folder / "munge" / "key").write_bytes(os.urandom(1024))
        (self._folder / "munge" / "key").chmod(0o600)
        values = {"folder": self._folder, "host": socket.gethostname(), "ports": _free_ports(4)}
        self.configuration.write_text((_CONF + (_ACCOUNTS_CONF if self.has_accounts else "")).format(**values))
        gpus = [self._folder / f"gpu{number}" for number in range(2)]
        for gpu in gpus:
            gpu.touch()
        (self._folder / "gres.conf").write_text(f"NodeName=n[1-2] Name=gpu File={self._folder}/gpu[0-1]\n")
        (self._folder / "slurmdbd.conf").write_text(_DBD_CONF.format(**values))
        (self._folder / "slurmdbd.conf").chmod(0o600)

    def _start_accounts(self) -> None:
        data = self._folder / "database"
        install = ["mariadb-install-db", "--auth-root-authentication-method=normal", "--user=root", f"--datadir={data}"]
        subprocess.run(install, check=True, capture_output=True)
        given = [f"--datadir={data}", f"--socket={self._folder / 'mysql.sock'}", f"--pid-file={self._folder / 'mariadb.pid'}"]
        self._daemon("mariadbd", "--no-defaults", "--user=root", "--skip-networking", "--innodb-buffer-pool-size=64M", *given)
        _wait((self._folder / "mysql.sock").exists, "mariadbd")
        self._daemon("slurmdbd", "-D")
        _wait(lambda: "headrace" in self._says("sacctmgr", "--immediate", "add", "cluster", "headrace"), "slurmdbd")
        self._says("sacctmgr", "--immediate", "add", "account", "research", "cluster=headrace")
        self._says("sacctmgr", "--immediate", "add", "user", "root", "account=research", "cluster=headrace")

    def _daemon(self, name: str, *options: str, mark: str = "") -> subprocess.Popen[bytes]:
        with (self._folder / f"{name}.out").open("ab") as out:
            process = subprocess.Popen(
                [str(shutil.which(name)), *options],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=self._given | {_NODE: mark},
                preexec_fn=dying_with_parent(),  # noqa: PLW1509 (it execs at once)
            )
        self._stack.callback(_end, process)
        return process

    def _says(self, *words: str) -> str:
        return subprocess.run(words, env=self._given, capture_output=True, text=True, check=False).stdout


@contextmanager
def own_slurm(folder: Path) -> Iterator[OwnSlurm]:
    """A cluster that lives as long as the block. folder: an empty one, with a short path.

    Raises:
        RuntimeError: it does not come up, or cannot be started here.
    """
    if missing():
        raise RuntimeError(missing())
    with ExitStack() as stack:
        cluster = OwnSlurm(folder, stack)
        cluster.start()
        stack.callback(cluster._says, "scancel", "--full", "--user=root")
        yield cluster


def _wait(is_up: Callable[[], bool], name: str) -> None:
    deadline = time.monotonic() + _START_S
    while not is_up():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{name} did not come up within {_START_S:g} s")
        time.sleep(0.2)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]

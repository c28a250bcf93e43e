"""Fixtures that several rooms share. The Prefect server is started once a session, and only when a test asks for it."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from aiohttp import web

    from benchmarks.synthesis_sections.mock_openai import Mock

settings.register_profile("untimed", deadline=None)  # how long an example takes says more of the machine than of the code
settings.load_profile("untimed")

MARK = "HEADRACE_TEST_MARK"
SERVICES = ("ray", "server", "docker", "")
"""In the order in which their tests begin."""
_BEGAN = time.monotonic()
Serve = Callable[["Mock"], str]


def processes(mark: str) -> list[str]:
    """Command lines of all processes, zombies aside, whose environment carries the mark."""
    commands = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                environment = (folder / "environ").read_bytes().split(b"\0")
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            except OSError:
                continue
            if f"{MARK}={mark}".encode() in environment:
                commands.append(f"{folder.name} {command}")
    return commands


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--time-limit", type=float, metavar="SECONDS", help="skip every test that would begin later than this")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Files that need a service come first, because they take longest; then those with the most slow tests, so that no process ends late.

    Under a time limit the tests that are nearest to the uncommitted changes come first.
    """
    if config.getoption("--time-limit"):
        changed = changed_files(config.rootpath)
        items.sort(key=lambda item: distance(item.path.relative_to(config.rootpath), changed))
    else:
        items.sort(key=lambda item: (SERVICES.index(service(item.path)), -slow_tests(item.path)))


def pytest_collection_finish() -> None:
    """What collecting has imported stays until the end, so the garbage collector need not go through it again and again."""
    gc.collect()
    gc.freeze()


def changed_files(root: Path) -> set[Path]:
    """Files that differ from the last commit, untracked ones among them."""
    commands = ["diff", "--name-only", "HEAD"], ["ls-files", "--others", "--exclude-standard"]
    outputs = [subprocess.run(["git", *command], cwd=root, capture_output=True, text=True, check=True).stdout for command in commands]
    return {Path(line) for output in outputs for line in output.splitlines()}


def distance(test: Path, changed: set[Path]) -> int:
    """0: the test file has changed, or mirrors a module that has; 1: it mirrors a module in the same folder; 2: neither."""
    folder = Path(*test.parts[1:-1])
    if test in changed or folder / test.name.removeprefix("test_") in changed:
        return 0
    return 1 if folder in {path.parent for path in changed} else 2


def pytest_runtest_setup(item: pytest.Item) -> None:
    limit_s = item.config.getoption("--time-limit")
    if limit_s and time.monotonic() - _BEGAN > limit_s:
        pytest.skip(f"the time limit of {limit_s:g} s is over")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Shares tests among processes (`pytest -n 3`): the tests of a file stay together, and so do all tests of one service, which is started
    once."""
    from xdist.scheduler import LoadFileScheduling

    config.option.loadscopereorder = False  # files with many tests first would leave the services, few but long tests, to the end

    class Together(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            return service(config.rootpath / file) or file

    return Together(config, log)


@cache
def slow_tests(file: Path) -> int:
    """How often the file marks tests as slow."""
    return file.read_text().count("mark.slow")


@cache
def service(file: Path) -> str:
    """The service of SERVICES that the file's tests need; empty if none."""
    text = file.read_text()
    return next((name for name in SERVICES if name and f"mark.{name}" in text), "")


@pytest.fixture(autouse=True, scope="module")
def no_world_is_left() -> Iterator[None]:
    """Worlds of stores that a file's tests made known are unknown to those of the next file."""
    from synth.worlds import WORLDS

    known = dict(WORLDS._registered)
    yield
    WORLDS._registered = known


@pytest.fixture(scope="session")
def test_data() -> Path:
    """The folder of optional test data: HEADRACE_TEST_DATA, by default ../shared/data beside the checkout."""
    folder = Path(os.environ.get("HEADRACE_TEST_DATA") or Path(__file__).parents[2] / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no optional test data at {folder}: name their folder in HEADRACE_TEST_DATA")
    return folder


@pytest.fixture
def marked() -> tuple[dict[str, str], Callable[[], list[str]]]:
    """An environment that marks every process started with it, and a look at which of them live."""
    if sys.platform != "linux":
        pytest.skip("looks into /proc")
    mark = uuid.uuid4().hex
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PREFECT_")}
    return {**environment, MARK: mark}, lambda: processes(mark)


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serves a mock of an OpenAI-compatible server from a thread of its own; gives the URL."""
    from aiohttp import web

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    runners: list[web.AppRunner] = []

    async def begin(mock: Mock) -> str:
        runner = web.AppRunner(mock.app(), access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        runners.append(runner)
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}/v1"

    async def end() -> None:
        for runner in runners:
            await runner.cleanup()

    yield lambda mock: asyncio.run_coroutine_threadsafe(begin(mock), loop).result()
    asyncio.run_coroutine_threadsafe(end(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()


class RayHead:
    """A Ray cluster on this machine: one node of one CPU, with the dashboard that takes jobs, and a second where one is added.

    address: for tasks; dashboard: for jobs. Jobs find this checkout and its Python.
    """

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_raylet_start_wait_time_s="120")
        self._cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": True, "dashboard_port": 0})
        self._second: Any = None
        self.address = str(self._cluster.address)
        self.dashboard = f"http://{self._cluster.head_node.address_info['webui_url']}"

    def add_second(self) -> None:
        self._second = self._second or self._cluster.add_node(num_cpus=1)
        self._cluster.wait_for_nodes()

    def kill_second(self) -> None:
        if self._second is not None:
            self._cluster.remove_node(self._second, allow_graceful=False)
            self._second = None

    def close(self) -> None:
        self._cluster.shutdown()


@pytest.fixture(scope="session")
def ray_head() -> Iterator[RayHead]:
    """The one Ray that the whole session shares."""
    before = dict(os.environ)
    here, bin_folder = str(Path(__file__).parents[1]), str(Path(sys.executable).parent)
    os.environ.update(PATH=f"{bin_folder}:{before.get('PATH', '')}", PYTHONPATH=f"{here}:{before.get('PYTHONPATH', '')}")
    try:
        head = RayHead()
    finally:
        os.environ.clear()
        os.environ.update(before)
    yield head
    head.close()


@pytest.fixture(scope="session")
def prefect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The API URL of a real Prefect server that the whole session shares; this process is its client too."""
    from flows.runtime.server import client_environment, own_server

    folder = tmp_path_factory.mktemp("server") / ".prefect"
    before = dict(os.environ)
    with own_server(folder) as url:
        os.environ.update(client_environment(folder, url))
        from prefect.settings import PREFECT_API_URL, PREFECT_HOME, temporary_settings

        from flows.runtime.run_flow import flush_to_server

        try:
            # Prefect reads the environment when it is imported, which a test module may have done before.
            with temporary_settings({PREFECT_API_URL: url, PREFECT_HOME: folder}):
                yield url
                flush_to_server()
        finally:
            os.environ.clear()
            os.environ.update(before)

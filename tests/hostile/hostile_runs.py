"""What happens with a hostile input: it is taken, or refused in one of our errors; all else is a fault. Run as a program on a group.

`python -m tests.hostile.hostile_runs GROUP COUNT` prints a line of JSON before and after each case; who called it ends it when a case takes
too long, and goes on behind that case with `--after NAME`.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from aiohttp import web

from benchmarks.synthesis_sections.mock_openai import MODEL
from storage.errors import HeadraceError
from storage.records import Message
from synth.engines.base import ChatRequest
from synth.engines.openai import OpenAIConfig, OpenAIEngine
from tests.hostile.hostile_catalogues import catalogue_files
from tests.hostile.hostile_policies import MARK, SPOILS
from tests.hostile.hostile_queries import QUERY_FILES
from tests.hostile.hostile_worlds import world_files
from tests.synth.engines.hostile_answers import KEY, Answer, Hostile
from tests.synth.engines.hostile_answers import KINDS as ANSWERS

MEMORY_BYTES = 12 * 2**30
"""Address space of the process that takes hostile input; torch alone maps some of it."""


def cases(group: str, count: int, scratch: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """Name and call of each case. count: of mutated world files."""
    if group == "worlds":
        for name, text in world_files(count).items():
            yield name, partial(_world, text, scratch)
    elif group == "catalogues":
        for name, content in catalogue_files().items():
            yield name, partial(_catalogue, content, scratch)
    elif group == "queries":
        for name, write in QUERY_FILES.items():
            yield name, partial(_queries, write, scratch)
    elif group == "servers":
        os.environ["OPENAI_API_KEY"] = KEY
        for name, make in ANSWERS.items():
            yield name, partial(_server, make)
    elif group == "policies":
        for name, spoil in SPOILS.items():
            yield name, partial(_policy, spoil, scratch)


SAYS = "case: "
GROUPS = ("worlds", "catalogues", "queries", "servers", "policies")


def _world(text: str, scratch: Path) -> None:
    """Compiles a world; of one that compiles, a state is made, and each tool is called forty times on the same row."""
    from synth.worlds.declarative.compile import compile_file
    from tests.hostile.forty_calls import call_forty_times

    path = _fresh(scratch) / "world.yaml"
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    call_forty_times(compile_file(path))


def _catalogue(content: bytes, scratch: Path) -> None:
    from synth.clusters.business_clusters import cluster_tools
    from synth.clusters.catalog import read_catalogue

    path = _fresh(scratch) / "tools.json"
    path.write_bytes(content)
    cluster_tools(read_catalogue(path).tools[:3_000])


def _queries(write: Callable[[Path], Path], scratch: Path) -> None:
    """The whole funnel but for the commit."""
    from filters import funnel
    from flows.config import Config
    from flows.validation import query_files
    from storage.store import Store

    path = write(folder := _fresh(scratch))
    files = query_files([str(path)])
    settings = Config(store=folder / "store").curate
    ingest = settings.ingest.model_copy(update={"column": "text"})
    try:
        funnel.curate(Store(folder / "store"), files, settings.model_copy(update={"ingest": ingest}), commits=False)
    except funnel.NotCommitted:
        return


def _server(make: Callable[[], Answer]) -> None:
    """Asks a server for an answer, and a second time where that may help."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def begin() -> tuple[web.AppRunner, int]:
        runner = web.AppRunner(Hostile(make()).app(), access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return runner, int(runner.addresses[0][1])

    runner, port = asyncio.run_coroutine_threadsafe(begin(), loop).result()
    config = OpenAIConfig(model=MODEL, base_url=f"http://127.0.0.1:{port}/v1", timeout_s=5.0, tries=2)
    try:
        with OpenAIEngine(config) as engine:
            engine.chat([ChatRequest((Message(role="user", content="hi"),), max_tokens=64, alternatives=2)])
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


def _policy(spoil: Callable[[Path], None], scratch: Path) -> None:
    """Opens the model, and asks it for one answer."""
    from synth.engines.local.hf import HFEngine

    folder = _fresh(scratch)
    shutil.copytree(good_policy(), folder / "model")
    spoil(folder / "model")
    try:
        request = ChatRequest(messages=(Message(role="user", content="hello"),), max_tokens=4, seed=1)
        HFEngine(folder / "model").chat([request])
    finally:
        if (folder / MARK).exists():
            raise RuntimeError("code of the folder ran")


def good_policy() -> Path:
    """A small model folder, made once in this process."""
    from train import tiny
    from train.spec import TinyConfig

    folder = Path(tempfile.gettempdir()) / "headrace-good-policy"
    if not folder.exists():
        tokenizer = tiny.build_tokenizer(["hello world"])
        model = tiny.build_model(TinyConfig(), tokenizer, 0)
        draft = Path(tempfile.mkdtemp())
        tiny.save_policy(model, tokenizer, draft)
        draft.replace(folder)
    return folder


def _fresh(scratch: Path) -> Path:
    return Path(tempfile.mkdtemp(dir=scratch))


def outcome(call: Callable[[], object]) -> str:
    """`taken`, `refused: MESSAGE`, or `unexpected: ERROR`."""
    try:
        call()
    except HeadraceError as error:
        message = " ".join(str(error).split())
        if KEY in message or not message.isprintable():
            return f"unexpected: a key or a terminal's escape in {message!r}"
        return f"refused: {message}"
    except BaseException as error:
        return f"unexpected: {type(error).__name__}: {str(error)[:200]}"
    return "taken"


def outcomes(group: str, count: int = 100, *, limit_s: float = 60.0) -> Mapping[str, str]:
    """Name -> outcome of every case of a group, each with a limit of time and memory; `hung` for one that does not end."""
    found: dict[str, str] = {}
    after = ""
    while after is not None:
        after = _some(group, count, after, found, limit_s)
    return found


def _some(group: str, count: int, after: str, found: dict[str, str], limit_s: float) -> str | None:
    """Runs the cases behind `after` in a process; the name of the case that ended it; None: all are done."""
    command = [sys.executable, "-m", "tests.hostile.hostile_runs", group, str(count), "--after", after]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        name = None
        timer = threading.Timer(limit_s * 3, process.kill)  # the first case waits for imports
        timer.start()
        for line in process.stdout:
            said = line.partition(SAYS)[2]  # behind what a library may have printed without a line end
            if not said:
                continue
            event = json.loads(said)
            if "begins" in event:
                name = event["begins"]
            else:
                found[event["name"]], name = event["outcome"], None
            timer.cancel()
            timer = threading.Timer(limit_s, process.kill)
            timer.start()
        code = process.wait()
        timer.cancel()
    if code == 0:
        return None
    if name is None:
        raise RuntimeError(f"the process of group {group} ended with code {code} between two cases")
    found[name] = "hung" if code == -signal.SIGKILL else f"unexpected: the process ended with code {code}"
    return name


def main(group: str, count: int, after: str) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**30, 2**30))
    waits = bool(after)
    with tempfile.TemporaryDirectory(prefix="headrace-hostile-") as scratch:
        for name, call in cases(group, count, Path(scratch)):
            if waits:
                waits = name != after
                continue
            print(SAYS + json.dumps({"begins": name}), flush=True)
            print(SAYS + json.dumps({"name": name, "outcome": outcome(call)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[4])

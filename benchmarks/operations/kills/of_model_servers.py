"""The server of a language model, killed and started again on its port while it plays the user of a synthesis. The model is scripted."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import yaml

from benchmarks.operations.kills.processes import Killed, left_in
from benchmarks.operations.whole_runs import CONFIG, FOLDER, Ended, headrace
from benchmarks.synthesis_sections.mock_openai import MODEL, Running, started
from storage.store import Store

_KILLS, _OF_A_RUN = 6, 3
_LATENCY_MS = 300.0
_PROPOSALS = 60
_CALLS = 5
"""Of the same command, until it succeeds: it ends if a server is away for too long."""


def kill_model_servers(picked: random.Random) -> Killed:
    """A kill has recovered if the command, called again where it gave up, ends with the hash of one whose server lived."""
    folder = FOLDER / "engine"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    config = yaml.safe_load(CONFIG.read_text())
    config["synthesize"] |= {"max_proposals": _PROPOSALS, "roles": {"user": f"openai:{MODEL}"}}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    with started(latency_ms=_LATENCY_MS) as server:
        _synthesize(folder, "undisturbed", server)
    expected = Store(folder / "undisturbed").content_hash()
    kills = recovered = 0
    while kills < _KILLS:
        store = f"after-{kills}"
        done, ended = _synthesize_and_kill(folder, store, picked)
        is_equal = ended.code == 0 and Store(folder / store).content_hash() == expected
        kills, recovered = kills + done, recovered + done * is_equal
        print(f"    {kills}: {done} model servers killed; {'equal hash' if is_equal else f'NOT equal: {ended.last_line}'}", flush=True)
    left = left_in(folder)
    shutil.rmtree(folder)
    return Killed(kills, recovered, left)


def _synthesize_and_kill(folder: Path, store: str, picked: random.Random) -> tuple[int, Ended]:
    """Kills done, and how the last call of the command ended."""
    asked, kills = folder / f"{store}.asked", 0
    port, next_at = 0, picked.randint(10, 60)
    with ExitStack() as alive:

        def serve() -> Running:
            return alive.enter_context(started(latency_ms=_LATENCY_MS, journal=asked, port=port))

        server = serve()
        port = server.port  # the next ones have the same

        def kill_and_restart() -> bool:
            nonlocal kills, next_at, server
            if kills < _OF_A_RUN and asked.exists() and asked.read_bytes().count(b"received") >= next_at:
                server.kill()
                kills += 1
                next_at += picked.randint(20, 60)
                time.sleep(picked.uniform(1.0, 8.0))
                server = serve()
            return False

        for _ in range(_CALLS):
            ended = _synthesize(folder, store, server, kill_and_restart)
            if ended.code == 0:
                break
    return kills, ended


def _synthesize(folder: Path, store: str, server: Running, kill_when: Callable[[], bool] | None = None) -> Ended:
    """Calls `headrace synthesize` on a store, with the served model as the user."""
    command = ("synthesize", "--config", "config.yaml", "--store", store, "--usd-per-million", "0", "0")
    environment = {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "none"}
    return headrace(*command, folder=folder, kill_when=kill_when, environment=environment)

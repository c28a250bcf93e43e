"""Whether secrets of the user's environment are found in anything that Headrace writes, prints or starts.

Planted: keys and passwords in the environment and in the server's URL. A model server repeats the headers that it got in every answer, in
the ids of calls and in its errors; a query file repeats the key; configurations and the spec of a live world hold a password. The commands
synthesise, curate, plan a training on a cluster, chat, fail and export, each as a process of its own, while the process list is watched.

Looked for: each secret as it is, as JSON and URLs write it, and in base64, in the bytes of all files (those of the input apart; Parquet,
DuckDB and SQLite also row by row, as text), in all output, and in the command lines of all processes. The negative control: the server did
get the key and the login, and a search of the inputs does find them.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from aiohttp import web

from benchmarks.harness import ROOT, fail
from benchmarks.synthesis_sections.mock_openai import MODEL, Mock

SECRETS = {
    "OPENAI_API_KEY": "sk-planted-0123456789-key",
    "HF_TOKEN": "hf_planted9876543210token",
    "SHOP_PASSWORD": 'planted "pass\\word" 77',
}
LOGIN = "planted-url-password-31"
IN_FILE = "planted-file-password-64"
INPUT = "input"
LONGEST_S = 180
_SYNTHESIS = {
    "worlds": ["clinic"],
    "accepted": 2,
    "max_proposals": 4,
    "calibration": 24,
    "subsample": 24,
    "drills": {},
    "code_share": 0,
    "evolution": {"proposals_per_round": 4},
    "roles": {"assistant": f"openai:{MODEL}", "timeout_s": 5.0},
}


class Parrot(Mock):
    """Repeats every secret that it knows and every authorisation that it got; each third try is an error that does so."""

    def __init__(self) -> None:
        super().__init__()
        self.got: set[str] = set()
        self._tries = 0

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self._tries += 1
        self.got.add(request.headers.get("Authorization", ""))
        said = " ".join([*SECRETS.values(), LOGIN, *self.got])
        last = str(body["messages"][-1].get("content") or "")
        if "refuse" in last or self._tries % 3 == 0:
            status = 400 if "refuse" in last else 503
            return web.json_response({"error": {"message": f"\x1b[2J{said}", "code": said}}, status=status, headers={"Retry-After": "0"})
        message = {"role": "assistant", "content": f"Your key is {said}"}
        if body.get("tools") and self._tries % 2:
            call = {"name": body["tools"][0]["function"]["name"], "arguments": json.dumps({"key": said})}
            message |= {"tool_calls": [{"id": said[:60], "type": "function", "function": call}]}
        return web.json_response({"choices": [{"message": message}], "usage": {"prompt_tokens": 5, "completion_tokens": 5}})


def measure() -> dict[str, float]:
    """`secrets_found`: places (file, output, process) times secrets; `secrets_commands`: commands that ran; `secrets_files`: files that
    were searched.

    Raises SystemExit: the negative control fails.
    """
    folder = Path(tempfile.mkdtemp(prefix="headrace-secrets-"))
    try:
        with _serving(parrot := Parrot()) as port:
            _write_input(folder)
            environment = _environment(folder, port)
            spellings = _spellings([*SECRETS.values(), LOGIN, IN_FILE])
            with _watched_processes(spellings) as seen:
                outputs = [_run(words, folder, environment) for words in _commands()]
        found = [f"{place}: {secret}" for place, data in _places(folder, outputs) for secret in _find(data, spellings)]
        found += sorted(seen)
        for line in found:
            print(f"    {line}", flush=True)
        _check(parrot, folder, spellings)
        files = sum(1 for _ in _files(folder))
        return {"secrets_found": len(found), "secrets_commands": len(outputs), "secrets_files": files}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# ---- what is run ---------------------------------------------------------------------------------------------------------------


def _write_input(folder: Path) -> None:
    files = folder / INPUT
    files.mkdir()
    store = str(folder / "runs" / "store")
    cluster = {"backend": "ray", "cluster": {"address": "http://127.0.0.1:9", "checkpoints": "file:///nowhere"}}
    (files / "run.yaml").write_text(json.dumps({"store": store, "synthesize": _SYNTHESIS, "train": cluster}))
    server = {"semantic": {"encoder": {"server": f"http://ann:{IN_FILE}@127.0.0.1:9/v1", "model": "m"}}}
    (files / "login.yaml").write_text(json.dumps({"store": store, "curate": server}))
    variable = {"backend": "ray", "cluster": {"address": "http://127.0.0.1:9", "env": {"DB_PASSWORD": IN_FILE}}}
    (files / "variable.yaml").write_text(json.dumps({"store": store, "train": variable}))
    (files / "live.yaml").write_text(json.dumps({"live": "shop", "url": f"http://ann:{IN_FILE}@127.0.0.1:9/mcp"}))
    texts = [f"Book a visit on {day} May, my key is {SECRETS['OPENAI_API_KEY']}" for day in range(1, 29)]
    (files / "queries.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))


def _commands() -> list[list[str]]:
    store, config = ["--store", "runs/store"], ["--config", f"{INPUT}/run.yaml"]
    return [
        ["synthesize", *config],
        ["curate", f"{INPUT}/queries.jsonl", "--column", "text", "--ungrounded", *config],
        ["train", "--dry-run", *config],
        ["export", "--queries", "--out", "exports/queries", *store],
        ["export", "--format", "sharegpt", "--out", "exports/chats", *store],
        ["explain", "queries.jsonl:1", *store],
        ["chat", "--policy", f"openai:{MODEL}", "--world", "clinic", "--say", "hello", *store],
        ["chat", "--policy", f"openai:{MODEL}", "--world", "clinic", "--say", "hello again", "--json", *store],
        ["chat", "--policy", f"openai:{MODEL}", "--world", "clinic", "--say", "refuse", "--debug", *store],
        ["doctor", "--engine", "openai:other"],
        ["curate", f"{INPUT}/queries.jsonl", "--column", "text", "--config", f"{INPUT}/login.yaml"],
        ["train", "--config", f"{INPUT}/variable.yaml", "--debug"],
        ["worlds", "check", f"{INPUT}/live.yaml"],
        ["ledger", *store],
    ]


def _environment(folder: Path, port: int) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    base = f"http://ann:{LOGIN}@127.0.0.1:{port}/v1"
    return kept | SECRETS | {"OPENAI_BASE_URL": base, "PYTHONPATH": str(ROOT), "HOME": str(folder / "home"), "TMPDIR": str(folder)}


def _run(words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> bytes:
    """The output of a command, whatever its end."""
    command = [sys.executable, "-c", "from flows.cli.main import main; main()", *words]
    done = subprocess.run(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=LONGEST_S, check=False
    )
    last = (done.stdout + done.stderr).decode(errors="replace").strip().splitlines()[-1:]
    print(f"    {done.returncode} headrace {' '.join(words[:4])}: {''.join(last)[:110]}", flush=True)
    return done.stdout + done.stderr


@contextlib.contextmanager
def _serving(mock: Mock) -> Iterator[int]:
    """The port of a server in a thread of this process."""
    loop = asyncio.new_event_loop()
    runner = web.AppRunner(mock.app(), access_log=None)

    async def begin() -> int:
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return int(runner.addresses[0][1])

    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield asyncio.run_coroutine_threadsafe(begin(), loop).result()
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


@contextlib.contextmanager
def _watched_processes(spellings: Mapping[str, Sequence[bytes]]) -> Iterator[set[str]]:
    """Secrets that were seen in the command line of a process; looked for all the time."""
    seen: set[str] = set()
    ended = threading.Event()

    def watch() -> None:
        while not ended.is_set():
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):
                    seen.update(f"process list: {secret}" for secret in _find(path.read_bytes(), spellings))
            time.sleep(0.05)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()


# ---- where is looked -----------------------------------------------------------------------------------------------------------


def _spellings(secrets: Sequence[str]) -> dict[str, list[bytes]]:
    """Secret -> how it may be written."""
    return {
        secret: [
            one.encode()
            for one in {
                secret,
                json.dumps(secret)[1:-1],
                json.dumps(json.dumps(secret))[1:-1].strip('\\"'),
                quote(secret, safe=""),
                base64.b64encode(secret.encode()).decode().rstrip("="),
                base64.b64encode(f"ann:{secret}".encode()).decode().rstrip("="),
            }
        ]
        for secret in secrets
    }


def _find(data: bytes, spellings: Mapping[str, Sequence[bytes]]) -> list[str]:
    return [secret for secret, written in spellings.items() if any(one in data for one in written)]


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file() and INPUT not in path.relative_to(folder).parts)


def _places(folder: Path, outputs: Sequence[bytes]) -> Iterator[tuple[str, bytes]]:
    for words, output in zip(_commands(), outputs, strict=True):
        yield f"output of {' '.join(words[:2])}", output
    for path in _files(folder):
        name = str(path.relative_to(folder))
        data = path.read_bytes()
        yield name, data
        if path.suffix == ".parquet":
            yield f"rows of {name}", _parquet_text(path)
        elif path.suffix == ".duckdb":
            yield f"rows of {name}", _duckdb_text(path)
        elif path.suffix == ".gz":
            yield f"text of {name}", gzip.decompress(data)


def _parquet_text(path: Path) -> bytes:
    import polars as pl

    return "\n".join(map(str, pl.read_parquet(path).rows())).encode(errors="replace")


def _duckdb_text(path: Path) -> bytes:
    import duckdb

    with duckdb.connect(str(path), read_only=True) as connection:
        tables = connection.execute("SELECT table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE'").fetchall()
        rows = [row for (table,) in tables for row in connection.execute(f'SELECT * FROM "{table}"').fetchall()]
    return "\n".join(map(str, rows)).encode(errors="replace")


def _check(parrot: Parrot, folder: Path, spellings: Mapping[str, Sequence[bytes]]) -> None:
    """The negative control. Fails where the server did not get the login, or nothing was stored, or the search finds nothing."""
    if not any(header.startswith("Basic ") for header in parrot.got):
        fail("the server never got the login of its URL")
    if set(_find(b"".join(path.read_bytes() for path in (folder / INPUT).iterdir()), spellings)) < {SECRETS["OPENAI_API_KEY"], IN_FILE}:
        fail("the search does not find the secrets of the input")
    stored = b"".join(_parquet_text(path) for path in (folder / "runs" / "store" / "lake").rglob("*.parquet"))
    if b"(secret)" not in stored:
        fail("no answer or query with a masked secret was stored")


if __name__ == "__main__":
    print(measure())

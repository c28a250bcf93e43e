"""The examples of every command's --help work as pasted: in a folder with a finished store and the user's files that they name."""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.main import get_command

from flows.cli.main import app
from storage.by_hand.hand_rows import Annotation, annotate
from storage.store import Store
from synth.explore.conformance import measure
from synth.worlds import WORLDS
from synth.worlds.live.live_spec import dump_live_spec
from synth.worlds.live.lock import write_lock
from tests.e2e.conftest import LIMIT_S, ROOT, Finished
from tests.e2e.warm_commands import Call, warm_commands
from tests.synth.live_servers.shop_api import DESCRIPTION
from tests.synth.live_servers.specs import HERE as SERVERS
from tests.synth.live_servers.specs import notes_spec

pytestmark = [pytest.mark.e2e, pytest.mark.server]

STORES = ("sample", "mine", "seed0", "seed1", "seed2")
ONLY_PLANNED = {
    r"(openai|vllm):": "needs a language model",
    r"run --config configs/sample\.yaml|train --config configs/sample\.yaml": "takes minutes",
    r"--held-out bfcl|--suite": "needs the suites' packages",
    r"package --check": "needs an ecosystem",
    r"headrace render": "needs a base model and a class of the user's",
    r"runs/seed1": "needs trainings with several seeds",
    r"headrace (up|down)": "starts or stops a server and a worker",
    r"serve .*--http|headrace view|headrace metrics .*--port": "serves until it is stopped",
    r"headrace value .*--runs|headrace price .*--traces": "trains for minutes",
    r"connect mcp": "needs a server of the user's",
    r"headrace withdraw .*--yes": "takes a store's rows for good",
    r"verify-log": "needs the calls of a client",
}
"""Pattern of an example -> why it is not run. With `--dry-run` where its command has that, else only its options are read."""
SMALLER = {
    r"--n 200": "--n 20",
    r"--keep [25]00": "--keep 20",
    r"--again 200": "--again 10",
    r"--steps 40": "--steps 10",
    r"--seconds 20": "--seconds 8",
}


def walk(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command with its words, parents first."""
    yield words, command
    for name, child in getattr(command, "commands", {}).items():
        yield from walk(child, (*words, name))


def examples_in(text: str) -> list[str]:
    """The lines of a help text that are calls of `headrace`, alone or behind a pipe."""
    lines = [line.strip().removeprefix("Example: ") for line in text.splitlines()]
    return [line for line in lines if re.match(r"headrace |printf .*\| headrace ", line)]


EXAMPLES = list(dict.fromkeys(example for _, command in walk(get_command(app)) for example in examples_in(command.help or "")))
COMMANDS = {words: command for words, command in walk(get_command(app)) if words}


def reason_not_to_run(example: str) -> str:
    return next((reason for pattern, reason in ONLY_PLANNED.items() if re.search(pattern, example)), "")


def command_of(arguments: list[str]) -> tuple[tuple[str, ...], Any]:
    """The words of the command that arguments call, and the command."""
    words = next((tuple(arguments[:length]) for length in (3, 2) if tuple(arguments[:length]) in COMMANDS), tuple(arguments[:1]))
    return words, COMMANDS[words]


@pytest.fixture(scope="module")
def folder(undisturbed: Finished, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project's folder: finished stores under runs/, the configurations, and files of queries, tools and worlds."""
    here = tmp_path_factory.mktemp("examples")
    here.chmod(0o755)  # as a user's folder is; pytest's can be read by its owner alone
    for name in STORES:
        shutil.copytree(undisturbed.store, here / "runs" / name / "store")
    mine = Store(here / "runs" / "mine" / "store")
    first = mine.query("SELECT min(query_id) FROM queries").item()
    annotate(mine, Annotation(items=(first,), author="ada", verdict="comment", comment="a good one"))
    (here / "configs").symlink_to(ROOT / "configs")
    texts = Store(undisturbed.store).query("SELECT text FROM queries ORDER BY row LIMIT 300")["text"].to_list()
    pl.DataFrame({"prompt": texts}).write_parquet(here / "questions.parquet")
    (here / "logs").mkdir()
    nested = [
        {"text": text, "city": "Oakland", "request": {"text": text}, "messages": [{"role": "user", "content": text}]} for text in texts
    ]
    lines = "".join(json.dumps(row) + "\n" for row in nested)
    for name in ("log.jsonl", "queries.jsonl", "logs/2026-11-01.jsonl"):
        (here / name).write_text(lines)
    with gzip.open(here / "logs" / "2026-11-02.jsonl.gz", "wt") as packed:
        packed.write(lines)
    starter = (ROOT / "synth" / "worlds" / "declarative" / "starter.yaml").read_text()
    (here / "my_worlds").mkdir()
    for name in ("my.yaml", "my_shop.yaml", "my_worlds/car_workshop.yaml"):
        (here / name).write_text(starter.replace("domain: tool_library", f"domain: {Path(name).stem}", 1))
    tools = [{"name": tool.name, "description": tool.description, "inputSchema": tool.parameters} for tool in WORLDS["retail"].tools]
    rows = "".join(json.dumps({**tool, "server": "my tools", "label": "Travel & Maps"}) + "\n" for tool in tools)
    (here / "mine.jsonl").write_text(rows)
    places = "".join(f"Place {n},{'thai' if n % 2 else 'indian'},{n + 5}\n" for n in range(60))
    (here / "restaurants.csv").write_text(f"name,cuisine,price\n{places}")
    labelled = {"text": "cancel reservation b012", "intent": "cancel_reservation", "slots": {"reservation": "b012"}}
    (here / "labelled.jsonl").write_text(json.dumps(labelled) + "\n")
    with gzip.open(here / "mcp_tools.jsonl.gz", "wt") as packed:
        packed.write(rows)
    for name in ("shop_functions.py", "shop_api.py"):
        shutil.copy(SERVERS / name, here)
    (here / "shop_api.json").write_text(json.dumps(DESCRIPTION))
    notes = measure(notes_spec())
    (here / "notes.yaml").write_text(dump_live_spec(notes.spec))
    write_lock(here / "notes.yaml", notes.lock)
    (here / "bin").mkdir()
    (here / "bin" / "headrace").write_text(f'#!/bin/sh\nexec {sys.executable} -P -m flows.cli.main "$@"\n')
    (here / "bin" / "headrace").chmod(0o755)
    return here


def smaller(example: str) -> str:
    """The example with small numbers."""
    for large, small in SMALLER.items():
        example = re.sub(large, small, example)
    return example


def fill_ids(example: str, folder: Path) -> str:
    """The example with ids of its store in place of those that it shows: 0123... and q-1a2b3c4d-00000042."""
    named = re.search(r"--store (\S+)", example)
    store = Store(folder / (named.group(1) if named else "runs/sample/store"))
    tables = {"policy": "policies", "task": "tasks", "cluster": "clusters", "q": "queries"}

    def find(shown: re.Match[str]) -> str:
        column = "query_id" if shown.group(1) == "q" else f"{shown.group(1)}_id"
        return str(store.query(f"SELECT min({column}) FROM {tables[shown.group(1)]}").item())

    return re.sub(r"\b(policy|task|cluster|q)-[0-9a-f]{4,}\S*", find, example)


@pytest.fixture(scope="module")
def warm(folder: Path) -> Iterator[Call]:
    with warm_commands() as call:
        yield call


def call(example: str, folder: Path, warm: Call) -> subprocess.CompletedProcess[str]:
    """Calls an example in a shell; what is one command alone, in a process that is warm."""
    environment = os.environ | {"PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    if not re.search(r"[|>*]", example):
        return warm(shlex.split(example)[1:], folder, environment)
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", example], cwd=folder, env=environment, capture_output=True, text=True,
        stdin=subprocess.DEVNULL, timeout=LIMIT_S, check=False,
    )  # fmt: skip


def test_every_command_shows_examples() -> None:
    assert not [words for words, command in COMMANDS.items() if not examples_in(command.help or "") and not hasattr(command, "commands")]
    assert all(any(re.search(pattern, example) for example in EXAMPLES) for pattern in ONLY_PLANNED)


@pytest.mark.parametrize("example", [example for example in EXAMPLES if not reason_not_to_run(example)])
def test_an_example_works_as_pasted(example: str, folder: Path, warm: Call) -> None:
    if written := re.search(r"worlds (?:new|draft .*--out) (\S+)", example):
        (folder / written[1]).unlink(missing_ok=True)
    done = call(smaller(fill_ids(example, folder)), folder, warm)
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


@pytest.mark.parametrize("example", [example for example in EXAMPLES if reason_not_to_run(example)])
def test_an_example_that_cannot_run_here_has_options_that_exist(example: str, folder: Path, warm: Call) -> None:
    """An example of a command with a plan is planned; of any other, a wrong option would be refused before anything else."""
    arguments = shlex.split(example.rpartition("headrace ")[2])
    words, command = command_of(arguments)
    command.make_context(" ".join(words), arguments[len(words) :], resilient_parsing=False)
    is_plannable = any("--dry-run" in parameter.opts for parameter in command.params) and words[0] != "taxonomy"  # there it asks the model
    if is_plannable and not re.search("bfcl|--suite|--preview", example):
        example = fill_ids(example, folder)
        done = call(example if "--dry-run" in example else f"{example} --dry-run", folder, warm)
        assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"

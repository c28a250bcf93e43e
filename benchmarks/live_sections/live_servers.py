"""The eight servers that nobody here wrote: five from PyPI, three from npm, installed by `make live`, each in an environment of its own.

What their private folders hold at the start is written here, the same in every run.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT
from synth.worlds.live.live_spec import LiveSpec, parse_live_spec

SEEDS = ROOT / ".cache" / "live" / "seeds"
NODE = ROOT / ".cache" / "live" / "npm" / "node_modules" / "@modelcontextprotocol"
CLOCK = "2026-05-20 09:00:00"
PYTHON_SERVERS = ("time", "git", "sqlite", "tau2-retail", "tau2-airline")
NODE_SERVERS = ("filesystem", "memory", "everything")
EXPLORED = ("tau2-retail", "tau2-airline", "filesystem", "memory", "sqlite")


def _program(name: str, program: str = "") -> str:
    return str(ROOT / f".venv-live-{name}" / "bin" / (program or name))


def _node(name: str) -> list[str]:
    return ["node", str(NODE / name / "dist" / "index.js")]


def _tau2(domain: str) -> dict[str, Any]:
    name = f"tau2-{domain}-mcp-eval"
    return {
        "command": [_program(name, f"tau2-{domain}-mcp")],
        "variables": {f"TAU2_{domain.upper()}_MCP_STATE_DIR": "/data"},
        "hide": ["reset_state", "get_call_log"],
        "fixed": {"state_key": f"tau2/{domain}/0"},
        "start": [["get_call_log", {}]],
        "show": "parsed_content",
        "errors": ["^Error: "],
        "state": [{"json": "*.json", "at": "db"}],
    }


RAW: dict[str, Callable[[], dict[str, Any]]] = {
    "time": lambda: {"command": [_program("mcp-server-time")], "clock": CLOCK},
    "git": lambda: {
        "command": [_program("mcp-server-git")],
        "clock": CLOCK,
        "folder": str(seeds() / "git"),
        "fixed": {"repo_path": "/data"},
        "state": [
            {"files": "**", "ignore": [".git"]},
            {"calls": [["git_status", {}], ["git_log", {"max_count": 50}], ["git_branch", {"branch_type": "local"}]]},
        ],
    },
    "sqlite": lambda: {
        "command": [_program("mcp-server-sqlite"), "--db-path", "/data/shop.db"],
        "folder": str(seeds() / "sqlite"),
        "state": [{"sqlite": "shop.db"}],
        "errors": ["^Database error", "^Error"],
    },
    "tau2-retail": lambda: _tau2("retail"),
    "tau2-airline": lambda: _tau2("airline"),
    "filesystem": lambda: {"command": [*_node("server-filesystem"), "/data"], "folder": str(seeds() / "files"), "state": [{"files": "**"}]},
    "memory": lambda: {
        "command": _node("server-memory"),
        "variables": {"MEMORY_FILE_PATH": "/data/memory.jsonl"},
        "folder": str(seeds() / "memory"),
        "state": [{"jsonl": "memory.jsonl", "key": ["type", "name", "from", "relationType", "to"]}],
    },
    "everything": lambda: {"command": _node("server-everything")},
}


def live_spec(name: str) -> LiveSpec:
    return parse_live_spec({"live": name, **RAW[name]()}, name)


@cache
def seeds() -> Path:
    """The folder with what the private folders hold at the start, written anew."""
    shutil.rmtree(SEEDS, ignore_errors=True)
    for name in ("git", "sqlite", "files/notes", "files/invoices", "memory"):
        (SEEDS / name).mkdir(parents=True)
    _write_database(SEEDS / "sqlite" / "shop.db")
    for path, text in {
        "notes/todo.txt": "buy milk\ncall the plumber\npay the rent\n",
        "notes/trip.md": "# Trip to Oslo\n\n- ferry at 09:40\n- hotel Bristol\n",
        "invoices/a17.txt": "invoice A17\ncustomer: Ada Lovelace\ntotal: 120\nstatus: open\n",
        "invoices/b22.txt": "invoice B22\ncustomer: Alan Turing\ntotal: 75\nstatus: paid\n",
        "readme.md": "# Office files\n\nNotes and invoices.\n",
        "contacts.csv": "name,phone\nGrace Hopper,555-0199\nTony Hoare,555-0142\n",
    }.items():
        (SEEDS / "files" / path).write_text(text)
    (SEEDS / "memory" / "memory.jsonl").write_text("\n".join(map(json.dumps, _memories())))
    _write_repository(SEEDS / "git")
    return SEEDS


def _write_database(path: Path) -> None:
    rng = random.Random(1)
    with sqlite3.connect(path) as database:
        database.executescript(
            "create table customers(id integer primary key, name text, email text, city text);"
            "create table products(id integer primary key, name text, price real, stock integer);"
            "create table orders(id integer primary key, customer_id integer, product_id integer, quantity integer, status text);"
        )
        people = ("Ada Lovelace", "Alan Turing", "Grace Hopper", "Edsger Dijkstra", "Barbara Liskov", "Donald Knuth", "Frances Allen")
        for number, name in enumerate(people, 1):
            mail = f"{name.split()[0].lower()}@example.com"
            database.execute("insert into customers values(?,?,?,?)", (number, name, mail, rng.choice(("Paris", "Lisbon", "Oslo", "Graz"))))
        for number, name in enumerate(("kettle", "teapot", "mug", "grinder", "filter", "scale"), 1):
            database.execute("insert into products values(?,?,?,?)", (number, name, rng.randint(5, 90) + 0.5, rng.randint(0, 40)))
        for number in range(1, 31):
            row = (number, rng.randint(1, 7), rng.randint(1, 6), rng.randint(1, 5), rng.choice(("pending", "shipped", "returned")))
            database.execute("insert into orders values(?,?,?,?,?)", row)
    database.close()


def _memories() -> list[dict[str, Any]]:
    entities = (
        ("Ada Lovelace", "person", ["works at Analytical Engines", "lives in London"]),
        ("Alan Turing", "person", ["likes running"]),
        ("Analytical Engines", "company", ["founded in 1837"]),
        ("Grace Hopper", "person", ["wrote a compiler", "served in the navy"]),
        ("Bletchley Park", "place", ["open to visitors"]),
    )
    relations = (("Ada Lovelace", "Analytical Engines", "works_at"), ("Alan Turing", "Bletchley Park", "worked_at"))
    rows: list[dict[str, Any]] = [{"type": "entity", "name": a, "entityType": b, "observations": c} for a, b, c in entities]
    return [*rows, *({"type": "relation", "from": a, "to": b, "relationType": c} for a, b, c in relations)]


def _write_repository(folder: Path) -> None:
    dates = {"GIT_AUTHOR_DATE": "2026-05-01T09:00:00", "GIT_COMMITTER_DATE": "2026-05-01T09:00:00"}

    def git(*words: str) -> None:
        subprocess.run(["git", "-C", str(folder), *words], check=True, env={**os.environ, **dates}, capture_output=True)

    git("init", "-b", "main")
    git("config", "user.name", "Ada")
    git("config", "user.email", "ada@example.com")
    (folder / "app.py").write_text('print("hello")\n')
    (folder / "README.md").write_text("# App\n")
    git("add", ".")
    git("commit", "-m", "First version")
    (folder / "app.py").write_text('print("hello world")\n')
    git("commit", "-am", "Greet the world")
    git("branch", "feature")
    (folder / "app.py").write_text('print("hello world!")\n')
    (folder / "notes.txt").write_text("todo\n")

"""The store that the viewer is measured on: a million tagged requests, 20,000 conversations, 200 hostile texts.

What is executed: the sample run (`headrace run --config configs/sample.yaml`: a million generated requests through the whole funnel, tasks,
policies, rollouts, evaluations), and `CONVERSATIONS` conversations by scripted roles in nine worlds, each planned, played and judged as
those of calibration are (no cell is asked for, and no task is made of them). Where HEADRACE_TEST_DATA has `real_queries`, people's requests
from public data sets go through the same funnel, as a second run.
What is drawn: the hostile rows. They are committed as they are (a run with two steps), because a funnel would mask or drop some.

It takes about ten minutes on two idle cores, once for each state of the code that rows depend on: `.cache/bench/view/KEY`.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import yaml

from benchmarks.harness import ROOT, Deadline, fail, run_tree
from benchmarks.view.hostile_texts import Hostile, hostile_texts
from filters.code_hash import code_hash
from storage.store import Part, Store, part_id
from storage.tables import TABLES, schema_version
from synth.blueprints.blueprint import Bands, Blueprint
from synth.clusters.business_clusters import cluster_tools
from synth.roles.simulate import Simulated, simulated_frame
from synth.run.proposals import Job, blueprint_rows, propose
from synth.tasks.split import DivisionConfig
from synth.worlds import WORLDS

MINUTES = 20
CONVERSATIONS = 20_000
_BATCH = 2_000
_WORLDS = ("retail", "banking", "library", "clinic", "helpdesk", "hotel", "logistics", "school", "telecom")
_TERCILES = Bands(2.0, 4.0)
_REAL = ("banking77_train.csv.gz", "sgd_train_open.jsonl.gz", "sgd_train_whole.jsonl.gz", "sgd_dev_open.jsonl.gz", "crosswoz_val.jsonl.gz")
_HERE = Path(__file__)
_KEPT = ROOT / ".cache" / "bench" / "view"
_SAMPLE = ROOT / "configs" / "sample.yaml"


def large_store(deadline: Deadline) -> Path:
    """The folder of the store; it is made if this code has not made it."""
    hostile = _HERE.with_name("hostile_texts.py").read_bytes()
    inputs = (schema_version(), code_hash("synth", "filters", "train"), _HERE.read_bytes(), hostile, _SAMPLE.read_bytes(), _real_files())
    folder = _KEPT / f"store-{hashlib.sha256(repr(inputs).encode()).hexdigest()[:16]}"
    if not (folder / "made").exists():
        deadline.allows(MINUTES)
        for old in _KEPT.glob("store-*"):
            shutil.rmtree(old)
        folder.mkdir(parents=True)
        _headrace(folder, "run", "--config", str(_configuration(folder)))
        _python(folder, "benchmarks.view.made_store", str(folder / "store"))
        if files := _real_files():
            _headrace(folder, "curate", *files, "--grounded", "--keep", "100", "--store", str(folder / "store"))
        (folder / "made").touch()
    return folder / "store"


def real_store(deadline: Deadline) -> Path:
    """A store of people's requests alone, through the funnel."""
    files = _real_files() or fail("no real_queries: name the folder that holds it in HEADRACE_TEST_DATA")
    inputs = (schema_version(), code_hash("synth", "filters"), _HERE.read_bytes(), files)
    folder = _KEPT / f"real-{hashlib.sha256(repr(inputs).encode()).hexdigest()[:16]}"
    if not (folder / "made").exists():
        deadline.allows(5)
        for old in _KEPT.glob("real-*"):
            shutil.rmtree(old)
        folder.mkdir(parents=True)
        _headrace(folder, "curate", *files, "--keep", "500", "--store", str(folder / "store"))
        (folder / "made").touch()
    return folder / "store"


def _real_files() -> list[str]:
    folder = Path(os.environ.get("HEADRACE_TEST_DATA", "")) / "real_queries"
    return [str(folder / name) for name in _REAL if (folder / name).is_file()]


def _configuration(folder: Path) -> Path:
    """The sample's, with another folder."""
    settings = yaml.safe_load(_SAMPLE.read_text(encoding="utf-8")) | {"store": str(folder / "store")}
    path = folder / "sample.yaml"
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return path


def _headrace(folder: Path, *arguments: str) -> None:
    _python(folder, "flows.cli.main", *arguments)


def _python(folder: Path, module: str, *arguments: str) -> None:
    log = folder / f"{module.rpartition('.')[2]}-{arguments[0].rpartition('/')[2]}.log"
    usage = run_tree([sys.executable, "-m", module, *arguments], log=log)
    print(f"    {log.stem}: {usage.cpu_s / 60:.1f} CPU minutes, {usage.peak_gib:.1f} GiB at most", flush=True)
    if usage.returncode:
        fail(f"the store could not be made; {log} ends with: {log.read_text(errors='replace')[-400:]}")


# ---- rows that are added to the sample run -----------------------------------------------------------------------------


def add_conversations(store: Store, count: int) -> None:
    """Plays that many conversations, and commits each with its blueprint."""
    clusters = [cluster for cluster in cluster_tools([tool for world in _WORLDS for tool in WORLDS[world].tools]) if cluster.world]
    rng, divisions, known, number = random.Random(0), DivisionConfig(), set[str](), 0
    while len(known) < count:
        jobs = [Job(f"view {number}/{at}", (rng.choice(clusters),), None, 0, None, 0.3, divisions) for at in range(_BATCH)]
        drawn = {one.id: one for one in propose(jobs) if one.accepted and one.id not in known}
        made = list(drawn.values())[: count - len(known)]
        known |= {one.id for one in made}
        played: list[tuple[Blueprint, Simulated, None]] = [
            (one.blueprint, one.simulated, None) for one in made if one.blueprint is not None and one.simulated is not None
        ]
        store.commit(
            [
                _part(store, "blueprints", f"view {number}", blueprint_rows(-1, made)),
                _part(store, "trajectories", f"view {number}", simulated_frame(played, _TERCILES)),
            ]
        )
        number += 1


def add_hostile(store: Store) -> None:
    """Commits the hostile texts: requests with verdicts and some frames, and conversations."""
    texts = hostile_texts()
    requests = [one for one in texts if one.kind == "request"]
    store.commit(
        [
            *request_parts(store, "funnel-bad0bad0bad0bad0", requests),
            _part(
                store, "trajectories", "hostile", _rows("trajectories", [_conversation(one) for one in texts if one.kind == "conversation"])
            ),
        ]
    )


def request_parts(store: Store, run: str, requests: Sequence[Hostile]) -> list[Part]:
    """A funnel run of these requests that adds up: every other one is kept, and has a frame whose slots hold the text's start."""
    kept = requests[::2]
    kept_ids, dropped = {one.id for one in kept}, len(requests) - len(kept)
    about: dict[str, Any] = {"run": run, "language": "en", "source": f"../{requests[0].text[:80]}.jsonl"}
    frame = {"run": run, "world": "retail", "intent": "buy_cheapest", "leaf": "commerce.purchase", "quality": 0.5, "difficulty": 2}
    verdict = {"run": run, "step": "rules", "reason": "no_words", "kept": False}
    steps = [
        {"run": run, "position": 0, "step": "ingest", "rows_in": len(requests), "kept": len(requests), "dropped": 0, "reasons": "{}"},
        {
            "run": run, "position": 1, "step": "rules", "rows_in": len(requests), "kept": len(kept), "dropped": dropped,
            "reasons": json.dumps({"no_words": dropped}),
        },
    ]  # fmt: skip
    tables = {
        "queries": [about | {"query_id": one.id, "row": row, "text": one.text} for row, one in enumerate(requests)],
        "verdicts": [
            verdict | {"query_id": one.id} | ({"kept": True, "reason": None} if one.id in kept_ids else {}) for one in requests
        ],
        "funnel": steps,
        "frames": [
            frame
            | {
                "query_id": one.id, "frame_id": f"frame-{hashlib.sha256(one.id.encode()).hexdigest()[:16]}", "status": "kept",
                "slots": json.dumps({"product": one.text[:200]}), "topic": one.text[:50],
            }
            for one in kept
        ],
    }  # fmt: skip
    return [_part(store, table, run, _rows(table, rows)) for table, rows in tables.items()]


def _conversation(one: Hostile) -> dict[str, Any]:
    """A row of table `trajectories` with the text wherever a text may stand: said, called, answered, and in a column of each kind."""
    call = {"id": "c1", "type": "function", "function": {"name": one.text[:60], "arguments": json.dumps({"text": one.text[:5000]})}}
    messages = [
        {"role": "system", "content": one.text[:5000]},
        {"role": "user", "content": one.text},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": one.text[:5000]},
        {"role": "assistant", "content": one.text[:5000]},
    ]
    short = one.text[:60].encode("utf-8", errors="replace").decode()
    return {
        "trajectory_id": one.id,
        "world": "retail",
        "world_seed": 0,
        "domain": short,
        "language": "en",
        "teacher": short,
        "outcome": "policy_failure",
        "reward": 0.0,
        "accepted": False,
        "reason": short,
        "mode_coarse": "C>F",
        "mode_fine": "C1>F",
        "complexity": 1.0,
        "complexity_band": "low",
        "tools_used": [short],
        "messages": json.dumps(messages),
        "checks": json.dumps({short: False}),
    }


def _rows(table: str, given: Sequence[dict[str, Any]]) -> pl.DataFrame:
    """Rows of a table; columns that are not given are null."""
    columns = TABLES[table].columns
    return pl.DataFrame([dict.fromkeys(columns) | row for row in given], schema=columns)


def _part(store: Store, table: str, name: str, rows: pl.DataFrame) -> Part:
    return store.write(table, part_id(table, [], {"view": name}, 1), rows)


if __name__ == "__main__":
    add_conversations(Store(sys.argv[1]), CONVERSATIONS)
    add_hostile(Store(sys.argv[1]))

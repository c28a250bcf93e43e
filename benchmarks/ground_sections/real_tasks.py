"""What a funnel makes of real requests among a hundred times as many generated ones, in worlds of the services that they are for.

English openings of SGD to the eight services that nothing was fitted on, and Chinese requests of CrossWOZ (the half that nothing was fitted
on), stand in a log of generated requests to the city and the shop, one in a hundred. The funnel reads the log in the worlds of these
services (`sgd_worlds.py`: specs by one rule from their schemas) and in the one that is drafted from CrossWOZ's tables (`beijing.py`), with
its own settings, so it knows of a service what its spec says.

real_tasks_per_10000: tasks admitted of 10,000 rows.
real_frame_precision: share of these tasks whose frame has the intent and all the values that the request says, and no other that was not
drawn; of twin services either counts. real_frame_precision_en, _zh: of each language.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl

from benchmarks.funnel_sections.rows import log
from benchmarks.ground_sections import crosswoz
from benchmarks.ground_sections.beijing import draft, told
from benchmarks.ground_sections.english import real_requests
from benchmarks.ground_sections.executable import compile_worlds
from benchmarks.ground_sections.sgd_worlds import key_of, slots_in_spec
from benchmarks.harness import Deadline, Figures
from filters.funnel import FunnelConfig, curate
from filters.reading.declaration import ReadableWorld
from filters.reading.labels.fit import Labelled
from filters.reading.reader import Reader
from filters.steps.selection.coverage import CoverageConfig
from storage.store import Store
from synth.worlds.base import World

KEYS = ("real_tasks_per_10000", "real_frame_precision", "real_frame_precision_en", "real_frame_precision_zh")
MINUTES = 8
_ONE_IN = 100


def measure(_: Deadline) -> Figures:
    requests = real_requests()
    chinese = {each.text: each for each in crosswoz.unfitted(requests.folder, requests.split)}
    worlds = compile_worlds(requests)
    twins = Reader(list(requests.worlds.values())).twins
    labels = {each.text: each.alternatives(twins) for each in requests.labelled("open")}
    rows = (len(labels) + len(chinese)) * _ONE_IN
    queries, _plants = log(rows, max(10, rows // 10_000))
    texts = [*pl.read_parquet(queries)["text"].to_list(), *labels, *chinese]
    random.Random(0).shuffle(texts)
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        beijing = draft(requests.folder, folder)
        path, store = folder / "log.parquet", Store(folder / "store")
        pl.DataFrame({"text": texts}).write_parquet(path)
        names = (*(world.name for world in worlds.values()), beijing.name)
        keep = CoverageConfig(keep=len(labels) + len(chinese))
        result = curate(store, [path], FunnelConfig(worlds=names, ungrounded=False, coverage=keep))
        tasks = store.query(
            "SELECT q.text, t.world, t.intent, t.spec FROM tasks t JOIN queries q ON q.query_id = t.query_id ORDER BY q.query_id"
        ).to_dicts()
    services = {world.name: service for service, world in worlds.items()}
    right: dict[str, list[bool]] = {"en": [], "zh": []}
    for task in tasks:
        slots = pl.Series([task["spec"]]).str.json_path_match("$.slots").str.json_decode(infer_schema_length=None)[0]
        said = {name: value for name, value in slots.items() if value is not None}
        if task["world"] == beijing.name:
            wanted = chinese.get(task["text"])
            is_right = wanted is not None and wanted.is_right(told(beijing, task["intent"], said))
        else:
            service = services[task["world"]]
            known = labels.get(task["text"], ())
            is_right = any(_is_right(label, service, task["intent"], said, requests.worlds, worlds) for label in known)
        right["zh" if task["world"] == beijing.name else "en"].append(is_right)
        if not is_right:
            print(f"    “{task['text']}” became {task['world']}/{task['intent']} {said}", flush=True)
    print(result.funnel.filter(pl.col("dropped") > 0).select("step", "rows_in", "kept", "reasons").rows(), flush=True)
    counts = f"{len(right['en'])} tasks of {len(labels)} English requests, {len(right['zh'])} of {len(chinese)} Chinese ones"
    print(f"    {counts}, among {rows:,}; {'; '.join(result.not_done)[:300]}", flush=True)
    every = [*right["en"], *right["zh"]]
    shares = {
        f"real_frame_precision{key}": sum(part) / max(1, len(part))
        for key, part in (("", every), ("_en", right["en"]), ("_zh", right["zh"]))
    }
    return {"real_tasks_per_10000": 10_000 * len(tasks) / len(texts), **shares}


def _is_right(
    label: Labelled,
    service: str,
    intent: str,
    slots: Mapping[str, Any],
    declared: Mapping[str, ReadableWorld],
    worlds: Mapping[str, type[World]],
) -> bool:
    gold = declared[label.world].intents[label.intent]
    if (service, intent) != (label.world, key_of(gold)):
        return False
    values = {name: _forms(gold, name, each) for name, each in label.values.items()}
    required = {slot.name for slot in worlds[service].intents[intent].slots if slot.is_required}
    return all(slots.get(name) in forms for name, forms in values.items()) and slots.keys() - values.keys() <= required - values.keys()


def _forms(intent: Any, slot: str, values: Sequence[Any]) -> list[Any]:
    return [slots_in_spec(intent, {slot: value})[slot] for value in values]

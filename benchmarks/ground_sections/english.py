"""How well the reader reads real English requests to services that nothing was fitted on.

The services are those of a part of SGD that its training part does not have (`dev`: eight), all read together; `GROUND_SPLIT` names
another part, whose files must lie beside. A reading is exact if intent and every value are right; of twin services either counts.
`_at_25`, `_at_50`: share of exact readings among the most confident quarter or half of the rows.

open_exact, whole_exact: openings, and whole requests. with_slot_exact: openings that name a value.
sgdx_worst_open: openings, with the schema in five other wordings (SGD-X); the lowest of the five.
lowercase_whole: whole requests without capitals. novel_name_exact: openings whose names are replaced by invented ones.
oos_kept: share of requests out of scope (of other domains of SGD; to a bank, BANKING77) that are as confident as the most confident quarter
or half of the requests in scope; the higher of the two.
conf_90_precision: share of exact readings among openings and whole requests with a confidence of at least .9.
reader_rows_per_cpu_s: openings that are read in a second on one core.
"""

from __future__ import annotations

import csv
import gzip
import os
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.ground_sections import sgd
from benchmarks.harness import Deadline, Figures, fail
from filters.reading.declaration import ReadableWorld
from filters.reading.frames import confidence
from filters.reading.labels.fit import Labelled
from filters.reading.reader import Reader
from filters.reading.twins import Twins

KEYS = (
    *("open_exact_at_25", "open_exact_at_50", "whole_exact_at_25", "with_slot_exact_at_25", "sgdx_worst_open_at_25"),
    *("lowercase_whole_at_25", "novel_name_exact_at_25", "oos_kept_at_25", "oos_kept_at_50", "conf_90_precision"),
    "reader_rows_per_cpu_s",
)
MINUTES = 3
_SYLLABLES = """
ba be bi bo da de do ka ke ko la le li lo ma me mi na ne no ra re ri ro sa se so ta te to va ve vo za zo tri gra ste bron kel mar vin dor
hal
"""


@dataclass(frozen=True)
class Measured:
    """Confidence of each reading, and whether it is exact."""

    confidence: Sequence[float]
    is_exact: Sequence[bool]

    def exact_at(self, share: float) -> float:
        """Share of exact readings among this share of the rows, the most confident ones."""
        order = np.argsort(-np.asarray(self.confidence), kind="stable")[: max(1, int(len(self.confidence) * share))]
        return float(np.asarray(self.is_exact)[order].mean())

    def threshold(self, share: float) -> float:
        return float(np.quantile(self.confidence, 1 - share))


class Requests:
    """Files of one part of SGD, and the worlds of those of its services that the training part does not have."""

    def __init__(self, folder: Path, split: str) -> None:
        self.folder, self.split = folder, split
        seen = {service["service_name"] for service in sgd.read_json(folder / "sgd_train_schema.json.gz")}
        self.schema = sgd.read_json(folder / f"sgd_{split}_schema.json.gz")
        self.names = [service["service_name"] for service in self.schema if service["service_name"] not in seen]
        self.worlds = {service["service_name"]: sgd.service_of(service) for service in self.schema if service["service_name"] in self.names}

    def rows(self, kind: str) -> list[dict[str, Any]]:
        return sgd.read_rows(self.folder / f"sgd_{self.split}_{kind}.jsonl.gz")

    def labelled(self, kind: str) -> list[Labelled]:
        return [sgd.label(row, self.worlds[row["service"]]) for row in self.rows(kind) if row["service"] in self.worlds]

    def out_of_scope(self) -> list[str]:
        domains = {name.rpartition("_")[0] for name in self.names}
        return [row["text"] for row in self.rows("open") if row["service"].rpartition("_")[0] not in domains]

    @cached_property
    def rewordings(self) -> Mapping[str, list[dict[str, Any]]]:
        """Version -> the schema in other words, its services in the same order."""
        versions: Mapping[str, list[dict[str, Any]]] = sgd.read_json(self.folder / f"sgdx_{self.split}_schemas.json.gz")
        return versions


def real_requests() -> Requests:
    """Those of the part that `GROUND_SPLIT` names."""
    folder = Path(os.environ.get("HEADRACE_TEST_DATA", "")) / "real_queries"
    if not folder.is_dir():
        fail("no real_queries: name the folder that holds it in HEADRACE_TEST_DATA")
    return Requests(folder, os.environ.get("GROUND_SPLIT", "dev"))


def measure(_: Deadline) -> Figures:
    requests = real_requests()
    reader = Reader(list(requests.worlds.values()))
    openings, whole = ([example.alternatives(reader.twins) for example in requests.labelled(kind)] for kind in ("open", "whole"))
    began = time.process_time()
    read = read_all(reader, openings)
    cpu_s = time.process_time() - began
    read_whole = read_all(reader, whole)
    with_slot = [number for number, (example, *_) in enumerate(openings) if example.values]
    lower = read_all(reader, [[replace(each, text=each.text.lower()) for each in example] for example in whole])
    novel = read_all(reader, list(novel_names(openings, requests.worlds, reader.twins)))
    others = [confidences(reader, texts) for texts in (requests.out_of_scope(), banking(requests.folder))]
    trusted = [exact for each in (read, read_whole) for trust, exact in zip(each.confidence, each.is_exact, strict=True) if trust >= 0.9]
    return {
        "open_exact_at_25": read.exact_at(0.25),
        "open_exact_at_50": read.exact_at(0.5),
        "whole_exact_at_25": read_whole.exact_at(0.25),
        "with_slot_exact_at_25": part_of(read, with_slot).exact_at(0.25),
        "sgdx_worst_open_at_25": min(read_reworded(requests, version, openings).exact_at(0.25) for version in requests.rewordings),
        "lowercase_whole_at_25": lower.exact_at(0.25),
        "novel_name_exact_at_25": novel.exact_at(0.25),
        "oos_kept_at_25": max(float(np.mean(np.asarray(each) >= read.threshold(0.25))) for each in others),
        "oos_kept_at_50": max(float(np.mean(np.asarray(each) >= read.threshold(0.5))) for each in others),
        "conf_90_precision": float(np.mean(trusted)),
        "reader_rows_per_cpu_s": len(openings) / cpu_s,
    }


def read_all(reader: Reader, examples: Sequence[Sequence[Labelled]]) -> Measured:
    """Readings of requests. examples: labels of each request, of which one is right."""
    trusts, exact = list[float](), list[bool]()
    for example, (text, candidates) in zip(examples, reader.candidates([each[0].text for each in examples]), strict=True):
        choice = reader.choose(text, candidates)
        trusts.append(confidence(choice.features, reader.weights))
        exact.append(any(each.is_right(choice.frame) for each in example))
    return Measured(trusts, exact)


def confidences(reader: Reader, texts: Sequence[str]) -> list[float]:
    return [reading.confidence for reading in reader.read(texts)]


def part_of(measured: Measured, rows: Sequence[int]) -> Measured:
    return Measured([measured.confidence[row] for row in rows], [measured.is_exact[row] for row in rows])


def banking(folder: Path) -> list[str]:
    with gzip.open(folder / "banking77_train.csv.gz", "rt", encoding="utf-8", newline="") as file:
        return [row["text"] for row in csv.DictReader(file)]


def read_reworded(requests: Requests, version: str, examples: Sequence[Sequence[Labelled]]) -> Measured:
    """The requests, read by the schema in other words: services, intents and slots have other names, and the same twins."""
    pairs = {old["service_name"]: (old, new) for old, new in zip(requests.schema, requests.rewordings[version], strict=True)}
    worlds = {name: sgd.service_of(pairs[name][1]) for name in requests.names}

    def rename(example: Labelled) -> Labelled:
        old, new = pairs[example.world]
        intents = {a["name"]: b["name"] for a, b in zip(old["intents"], new["intents"], strict=True)}
        slots = {a["name"]: b["name"] for a, b in zip(old["slots"], new["slots"], strict=True)}
        values = {slots[slot]: value for slot, value in example.values.items()}
        return Labelled(example.text, new["service_name"], intents[example.intent], values)

    renamed = [[rename(each) for each in example] for example in examples]
    return read_all(Reader(list(worlds.values())), renamed)


def novel_names(examples: Sequence[Sequence[Labelled]], worlds: Mapping[str, ReadableWorld], twins: Twins) -> Iterator[list[Labelled]]:
    for example, *_ in examples:
        changed = with_novel_names(example, worlds, seed=11)
        if changed is not None:
            yield changed.alternatives(twins)


def with_novel_names(example: Labelled, worlds: Mapping[str, ReadableWorld], seed: int) -> Labelled | None:
    """The request with invented names in place of its own; None where it names nobody and nothing, or only words such as a genre."""
    rng, text, values = random.Random(f"{seed}/{example.text}"), example.text, dict(example.values)
    slots = worlds[example.world].intents[example.intent].slots
    names = [name for name in example.values if slots[name].kind == "name" and not _is_word(name)]
    for name in names:
        said = next((each for each in example.values[name] if each in text), None)
        if said is None:
            return None
        invented = " ".join(_word(rng) for _ in said.split()[:3])
        text, values[name] = text.replace(said, invented), (invented,)
    return Labelled(text, example.world, example.intent, values) if names else None


def _is_word(slot: str) -> bool:
    return any(word in slot for word in ("genre", "category", "cuisine", "type"))


def _word(rng: random.Random) -> str:
    return "".join(rng.choice(_SYLLABLES.split()) for _ in range(rng.choice((2, 3)))).capitalize()

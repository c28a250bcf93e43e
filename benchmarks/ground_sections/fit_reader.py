"""Fits the weights that the package ships (`filters/reading/weights.json`) on the training part of SGD.

    HEADRACE_TEST_DATA=... python -m benchmarks.ground_sections.fit_reader

The weights are derived from data under CC BY-SA 4.0, so the file has this licence, and says so.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

from benchmarks.ground_sections import sgd
from filters.reading.labels.fit import Labelled, fit

_ROWS, _FOLDS = 3000, 4
"""Rows that are drawn of each file, and sets of services."""
_ONE_DOMAIN = ({"Movies", "Media"}, {"Buses", "Flights"})
"""Domains that serve each other's requests."""
_ABOUT = (
    "Weights of filters/reading, fitted by benchmarks/ground_sections/fit_reader.py on the training part of Schema-Guided Dialogue "
    "(https://github.com/google-research-datasets/dstc8-schema-guided-dialogue, CC BY-SA 4.0). This file is under CC BY-SA 4.0."
)


def main() -> None:
    data = Path(os.environ["HEADRACE_TEST_DATA"]) / "real_queries"
    raw = sgd.read_json(data / "sgd_train_schema.json.gz")
    worlds = {each["service_name"]: sgd.service_of(each) for each in raw}
    rng, examples = random.Random(0), list[Labelled]()
    for kind in ("open", "whole"):
        rows = sgd.read_rows(data / f"sgd_train_{kind}.jsonl.gz")
        examples += [sgd.label(row, worlds[row["service"]]) for row in rng.sample(rows, _ROWS)]
    weights = fit(list(worlds.values()), _folds(sorted(worlds)), examples, _is_foreign)
    path = Path("filters/reading/weights.json")
    path.write_text(json.dumps({"about": _ABOUT, "weights": weights}, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(f"{path}: {sum(map(len, weights.values()))} weights from {len(examples):,} requests")


def _domain(name: str) -> str:
    return name.rpartition("_")[0]


def _folds(names: list[str]) -> list[list[str]]:
    """Sets of services with few of one domain."""
    domains = list(dict.fromkeys(map(_domain, names)))
    fold_of = {name: (int(name.rpartition("_")[2]) + domains.index(_domain(name))) % _FOLDS for name in names}
    return [[name for name in names if fold_of[name] == fold] for fold in range(_FOLDS)]


def _is_foreign(example: Labelled, names: set[str]) -> bool:
    domains = {_domain(name) for name in names}
    for together in _ONE_DOMAIN:
        domains |= together if domains & together else set()
    return _domain(example.world) not in domains


if __name__ == "__main__":
    main()

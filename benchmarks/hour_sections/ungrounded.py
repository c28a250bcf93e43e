"""Curation of queries that no world reads: how evenly the kept rows cover the types of request, and how much junk is among them.

Each log goes through `headrace curate FILE --keep N` and `headrace export --queries` in a fresh folder, as a user calls them.
ungrounded_even: entropy of the types of request among the kept rows over its maximum, log 23, of `airline_log.py`; junk left out. The
lowest of the logs of `SEEDS`.
ungrounded_junk_share: share of junk among the kept rows of these logs; the highest of them.
ungrounded_even_banking77: the same evenness over the 77 intents of BANKING77's training questions, whose intents are about as frequent.
ungrounded_real_junked: share of 25,000 real requests (BANKING77, Schema-Guided Dialogue, CrossWOZ) that the rules take for junk.
..._random: of as many rows drawn uniformly from the requests of the log (mean of `DRAWS`).
"""

from __future__ import annotations

import csv
import gzip
import json
import math
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl

from benchmarks.harness import ROOT, Deadline, Figures, fail
from benchmarks.hour_sections.airline_log import JUNK, REQUESTS, write_log
from filters import normalised_text
from filters.steps import rules
from synth.blueprints.diversity import entropy_bits

KEYS = (
    *("ungrounded_even", "ungrounded_even_random", "ungrounded_junk_share"),
    *("ungrounded_even_banking77", "ungrounded_even_banking77_random", "ungrounded_real_junked"),
)
MINUTES = 6
KEEP = 150
DRAWS = 50
SEEDS = (0, 1, 2)
BANKING = Path("real_queries") / "banking77_train.csv.gz"
OTHERS = ("sgd_train_open.jsonl.gz", "sgd_dev_open.jsonl.gz", "crosswoz_val.jsonl.gz")
JUNK_REASONS = ("keyboard_mash", "chit_chat", "no_words")


def measure(_: Deadline) -> Figures:
    banking = Path(os.environ.get("HEADRACE_TEST_DATA", "")) / BANKING
    if not banking.exists():
        fail(f"no {BANKING}: name the folder that holds it in HEADRACE_TEST_DATA")
    logs, kept_kinds = zip(*map(curate_log, SEEDS), strict=True)
    with gzip.open(banking, "rt", encoding="utf-8", newline="") as file:
        intents = [row["category"] for row in csv.DictReader(file)]
    kept = [row["category"] for row in curate(banking, "text", KEEP)]
    return {
        "ungrounded_even": min(evenness(kinds, len(REQUESTS)) for kinds in kept_kinds),
        "ungrounded_even_random": max(random_evenness(log, len(REQUESTS)) for log in logs),
        "ungrounded_junk_share": max(kinds.count(JUNK) / len(kinds) for kinds in kept_kinds),
        "ungrounded_even_banking77": evenness(kept, len(set(intents))),
        "ungrounded_even_banking77_random": random_evenness(intents, len(set(intents))),
        "ungrounded_real_junked": share_junked(real_requests(banking)),
    }


def curate_log(seed: int) -> tuple[Sequence[str], list[str]]:
    """The kinds of all rows of a log, and of those that are kept."""
    with TemporaryDirectory() as folder:
        log = write_log(Path(folder), seed=seed)
        return log.kinds, [log.kinds[row["ticket"]] for row in curate(log.file, "prompt", KEEP)]


def real_requests(banking: Path) -> list[str]:
    with gzip.open(banking, "rt", encoding="utf-8", newline="") as file:
        texts = [row["text"] for row in csv.DictReader(file)]
    for name in OTHERS:
        with gzip.open(banking.parent / name, "rt", encoding="utf-8") as file:
            texts += [json.loads(line)["text"] for line in file]
    return texts


def share_junked(texts: Sequence[str]) -> float:
    """Share of texts that the rules drop as random keys, small talk, or no words."""
    rows = normalised_text.step(pl.DataFrame({"row": range(len(texts)), "text": texts}))
    return rules.step(rows, rules.RulesConfig())["reason"].is_in(JUNK_REASONS).sum() / len(texts)


def curate(file: Path, column: str, keep: int) -> list[dict[str, Any]]:
    """The rows that `headrace` keeps of a file, as it exports them. Raises CalledProcessError if a command fails."""
    with TemporaryDirectory() as folder:
        _headrace("curate", str(file), "--column", column, "--keep", str(keep), folder=folder)
        _headrace("export", "--queries", "--out", "kept", folder=folder)
        return [json.loads(line) for line in (Path(folder) / "kept" / "queries.jsonl").read_text(encoding="utf-8").splitlines()]


def evenness(kinds: Sequence[str], labels: int) -> float:
    """Entropy of the kinds, junk left out, over the logarithm of the number of labels; 0 to 1."""
    return entropy_bits(Counter(kind for kind in kinds if kind != JUNK).values()) / math.log2(labels)


def random_evenness(kinds: Sequence[str], labels: int) -> float:
    """Mean evenness of rows drawn uniformly from all requests of a log, as many as are kept."""
    rng, requests = random.Random(0), [kind for kind in kinds if kind != JUNK]
    return sum(evenness(rng.sample(requests, KEEP), labels) for _ in range(DRAWS)) / DRAWS


def _headrace(*arguments: str, folder: str) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    command = [sys.executable, "-P", "-m", "flows.cli.main", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        print(done.stdout, flush=True)
        done.check_returncode()

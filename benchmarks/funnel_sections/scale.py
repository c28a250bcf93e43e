"""The whole funnel at scale: what it costs from 100,000 rows to ten million, and what it keeps of them.

Each run curates a generated log to one row in 10,000 in a fresh process (start and imports included), whose whole tree is measured; what
it kept is looked at afterwards. Runs are the pieces of the sections: what was measured at this code is kept, stores are not.
`growth_exponent` is the slope of the least-squares line through log CPU seconds over log rows: CPU, because wall time on a shared machine
is noise; what a run costs at the least, whatever its rows, flattens the line, so the slope from one million to ten is printed beside it.

`needle_hit_share_unseen` is of a log in wordings that the parser's author has not seen. `real_needle_hit_share` is of BFCL's first user
messages (none repeated) in a million rows of perturbed junk: ungrounded, for most of them no world here can execute; `..._ordinary` among
a million ordinary requests, which can be executed and so go before them.
`coverage_entropy_ratio` and `difficulty_lift` compare the tasks kept of ten million rows with random grounded rows, as many: entropy over
taxonomy leaves (over other labels it is printed), mean static difficulty.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.funnel_sections.rows import WORK, alone, kept_json, log
from benchmarks.harness import ROOT, Deadline, Figures, Section, fail, run_tree

ONE_IN = 10_000
SIZES = (100_000, 1_000_000, 3_000_000, 10_000_000)
SEEDS = (0, 1, 2)
REAL_ROWS = 1_000_000
REAL = {"real_needle_hit_share": "noise", "real_needle_hit_share_ordinary": "ordinary"}
UNSEEN = ROOT / "benchmarks" / "families_unseen.yaml"
DRAWS = 20
LABELS = ("leaf", "world", "intent", "combination", "difficulty")
MINUTES = {100_000: 1, 1_000_000: 5, 3_000_000: 6, 10_000_000: 15}
"""What a run takes at most, its log and what is looked at afterwards included."""
LAST_OF_FRONT = "near duplicates"
"""The label of the last progress that the first steps tell."""
FEWER_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def sections() -> list[Section]:
    return [
        Section("scale: growth", ("ten_million_wall_s", "ten_million_peak_gib", "growth_exponent"), measure_growth, minutes=0),
        Section("scale: needles", ("needle_hit_share", "needle_hit_share_min"), measure_needles, minutes=0),
        Section("scale: unseen wordings", ("needle_hit_share_unseen",), measure_unseen, minutes=0),
        Section("scale: real needles", tuple(REAL), measure_real, minutes=0),
        Section("scale: coverage", ("coverage_entropy_ratio", "difficulty_lift"), measure_coverage, minutes=0),
    ]


def measure_growth(deadline: Deadline) -> Figures:
    runs = {rows: _generated(rows, 0, deadline) for rows in SIZES}
    for rows, run in runs.items():
        print(f"    {rows:>12,} rows: {run['wall_s']:7.1f} s, {run['cpu_s']:7.1f} CPU-s, {run['peak_gib']:.2f} GiB", flush=True)
    last = [math.log(runs[rows]["cpu_s"]) for rows in (SIZES[1], SIZES[-1])]
    print(f"    slope of CPU from a million rows to ten: {(last[1] - last[0]) / math.log(SIZES[-1] / SIZES[1]):.3f}")
    slope = float(np.polyfit(np.log(SIZES), np.log([runs[rows]["cpu_s"] for rows in SIZES]), 1)[0])
    ten = runs[SIZES[-1]]
    return {"ten_million_wall_s": ten["wall_s"], "ten_million_peak_gib": ten["peak_gib"], "growth_exponent": slope}


def measure_needles(deadline: Deadline) -> Figures:
    shares = [_generated(SIZES[-1], seed, deadline)["hit_share"] for seed in SEEDS]
    print(f"    by seed: {', '.join(f'{share:.3f}' for share in shares)}")
    return {"needle_hit_share": sum(shares) / len(shares), "needle_hit_share_min": min(shares)}


def measure_unseen(deadline: Deadline) -> Figures:
    return {"needle_hit_share_unseen": _generated(SIZES[-1], 0, deadline, UNSEEN)["hit_share"]}


def measure_coverage(deadline: Deadline) -> Figures:
    run = _generated(SIZES[-1], 0, deadline)
    return {key: run[key] for key in ("coverage_entropy_ratio", "difficulty_lift")}


def measure_real(deadline: Deadline) -> Figures:
    return {key: _real(name, deadline)["hit_share"] for key, name in REAL.items()}


def _real(name: str, deadline: Deadline) -> Figures:
    def measured() -> Figures:
        deadline.allows(MINUTES[REAL_ROWS])
        queries, plants = real_log(is_ordinary=name == "ordinary")
        keep = pl.read_parquet(plants)["kind"].eq("needle").sum() // 3
        return curated(f"real-{name}", queries, plants, {"coverage": {"keep": keep}, "ungrounded": True})

    return kept_json(WORK / "curated" / f"real-{name}.json", measured)


# ---- runs ---------------------------------------------------------------------------------------------------------------------


def _generated(rows: int, seed: int, deadline: Deadline, families: Path | None = None) -> Figures:
    """A run over a generated log: wall_s, cpu_s, peak_gib, and what `_looked_at` found; as kept, or measured now."""
    name = f"{rows}-{seed}" + (f"-{families.stem}" if families else "")

    def measured() -> Figures:
        deadline.allows(MINUTES[rows])
        return curated(name, *log(rows, rows // ONE_IN, seed, families), {"keep_one_in": ONE_IN})

    return kept_json(WORK / "curated" / f"{name}.json", measured)


def curated(name: str, queries: Path, plants: Path, config: dict[str, object]) -> Figures:
    """A run over a log, in a process of its own: wall_s, cpu_s, peak_gib, and what `_looked_at` found."""
    store, output = WORK / f"store-{name}", WORK / f"curated-{name}.log"
    shutil.rmtree(store, ignore_errors=True)
    WORK.mkdir(parents=True, exist_ok=True)
    environment = {key: value for key, value in os.environ.items() if key not in FEWER_THREADS}
    command = [sys.executable, "-m", "benchmarks.funnel", "--curate", str(queries), str(store), json.dumps(config)]
    usage = run_tree(command, log=output, environment=environment)
    if usage.returncode:
        fail(f"curating {queries} ended with code {usage.returncode}; its output is in {output}")
    found: Figures = alone(_looked_at, store, plants)
    shutil.rmtree(store)
    print(output.read_text(), flush=True)
    return {"wall_s": usage.wall_s, "cpu_s": usage.cpu_s, "peak_gib": usage.peak_gib} | found


def curate_alone(queries: Path, store: Path, config: str) -> None:
    """In a process of its own: the run that is measured, and its funnel as a table."""
    from filters.funnel import FunnelConfig, curate
    from storage.store import Store

    result = curate(Store(store), [queries], FunnelConfig.model_validate_json(config))
    print("| step | rows in | kept | dropped | reasons | seconds |\n|---|---|---|---|---|---|")
    for step, rows_in, kept, dropped, reasons, seconds in result.funnel.select(
        "step", "rows_in", "kept", "dropped", "reasons", "seconds"
    ).iter_rows():
        print(f"| {step} | {rows_in:,} | {kept:,} | {dropped:,} | {reasons} | {seconds:.1f} |")


def front_cpu_s(queries: Path, store: Path) -> dict[str, float]:
    """CPU seconds of a run up to the end of the near step, by the label of its progress (each lasts until the next is told): reading and
    what it writes in between included, compiling not."""
    from benchmarks.funnel_sections.contestants import WARM_UP, cpu_s, headrace
    from filters.funnel import FunnelConfig, curate
    from storage.store import Store

    headrace()(["a table for two at noon"] * WARM_UP)
    at = {"start": cpu_s()}

    def told(label: str, done: int, total: int) -> None:
        at[label] = cpu_s()
        if label == LAST_OF_FRONT and done == total:
            raise InterruptedError

    with suppress(InterruptedError):
        curate(Store(store), [queries], FunnelConfig(), progress=told)
    shutil.rmtree(store)
    if LAST_OF_FRONT not in at:
        fail(f"the funnel never told of {LAST_OF_FRONT!r}")
    return {label: at[label] - before for before, label in zip(at.values(), list(at)[1:], strict=False)}


def _looked_at(path: Path, plants: Path) -> Figures:
    """Of a store with one run: kept, hit_share (kept rows that are needles), coverage_entropy_ratio, difficulty_lift."""
    from storage.store import Store

    store = Store(path)
    rows = store.query("SELECT q.row FROM verdicts v JOIN queries q USING (query_id, run) WHERE v.kept ORDER BY q.row")["row"]
    kinds = pl.read_parquet(plants, columns=["kind"])["kind"].gather(rows)
    print(f"    kept: {dict(kinds.value_counts().sort('kind').iter_rows())}")
    labels = ", ".join(f"f.{label}" for label in LABELS)
    kept = store.query(f"SELECT {labels}, count(*) AS rows FROM verdicts v JOIN frames f USING (query_id, run) "
                       "WHERE v.kept AND f.frame_id IS NOT NULL GROUP BY ALL ORDER BY ALL")  # fmt: skip
    grounded = store.query(
        f"SELECT {labels}, count(*) AS rows FROM verdicts v JOIN funnel s USING (run, step) "
        "JOIN frames f ON f.run = v.run AND f.query_id = coalesce(v.duplicate_of, v.query_id) "
        "WHERE s.position > (SELECT min(position) FROM funnel WHERE step = 'ground') AND f.frame_id IS NOT NULL GROUP BY ALL ORDER BY ALL"
    )
    print(
        "    entropy of what was kept over random: " + ", ".join(f"{label} {entropy_ratio(kept, grounded, label):.3f}" for label in LABELS)
    )
    return {
        "kept": float(len(rows)),
        "hit_share": float((kinds == "needle").mean() or 0.0),  # type: ignore[arg-type]
        "coverage_entropy_ratio": entropy_ratio(kept, grounded, "leaf"),
        "difficulty_lift": mean_difficulty(kept) - mean_difficulty(grounded),
    }


def entropy_ratio(kept: pl.DataFrame, grounded: pl.DataFrame, label: str) -> float:
    """Of tables of labels and rows: the entropy over a label of what was kept over that of as many random grounded rows (mean of DRAWS);
    nan where the random rows all have one label."""
    from synth.blueprints.diversity import entropy_bits

    here, among = (table.group_by(label).agg(pl.col("rows").sum()).sort(label)["rows"].to_numpy() for table in (kept, grounded))
    rng = np.random.default_rng(0)
    drawn = [entropy_bits(rng.multivariate_hypergeometric(among, here.sum(), method="marginals").tolist()) for _ in range(DRAWS)]
    return entropy_bits(here.tolist()) * DRAWS / sum(drawn) if any(drawn) else math.nan


def mean_difficulty(table: pl.DataFrame) -> float:
    return float((table["difficulty"].cast(pl.Int64) * table["rows"]).sum() / table["rows"].sum())


# ---- real needles -------------------------------------------------------------------------------------------------------------


def real_log(*, is_ordinary: bool) -> tuple[Path, Path]:
    """A log whose needles are BFCL's questions: queries (text) and plants (kind).

    is_ordinary: among the rows of a generated log; else among junk of all kinds, half of it perturbed once more.
    """
    queries, plants = (WORK / f"log-real-{REAL_ROWS}-{is_ordinary}" / f"{name}.parquet" for name in ("queries", "plants"))
    if not plants.exists():
        rows = (_ordinary() if is_ordinary else _noise()).filter(pl.col("kind") != "needle")
        real = pl.DataFrame({"text": list(dict.fromkeys(questions()))}).with_columns(kind=pl.lit("needle"))
        mixed = pl.concat([rows, real]).sample(fraction=1.0, shuffle=True, seed=0)
        queries.parent.mkdir(parents=True, exist_ok=True)
        mixed.select("text").write_parquet(queries)
        mixed.select("kind").write_parquet(plants)
    return queries, plants


def _ordinary() -> pl.DataFrame:
    texts, planted = (pl.read_parquet(path) for path in log(REAL_ROWS, keep=100))
    return texts.select("text", planted["kind"])


def _noise() -> pl.DataFrame:
    from synth.haystack.noise import exact_variants, junk, near_variants

    rng, quarter = np.random.default_rng(0), REAL_ROWS // 4
    first = junk(2 * quarter, 0.35, rng).select("text", "kind")
    perturbed = [perturb(first[rng.integers(0, first.height, quarter)], rng) for perturb in (exact_variants, near_variants)]
    return pl.concat([first, *perturbed])


def questions() -> Iterator[str]:
    """The first user message of each of BFCL's cases."""
    from synth.worlds import bfcl_files

    for path in bfcl_files.files(bfcl_files.QUESTIONS):
        for case in bfcl_files.cases(path):
            yield from [text for turn in bfcl_files.user_turns(case)[:1] for text in turn[:1]]

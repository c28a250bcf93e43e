"""The spine: the sample run's cost, the funnel's and the verifier's quality, the worlds' speed, the ladder over three seeds.

run        `headrace run --config configs/sample.yaml` in a fresh folder, whole process tree
funnel     that run's queries, curated again in a separate store: wall time, and the share of planted rows that are kept
unseen     the same haystack in wordings that the parser's author has not seen (benchmarks/families_unseen.yaml)
worlds     calls per second, time of reset and of the first use after it, one core, arguments hardly ever repeated; the same bytes in
           another process
mutations  broken expert trajectories, run again and judged as a policy's
lineage    how much of the training stems from raw queries
cascade    CPU of a further cascade on the run's tasks, with another seed, in a store without stages
ladder     three seeds of the cascade and of a longer seed SFT, on 300 eval_in tasks

`.cache/bench/spine/` has the files kept between calls, in a folder named after the code; folders of other code are removed. A cascade that
was killed starts again on a fresh copy of the run's store; of a finished one, the outcomes of rollouts and the CPU time are kept.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from benchmarks.harness import ROOT, Deadline, Figures, Section, code_mark, fail, run_sections, run_tree
from benchmarks.worlds_sections import world_calls
from synth.worlds import WORLDS, make_world

KEPT = ROOT / ".cache" / "bench" / "spine"
WORK = KEPT / code_mark()
SAMPLE = ROOT / "configs" / "sample.yaml"
UNSEEN = ROOT / "benchmarks" / "families_unseen.yaml"
SEEDS = (1, 2, 3)
EVAL_TASKS = 300
SEED_MINUTES = 10
"""A cascade of the ladder with its control takes at most so long."""
PAIRS = 20_000
MUTATED_TASKS = {"city": 500, "retail": 3_500}
"""So many that every kind of mutation is found PER_KIND times: few plans change the state, or have calls whose order matters."""
PER_KIND = 1_000
RESETS = range(1001, 1051)
CALL_RUNS = 5
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
LADDER = ("sft1", "sft2", "rl", "longer")
HEADRACE = [str(Path(sys.executable).parent / "headrace")]


def main() -> int:
    if sys.argv[1:2] == ["--cascade"]:
        _cascade(Path(sys.argv[2]), seed=int(sys.argv[3]), eval_tasks=int(sys.argv[4]) or None)
        return 0
    WORK.mkdir(parents=True, exist_ok=True)
    for other in KEPT.iterdir():
        if other != WORK:
            shutil.rmtree(other) if other.is_dir() else other.unlink()
    return run_sections(
        "spine",
        [
            Section("run", ("run_cpu_s", "run_wall_s", "run_peak_gib"), measure_run, minutes=15),
            Section(
                "funnel",
                ("funnel_1m_s", "needle_hit_share", "exact_removed_share", "near_pair_recall", "needs_lost_share"),
                measure_funnel,
                minutes=3,
            ),
            Section("unseen wordings", ("needle_hit_share_unseen",), measure_unseen, minutes=5),
            Section(
                "worlds", ("city_calls_per_s", "city_reset_ms", "city_first_use_ms", "retail_calls_per_s"), measure_worlds, minutes=2
            ),
            Section(
                "mutations",
                (
                    "mutations_tried", "expert_accepted", "noop_refused", "hallucinated_refused", "duplicated_refused", "dropped_refused",
                    "altered_refused", "swaps_refused", "pasted_refused",
                ),
                measure_mutations,
                minutes=8,
            ),
            Section("lineage", ("tasks_from_queries_share", "query_survivors_in_training"), measure_lineage, minutes=1),
            Section("cascade", ("cascade_cpu_min",), measure_cascade, minutes=SEED_MINUTES),
            Section(
                "ladder",
                (
                    "sft1_rate", "sft2_rate", "rl_rate", "sft2_minus_sft1_lo95", "sft2_minus_longer_sft1_lo95", "rl_minus_sft2_lo95",
                ),
                measure_ladder,
                minutes=0,
            ),
        ],
    )  # fmt: skip


# ---- the run and its funnel ---------------------------------------------------------------------------------------------------


def measure_run(_: Deadline) -> Figures:
    """As `make run` calls it: without the thread settings of `make bench`."""
    shutil.rmtree(WORK / "run", ignore_errors=True)
    (WORK / "run").mkdir()
    log = WORK / "run" / "log.txt"
    command = [*HEADRACE, "run", "--config", str(SAMPLE), "--store", str(_store_path())]
    environment = {name: value for name, value in os.environ.items() if name not in THREADS}
    usage = run_tree(command, cwd=WORK / "run", log=log, environment=environment)
    if usage.returncode:
        fail(f"the sample run ended with code {usage.returncode}; its output is in {log}")
    return {"run_cpu_s": usage.cpu_s, "run_wall_s": usage.wall_s, "run_peak_gib": usage.peak_gib}


def measure_funnel(_: Deadline) -> Figures:
    """`funnel_1m_s` is wall time around the whole of `curate`: with counting the rows, writing the parts and the commit."""
    verdicts, wall_s = _curated("funnel", _one("queries.parquet"))
    plants = pl.read_parquet(_one("plants.parquet"))
    return {"funnel_1m_s": wall_s, "needle_hit_share": _hits(verdicts, plants)} | _duplicates(verdicts, plants)


def measure_unseen(_: Deadline) -> Figures:
    from flows.config import read
    from synth.haystack.generate import generate

    config = read(SAMPLE)
    queries, plants = generate(WORK / "haystack_unseen", config.haystack, config.curate.target_tasks(config.haystack.rows), UNSEEN)
    verdicts, _wall_s = _curated("unseen", queries)
    return {"needle_hit_share_unseen": _hits(verdicts, pl.read_parquet(plants))}


def _curated(name: str, queries: Path) -> tuple[pl.DataFrame, float]:
    """The verdicts on a file's rows, curated as the sample's into a new store of this name, and the seconds that it took."""
    from filters.funnel import curate
    from flows.config import read
    from storage.store import Store

    config = read(SAMPLE).curate
    shutil.rmtree(WORK / name, ignore_errors=True)
    store = Store(WORK / name)
    begun = time.perf_counter()
    result = curate(store, [queries], config)
    wall_s = time.perf_counter() - begun
    return _verdicts(store, result.run), wall_s


def _verdicts(store: object, run: str) -> pl.DataFrame:
    """row, step, kept, norm: the verdict on every row of a run, in the order of the file."""
    rows = store.query(  # type: ignore[attr-defined]
        "SELECT q.row, v.step, v.kept, q.text FROM verdicts v JOIN queries q USING (query_id, run) WHERE run = ? ORDER BY q.row", [run]
    )
    return rows.with_columns(pl.col("row").cast(pl.UInt32))


def _hits(verdicts: pl.DataFrame, plants: pl.DataFrame) -> float:
    kept = verdicts.filter("kept")["row"].to_list()
    return float((plants["kind"].gather(kept) == "needle").mean() or 0.0)


def _duplicates(verdicts: pl.DataFrame, plants: pl.DataFrame) -> Figures:
    """Shares over planted pairs (a row and the row it was made from) and needs.

    exact_removed_share: of exact pairs that both reach the exact step, those of which one is dropped there.
    near_pair_recall: of sampled near pairs that reach the near step (each as the survivor of its exact group) with a true Jaccard >= 0.7,
        those of which at most one is left. needs_lost_share: of frames with a row before the near step, those with none after it.
    """
    from filters.dedup.minhash import jaccard
    from filters.normalised_text import normalise_text

    order = verdicts.select("step").unique(maintain_order=False)["step"].to_list()
    early = [step for step in order if step in ("ingest", "normalise")]
    table = plants.join(verdicts, on="row").with_columns(norm=normalise_text(pl.col("text")))
    by_row = table.select(twin="row", twin_step="step", twin_norm="norm")
    pairs = table.join(by_row, on="twin")
    exact = pairs.filter((pl.col("kind") == "exact") & ~pl.col("step").is_in(early) & ~pl.col("twin_step").is_in(early))
    removed = exact.select((pl.col("step") == "exact") | (pl.col("twin_step") == "exact")).to_series().mean()
    survivor = table.filter(~pl.col("step").is_in([*early, "exact"])).select("norm", "step").unique("norm")
    near = (
        pairs.filter(pl.col("kind") == "near")
        .join(survivor.rename({"step": "own"}), on="norm")
        .join(survivor.rename({"norm": "twin_norm", "step": "other"}), on="twin_norm")
        .filter((pl.col("own") != "rules") & (pl.col("other") != "rules") & (pl.col("norm") != pl.col("twin_norm")))
        .sort("row")
        .sample(fraction=1.0, shuffle=True, seed=0)
        .head(PAIRS)
    )
    alike = near.filter(pl.Series([jaccard(a, b) >= 0.7 for a, b in near.select("norm", "twin_norm").iter_rows()], dtype=pl.Boolean))
    found = alike.select((pl.col("own") == "near") | (pl.col("other") == "near")).to_series().mean()
    before = table.filter(pl.col("frame").is_not_null() & ~pl.col("step").is_in([*early, "exact", "rules"]))
    lost = 1 - before.filter(pl.col("step") != "near")["frame"].n_unique() / before["frame"].n_unique()
    return {"exact_removed_share": float(removed), "near_pair_recall": float(found), "needs_lost_share": float(lost)}


# ---- worlds and verifier ------------------------------------------------------------------------------------------------------


def measure_worlds(_: Deadline) -> Figures:
    return {"city_calls_per_s": _calls_per_s("city")} | _city_reset() | {"retail_calls_per_s": _calls_per_s("retail")}


def _calls_per_s(name: str) -> float:
    """On one core, state put back after every call: the fastest of a few processes (machines are noisy), whose answers are all the same."""
    file = WORK / f"calls-{name}.json"
    file.unlink(missing_ok=True)
    command = [sys.executable, "-m", "benchmarks.worlds_sections.world_calls", name, str(file)]
    hashes, seconds = set(), []
    for attempt in range(CALL_RUNS):
        environment = {**os.environ, "PYTHONHASHSEED": str(attempt)}
        answer = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout.split()
        hashes.add(answer[0])
        seconds.append(float(answer[1]))
    calls = world_calls.read_calls(file)
    repeated = world_calls.repeated_share(calls)
    if repeated >= 0.1:
        fail(f"{name}: {repeated:.0%} of the calls are repeated; a measurement allows less than 10 %")
    if len(hashes) > 1:
        fail(f"{name}: the same seeds and calls gave other bytes in another process")
    rates = ", ".join(f"{len(calls) / took:,.0f}" for took in seconds)
    print(f"    {name}: {len(calls):,} calls, {repeated:.1%} repeated; the same bytes in {CALL_RUNS} processes; {rates} calls a second")
    return len(calls) / min(seconds)


def _city_reset() -> Figures:
    """Means over RESETS. city_reset_ms: `reset` alone. city_first_use_ms: what it leaves to the first use of the tools, which is how much
    longer a first call of each tool takes in a seed, all together, than a second one."""
    calls = world_calls.read_calls(WORK / "calls-city.json")
    city = make_world("city", 0)
    world_calls.call_each_tool(city, calls)
    reset_s = deferred_s = 0.0
    for seed in RESETS:
        begun = time.process_time()
        city.reset(seed)
        ready = time.process_time()
        world_calls.call_each_tool(city, calls)
        first = time.process_time()
        world_calls.call_each_tool(city, calls)
        reset_s += ready - begun
        deferred_s += (first - ready) - (time.process_time() - first)
    return {"city_reset_ms": reset_s / len(RESETS) * 1000, "city_first_use_ms": deferred_s / len(RESETS) * 1000}


def measure_mutations(_: Deadline) -> Figures:
    from benchmarks.audits.mutations import audit, draw_tasks

    rng = random.Random(0)
    tasks = [task for world, count in MUTATED_TASKS.items() for task in draw_tasks(WORLDS[world], count, rng)]
    found = audit(tasks, rng, PER_KIND, progress=lambda *_: None)
    for kind, tally in found.kinds.items():
        print(f"    {kind}: {tally.refused} of {tally.tried} refused")
        if tally.tried < PER_KIND:
            fail(f"only {tally.tried} mutations of kind {kind} were found; draw more tasks")
    return found.figures()


# ---- training -----------------------------------------------------------------------------------------------------------------


def measure_lineage(_: Deadline) -> Figures:
    trained = _store().query(
        "SELECT DISTINCT i.task_id, t.query_id FROM stages s JOIN release_items i USING (release_id, split) "
        "JOIN tasks t ON t.task_id = i.task_id"
    )
    from_queries = trained.filter(pl.col("query_id").is_not_null())
    return {
        "tasks_from_queries_share": from_queries.height / trained.height,
        "query_survivors_in_training": float(from_queries["query_id"].n_unique()),
    }


def measure_cascade(_: Deadline) -> Figures:
    """A cascade on the run's store with a seed of its own: everything from the seed release to the gate."""
    return {"cascade_cpu_min": _run_cascade(seed=99, eval_tasks=0) / 60}


def measure_ladder(deadline: Deadline) -> Figures:
    from train.measure.evaluate import bootstrap, paired_difference, task_means

    means: dict[str, list[pl.DataFrame]] = {name: [] for name in LADDER}
    for seed in SEEDS:
        if not _outcomes(seed).exists():
            deadline.allows(SEED_MINUTES)
        _run_cascade(seed=seed, eval_tasks=EVAL_TASKS)
        rollouts = pl.read_parquet(_outcomes(seed))
        for name in LADDER:
            means[name].append(task_means(rollouts.filter(policy=name).drop("policy")))
            print(f"    seed {seed}: {name} {means[name][-1]['rate'].mean():.3f}", flush=True)
    rates = {f"{name}_rate": bootstrap([table["rate"].to_numpy() for table in means[name]]).mean for name in ("sft1", "sft2", "rl")}
    differences = {
        "sft2_minus_sft1_lo95": ("sft1", "sft2"),
        "sft2_minus_longer_sft1_lo95": ("longer", "sft2"),
        "rl_minus_sft2_lo95": ("sft2", "rl"),
    }
    for key, (first, second) in differences.items():
        estimate = paired_difference(means[first], means[second])
        print(f"    {second} - {first}: {estimate.mean:+.3f} [{estimate.low:+.3f}, {estimate.high:+.3f}]")
        rates[key] = estimate.low
    return rates


def _run_cascade(*, seed: int, eval_tasks: int) -> float:
    """CPU seconds of a cascade with this seed on a copy of the run's store: as kept, or measured now, from the beginning.

    The outcomes of its rollouts are kept too, where `eval_tasks` is not 0; the copy is not.
    """
    kept, outcomes = WORK / f"cascade-{seed}.json", _outcomes(seed)
    if kept.exists():
        return float(json.loads(kept.read_text())["cpu_s"])
    if not _store_path().exists():
        fail("the section `run` left no store; remove .cache/bench and measure again")
    target = WORK / f"cascade-{seed}"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(_store_path(), target)
    log = WORK / f"cascade-{seed}.log"
    log.unlink(missing_ok=True)
    usage = run_tree([sys.executable, "-m", "benchmarks.spine", "--cascade", str(target), str(seed), str(eval_tasks)], log=log)
    if usage.returncode:
        fail(f"the cascade with seed {seed} failed; its output is in {log}")
    if eval_tasks:
        (target / outcomes.name).rename(outcomes)
    kept.write_text(json.dumps({"cpu_s": usage.cpu_s}))
    shutil.rmtree(target)
    return usage.cpu_s


def _outcomes(seed: int) -> Path:
    """policy (a name of LADDER), task_id, outcome: the rollouts of the eval_in tasks by every policy of a seed."""
    return WORK / f"outcomes-{seed}.parquet"


def _cascade(path: Path, *, seed: int, eval_tasks: int | None) -> None:
    """In a process of its own: the sample's cascade with another seed, and the control: the seed SFT for as many steps as both."""
    from flows.config import read
    from storage.store import Store
    from train.cascade import run_cascade

    os.environ.setdefault("OMP_NUM_THREADS", "1")
    config = read(SAMPLE).train
    changes: dict[str, object] = {"seed": seed} | ({"eval_tasks": eval_tasks} if eval_tasks else {})
    store = Store(path)
    result = run_cascade(store, config.model_copy(update=changes))
    if eval_tasks:
        _longer_sft1(store, config.model_copy(update=changes), [policy.id for policy in result.policies])


def _longer_sft1(store: object, config: object, policies: Sequence[str]) -> None:
    """Trains the control, and leaves the outcomes of its rollouts and the policies' in the store's folder."""
    from storage.records import Task
    from synth.engines.local.hf import HFEngine
    from synth.rollouts.draws import rollout, rollouts_frame
    from train.backends.base import run_stage
    from train.backends.local import LocalBackend
    from train.spec import StageSpec

    query = store.query  # type: ignore[attr-defined]
    root: Path = store.root  # type: ignore[attr-defined]
    release, split = query("SELECT release_id, split FROM stages WHERE output_policy_id = ?", [policies[0]]).row(0)
    sft1, sft2 = (config.stage(name).settings for name in ("sft1", "sft2"))  # type: ignore[attr-defined]
    settings = sft1.model_copy(update={"max_steps": sft1.max_steps + sft2.max_steps, "plateau_window": 0})
    folder = root / "control"
    spec = StageSpec(
        name="longer", algorithm="sft", store=root, release_id=release, split=split, model_out=folder / "model",
        worlds=config.worlds, language=config.language, seed=config.seed, sft=settings,  # type: ignore[attr-defined]
    )  # fmt: skip
    run_stage(LocalBackend(), spec, folder)
    names = query("SELECT policy_id, name FROM policies JOIN stages USING (stage_id) WHERE list_contains(?, policy_id)", [list(policies)])
    rows = query("SELECT DISTINCT task_id FROM rollouts WHERE policy_id = ? AND purpose = 'eval_in' ORDER BY task_id", [policies[0]])
    specs = query("SELECT task_id, spec FROM tasks WHERE list_contains(?, task_id) ORDER BY task_id", [rows["task_id"].to_list()])
    tasks = [Task.model_validate_json(spec) for spec in specs["spec"]]
    control = rollouts_frame(rollout(HFEngine(folder / "model"), tasks, config.eval_samples, seed=config.seed), "eval_in")  # type: ignore[attr-defined]
    outcomes = [control.select(pl.lit("longer").alias("policy"), "task_id", "outcome")]
    for policy, name in names.iter_rows():
        found = query("SELECT task_id, outcome FROM rollouts WHERE policy_id = ? AND purpose = 'eval_in'", [policy])
        outcomes.append(found.select(pl.lit(name).alias("policy"), "task_id", "outcome"))
    pl.concat(outcomes).write_parquet(root / _outcomes(config.seed).name)  # type: ignore[attr-defined]


# ---- places -------------------------------------------------------------------------------------------------------------------


def _store_path() -> Path:
    return WORK / "run" / "runs" / "sample" / "store"


def _store():
    from storage.store import Store

    return Store(_store_path())


def _one(name: str) -> Path:
    found = sorted((WORK / "run").rglob(name))
    if len(found) != 1:
        fail(f"expected one {name} under {WORK / 'run'}, found {len(found)}")
    return found[0]


if __name__ == "__main__":
    raise SystemExit(main())

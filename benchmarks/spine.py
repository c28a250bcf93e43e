"""The spine: the sample run's cost, the funnel's and the verifier's quality, the worlds' speed, the ladder over three seeds.

run        `headrace run --config configs/sample.yaml` in a fresh folder, whole process tree
funnel     what that run's funnel did with what was planted in its haystack
unseen     the same haystack in wordings that the parser's author has not seen (benchmarks/families_unseen.yaml)
worlds     calls a second and reset time, one core
mutations  broken expert trajectories, run again and judged as a policy's
lineage    how much of the training stems from raw queries
cascade    CPU of one more cascade on the run's tasks, another seed, nothing there yet
ladder     three seeds of the cascade and of a longer seed SFT, on 300 eval_in tasks
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from benchmarks.harness import ROOT, Figures, Section, fail, run_sections, run_tree

WORK = ROOT / ".cache" / "bench" / "spine"
SAMPLE = ROOT / "configs" / "sample.yaml"
UNSEEN = ROOT / "benchmarks" / "families_unseen.yaml"
SEEDS = (1, 2, 3)
EVAL_TASKS = 300
PAIRS = 20_000
CALLS_A_TOOL = 2_000
PER_KIND = 1_000
HEADRACE = [str(Path(sys.executable).parent / "headrace")]


def main() -> int:
    WORK.mkdir(parents=True, exist_ok=True)
    if sys.argv[1:2] == ["--cascade"]:
        _cascade(Path(sys.argv[2]), seed=int(sys.argv[3]), eval_tasks=int(sys.argv[4]) or None)
        return 0
    return run_sections(
        "spine",
        [
            Section("run", ("run_cpu_s", "run_wall_s", "run_peak_gib"), measure_run),
            Section(
                "funnel",
                ("funnel_1m_s", "needle_hit_share", "exact_removed_share", "near_pair_recall", "needs_lost_share"),
                measure_funnel,
            ),
            Section("unseen wordings", ("needle_hit_share_unseen",), measure_unseen),
            Section("worlds", ("city_calls_per_s", "city_reset_ms", "retail_calls_per_s"), measure_worlds),
            Section(
                "mutations",
                (
                    "mutations_tried", "expert_accepted", "noop_refused", "hallucinated_refused", "duplicated_refused", "dropped_refused",
                    "altered_refused", "swaps_refused",
                ),
                measure_mutations,
            ),
            Section("lineage", ("tasks_from_queries_share", "query_survivors_in_training"), measure_lineage),
            Section("cascade", ("cascade_cpu_min",), measure_cascade),
            Section(
                "ladder",
                (
                    "sft1_rate", "sft2_rate", "rl_rate", "sft2_minus_sft1_lo95", "sft2_minus_longer_sft1_lo95", "rl_minus_sft2_lo95",
                ),
                measure_ladder,
            ),
        ],
    )  # fmt: skip


# ---- the run and its funnel ---------------------------------------------------------------------------------------------------


def measure_run() -> Figures:
    shutil.rmtree(WORK / "run", ignore_errors=True)
    (WORK / "run").mkdir()
    log = WORK / "run" / "log.txt"
    usage = run_tree([*HEADRACE, "run", "--config", str(SAMPLE), "--store", str(_store_path())], cwd=WORK / "run", log=log)
    if usage.returncode:
        fail(f"the sample run ended with code {usage.returncode}; its output is in {log}")
    return {"run_cpu_s": usage.cpu_s, "run_wall_s": usage.wall_s, "run_peak_gib": usage.peak_gib}


def measure_funnel() -> Figures:
    store = _store()
    run = store.query("SELECT run FROM funnel GROUP BY run").item()
    seconds = store.query("SELECT sum(seconds) FROM funnel").item()
    verdicts = _verdicts(store, run)
    plants = pl.read_parquet(_one("plants.parquet"))
    return {"funnel_1m_s": seconds, "needle_hit_share": _hits(verdicts, plants)} | _duplicates(verdicts, plants)


def measure_unseen() -> Figures:
    from filters.funnel import curate
    from flows.config import read
    from storage.store import Store
    from synth.haystack import generate

    config = read(SAMPLE)
    shutil.rmtree(WORK / "unseen", ignore_errors=True)
    queries, plants = generate(WORK / "unseen", config.haystack, UNSEEN)
    store = Store(WORK / "unseen" / "store")
    result = curate(store, [queries], config.curate)
    return {"needle_hit_share_unseen": _hits(_verdicts(store, result.run), pl.read_parquet(plants))}


def _verdicts(store: object, run: str) -> pl.DataFrame:
    """row, step, kept, norm: the verdict on every row of a run, in the order of the file."""
    rows = store.query(  # type: ignore[attr-defined]
        "SELECT q.row, v.step, v.kept, q.text FROM verdicts v JOIN queries q USING (query_id, run) WHERE run = ? ORDER BY q.row", [run]
    )
    return rows.with_columns(pl.col("row").cast(pl.UInt32))


def _hits(verdicts: pl.DataFrame, plants: pl.DataFrame) -> float:
    """Share of the kept rows that are needles."""
    kept = verdicts.filter("kept").join(plants.select("row", "kind"), on="row")
    return float((kept["kind"] == "needle").mean())


def _duplicates(verdicts: pl.DataFrame, plants: pl.DataFrame) -> Figures:
    """Shares over planted pairs (a row and the row it was made from) and needs.

    exact_removed_share: of exact pairs that both reach the exact step, those of which one is dropped there.
    near_pair_recall: of sampled near pairs that reach the near step (each as the survivor of its exact group) with a true Jaccard >= 0.7,
        those of which at most one is left. needs_lost_share: of frames with a row before the near step, those with none after it.
    """
    from filters.normalise import normalised

    order = verdicts.select("step").unique(maintain_order=False)["step"].to_list()
    early = [step for step in order if step in ("ingest", "normalise")]
    table = plants.join(verdicts, on="row").with_columns(norm=normalised(pl.col("text")))
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
        .sample(fraction=1.0, shuffle=True, seed=0)
        .head(PAIRS)
    )
    alike = near.filter(pl.Series([_jaccard(a, b) >= 0.7 for a, b in near.select("norm", "twin_norm").iter_rows()], dtype=pl.Boolean))
    found = alike.select((pl.col("own") == "near") | (pl.col("other") == "near")).to_series().mean()
    before = table.filter(pl.col("frame").is_not_null() & ~pl.col("step").is_in([*early, "exact", "rules"]))
    lost = 1 - before.filter(pl.col("step") != "near")["frame"].n_unique() / before["frame"].n_unique()
    return {"exact_removed_share": float(removed), "near_pair_recall": float(found), "needs_lost_share": float(lost)}


def _jaccard(first: str, second: str) -> float:
    """Of the sets of byte 6-grams."""
    one, two = ({text[place : place + 6] for place in range(max(1, len(text) - 5))} for text in (first.encode(), second.encode()))
    return len(one & two) / len(one | two)


# ---- worlds and verifier ------------------------------------------------------------------------------------------------------


def measure_worlds() -> Figures:
    from synth.worlds import make_world

    figures: Figures = {}
    for name in ("city", "retail"):
        world = make_world(name, 5)
        calls = _calls(name)
        start = world.snapshot()
        begun = time.process_time()
        for tool, arguments in calls:
            world.call(tool, arguments)
            world.restore(start) if name == "retail" else None
        figures[f"{name}_calls_per_s"] = len(calls) / (time.process_time() - begun)
    city = make_world("city", 0)
    begun = time.process_time()
    for seed in range(1, 51):
        city.reset(seed)
    figures["city_reset_ms"] = (time.process_time() - begun) / 50 * 1000
    return figures


def _calls(name: str) -> list[tuple[str, str]]:
    """A shuffled uniform mix of the world's tools, arguments recombined from expert plans: valid in seed 5, at most 10 % repeated."""
    from synth.mutations import draw_tasks
    from synth.worlds import make_world

    rng = random.Random(0)
    world = make_world(name, 5)
    pools: dict[str, dict[str, list[object]]] = {tool.name: {} for tool in world.tools}
    examples: dict[str, list[dict[str, object]]] = {tool.name: [] for tool in world.tools}
    for task in draw_tasks(name, 1200, rng):
        for call in task.plan.calls:
            examples[call.tool].append(dict(call.arguments))
            for argument, value in call.arguments.items():
                pools[call.tool].setdefault(argument, []).append(value)
    out: list[tuple[str, str]] = []
    start = world.snapshot()
    for tool, found in examples.items():
        mine: set[str] = set()
        for _ in range(40 * CALLS_A_TOOL):
            if len(mine) == CALLS_A_TOOL or not found:
                break
            arguments = {name: rng.choice(pools[tool][name]) for name in rng.choice(found)}
            text = json.dumps(arguments, ensure_ascii=False)
            if text not in mine and not world.call(tool, text).is_error:
                mine.add(text)
            world.restore(start)
        out += [(tool, rng.choice(sorted(mine)) if number >= len(mine) else text) for number, text in enumerate(_padded(sorted(mine)))]
    rng.shuffle(out)
    return out


def _padded(texts: Sequence[str]) -> list[str]:
    """CALLS_A_TOOL texts, in turn where there are fewer."""
    return [texts[number % len(texts)] for number in range(CALLS_A_TOOL)] if texts else []


def measure_mutations() -> Figures:
    from synth.mutations import audit, draw_tasks

    rng = random.Random(0)
    tasks = [task for world in ("city", "retail") for task in draw_tasks(world, 400, rng)]
    found = audit(tasks, rng, PER_KIND, progress=lambda *_: None)
    for kind, tally in found.kinds.items():
        print(f"    {kind}: {tally.refused} of {tally.tried} refused")
    return found.figures()


# ---- training -----------------------------------------------------------------------------------------------------------------


def measure_lineage() -> Figures:
    trained = _store().query(
        "SELECT DISTINCT i.task_id, t.query_id FROM stages s JOIN release_items i USING (release_id, split) "
        "JOIN tasks t ON t.task_id = i.task_id"
    )
    from_queries = trained.filter(pl.col("query_id").is_not_null())
    return {
        "tasks_from_queries_share": from_queries.height / trained.height,
        "query_survivors_in_training": float(from_queries["query_id"].n_unique()),
    }


def measure_cascade() -> Figures:
    """A cascade on the run's store with a seed of its own: everything from the seed release to the gate."""
    usage = _run_cascade(seed=99, eval_tasks=0)
    return {"cascade_cpu_min": usage.cpu_s / 60}


def measure_ladder() -> Figures:
    from train.evaluate import bootstrap, paired_difference, task_means

    means: dict[str, list[pl.DataFrame]] = {"sft1": [], "sft2": [], "rl": [], "longer": []}
    for seed in SEEDS:
        _run_cascade(seed=seed, eval_tasks=EVAL_TASKS)
        for name, rollouts in _ladder_rollouts(seed).items():
            means[name].append(task_means(rollouts))
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


def _run_cascade(*, seed: int, eval_tasks: int):
    if not _store_path().exists():
        fail("the section `run` left no store; remove .cache/bench and measure again")
    target = WORK / f"cascade-{seed}"
    if not target.exists():
        shutil.copytree(_store_path(), target)
    log = WORK / f"cascade-{seed}.log"
    usage = run_tree([sys.executable, "-m", "benchmarks.spine", "--cascade", str(target), str(seed), str(eval_tasks)], log=log)
    if usage.returncode:
        fail(f"the cascade with seed {seed} failed; its output is in {log}")
    return usage


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
    """Trains the control and keeps its rollouts beside the policies' in `ladder.json`'s folder."""
    from storage.records import Task
    from synth.engines.hf import HFEngine
    from synth.rollouts import rollout, rollouts_frame
    from train.backends import local
    from train.spec import StageSpec

    query = store.query  # type: ignore[attr-defined]
    root: Path = store.root  # type: ignore[attr-defined]
    release, split = query("SELECT release_id, split FROM stages WHERE output_policy_id = ?", [policies[0]]).row(0)
    steps = config.sft1.max_steps + config.sft2.max_steps  # type: ignore[attr-defined]
    settings = config.sft1.model_copy(update={"max_steps": steps, "plateau_window": 0})  # type: ignore[attr-defined]
    folder = root / "control"
    spec = StageSpec(
        name="longer", algorithm="sft", store=root, release_id=release, split=split, model_out=folder / "model",
        worlds=config.worlds, language=config.language, seed=config.seed, sft=settings,  # type: ignore[attr-defined]
    )  # fmt: skip
    local.launch(spec, folder)
    names = query("SELECT policy_id, name FROM policies JOIN stages USING (stage_id) WHERE list_contains(?, policy_id)", [list(policies)])
    rows = query("SELECT DISTINCT task_id FROM rollouts WHERE policy_id = ? AND purpose = 'eval_in' ORDER BY task_id", [policies[0]])
    specs = query("SELECT task_id, spec FROM tasks WHERE list_contains(?, task_id) ORDER BY task_id", [rows["task_id"].to_list()])
    tasks = [Task.model_validate_json(spec) for spec in specs["spec"]]
    control = rollouts_frame(rollout(HFEngine(folder / "model"), tasks, config.eval_samples, seed=config.seed), "eval_in")  # type: ignore[attr-defined]
    control.select("task_id", "outcome").write_parquet(root / "ladder-longer.parquet")
    for policy, name in names.iter_rows():
        found = query("SELECT task_id, outcome FROM rollouts WHERE policy_id = ? AND purpose = 'eval_in'", [policy])
        found.write_parquet(root / f"ladder-{name}.parquet")


def _ladder_rollouts(seed: int) -> Mapping[str, pl.DataFrame]:
    root = WORK / f"cascade-{seed}"
    return {name: pl.read_parquet(root / f"ladder-{name}.parquet") for name in ("sft1", "sft2", "rl", "longer")}


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

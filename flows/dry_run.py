"""What a run would do, before it does it: steps, counts, estimated time and cost.

The times are rates measured on the two cores of the machine that benchmarks/ reports, rounded; they are there to tell minutes from
hours. Scripted roles and the tiny policy cost no money; what language models cost is in a preview (`headrace synthesize --preview`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from flows.config import Config
from flows.summary_tables import Table
from flows.validation import needs
from synth.rollouts.episode import MAX_TURNS
from train.config import CascadeConfig
from train.stages import SPLITS, RLStage, Stage

CPU_S_PER_PROPOSAL = 0.02
CPU_S_PER_MILLION_GENERATED = 25.0
CPU_S_PER_MILLION_SIFTED = 90.0
CPU_S_PER_ADMITTED = 0.1
CPU_S_PER_ROLLOUT = 0.012
CPU_S_PER_SFT_CONVERSATION = 0.006
CPU_S_PER_RL_ROLLOUT = 0.02

Line = tuple[str, str, float]
"""Step, counts, CPU seconds."""


def plan(config: Config, steps: Sequence[str], query_rows: int | None = None, policy: str | None = None, again: int = 0) -> Table:
    """One line a step and, of several, their sum.

    Args:
        query_rows: rows of the files to be curated; None: the generated haystack is.
        policy: what `tag` and `evaluate` measure, by its id or an engine's name; None: the policy promoted last. again: as of `tag`.
    """
    rows = config.haystack.rows if query_rows is None else query_rows
    lines = [line for step in steps for line in (_curate(config, rows) if step == "curate" else _LINES[step](config))]
    lines += _tagged_again(config, again) if again else []
    paid = {"synthesize": "see `headrace synthesize --preview`"} if config.synthesize.roles.engines else {}
    paid |= {"curate": "by its engine"} if config.curate.ground.engine or config.curate.difficulty.engine else {}
    if policy is not None:
        lines = [(name, f"{what}, by {policy}", seconds) for name, what, seconds in lines]
        paid |= {name: f"by its engine, {MAX_TURNS} requests a rollout at most" for name, *_ in lines if ":" in policy}
    if len(lines) > 1:
        paid |= {"all": "as above"} if paid.keys() & {name for name, *_ in lines} else {}
        lines.append(("all", f"store {config.store}", sum(seconds for *_, seconds in lines)))
    asks = ":" in (policy or "")
    shown = [
        {"step": name, "what": what, "about": "as it answers" if asks else _duration(seconds), "cost": paid.get(name, "0 USD")}
        for name, what, seconds in lines
    ]
    return Table("plan", "Plan (nothing was done)", shown)


def needed(config: Config) -> list[str]:
    """What must be there before the stages can run, a line each."""
    return [f"{', '.join(stages)}: needs {need.wanted}" for stages, need in needs(config)]


def write_rendered(config: Config) -> Path | None:
    """Writes what the stages' backends would hand over, a folder a stage, and returns the folder of these; None: they hand over nothing.

    What is not known before earlier stages have run (releases, and with them the stages' ids) stands there in capitals.
    """
    own, folder, has_any = config.train, config.folder / "dry-run", False
    specs = own.draft_specs(config.store.absolute())
    for stage in own.cascade:
        spec = specs[stage.name]
        for name, text in own.backend_of(stage).render(spec, spec.model_out.parent).items():
            has_any = True
            (folder / stage.name).mkdir(parents=True, exist_ok=True)
            (folder / stage.name / name).write_text(text)
    return folder if has_any else None


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def _synthesize(config: Config) -> list[Line]:
    own = config.synthesize
    what = f"{own.calibration} calibration and up to {own.max_proposals:,} steered conversations, until {own.accepted:,} are accepted"
    played = [f"{role} {name}" for role, name in own.roles.engines.items()]
    cpu_s = CPU_S_PER_PROPOSAL * (own.calibration + min(own.max_proposals, 3 * own.accepted))
    return [("synthesize", f"{what}; {', '.join(played) or 'all roles scripted'}", cpu_s)]


def _haystack(config: Config) -> list[Line]:
    return [("haystack", f"{config.haystack.rows:,} generated queries", CPU_S_PER_MILLION_GENERATED * config.haystack.rows / 1e6)]


def _curate(config: Config, rows: int) -> list[Line]:
    wanted = min(rows, config.curate.wanted(rows))
    kept = f"up to {wanted:,} tasks" if wanted > 1 else "one task" if wanted else "no task"
    what = f"{rows:,} rows, a verdict on each; {kept} kept"
    ground = config.curate.ground
    what += f"; at most {min(rows, ground.max_asked):,} texts read by {ground.engine}" if ground.engine is not None else ""
    judged = config.curate.difficulty
    what += f"; tool load of at most {min(rows, judged.max_asked):,} judged by {judged.engine}" if judged.engine is not None else ""
    return [("curate", what, CPU_S_PER_MILLION_SIFTED * rows / 1e6 + CPU_S_PER_ADMITTED * wanted)]


def _tag(config: Config) -> list[Line]:
    own = config.train
    return [("tag", _draws(own), CPU_S_PER_ROLLOUT * own.probe_tasks * own.draws.k)]


def _tagged_again(config: Config, tasks: int) -> list[Line]:
    own = config.train.model_copy(update={"probe_tasks": min(tasks, config.train.probe_tasks)})
    return [("again", _draws(own), CPU_S_PER_ROLLOUT * own.probe_tasks * own.draws.k)]


def _draws(own: CascadeConfig) -> str:
    tasks, draws = own.probe_tasks, own.draws
    if draws.most == draws.k:
        return f"{tasks} probe tasks x {draws.k} = {tasks * draws.k:,} rollouts"
    return f"{tasks} probe tasks x {draws.k} to {draws.most} = {tasks * draws.k:,} to {tasks * draws.most:,} rollouts"


def _train(config: Config) -> list[Line]:
    own, stages = config.train, config.train.cascade
    probes = len({stage.parent for stage in stages if SPLITS[stage.split].is_routed})
    probe, judged = own.probe_tasks * own.draws.k, _held_out(own) * (own.eval_samples + 1) * len(stages)
    return [
        *(_stage(own, stage) for stage in stages),
        *([("probes", f"{probes} x {_draws(own)}", CPU_S_PER_ROLLOUT * probes * probe)] if probes else []),
        ("gates", f"{len(stages)} policies x {_held_out(own)} held-out tasks, {judged:,} rollouts", CPU_S_PER_ROLLOUT * judged),
    ]


def _stage(own: CascadeConfig, stage: Stage) -> Line:
    if isinstance(stage, RLStage):
        what = f"{stage.max_steps} steps of {stage.tasks_a_step} fresh tasks x {stage.draws}"
        return stage.name, what, CPU_S_PER_RL_ROLLOUT * stage.max_steps * stage.tasks_a_step * stage.draws
    split = f"{own.expert_budget} expert trajectories" if stage.split == "seed" else "own and expert trajectories"
    what = f"{split}, up to {stage.max_steps} steps"
    return stage.name, what, CPU_S_PER_SFT_CONVERSATION * stage.max_steps * stage.batch_size


def _evaluate(config: Config) -> list[Line]:
    own = config.train
    rollouts = _held_out(own) * (own.eval_samples + 1)
    told = f"{_held_out(own)} held-out tasks x {own.eval_samples + 1} = {rollouts:,} rollouts"
    return [("evaluate", told, CPU_S_PER_ROLLOUT * rollouts)]


def _held_out(own: CascadeConfig) -> int:
    return own.eval_tasks + own.eval_out_tasks


def _report(config: Config) -> list[Line]:
    return [("report", str(config.report), 5.0)]


_LINES: dict[str, Callable[[Config], list[Line]]] = {
    "synthesize": _synthesize,
    "haystack": _haystack,
    "tag": _tag,
    "train": _train,
    "evaluate": _evaluate,
    "report": _report,
}

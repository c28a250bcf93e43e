"""The plan of a run, printed by `--dry-run`: steps, counts, estimated time and cost.

The times come from rounded rates of one `make run` on two idle cores; they tell minutes from hours, and a run corrects them.
Scripted roles and the tiny policy cost no money. `headrace synthesize --preview` estimates the cost of language models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from flows.config import Config
from flows.runtime.time_left import Planned, duration
from flows.summaries.summary_tables import Table
from flows.validation import stage_needs
from synth.rollouts.episode import MAX_TURNS
from train.config import CascadeConfig
from train.data.general_data import choose_chats
from train.models.base_model import check_base_model, resolve_model, window_of
from train.models.model_cost import ModelShape, gpu_seconds, memory_gib, shape_of, tokens_at_once
from train.stages import RLStage, Stage

CPU_S_PER_PROPOSAL = 0.02
CPU_S_PER_MILLION_GENERATED = 8.0
CPU_S_PER_MILLION_SIFTED = 30.0
CPU_S_PER_ADMITTED = 0.1
CPU_S_PER_UNGROUNDED = 0.003
"""For a row of the pool that no world reads: two vectors, and its topic."""
CPU_S_PER_PROBE_ROLLOUT = 0.0035
CPU_S_PER_HELD_OUT_ROLLOUT = 0.011
CPU_S_PER_SFT_CONVERSATION = 0.01
CPU_S_PER_RL_ROLLOUT = 0.0065
TINY_PARAMETERS = 420_000
"""Of the policy that the rates of training and rollouts were measured with; those of a base model grow with its parameters."""

Line = tuple[str, str, float]
"""Step, counts, CPU seconds."""


def plan(config: Config, steps: Sequence[str], query_rows: int | None = None, policy: str | None = None, again: int = 0) -> Table:
    """The plan: one row per step, and a total if there are several steps.

    query_rows: rows of the query files to curate; None: the generated haystack is curated.
    policy: id of the policy, or name of the engine, that `tag` and `evaluate` measure; None: the policy promoted last.
    again: number of probe tasks that `tag` measures a second time.
    """
    lines = _lines(config, steps, query_rows)
    if again:
        lines.append(_draws("again", config.train, min(again, config.train.probe_tasks)))
    paid = {"synthesize": "see `headrace synthesize --preview`"} if config.synthesize.roles.engines else {}
    paid |= {"experts": "by its engine"} if config.train.experts.engine else {}
    paid |= {"curate": "by its engine"} if config.curate.ground.engine or config.curate.difficulty.engine else {}
    if policy is not None:
        lines = [(name, f"{what}, by {policy}", seconds) for name, what, seconds in lines]
        paid |= {name: f"by its engine, {MAX_TURNS} requests a rollout at most" for name, *_ in lines if ":" in policy}
    if len(lines) > 1:
        paid |= {"all": "as above"} if paid.keys() & {name for name, *_ in lines} else {}
        lines.append(("all", f"store {config.store}", sum(seconds for *_, seconds in lines)))
    is_engine = ":" in (policy or "")
    rows_shown = [
        {"step": name, "what": what, "about": "as it answers" if is_engine else duration(seconds), "cost": paid.get(name, "0 USD")}
        for name, what, seconds in lines
    ]
    return Table("plan", "Plan, with times on two cores; what the store has already is not made again", rows_shown)


def schedule(config: Config, steps: Sequence[str], query_rows: int | None = None) -> list[Planned]:
    """The same steps in the order of their work, for the time that is left while they run: a stage, its gate, its probe, the next stage."""
    seconds = {name: seconds for name, _, seconds in _lines(config, steps, query_rows)}
    labels = {
        "synthesize": ("calibrating", "round ", "synthesize"),
        "haystack": ("haystack",),
        "curate": (),
        "tag": (": probe",),
    }
    planned = [Planned(step, labels[step], seconds[step], is_last=step == "tag") for step in steps if step in labels]
    if "train" not in steps:
        return planned
    cascade = config.train
    probed = {cascade.probed_stage(stage) for stage in cascade.cascade} - {None}
    stages: list[Planned] = []
    for stage in cascade.cascade:
        gate = Planned(f"gate of {stage.name}", (f"{stage.name}: eval",), seconds["gates"] / len(cascade.cascade))
        stages += [Planned(stage.name, (f"stage {stage.name}",), seconds[stage.name]), gate]
        if stage.name in probed:
            stages.append(Planned(f"probe of {stage.name}", (f"{stage.name}: probe",), seconds["probes"] / len(probed)))
    before = [step for step in planned if step.name != "tag"]
    return [*before, *stages, *(step for step in planned if step.name == "tag")]


def _lines(config: Config, steps: Sequence[str], query_rows: int | None) -> list[Line]:
    rows = config.haystack.rows if query_rows is None else query_rows
    return [line for step in steps for line in (_curate(config, rows) if step == "curate" else _LINES[step](config))]


def list_needs(config: Config) -> list[str]:
    """One line per thing that the stages' backends need."""
    return [f"{', '.join(stages)}: needs {need.requirement}" for stages, need in stage_needs(config)]


def write_rendered(config: Config) -> Path | None:
    """Write the files that the stages' backends would submit, one folder per stage. Returns their parent folder; None: there are no files.

    Values that are known only after earlier stages (releases, and so the stages' ids) are placeholders in capitals.
    """
    cascade, folder, has_files = config.train, config.folder / "dry-run", False
    specs = cascade.draft_specs(config.store.absolute())
    for stage in cascade.cascade:
        spec = specs[stage.name]
        for name, text in cascade.backend_of(stage).render(spec, spec.model_out.parent).items():
            has_files = True
            (folder / stage.name).mkdir(parents=True, exist_ok=True)
            (folder / stage.name / name).write_text(text)
    return folder if has_files else None


def _synthesize(config: Config) -> list[Line]:
    section = config.synthesize
    text = f"{section.calibration} calibration and up to {section.max_proposals:,} steered conversations"
    text += f", until {section.accepted:,} are accepted"
    text += f" or {section.patience:,} in a row are not" if section.patience is not None else ""
    roles = ", ".join(f"{role} {name}" for role, name in section.roles.engines.items())
    cpu_s = CPU_S_PER_PROPOSAL * (section.calibration + min(section.max_proposals, 3 * section.accepted))
    return [("synthesize", f"{text}; {roles or 'all roles scripted'}", cpu_s)]


def _haystack(config: Config) -> list[Line]:
    return [("haystack", f"{config.haystack.rows:,} generated queries", CPU_S_PER_MILLION_GENERATED * config.haystack.rows / 1e6)]


def _curate(config: Config, rows: int) -> list[Line]:
    tasks = min(rows, config.curate.target_tasks(rows))
    if config.curate.ungrounded:
        count = f"up to {tasks:,} queries" if tasks > 1 else "one query" if tasks else "no query"
        kept_text = f"{count} kept, as tasks where a world executes them, else evenly over topics"
    else:
        kept_text = f"up to {tasks:,} tasks kept" if tasks > 1 else "one task kept" if tasks else "no task kept"
    text = f"{rows:,} rows, a verdict on each; {kept_text}"
    ground, difficulty = config.curate.ground, config.curate.difficulty
    text += f"; at most {min(rows, ground.max_asked):,} texts read by {ground.engine}" if ground.engine is not None else ""
    if difficulty.engine is not None:
        text += f"; tool load of at most {min(rows, difficulty.max_asked):,} judged by {difficulty.engine}"
    encoded = min(rows, config.curate.coverage.model_copy(update={"keep": max(tasks, 1)}).pool_rows) if config.curate.ungrounded else 0
    seconds = CPU_S_PER_MILLION_SIFTED * rows / 1e6 + CPU_S_PER_ADMITTED * tasks + CPU_S_PER_UNGROUNDED * encoded
    return [("curate", text, seconds)]


def _tag(config: Config) -> list[Line]:
    return [_draws("tag", config.train, config.train.probe_tasks)]


def _draws(step: str, cascade: CascadeConfig, tasks: int) -> Line:
    """The rollouts of one probe."""
    k, most = cascade.draws.k, cascade.draws.most
    times, rollouts = (f"{k}", f"{tasks * k:,}") if most == k else (f"{k} to {most}", f"{tasks * k:,} to {tasks * most:,}")
    return step, f"{tasks} probe tasks x {times} = {rollouts} rollouts", CPU_S_PER_PROBE_ROLLOUT * tasks * k


def _train(config: Config) -> list[Line]:
    cascade, stages = config.train, config.train.cascade
    probes = len({cascade.probed_stage(stage) for stage in stages} - {None})
    _, probe, probe_s = _draws("probes", cascade, cascade.probe_tasks)
    held_out = cascade.eval_tasks + cascade.eval_out_tasks
    rollouts = held_out * (cascade.eval_samples + 1) * len(stages)
    experts = cascade.experts
    limit = f"at most {experts.max_usd} USD" if experts.max_usd is not None else "no limit of USD"
    most = cascade.expert_budget + cascade.probe_tasks * experts.oracle
    asked = f"up to {most} tasks x {experts.best_of} tries by {experts.engine}, {limit}"
    lines: list[Line] = [
        *(_stage(cascade, stage) for stage in stages),
        *([("probes", f"{probes} x {probe}", probes * probe_s)] if probes else []),
        ("gates", f"{len(stages)} policies x {held_out} held-out tasks, {rollouts:,} rollouts", CPU_S_PER_HELD_OUT_ROLLOUT * rollouts),
    ]
    first = [("experts", asked, 0.0)] if experts.engine is not None else []
    if cascade.model is not None:
        folder = resolve_model(cascade.model)
        check_base_model(folder)
        choose_chats(cascade.chat_counts, window_of(folder))
        shape = shape_of(folder)
        first.append(("model", f"{cascade.model}: {shape.parameters / 1e6:,.1f} M parameters, window {shape.window:,} tokens", 0.0))
        lines = [_with_model(cascade, shape, line) for line in lines]
        first += [("mix", f"{share:.0%} of the seed split from {name}", 0.0) for name, share in cascade.mix.items()]
    return [*first, *lines]


def _with_model(cascade: CascadeConfig, shape: ModelShape, line: Line) -> Line:
    """A line of the tiny policy, for a base model: a stage's memory, and times by its size or, on GPUs, by its operations."""
    name, what, seconds = line
    stages = {stage.name: stage for stage in cascade.cascade}
    scaled = seconds * shape.parameters / TINY_PARAMETERS
    if name not in stages:
        return name, what, scaled
    stage, spec = stages[name], cascade.draft_specs(Path())[name]
    settings, backend = stage.settings, cascade.backend_of(stage)
    gpus, processes = backend.gpus(spec), backend.processes(spec)
    has_bf16 = settings.precision == "bf16" or (settings.precision == "auto" and gpus > 0)
    memory = memory_gib(shape, settings, processes=processes, is_sharded=backend.is_sharded(spec), in_bf16=has_bf16)
    held = f"about {memory:,.1f} GiB a {'GPU' if gpus else 'process'}, at {tokens_at_once(shape, settings, processes):,} tokens at once"
    held += "; the time is without rollouts" if gpus and isinstance(stage, RLStage) else ""
    return name, f"{what}; {held}", gpu_seconds(shape, settings, gpus) if gpus else scaled


def _stage(cascade: CascadeConfig, stage: Stage) -> Line:
    if isinstance(stage, RLStage):
        text = f"{stage.max_steps} steps of {stage.tasks_a_step} fresh tasks x {stage.draws}"
        return stage.name, text, CPU_S_PER_RL_ROLLOUT * stage.max_steps * stage.tasks_a_step * stage.draws
    synthesised = round(cascade.expert_budget * cascade.synthesised_share)
    seed = f"{cascade.expert_budget} conversations (up to {synthesised} of synthesis, the others experts of single tasks)"
    split = seed if stage.split == "seed" else "the same and own trajectories"
    text = f"{split}, up to {stage.max_steps} steps"
    return stage.name, text, CPU_S_PER_SFT_CONVERSATION * stage.max_steps * stage.batch_size


def _evaluate(config: Config) -> list[Line]:
    tasks, draws = config.train.eval_tasks + config.train.eval_out_tasks, config.train.eval_samples + 1
    return [("evaluate", f"{tasks} held-out tasks x {draws} = {tasks * draws:,} rollouts", CPU_S_PER_HELD_OUT_ROLLOUT * tasks * draws)]


_LINES: dict[str, Callable[[Config], list[Line]]] = {
    "synthesize": _synthesize,
    "haystack": _haystack,
    "tag": _tag,
    "train": _train,
    "evaluate": _evaluate,
    "report": lambda config: [("report", str(config.report), 5.0)],
}

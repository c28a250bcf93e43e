"""What the environment's context does to a tiny policy: success and tokens with results shortened, tools cut, reminders, notes.

Every arm has the same tasks, each in the arm's context (siblings of drills of two worlds with long results), experts made in that context,
the same number of steps from scratch, and the same tokenizer; every prompt lists the tools on offer, as words. Held out are siblings that
are set aside for evaluation, the same in every arm, answered greedily. Tokens are those of a whole conversation, prompt and list included.
Gains are success minus that of `full`, task by task, with bootstrap over seeds and tasks.

Negative control: the policy that was taught with whole results, and is shown shortened ones (`untaught`). On tasks that cannot pass without
reading on (`needed`) it must fail: it does not know how to, and the verifier takes no value that was not shown. Where the expert reads on
only to say more than was asked (the id of a new loan), a task is not counted among these.

Each arm and seed is kept under `.cache/bench/live/context/` by the code that is measured, so that a killed call goes on.

The city's results are too long for the tiny policy's window (512 tokens), so no policy is trained there: the share of the city's experts
that fit is measured, whole and shortened, and their tokens.
"""

from __future__ import annotations

import itertools
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from benchmarks.experiment.prompts import compact
from benchmarks.harness import ROOT, Deadline, Figures, code_mark
from storage.context.settings import PolicyContext
from storage.files import replace_atomically
from storage.records import Frame, Message, Outcome, Task
from synth.blueprints.single_goal import draw_drills
from synth.context.offered_tools import tools_of
from synth.conversations.task_in_context import in_context
from synth.rollouts.episode import Episode, play
from synth.tasks.context_expert import play_calls
from synth.tasks.solver import NotAdmitted, expert_messages
from synth.tasks.split import DivisionConfig
from synth.worlds import WORLDS
from train.data.task_pool import Source, draw
from train.measure.evaluate import paired_difference, task_means
from train.spec import SFTSettings, TinyConfig

if TYPE_CHECKING:
    from synth.engines.local.hf import HFEngine

LIMIT = 150
ARMS: Mapping[str, PolicyContext] = {
    "full": PolicyContext(),
    "short": PolicyContext(observation_chars=LIMIT),
    "reminder": PolicyContext(reminder_every=1),
    "notes": PolicyContext(observation_chars=LIMIT, notes=True),
    "tools_full": PolicyContext(),
    "tools_cut": PolicyContext(tool_scope="cluster"),
}
BASES: Mapping[str, str] = {"short": "full", "reminder": "full", "notes": "short", "tools_cut": "tools_full"}
"""What an arm is compared with."""
TRAINED_WORLDS = ("retail", "library")
SEEDS = (0, 1)
DRILLS = 300
"""Frames a world, of all divisions."""
EXPERTS, HELD_OUT, STEPS = 1_200, 240, 400
CITY, CITY_LIMIT = 120, 400
MINUTES = 2
"""Of one arm and seed, of twelve: 15 in all on two quiet cores."""
KEPT = ROOT / ".cache" / "bench" / "live" / "context"
MOST_DRAWN = 4
"""Tasks drawn for each that is used: fewer than half have a long result."""


def keys() -> tuple[str, ...]:
    gains = [f"context_{name}_gain{end}" for name in BASES for end in ("", "_lo95", "_hi95")]
    success = [f"context_success_{name}" for name in (*ARMS, "untaught")]
    needed = [f"context_needed_success_{name}" for name in ("full", "short", "notes", "untaught")]
    return (
        *success,
        *(f"context_tokens_{name}" for name in ARMS),
        *gains,
        "context_needed_share",
        *needed,
        "context_admitted_share",
        "context_city_fits_full",
        "context_city_fits_short",
        "context_city_tokens_full",
        "context_city_tokens_short",
    )


def measure(deadline: Deadline) -> Figures:
    """The figures of `keys`."""
    import torch

    from train.device import keep_freed_memory, settle

    settle()
    keep_freed_memory()
    torch.set_num_threads(1)
    taught, admitted = _in_all(_draw(EXPERTS, "train"))
    asked, _ = _in_all(_draw(HELD_OUT, "eval_in"))
    conversations = {name: [_expert(task) for task in tasks] for name, tasks in taught.items()}
    tokenizer = _tokenizer([one for each in conversations.values() for one in each])
    places = {at for at, task in enumerate(asked["short"]) if _must_read(task)}
    results: dict[str, _Result] = {name: _Result() for name in (*ARMS, "untaught")}
    for seed, name in itertools.product(SEEDS, ARMS):
        found = _rollouts(tokenizer, conversations[name], name, seed, asked, deadline)
        for measured, rollouts in found.items():
            results[measured].add(rollouts)
        print(f"    seed {seed}, {name}: {results[name].rates[-1]:.3f}, {results[name].tokens[-1]:.0f} tokens", flush=True)
    figures = {f"context_success_{name}": statistics.fmean(result.rates) for name, result in results.items()}
    figures |= {f"context_tokens_{name}": statistics.fmean(results[name].tokens) for name in ARMS}
    for name, base in BASES.items():
        gain = paired_difference(results[base].means, results[name].means)
        figures |= {f"context_{name}_gain{end}": value for end, value in (("", gain.mean), ("_lo95", gain.low), ("_hi95", gain.high))}
    figures |= {f"context_needed_success_{name}": results[name].rate_of(places) for name in ("full", "short", "notes", "untaught")}
    return figures | {
        "context_needed_share": len(places) / len(asked["short"]),
        "context_admitted_share": admitted,
        **_city(),
    }


@dataclass(slots=True)
class _Result:
    """Of an arm, one entry a training seed: success by task, its mean, and mean tokens of a conversation."""

    means: list[pl.DataFrame] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    tokens: list[float] = field(default_factory=list)

    def add(self, rollouts: pl.DataFrame) -> None:
        self.means.append(task_means(rollouts))
        self.rates.append(statistics.fmean(self.means[-1]["rate"]))
        self.tokens.append(statistics.fmean(rollouts["tokens"]))

    def rate_of(self, places: set[int]) -> float:
        """Success on the tasks at these places."""
        names = [_name(at) for at in places]
        return statistics.fmean(rate for means in self.means for rate in means.filter(pl.col("task_id").is_in(names))["rate"])


# ---- tasks --------------------------------------------------------------------------------------------------------------------


def _sources(division: str) -> list[Source]:
    drawn = [drill.task for world in TRAINED_WORLDS for drill in draw_drills(WORLDS[world], DRILLS, [], DivisionConfig(), seed=0)]
    return [
        Source(Frame(world=task.world, intent=task.intent, slots=task.slots), task.division, task.difficulty, None, task.blueprint_id)
        for task in drawn
        if task.division == division
    ]


def _draw(count: int, use: Literal["train", "eval_in"]) -> list[Task]:
    """Tasks, half of them with a result that is longer than the limit."""
    halves: tuple[list[Task], list[Task]] = [], []
    for task in draw(_sources("seed"), MOST_DRAWN * count, use=use, language="en", fewest=count):
        halves[any(len(message.content or "") > LIMIT for message in _expert(task) if message.role == "tool")].append(task)
    return [task for half in halves for task in half[: count // 2]]


def _in_all(tasks: Sequence[Task]) -> tuple[dict[str, list[Task]], float]:
    """The tasks in the context of each arm, those that all arms admit; and their share."""
    rows = list(_admitted(tasks))
    asks = {name: _listed if name.startswith("tools") else _unprompted for name in ARMS}
    return {name: [asks[name](row[name]) for row in rows] for name in ARMS}, len(rows) / len(tasks)


def _admitted(tasks: Sequence[Task]) -> Iterator[dict[str, Task]]:
    for task in tasks:
        try:
            yield {name: in_context(WORLDS[task.world], task, context) for name, context in ARMS.items()}
        except NotAdmitted:
            continue


def _unprompted(task: Task) -> Task:
    return task


def _listed(task: Task) -> Task:
    """A task whose prompt lists the tools on offer, before the user speaks."""
    *before, said = task.messages
    tools = Message(role="user", content=compact(tools_of(WORLDS[task.world], task)))
    return task.model_copy(update={"messages": (*before, tools, said)})


def _expert(task: Task) -> Sequence[Message]:
    return expert_messages(WORLDS[task.world], task)


def _must_read(task: Task) -> bool:
    """Whether the plan fails without reading on, also if its answer may say what it has not seen."""
    blind = play_calls(WORLDS[task.world], task, task.plan.calls, task.plan.answer, {})
    return not all(holds for name, holds in blind.verdict.checks.items() if name != "grounded_answer")


# ---- policies -----------------------------------------------------------------------------------------------------------------


def _tokenizer(conversations: Sequence[Sequence[Message]]) -> Any:
    from train import tiny

    return tiny.build_tokenizer(
        [*map(tiny.render, conversations), *tiny.vocabulary_texts([WORLDS[name] for name in TRAINED_WORLDS], ["en"])]
    )


def _rollouts(
    tokenizer: Any,
    conversations: Sequence[Sequence[Message]],
    name: str,
    seed: int,
    asked: Mapping[str, Sequence[Task]],
    deadline: Deadline,
) -> dict[str, pl.DataFrame]:
    """Rollouts of an arm's policy on the arm's tasks; of `full` on the shortened ones too, as `untaught`."""
    wanted = {name: asked[name]} | ({"untaught": asked["short"]} if name == "full" else {})
    files = {measured: KEPT / code_mark() / f"{measured}-{seed}.parquet" for measured in wanted}
    if not all(file.exists() for file in files.values()):
        deadline.allows(MINUTES)
        engine = _train(tokenizer, conversations, seed)
        for measured, file in files.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            replace_atomically(file, _evaluate(engine, wanted[measured]).write_parquet)
    return {measured: pl.read_parquet(file) for measured, file in files.items()}


def _train(tokenizer: Any, conversations: Sequence[Sequence[Message]], seed: int) -> HFEngine:
    """A tiny policy, trained from scratch."""
    from synth.engines.local.hf import HFEngine
    from train import tiny
    from train.sft.sft import train_sft

    model = tiny.build_model(TinyConfig(), tokenizer, seed)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="headrace-context-") as scratch:
        train_sft(model, tokenizer, conversations, SFTSettings(max_steps=STEPS), seed=seed, scratch=Path(scratch))
    print(f"    trained in {time.monotonic() - begun:.0f} s", flush=True)
    return HFEngine(model, tokenizer)


def _name(place: int) -> str:
    return f"task-{place:04d}"


def _evaluate(engine: HFEngine, tasks: Sequence[Task]) -> pl.DataFrame:
    """A greedy rollout of each task, which is named by its place: columns task_id, outcome, tokens."""
    episodes = [Episode(task, 0, 8) for task in tasks]
    play(engine, episodes, temperature=0.0, seed=0, tools=False)
    if any(one.outcome not in (Outcome.SUCCESS, Outcome.POLICY_FAILURE) for one in episodes):
        raise ValueError(f"a rollout failed: {next(one.failure for one in episodes if one.failure)}")
    rows = [
        {
            "task_id": _name(at),
            "outcome": str(one.outcome),
            "tokens": sum(len(turn.context_ids) + len(turn.token_ids) for turn in one.turns),
        }
        for at, one in enumerate(episodes)
    ]
    return pl.DataFrame(rows)


# ---- the city -----------------------------------------------------------------------------------------------------------------


def _city() -> Figures:
    """Mean tokens of the city's experts, whole and with results of at most so many characters, and the shares that fit into the window."""
    from train import tiny

    world, whole, short = WORLDS["city"], list[Sequence[Message]](), list[Sequence[Message]]()
    for drill in draw_drills(world, CITY, [], DivisionConfig(), seed=0):
        with suppress(NotAdmitted):
            short.append(_expert(in_context(world, drill.task, PolicyContext(observation_chars=CITY_LIMIT))))
            whole.append(_expert(drill.task))
    tokenizer = tiny.build_tokenizer([tiny.render(messages) for messages in (*whole, *short)])
    figures: Figures = {}
    for name, conversations in (("full", whole), ("short", short)):
        lengths = [len(tokenizer(tiny.render(messages))["input_ids"]) for messages in conversations]
        figures[f"context_city_fits_{name}"] = statistics.fmean(length <= TinyConfig().positions for length in lengths)
        figures[f"context_city_tokens_{name}"] = statistics.fmean(lengths)
    return figures

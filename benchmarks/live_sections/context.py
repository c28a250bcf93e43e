"""What the environment's context does to a tiny policy: success and tokens with results shortened, tools cut, reminders, notes.

Every arm has the same tasks, each in the arm's context (siblings of drills of two worlds with long results), experts made in that context,
the same number of steps from scratch, and the same tokenizer; every prompt lists the tools on offer, as words. Held out are siblings that
are set aside for evaluation, the same in every arm, answered greedily. Tokens are those of a whole conversation, prompt and list included.
Gains are success minus that of `full`, task by task, with bootstrap over seeds and tasks.

Negative control: the policy that was taught with whole results, and is shown shortened ones (`untaught`). Where the answer needs what is
hidden, it must fail: it does not know how to read on, and the verifier takes no value that was not shown.

The city's results are too long for the tiny policy's window (512 tokens), so no policy is trained there: the share of the city's experts
that fit is measured, whole and shortened, and their tokens.
"""

from __future__ import annotations

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
from benchmarks.harness import Deadline, Figures
from storage.context.settings import PolicyContext
from storage.context.tools import READ_MORE
from storage.records import Frame, Message, Outcome, Task
from synth.blueprints.single_goal import draw_drills
from synth.context.tools import tools_of
from synth.conversations.task_in_context import in_context
from synth.rollouts.episode import Episode, play
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
MINUTES = 15
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

    deadline.allows(MINUTES)
    settle()
    keep_freed_memory()
    torch.set_num_threads(1)
    taught, admitted = _in_all(_draw(EXPERTS, "train"))
    asked, _ = _in_all(_draw(HELD_OUT, "eval_in"))
    conversations = {name: [_expert(task) for task in tasks] for name, tasks in taught.items()}
    tokenizer = _tokenizer([one for each in conversations.values() for one in each])
    needed = {task.id for task in asked["short"] if any(READ_MORE in _called(message) for message in _expert(task))}
    places = {at for at, task in enumerate(asked["short"]) if task.id in needed}
    results: dict[str, _Result] = {name: _Result() for name in (*ARMS, "untaught")}
    for seed in SEEDS:
        for name in ARMS:
            engine = _train(tokenizer, conversations[name], seed)
            results[name].add(_evaluate(engine, asked[name]))
            if name == "full":
                results["untaught"].add(_evaluate(engine, asked["short"]))
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

    def add(self, found: tuple[pl.DataFrame, float]) -> None:
        self.means.append(found[0])
        self.rates.append(float(found[0]["rate"].mean()))  # type: ignore[arg-type]
        self.tokens.append(found[1])

    def rate_of(self, places: set[int]) -> float:
        """Success on the tasks at these places."""
        rates = [means.filter(pl.col("task_id").is_in([_name(at) for at in places]))["rate"].mean() for means in self.means]
        return statistics.fmean(float(rate) for rate in rates)  # type: ignore[arg-type]


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


def _called(message: Message) -> list[str]:
    return [call.function.name for call in message.tool_calls]


# ---- policies -----------------------------------------------------------------------------------------------------------------


def _tokenizer(conversations: Sequence[Sequence[Message]]) -> Any:
    from train import tiny

    return tiny.build_tokenizer(
        [*map(tiny.render, conversations), *tiny.vocabulary_texts([WORLDS[name] for name in TRAINED_WORLDS], ["en"])]
    )


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


def _evaluate(engine: HFEngine, tasks: Sequence[Task]) -> tuple[pl.DataFrame, float]:
    """Success by task, named by its place, and mean tokens of a conversation; greedy."""
    episodes = [Episode(task, 0, 8) for task in tasks]
    play(engine, episodes, temperature=0.0, seed=0, tools=False)
    outcomes = [{"task_id": _name(at), "outcome": one.outcome.value} for at, one in enumerate(episodes) if one.outcome is not None]
    if any(one.outcome not in (Outcome.SUCCESS, Outcome.POLICY_FAILURE) for one in episodes):
        raise ValueError(f"a rollout failed: {next(one.failure for one in episodes if one.failure)}")
    tokens = [sum(len(turn.context_ids) + len(turn.token_ids) for turn in one.turns) for one in episodes]
    return task_means(pl.DataFrame(outcomes)), statistics.fmean(tokens)


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

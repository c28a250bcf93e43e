"""What a training step of ours costs beside TRL's own: CPU time, in one process, on one torch thread.

SFT   `train_sft` and a plain `SFTTrainer`, from the same fresh tiny policy, on the same expert conversations, with the same arguments, but
      that TRL logs as seldom as it does by default. Both must end with the same weights.
RL    `train_rl` and `GRPOTrainer` with an `environment_factory` (`benchmarks/tags_sections/trl_shop.py`), from the same policy, with the
same retail
      tasks at each step, as many draws of each, the same limits of a rollout and the same optimiser. Both must succeed about as often, and
      their weights must come about as far.

A block is a whole training: the trainer is made, rows become tokens, all steps are taken. Blocks of the two take turns, the first of each
warms up, the others are of three seeds in turn, and the figure is the median of the blocks' ratios; `_seed0` ..: of those of a seed. TRL,
too, has glibc keep freed memory (`keep_freed_memory`).
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from benchmarks.harness import Deadline, Figures, Section, in_turn
from benchmarks.tags_sections import policy as tags_policy
from synth.worlds import WORLDS

if TYPE_CHECKING:
    from storage.records import Message, Task
    from train.spec import RLSettings, SFTSettings

SEEDS = (0, 1, 2)
BLOCKS = 1 + 2 * len(SEEDS)
"""Of each; the first is not counted."""
SFT_STEPS, RL_STEPS = 80, 8
"""Of a block."""
CONVERSATIONS = 400
WEIGHTS_APART = 0.05
"""How far the weights of the two may be from each other, as a share of the way that they have come."""
SUCCESS_APART = 0.05
"""By how much the two rates of success may differ: three standard errors."""
WAY_APART = 1.5
"""How much farther the one's weights may come than the other's."""
SPARE = 8
"""Tasks more than are used: shares of difficulties are rounded."""


def sections() -> list[Section]:
    return [
        Section("a step of SFT beside TRL's", _keys("sft_step_vs_trl"), measure_sft, minutes=4),
        Section("a step of RL beside TRL's", _keys("rl_step_vs_trl"), measure_rl, minutes=tags_policy.MINUTES + 4),
    ]


def _keys(key: str) -> tuple[str, ...]:
    return (key, *(f"{key}_seed{seed}" for seed in SEEDS))


def _seed(block: int) -> int:
    return SEEDS[block % len(SEEDS)]


def _settle() -> None:
    """As a training stage has it; no progress is drawn."""
    from datasets import disable_progress_bars

    from train.device import settle

    disable_progress_bars()
    settle()


def _ratios(key: str, seconds: Sequence[Mapping[str, float]], steps: int) -> Figures:
    """Medians of the blocks' ratios, ours to TRL's, of all and of each seed; the first block warms up."""
    ratios = [took["own"] / took["trl"] for took in seconds[1:]]
    own, trl = (statistics.median(took[name] for took in seconds[1:]) / steps for name in ("own", "trl"))
    print(f"    CPU seconds a step: {own:.4f} ours, {trl:.4f} TRL's; ratios {', '.join(f'{one:.3f}' for one in ratios)}", flush=True)
    of_seeds = {seed: [ratio for block, ratio in enumerate(ratios, 1) if _seed(block) == seed] for seed in SEEDS}
    return {key: statistics.median(ratios)} | {f"{key}_seed{seed}": statistics.median(found) for seed, found in of_seeds.items() if found}


def distance(one: Any, other: Any) -> float:
    """Between the weights of two models."""
    import torch

    ends = [torch.nn.utils.parameters_to_vector(model.parameters()).detach() for model in (one, other)]
    return float((ends[0] - ends[1]).norm())


# ---- SFT -----------------------------------------------------------------------------------------------------------------------


class TrainsSFT(Protocol):
    """As `train_sft`."""

    def __call__(
        self, model: Any, tokenizer: Any, conversations: Sequence[Sequence[Message]], settings: SFTSettings, *, seed: int, scratch: Path
    ) -> object: ...


def measure_sft(_: Deadline) -> Figures:
    from train.data.task_pool import draw
    from train.spec import SFTSettings

    _settle()
    tasks = draw(tags_policy.sources("seed"), CONVERSATIONS, use="train", language="en")
    return sft_ratios(tasks, SFTSettings(max_steps=SFT_STEPS), BLOCKS)


def sft_ratios(tasks: Sequence[Task], settings: SFTSettings, blocks: int) -> Figures:
    """CPU time of our step over that of TRL's, on the experts' conversations of these tasks.

    Raises:
        ValueError: the two give different weights.
    """
    from synth.tasks.solver import expert_messages
    from train.sft.sft import train_sft

    conversations = [expert_messages(WORLDS[task.world], task) for task in tasks]
    tokenizer, start = _fresh_policy(conversations, {task.world for task in tasks})
    sides: dict[str, TrainsSFT] = {"own": train_sft, "trl": plain_sft}
    seconds: list[dict[str, float]] = []
    for number in range(blocks):
        seed = _seed(number)
        models = {name: start(seed) for name in sides}
        with tempfile.TemporaryDirectory(prefix="headrace-steps-") as scratch:
            trainings = {
                name: partial(train, models[name], tokenizer, conversations, settings, seed=seed, scratch=Path(scratch) / name)
                for name, train in sides.items()
            }
            took, _ = in_turn(trainings, number)
        seconds.append(took)
        apart = distance(models["own"], models["trl"]) / distance(models["own"], start(seed))
        if not apart <= WEIGHTS_APART:
            raise ValueError(f"ours and TRL's weights are {apart:.3g} of their way apart, so the two do not do the same")
    print(f"    after {settings.max_steps} steps the weights are {apart:.2g} of their way apart", flush=True)
    return _ratios("sft_step_vs_trl", seconds, settings.max_steps)


def plain_sft(
    model: Any, tokenizer: Any, conversations: Sequence[Sequence[Message]], settings: SFTSettings, *, seed: int, scratch: Path
) -> None:
    """Supervised fine-tuning as TRL has it."""
    from datasets import Dataset
    from transformers import PrinterCallback
    from trl import SFTConfig, SFTTrainer

    from train.device import device_arguments, linear_schedule

    arguments = SFTConfig(
        output_dir=str(scratch),
        max_steps=settings.max_steps,
        per_device_train_batch_size=settings.batch_size,
        weight_decay=settings.weight_decay,
        adam_beta2=settings.adam_beta2,
        max_grad_norm=settings.max_grad_norm,
        assistant_only_loss=True,
        max_length=None,
        train_sampling_strategy="group_by_length",
        seed=seed,
        data_seed=seed,
        **linear_schedule(settings.learning_rate, settings.warmup_steps, settings.final_rate_share, settings.max_steps),
        **device_arguments(),
    )
    rows = [{"messages": [message.to_openai() for message in messages]} for messages in conversations]
    trainer = SFTTrainer(model=model, args=arguments, train_dataset=Dataset.from_list(rows), processing_class=tokenizer)
    trainer.remove_callback(PrinterCallback)
    trainer.train()


def _fresh_policy(conversations: Sequence[Sequence[Message]], worlds: set[str]) -> tuple[Any, Callable[[int], Any]]:
    """A tokenizer, and what makes a tiny policy of a seed's weights."""
    from synth.worlds import WORLDS
    from train import tiny
    from train.spec import TinyConfig

    texts = [*map(tiny.render, conversations), *tiny.vocabulary_texts([WORLDS[name] for name in sorted(worlds)], ["en"])]
    tokenizer = tiny.build_tokenizer(texts)
    return tokenizer, partial(tiny.build_model, TinyConfig(), tokenizer)


# ---- RL ------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Learning:
    """What both sides of RL are told: the tasks, step by step, the settings, and the seed."""

    tasks: Sequence[Task]
    settings: RLSettings
    seed: int

    def source(self, step: int, again: int = 0) -> Sequence[Task]:
        """Of a step; there are no others in their place."""
        size = self.settings.tasks_a_step
        return () if again else self.tasks[step * size : (step + 1) * size]


def measure_rl(_: Deadline) -> Figures:
    from train.spec import RLSettings

    _settle()
    settings = RLSettings(max_steps=RL_STEPS)
    tasks = tags_policy.probe_tasks(BLOCKS * RL_STEPS * settings.tasks_a_step + SPARE, worlds=("retail",))
    return rl_ratios(tags_policy.policy(), tasks, settings, BLOCKS)


def rl_ratios(policy: Path, tasks: Sequence[Task], settings: RLSettings, blocks: int) -> Figures:
    """CPU time of our step over that of TRL's; every block has tasks of its own.

    Raises:
        ValueError: one of the two rolls out or succeeds more often, or learns more.
    """
    sides = {"own": own_rl, "trl": trl_rl}
    seconds: list[dict[str, float]] = []
    successes: dict[str, list[float]] = {name: [] for name in sides}
    ways: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(blocks):
        learning = Learning(tasks[number::blocks][: settings.max_steps * settings.tasks_a_step], settings, _seed(number))
        parts = {name: load(policy) for name in sides}
        with tempfile.TemporaryDirectory(prefix="headrace-steps-") as scratch:
            trainings = {name: partial(train, *parts[name], learning, Path(scratch) / name) for name, train in sides.items()}
            took, found = in_turn(trainings, number)
        seconds.append(took)
        for name in sides:
            successes[name] += found[name]
            ways[name].append(distance(parts[name][0], load(policy)[0]))
    _check_alike(successes, ways, blocks * settings.max_steps * settings.tasks_a_step * settings.draws)
    return _ratios("rl_step_vs_trl", seconds, settings.max_steps)


def _check_alike(successes: Mapping[str, Sequence[float]], ways: Mapping[str, Sequence[float]], rollouts: int) -> None:
    rates = {name: statistics.fmean(found) for name, found in successes.items()}
    way = {name: statistics.fmean(found) for name, found in ways.items()}
    print(f"    {rollouts} rollouts of each; succeed: {rates}; way of the weights in a block: {way}", flush=True)
    if any(len(found) != rollouts for found in successes.values()):
        raise ValueError(f"each was to roll out {rollouts} times: { ({name: len(found) for name, found in successes.items()}) }")
    if abs(rates["own"] - rates["trl"]) > SUCCESS_APART:
        raise ValueError(f"the two succeed differently often, so they do not do the same: {rates}")
    if not max(way.values()) < WAY_APART * min(way.values()):
        raise ValueError(f"one of the two learns more, so they do not do the same: {way}")


def load(policy: Path) -> tuple[Any, Any]:
    """Model and tokenizer."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    return AutoModelForCausalLM.from_pretrained(policy, dtype=torch.float32), AutoTokenizer.from_pretrained(policy)


def own_rl(model: Any, tokenizer: Any, learning: Learning, scratch: Path) -> list[float]:
    """Trains `model` in place; gives 1 for each rollout that succeeded."""
    from storage.records import Outcome
    from train.rl.rl import train_rl

    found: list[float] = []
    train_rl(
        model,
        tokenizer,
        learning.source,
        learning.settings,
        seed=learning.seed,
        scratch=scratch,
        watch=lambda batch: found.extend(float(row.outcome is Outcome.SUCCESS) for row in batch.rows),
    )
    return found


def trl_rl(model: Any, tokenizer: Any, learning: Learning, scratch: Path) -> list[float]:
    """As `own_rl`, by TRL: its `dapo` loss with the deviation of the batch is Lite PPO."""
    from transformers import PrinterCallback

    from benchmarks.tags_sections.trl_shop import shop_trainer
    from train.device import linear_schedule

    found, settings = list[float](), learning.settings
    trainer = shop_trainer(
        model,
        tokenizer,
        learning.tasks,
        max_turns=settings.max_turns,
        max_tokens=settings.max_tokens,
        watch=found.extend,
        output_dir=str(scratch),
        max_steps=settings.max_steps,
        per_device_train_batch_size=settings.tasks_a_step * settings.draws,
        num_generations=settings.draws,
        temperature=settings.temperature,
        loss_type="dapo",
        scale_rewards="batch",
        weight_decay=settings.weight_decay,
        adam_beta2=settings.adam_beta2,
        max_grad_norm=settings.max_grad_norm,
        shuffle_dataset=False,
        seed=learning.seed,
        **linear_schedule(settings.learning_rate, settings.warmup_steps, settings.final_rate_share, settings.max_steps),
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return found

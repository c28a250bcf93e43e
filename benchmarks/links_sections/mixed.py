"""What accepted conversations add to the seed SFT: half conversations, half experts, against experts alone, at equal tokens.

Both arms have the same number of tokens of data, and train for the same number of tokens from scratch. The policy's tokenizer cuts names
into parts, so that it can write those of other domains. Held out are 600 conversations whose user answers, siblings of others than those in
the data, set aside for evaluation: 300 in the worlds of the data, 300 in worlds that no data are of. Success at temperature 1, two draws a
task, task by task; three seeds; bootstrap over seeds and tasks.
"""

from __future__ import annotations

import itertools
import random
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import polars as pl

from benchmarks.harness import ROOT, Deadline, Figures, code_mark
from storage.files import replace_atomically
from storage.records import Message, Task
from synth.blueprints.draft import PlanFailed
from synth.blueprints.planner import Planner
from synth.blueprints.single_goal import draw_drills
from synth.clusters.business_clusters import cluster_tools
from synth.conversations.conversation_task import conversation_sibling, conversation_task, goal_frames, rate_difficulty
from synth.roles.simulate import simulate
from synth.tasks.solver import NotAdmitted, expert_messages, sibling
from synth.tasks.split import STANDARD, division
from synth.worlds import WORLDS
from train.data.seed_split import rough_tokens
from train.measure.evaluate import paired_difference, task_means

SEEDS = (0, 1, 2)
MINUTES = 12
"""Of one arm and seed."""
TRAINED, HELD_OUT = ("retail", "library", "school"), ("banking", "hotel")
DATA_TOKENS, TRAINED_TOKENS = 240_000, 4_000_000
EACH, DRAWS = 300, 2
MOST_TOKENS, MOST_DIFFICULTY, BATCH = 400, 3, 16
KEPT = ROOT / ".cache" / "bench" / "links" / "mixed"


def measure(deadline: Deadline) -> Figures:
    means: dict[str, list[pl.DataFrame]] = {"mixed": [], "experts": []}
    for seed, arm in itertools.product(SEEDS, means):
        path = KEPT / code_mark() / f"{arm}-{seed}.parquet"
        if not path.exists():
            deadline.allows(MINUTES)
            path.parent.mkdir(parents=True, exist_ok=True)
            rollouts = _run(arm, seed)
            replace_atomically(path, rollouts.write_parquet)
        rollouts = pl.read_parquet(path)
        means[arm].append(task_means(rollouts))
        shares = dict(rollouts.group_by("world").agg((pl.col("outcome") == "success").mean()).sort("world").iter_rows())
        print(f"    seed {seed}, {arm}: {means[arm][-1]['rate'].mean():.3f} {shares}", flush=True)
    gain = paired_difference(means["experts"], means["mixed"])
    return {"sft1_mixed_minus_experts": gain.mean, "sft1_mixed_minus_experts_lo95": gain.low}


# ---- data and held-out conversations ------------------------------------------------------------------------------------


def conversations(worlds: Sequence[str], seed: int) -> Iterator[tuple[Task, Sequence[Message]]]:
    """Accepted English conversations of seed frames, as tasks, without end; of the worlds in turn."""
    rng, planner = random.Random(f"mixed/{seed}"), Planner(lambda frame: division(frame, STANDARD) == "seed", chinese_share=0.0)
    clusters = {world: [one for one in cluster_tools(WORLDS[world].tools) if one.world] for world in worlds}
    for world in itertools.cycle(worlds):
        try:
            blueprint = planner.draw_unsteered(rng.choice(clusters[world]), rng)
            simulated = simulate(blueprint)
            if simulated.accepted and rate_difficulty(blueprint) <= MOST_DIFFICULTY:
                yield conversation_task(WORLDS[world], blueprint, division="seed"), simulated.trajectory.messages
        except (PlanFailed, NotAdmitted):
            continue


def experts(worlds: Sequence[str], seed: int) -> Iterator[Sequence[Message]]:
    """Experts of siblings of drills, without end; of the worlds, then of their frames in turn."""
    frames = {world: [one.task for one in draw_drills(WORLDS[world], 160, [], STANDARD, seed=seed)] for world in worlds}
    for index in itertools.count():
        for world in worlds:
            task = frames[world][index % len(frames[world])]
            frame = goal_frames(task)[0]
            try:
                drawn = sibling(WORLDS[world], frame, index=index, language="en", division="seed", use="train")
            except NotAdmitted:
                continue
            yield expert_messages(WORLDS[world], drawn)


def data(arm: str, seed: int) -> list[Sequence[Message]]:
    """The conversations of an arm: DATA_TOKENS in all, of which half are experts where it is `mixed`."""
    spoken = (messages for _, messages in conversations(TRAINED, seed))
    sources = [spoken, experts(TRAINED, seed)] if arm == "mixed" else [experts(TRAINED, seed)]
    chosen: list[Sequence[Message]] = []
    for source in sources:
        left = DATA_TOKENS // len(sources)
        for messages in source:
            length = rough_tokens(messages)
            if length <= MOST_TOKENS:
                left -= length
                chosen.append(messages)
            if left <= 0:
                break
    return chosen


@cache
def held_out() -> tuple[Task, ...]:
    """EACH conversations of the trained worlds and of the others, set aside for evaluation."""
    found: list[Task] = []
    for worlds in (TRAINED, HELD_OUT):
        drawn: list[Task] = []
        for task, messages in conversations(worlds, 77):
            if rough_tokens(messages) > MOST_TOKENS:
                continue
            try:
                world = WORLDS[task.world]
                drawn.append(conversation_sibling(world, task, 0, language="en", division="held_out", use="eval_out"))
            except NotAdmitted:
                continue
            if len(drawn) == EACH:
                break
        found += drawn
    return tuple(found)


# ---- training and measuring ---------------------------------------------------------------------------------------------


def _run(arm: str, seed: int) -> pl.DataFrame:
    """Columns task_id, world, outcome: the draws of a policy that was trained on the arm's data."""
    import torch

    from synth.engines.local.hf import HFEngine
    from synth.rollouts.draws import rollout
    from train import tiny
    from train.sft.sft import train_sft
    from train.spec import SFTSettings, TinyConfig

    torch.set_num_threads(1)
    talks = data(arm, seed)
    texts = [tiny.render(messages) for messages in (*data("mixed", seed), *data("experts", seed))]
    worlds = [WORLDS[name] for name in (*TRAINED, *HELD_OUT)]
    tokenizer = tiny.build_tokenizer([*texts, *tiny.vocabulary_texts(worlds, ["en"])], splits_names=True)
    model = tiny.build_model(TinyConfig(positions=1024), tokenizer, seed)
    mean = sum(map(rough_tokens, talks)) / len(talks)
    settings = SFTSettings(max_steps=round(TRAINED_TOKENS / (mean * BATCH)), batch_size=BATCH)
    with tempfile.TemporaryDirectory() as scratch:
        train_sft(model, tokenizer, talks, settings, seed=seed, scratch=Path(scratch))
    engine = HFEngine(model.eval(), tokenizer, policy_version=f"{arm}-{seed}")
    rollouts = rollout(engine, held_out(), DRAWS, policy_id=arm, temperature=1.0, seed=seed)
    world_of = {task.id: task.world for task in held_out()}
    return pl.DataFrame([{"task_id": one.task_id, "world": world_of[one.task_id], "outcome": one.outcome.value} for one in rollouts])

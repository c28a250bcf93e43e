"""Hours of a cascade with 8 B parameters on GPUs that are not here: `python -m benchmarks.cluster.queue_sections.scale_table`.

One idea: each row is a formula over unit costs. Each unit cost is one measurement, ours or a published one; `UNITS` names its source. RL is
simulated (`queue_simulation.py`) with the product's own ledger and routing. Where a GPU can be had, `gpu_*` figures replace the published
ones. Headrace's own workers run on one machine and one GPU, with its own engine; these tables are of an engine such as verl or ROLL, at
published rates.

Not included: the second SFT, probes, the start of processes, checkpoints, evaluation, faults, and anything that the network does.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.cluster.queue_sections.queue_simulation import Costs, QueueShape, Shape, simulate

UNITS: Mapping[str, tuple[float, str]] = {
    "sampled tokens a second and GPU": (12_500, "Llama 3.1 8B in bf16, one H100, vLLM; published by morphllm.com/vllm-benchmarks"),
    "learned tokens a second and GPU": (7_500, "7 B, FSDP, 96 H100; published by foundation-model-stack/fms-fsdp"),
    "read tokens a second and GPU": (30_000, "2 x 8e9 floating-point operations a token at half of an H100's 989e12 a second; computed"),
    "seconds of new weights": (2.4, "9.6 s for 32 B in RollArt (arXiv 2512.22560), a quarter of it for 8 B"),
    "prompt tokens": (2_395, "mean of 60 experts in the 10 worlds that Headrace ships, four characters a token: tools, system, user; ours"),
    "prompt tokens without tools": (198, "the same experts: system and user; ours"),
    "answer tokens": (62, "the same experts, 3.3 answers; ours"),
    "result tokens": (139, "the same experts; ours"),
    "verdict_s": (0.002, "CPU of the reward service and of the trainer for a conversation; printed by `make bench cluster`; ours"),
}
CALL_CHARACTERS = 40
"""Characters of a call besides its name and arguments."""
ANSWERS, THINKING = 3, 300
"""Answers of a conversation, and tokens of an answer of a model that thinks."""
SEED_CONVERSATIONS, EPOCHS, RL_STEPS, TASKS_A_STEP, DRAWS = 5_000, 3, 200, 64, 8
SIMULATED_STEPS = 12


@dataclass(frozen=True)
class Row:
    """Hours on a number of GPUs."""

    gpus: int
    trajectories_cached: float
    trajectories: float
    trajectories_thinking: float
    sft: float
    rl: float
    rl_thinking: float
    players: int


def _unit(name: str) -> float:
    return UNITS[name][0]


def conversation(thinking: bool) -> Shape:
    """The mean conversation."""
    answer = THINKING if thinking else round(_unit("answer tokens") / ANSWERS)
    result = round(_unit("result tokens") / (ANSWERS - 1))
    return Shape("tools", round(_unit("prompt tokens")), (answer,) * ANSWERS, (result,) * (ANSWERS - 1))


def row(gpus: int) -> Row:
    sampled, read, million = _unit("sampled tokens a second and GPU"), _unit("read tokens a second and GPU"), 1_000_000
    tokens = {thinking: sum(conversation(thinking).answers) for thinking in (False, True)}
    results, prompt, own = _unit("result tokens"), _unit("prompt tokens"), _unit("prompt tokens without tools")
    hour = 3600 * gpus
    whole = SEED_CONVERSATIONS * EPOCHS * (prompt + tokens[False] + results)
    players, rl = best_split(gpus, thinking=False)
    return Row(
        gpus,
        million * (tokens[False] / sampled + (own + results) / read) / hour,
        million * (tokens[False] / sampled + (prompt + results) / read) / hour,
        million * (tokens[True] / sampled + (prompt + results) / read) / hour,
        whole / _unit("learned tokens a second and GPU") / hour,
        rl,
        best_split(gpus, thinking=True)[1],
        players,
    )


def best_split(gpus: int, *, thinking: bool) -> tuple[int, float]:
    """GPUs that play, and hours of an RL stage, of the split with the least wall. On one GPU both take turns."""
    if gpus == 1:
        shape = conversation(thinking)
        rollouts = TASKS_A_STEP * DRAWS
        tokens = sum(shape.answers)
        play = rollouts * tokens / _unit("sampled tokens a second and GPU")
        play += (TASKS_A_STEP * shape.prompt + rollouts * sum(shape.observed)) / _unit("read tokens a second and GPU")
        return 1, RL_STEPS * (play + _learn_s(shape, 1) + _unit("seconds of new weights")) / 3600
    splits = {players: _rl_hours(gpus, players, thinking) for players in sorted({gpus // 4, gpus // 2, 3 * gpus // 4, 7 * gpus // 8})}
    best = min(splits, key=splits.__getitem__)
    return best, splits[best]


def _learn_s(shape: Shape, gpus: int) -> float:
    tokens = shape.prompt + sum(shape.answers) + sum(shape.observed)
    return TASKS_A_STEP * DRAWS * tokens / (_unit("learned tokens a second and GPU") * gpus)


def _rl_hours(gpus: int, players: int, thinking: bool) -> float:
    """By simulation of a few steps. A round of 256 rows takes 256 / (sampled tokens a second); a quarter of it does not depend on rows."""
    shape = conversation(thinking)
    full_round = 256 / _unit("sampled tokens a second and GPU")
    costs = Costs(
        round_s=full_round / 4,
        row_s=full_round * 3 / 4 / 256,
        read_s=1 / _unit("read tokens a second and GPU"),
        answer_s=0.0,
        swap_s=_unit("seconds of new weights"),
        learn_s=_learn_s(shape, gpus - players),
        draw_s=0.1,
        hand_over_s=0.1,
        verdict_s=_unit("verdict_s"),
        trainer_start_s=0.0,
        worker_start_s=0.0,
        service_start_s=0.0,
    )
    slow = Shape("slow tools", shape.prompt, shape.answers, shape.observed)
    queue = QueueShape(float("inf"), players, SIMULATED_STEPS, TASKS_A_STEP, DRAWS, 2, {"tools": 0.02, "slow tools": 0.2})
    runs = [simulate(queue, costs, [shape] * 4 + [slow], seed)["wall_s"] for seed in range(3)]
    return RL_STEPS / SIMULATED_STEPS * statistics.median(runs) / 3600


def expert_tokens(each: int = 6) -> tuple[float, float, float, float]:
    """Mean tokens of an expert's tools, of its system and user messages, of its answers and of its results, at four characters a token,
    over the first `each` tasks of every world that Headrace ships."""
    import json

    from synth.blueprints.single_goal import draw_drills
    from synth.conversations.expert import expert_trajectory
    from synth.tasks.split import DivisionConfig
    from synth.worlds import WORLDS

    rows = []
    for name in WORLDS.names():
        for drill in draw_drills(WORLDS[name], each, [], DivisionConfig(), seed=0):
            tools = sum(len(json.dumps(tool.to_openai())) for tool in WORLDS[name].tools)
            texts = {"system": 0, "user": 0, "assistant": 0, "tool": 0}
            for message in expert_trajectory(WORLDS[name], drill.task).messages:
                calls = sum(len(call.function.arguments) + len(call.function.name) + CALL_CHARACTERS for call in message.tool_calls)
                texts[message.role] += len(message.content or "") + calls
            rows.append((tools, texts["system"] + texts["user"], texts["assistant"], texts["tool"]))
    tools, asked, answered, results = (statistics.fmean(column) / 4 for column in zip(*rows, strict=True))
    return tools, asked, answered, results


def main() -> int:
    tools, asked, answered, results = expert_tokens()
    print(f"experts: {tools:.0f} tokens of tools, {asked:.0f} of system and user, {answered:.0f} of answers, {results:.0f} of results")
    for name, (value, source) in UNITS.items():
        print(f"| {name} | {value:g} | {source} |")
    for gpus in (1, 8, 64):
        one = row(gpus)
        figures = (one.trajectories_cached, one.trajectories, one.trajectories_thinking, one.sft, one.rl, one.rl_thinking)
        print(f"| {gpus} | {' | '.join(f'{hours:.2f} h' for hours in figures)} | {one.players} |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Rollouts of the fixed policy: what they cost beside TRL's own loop, and whether their traces are what was sampled.

vs TRL   the same retail tasks, draws and limits of a turn, in rounds that take turns: `synth.rollouts.episode.play` over one ragged
key-value
         cache, and the generation of `GRPOTrainer` with `environment_factory` (`benchmarks/tags_sections/trl_shop.py`), each with its calls
         in live worlds and the verifier's verdict, without any training. CPU time, median of the rounds' ratios. Both must succeed about as
         often.
traces   of every turn that has one before it: does its prompt begin with the tokens that were sampled before? Asked of the answers
         themselves, beside what the traces say of it (`is_exact`). In process a prompt is kept as tokens, so that it could begin otherwise
         only by a fault of the engine; that these tokens are what the model was fed, the log-probabilities show: they are held against
         one forward pass by Transformers.
vllm     the same of a real vLLM server, which renders every prompt anew from messages: what the policy wrote in other pieces than the
         tokenizer's, or not in the server's JSON, comes back as other tokens. Such turns must be found, and be marked.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness import ROOT, Deadline, Figures, Section, in_turn
from benchmarks.tags_sections import policy

if TYPE_CHECKING:
    from storage.records import Message, Rollout, Task
    from synth.engines.base import ChatAnswer, ChatRequest, Engine
    from synth.engines.local.hf import HFEngine
    from synth.engines.vllm import VLLMConfig

    Play = Callable[[Sequence[Task]], list[float]]
    """Rolls tasks out, each DRAWS times; gives 1 for each success."""

ROUNDS = 25
"""The first warms up, and is not counted."""
ROUND_TASKS, DRAWS = 8, 8
"""As a step of RL has by default."""
MOST_APART = 0.05
"""By how much the two rates of success may differ: three standard errors."""
TURNS, VLLM_TURNS = 10_000, 1_000
TRACE_TASKS, VLLM_TASKS = 400, 100
FORWARD = 256
"""Conversations whose log-probabilities are computed again."""
SEED = 0


def sections() -> list[Section]:
    minutes = policy.MINUTES + 4
    return [
        Section("rollouts beside TRL's", ("rollouts_vs_trl", "rollouts_own_success", "rollouts_trl_success"), measure_speed, minutes),
        Section("traces", ("token_prefix_mismatches", "token_turns", "trace_logprob_error"), measure_traces, minutes),
        Section("traces of vLLM", ("token_prefix_mismatches_vllm", "token_turns_vllm"), measure_vllm, minutes),
    ]


# ---- beside TRL ----------------------------------------------------------------------------------------------------------------


def measure_speed(_: Deadline) -> Figures:
    from benchmarks.tags_sections.trl_shop import TRLRollouts
    from synth.rollouts.episode import MAX_TOKENS, MAX_TURNS

    tasks = policy.probe_tasks(ROUNDS * ROUND_TASKS, worlds=("retail",))
    model = policy.policy()
    with tempfile.TemporaryDirectory(prefix="headrace-trl-") as scratch:
        trl = TRLRollouts(model, tasks, draws=DRAWS, max_turns=MAX_TURNS, max_tokens=MAX_TOKENS, seed=SEED, scratch=Path(scratch))
        pair: dict[str, Play] = {"own": _ours(model), "trl": trl}
        rounds = [in_turn({name: partial(play, tasks[number::ROUNDS]) for name, play in pair.items()}, number) for number in range(ROUNDS)][
            1:
        ]
    ratios = [took["trl"] / took["own"] for took, _ in rounds]
    rates = {name: statistics.fmean(one for _, successes in rounds for one in successes[name]) for name in pair}
    low, high = min(ratios), max(ratios)
    print(f"    TRL takes {low:.1f} to {high:.1f} times our CPU time; of the rollouts succeed {rates}", flush=True)
    if abs(rates["own"] - rates["trl"]) > MOST_APART:
        raise ValueError(f"the two ways of rolling out succeed differently often, so they do not do the same: {rates}")
    return {"rollouts_vs_trl": statistics.median(ratios), "rollouts_own_success": rates["own"], "rollouts_trl_success": rates["trl"]}


def _ours(model: Path) -> Play:
    from storage.records import Outcome
    from synth.engines.local.hf import HFEngine
    from synth.rollouts.episode import MAX_TURNS, Episode, play

    engine = HFEngine(model, batch_rows=ROUND_TASKS * DRAWS)

    def rolled_out(batch: Sequence[Task]) -> list[float]:
        episodes = [Episode(task, draw, MAX_TURNS) for task in batch for draw in range(DRAWS)]
        play(engine, episodes, temperature=1.0, seed=SEED)
        return [float(episode.outcome is Outcome.SUCCESS) for episode in episodes]

    return rolled_out


# ---- traces --------------------------------------------------------------------------------------------------------------------


@dataclass
class Watched:
    """An engine whose answers are looked at as they come: `turns` that have one before them, and of these the `mismatches`, whose prompt
    does not begin with what the conversation was sampled from and as before. A conversation is known by its request's seed."""

    engine: Engine
    turns: int = 0
    mismatches: int = 0
    _known: dict[int, tuple[int, ...]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.engine.name

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer]:
        answers = self.engine.chat(requests)
        for request, answer in zip(requests, answers, strict=True):
            self._look(request, answer)
        return answers

    def _look(self, request: ChatRequest, answer: ChatAnswer) -> None:
        known = self._known.get(request.seed)
        if known is not None:
            self.turns += 1
            self.mismatches += answer.prompt_ids[: len(known)] != known
        self._known[request.seed] = (*answer.prompt_ids, *answer.token_ids)


class WatchedConversing(Watched):
    """One that holds whole conversations."""

    engine: HFEngine

    def converse(self, requests: Sequence[ChatRequest], reply: Callable[[int, ChatAnswer], Sequence[Message] | None]) -> None:
        def looked_at(index: int, answer: ChatAnswer) -> Sequence[Message] | None:
            self._look(requests[index], answer)
            return reply(index, answer)

        self.engine.converse(requests, looked_at)


def measure_traces(_: Deadline) -> Figures:
    from synth.rollouts.draws import rollout

    watched = WatchedConversing(policy.engine())
    tasks = policy.probe_tasks(TRACE_TASKS)
    rollouts: list[Rollout] = []
    while watched.turns < TURNS:
        rollouts += rollout(watched, tasks, DRAWS, seed=SEED, first_draw=len(rollouts))
    error = logprob_error(watched.engine, rollouts[:: max(1, len(rollouts) // FORWARD)])
    return {
        "token_prefix_mismatches": mismatches(watched, rollouts),
        "token_turns": watched.turns,
        "trace_logprob_error": error,
    }


def measure_vllm(_: Deadline) -> Figures:
    from synth.engines.vllm import vllm_engine
    from synth.rollouts.draws import rollout

    tasks = policy.probe_tasks(VLLM_TASKS)
    rollouts: list[Rollout] = []
    with vllm_engine(_served(), policy.KEPT / "vllm.log") as engine:
        engine.check(traced=True)
        watched = Watched(engine)
        while watched.turns < VLLM_TURNS:
            rollouts += rollout(watched, tasks, DRAWS, seed=SEED, first_draw=len(rollouts))
    passed = statistics.fmean(one.outcome.value == "success" for one in rollouts)
    error = logprob_error(policy.engine(), rollouts[:FORWARD])
    print(f"    {len(rollouts)} rollouts, {passed:.3f} succeed; log-probabilities differ by {error:.2g} at most", flush=True)
    return {"token_prefix_mismatches_vllm": mismatches(watched, rollouts), "token_turns_vllm": watched.turns}


def _served() -> VLLMConfig:
    from synth.engines.vllm import ENVIRONMENT, VLLMConfig

    return VLLMConfig(model=str(policy.policy()), environment=ROOT / ENVIRONMENT)


def mismatches(watched: Watched, rollouts: Sequence[Rollout]) -> int:
    """By our own look, or by what the traces say, whichever finds more."""
    inexact = sum(not turn.is_exact for one in rollouts for turn in one.turns)
    print(f"    {watched.mismatches} of {watched.turns} prompts begin otherwise; {inexact} turns are marked as not exact", flush=True)
    if watched.mismatches and not inexact:
        raise ValueError(f"{watched.mismatches} prompts begin otherwise, and no trace says so")
    return max(watched.mismatches, inexact)


def logprob_error(engine: HFEngine, rollouts: Sequence[Rollout]) -> float:
    """The greatest absolute difference, in nats, between the log-probabilities in the traces, at temperature 1, and those that one forward
    pass over each whole conversation gives."""
    import torch

    from synth.rollouts.episode import trace

    worst = 0.0
    for one in rollouts:
        found = trace(one.turns)
        if not found.ids:
            continue
        with torch.inference_mode():
            logits = engine.model(torch.tensor([found.prompt_ids + found.ids])).logits[0, len(found.prompt_ids) - 1 : -1]
        ids, mask = torch.tensor(found.ids), torch.tensor(found.mask, dtype=torch.bool)
        told = torch.log_softmax(logits.float(), dim=-1).gather(1, ids[:, None])[:, 0]
        worst = max(worst, float((told - torch.tensor(found.logprobs))[mask].abs().max()))
    return worst

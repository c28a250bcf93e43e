"""Costs of the queue's parts, each measured on its own, and the wall time that they simulate.

A round of tokens by its rows, a token that is read, an answer besides its tokens, new weights, a step of learning (a stage that repeats a
journal only learns), drawing tasks, a verdict, the start of a process, and how much processes slow each other down (`core_sharing.py`).
What they are for: `queue_simulation.py`.
"""

from __future__ import annotations

import itertools
import re
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from queue import Empty, Queue
from typing import TYPE_CHECKING, Any

from benchmarks.cluster.queue_sections.core_sharing import measure_slowdown, opened_rows
from benchmarks.cluster.queue_sections.queue_simulation import Costs, QueueShape, Shape, simulate
from synth.rollouts.episode import Trace
from train.rl.trajectories.queue_journal import JOURNAL, OpenedRecord, QueueJournal, read_journal
from train.rl.trajectories.queue_ledger import Ticket, Trajectory

if TYPE_CHECKING:
    from benchmarks.cluster.queue_sections.queue_speed import Stage
    from storage.records import Task
    from train.rl.task_sampler import FreshTasks
    from train.rl.trajectories.worker_pool import Ended
    from train.spec import StageSpec

PLAYED = 192
"""Conversations that a worker plays to measure its costs."""


def shapes_of(journal: Path) -> list[Shape]:
    """The shapes of a journal's trajectories."""
    worlds: dict[int, str] = {}
    shapes = []
    for record in read_journal(journal):
        if isinstance(record, OpenedRecord):
            worlds[record.number] = record.task.world
        elif isinstance(record, Trajectory) and record.row.trace.ids:
            runs = [(bit, len(list(equal))) for bit, equal in itertools.groupby(record.row.trace.mask)]
            answers, observed = (tuple(length for bit, length in runs if bit == wanted) for wanted in (1, 0))
            shapes.append(Shape(worlds[record.ticket.group], len(record.row.trace.prompt_ids), answers, observed))
    return shapes


def prompt_length(shapes: Sequence[Shape]) -> int:
    """The mean, in tokens."""
    return round(statistics.fmean(shape.prompt for shape in shapes))


def measure_rounds(policy: Path, shapes: Sequence[Shape]) -> tuple[float, float, float, float]:
    """round_s, row_s, read_s and swap_s of a policy, by the time of rounds with few and with many rows."""
    from synth.engines.local.hf import HFEngine
    from train.device import settle

    settle()
    engine = HFEngine(policy)
    length = prompt_length(shapes)

    def timed(work: Callable[[], Any], times: int) -> float:
        seconds = []
        for _ in range(times):
            started = time.process_time()
            work()
            seconds.append(time.process_time() - started)
        return statistics.median(seconds)

    few, many = 4, 48
    opened_rows(engine, few, length).step()  # compiles
    rounds, reads, swaps = {}, {}, []
    for rows in (few, many):
        batch = opened_rows(engine, rows, length)
        batch.step()
        rounds[rows] = timed(batch.step, 15)
        swaps.append(timed(lambda batch=batch: batch.use_weights(1), 5))  # type: ignore[misc]
        reads[rows] = timed(lambda batch=batch: (batch.use_weights(1), batch.step()), 5)  # type: ignore[misc]
    row_s = (rounds[many] - rounds[few]) / (many - few)
    read_s = (reads[many] - rounds[many] - statistics.median(swaps)) / (many * length)
    return max(0.0, rounds[few] - few * row_s), row_s, read_s, statistics.median(swaps)


def measure_worker(
    make: Callable[..., StageSpec], scratch: Path, tokens_s: Callable[[Sequence[Trace]], float]
) -> tuple[float, float, list[tuple[Task, Ended]]]:
    """CPU seconds of a rollout worker until it is ready, and of an answer besides its tokens, in the worker and in the trainer's process;
    and the conversations that ended.

    The worker plays `PLAYED` conversations with fast tools. tokens_s: CPU seconds of their tokens.
    """
    import psutil
    from safetensors.torch import save_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from train.rl.rollout_worker import PlayerSetup, weights_file
    from train.rl.trajectories.conversation_worker import Play
    from train.rl.trajectories.worker_pool import WorkerPool

    spec = make(0, staleness=1, rollout_workers=1)
    model = AutoModelForCausalLM.from_pretrained(spec.model_in)
    tokenizer = AutoTokenizer.from_pretrained(spec.model_in)
    save_model(model, str(weights_file(scratch, 0)))
    source = drawn_tasks(make)
    tasks = [task for block in range(PLAYED // 8) for task in source(block)]
    pool = WorkerPool(PlayerSetup(spec, type(model), model.config, tokenizer, scratch), 1, PLAYED)
    try:
        process = psutil.Process(pool.pids()[0])

        def cpu_s() -> float:
            return float(process.cpu_times().user + process.cpu_times().system)

        while not pool.has_ready:
            pool.receive(pool.wait(1.0))
        started_s = cpu_s()
        pool.use_weights(0)
        for wave in range(2):  # the first fills the caches of texts and of compiled code
            ended: list[Ended] = []
            before_s = cpu_s() + time.process_time()
            for number, task in enumerate(tasks):
                pool.submit([Play(Ticket(number, wave), task, wave * PLAYED + number)])
            pool.dispatch()
            while len(ended) < len(tasks):
                ended += pool.receive(pool.wait(1.0))
        played_s = cpu_s() + time.process_time() - before_s
    finally:
        pool.close()
    traces = [one.finished.trace for one in ended if one.finished is not None]
    answers = sum(sum(bit and not before for before, bit in itertools.pairwise([0, *trace.mask])) for trace in traces)
    finished = [(tasks[one.ticket.group], one) for one in ended if one.finished is not None]
    return started_s, max(0.0, (played_s - tokens_s(traces)) / answers), finished


def drawn_tasks(make: Callable[..., StageSpec]) -> FreshTasks:
    """The tasks of the stage."""
    from storage.releases.release import load_split
    from storage.store import Store
    from train.rl.task_sampler import routed_tasks

    spec = make(0)
    store = Store(spec.store)
    assert spec.rl is not None
    return routed_tasks(store, load_split(store, spec.release_id, spec.split), spec, spec.rl)


def measure_draw(make: Callable[..., StageSpec]) -> float:
    """CPU seconds to draw the tasks of a step."""
    source = drawn_tasks(make)
    source(0)
    started = time.process_time()
    for block in range(1, 6):
        source(block)
    return (time.process_time() - started) / 5


def measure_hand_over(policy: Path, scratch: Path) -> float:
    """CPU seconds to write the weights for the workers, as `TrajectoryQueue` does."""
    from safetensors.torch import save_model
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(policy)
    draft, seconds = scratch / "handed-over.draft", []
    for _ in range(5):
        started = time.process_time()
        save_model(model, str(draft))
        draft.rename(draft.with_suffix(".safetensors"))
        seconds.append(time.process_time() - started)
    return statistics.median(seconds)


def measure_verdicts(spec: StageSpec, played: Sequence[tuple[Task, Ended]], scratch: Path) -> tuple[float, float]:
    """CPU seconds of the reward service until its first verdict, and of each later one, in the service and in the trainer's process
    (request, HTTP, journal). One conversation a request; a stage may send up to 32. Not included: the ledger's work."""
    import psutil

    from train.rl.rewards import scoring_of
    from train.rl.trajectories.reward_client import PATIENCE_S, Judged, RewardClient
    from train.rl.trajectories.trajectory_queue import reward_request, trajectory_of

    assert spec.rl is not None
    verdicts: Queue[Judged] = Queue()
    scoring = {"weights": scoring_of(spec.rl), "collapse": spec.rl.collapse}
    client = RewardClient(None, store=spec.store, scoring=scoring, on_verdict=lambda _, verdict: verdicts.put(verdict))
    journal = QueueJournal(scratch / "costs.jsonl", "costs")

    def judge_and_record(task: Task, ended: Ended) -> None:
        assert ended.finished is not None
        client.ask(str(ended.ticket), reward_request(task, ended.finished))
        try:
            verdict = verdicts.get(timeout=PATIENCE_S + 60)
        except Empty:
            raise client.failure or RuntimeError("the reward service gave no verdict") from None
        journal.add(trajectory_of(task, ended, verdict, 0))

    try:
        judge_and_record(*played[0])
        assert client.child_pid is not None
        service = psutil.Process(client.child_pid)

        def cpu_s() -> float:
            return float(service.cpu_times().user + service.cpu_times().system)

        started_s = cpu_s()
        before_s = started_s + time.process_time()
        for one in played[1:]:
            judge_and_record(*one)
        spent_s = cpu_s() + time.process_time() - before_s
    finally:
        client.close()
        journal.close()
    return started_s, spent_s / (len(played) - 1)


def learning_of(repeated: Stage) -> tuple[float, float]:
    """learn_s and trainer_start_s of a stage that only repeated a journal, in CPU seconds: by its share of a core."""
    found = re.findall(r"step \d+ of \d+: .*?, ([0-9.]+) s, ", (repeated.folder / "log.txt").read_text())
    started = time.process_time()
    read_journal(repeated.folder / JOURNAL)  # a stage that plays has none to read
    reading_s = time.process_time() - started
    learned_s = float(found[-1]) * min(1.0, repeated.cpu_s / repeated.wall_s)
    return learned_s / len(repeated.metrics), max(0.0, repeated.cpu_s - learned_s - reading_s)


def measured_costs(
    make: Callable[..., StageSpec], recorded: Stage, repeated: Stage, scratch: Path, rollout_workers: int
) -> tuple[Costs, list[Shape]]:
    """The costs on this machine, and the shapes of a recorded stage's conversations."""
    shapes = shapes_of(recorded.folder / JOURNAL)
    round_s, row_s, read_s, swap_s = measure_rounds(make(0).model_in or Path(), shapes)
    learn_s, start_s = learning_of(repeated)

    def tokens_s(traces: Sequence[Trace]) -> float:
        """Of conversations that began at once: the rounds of the longest, a row for each sampled token, and what was read."""
        sampled, length = [sum(trace.mask) for trace in traces], [len(trace.prompt_ids) + len(trace.ids) for trace in traces]
        return round_s * max(sampled) + row_s * sum(sampled) + read_s * (sum(length) - sum(sampled))

    worker_s, answer_s, played = measure_worker(make, scratch, tokens_s)
    service_s, verdict_s = measure_verdicts(make(0), played, scratch)
    costs = Costs(
        round_s=round_s,
        row_s=row_s,
        read_s=read_s,
        answer_s=answer_s,
        swap_s=swap_s,
        learn_s=learn_s,
        draw_s=measure_draw(make),
        hand_over_s=measure_hand_over(make(0).model_in or Path(), scratch),
        verdict_s=verdict_s,
        trainer_start_s=start_s,
        worker_start_s=worker_s,
        service_start_s=service_s,
        slowdown=measure_slowdown(make(0).model_in or Path(), prompt_length(shapes), rollout_workers + 1),
    )
    print(f"    costs: {costs}", flush=True)
    return costs, shapes


def simulated_wall(make: Callable[..., StageSpec], stages: Mapping[str, Sequence[Stage]], scratch: Path) -> float:
    """Wall seconds that a simulation of the measured stages says, by costs measured one by one. The conversations' shapes are those of the
    last seed."""
    from benchmarks.cluster.queue_sections import queue_speed as speed
    from benchmarks.cluster.queue_sections.slow_calls import FACTOR

    recorded = stages["trajectories"][-1]
    costs, shapes = measured_costs(make, recorded, speed.repeat(make, recorded, scratch), scratch, speed.WORKERS)
    rl = make(0).rl
    assert rl is not None
    worlds = {shape.world for shape in shapes}
    call_s = {world: speed.CALL_SECONDS * (FACTOR if world == speed.SLOW_WORLD else 1) for world in worlds}
    queue = QueueShape(2, speed.WORKERS, rl.max_steps, rl.tasks_a_step, rl.draws, speed.BOUND, call_s)
    runs = [simulate(queue, costs, shapes, seed) for seed in range(5)]
    for run in runs:
        print(f"    simulated: {', '.join(f'{name} {value:.2f}' for name, value in run.items())}", flush=True)
    return statistics.median(run["wall_s"] for run in runs)

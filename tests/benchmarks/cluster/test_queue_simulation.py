"""The simulation of the queue: its clock shares the cores, and a stage of it ends with the costs that it was given."""

from __future__ import annotations

import pytest

from benchmarks.cluster.queue_sections.queue_simulation import Costs, Machine, Process, QueueShape, Shape, simulate

FREE = Costs(**dict.fromkeys(tuple(name for name in Costs.__dataclass_fields__ if name != "slowdown"), 0.0))
QUEUE = QueueShape(2, 2, steps=3, tasks_a_step=2, draws=2, bound=1, call_s={"shop": 0.0})
SHAPES = [Shape("shop", 10, (4, 4), (6,))]


def wall(processes: int, cores: float, slowdown: tuple[float, ...]) -> tuple[float, float]:
    """Until so many processes have computed for a second each, and the seconds that cores were busy."""
    machine, ended = Machine(cores, slowdown), list[int]()

    def compute() -> Process:
        yield "cpu", 1.0
        ended.append(1)

    for _ in range(processes):
        machine.start(compute())
    machine.run(lambda: len(ended) == processes)
    return machine.now, machine.busy_s


@pytest.mark.parametrize(
    ("processes", "slowdown", "seconds", "busy"),
    [
        (1, (1.0,), 1.0, 1.0),
        (2, (1.0,), 1.0, 2.0),
        (4, (1.0,), 2.0, 4.0),
        (1, (1.0, 1.5), 1.0, 1.0),
        (2, (1.0, 1.5), 1.5, 3.0),
        (4, (1.0, 1.5), 3.0, 6.0),
    ],
)
def test_processes_share_two_cores_and_slow_each_other_down(
    processes: int, slowdown: tuple[float, ...], seconds: float, busy: float
) -> None:
    """Beyond the last number of processes that slowdown names, the last value holds."""
    assert wall(processes, 2, slowdown) == pytest.approx((seconds, busy))


def test_a_stage_that_plays_for_nothing_takes_as_long_as_its_steps_learn() -> None:
    assert simulate(QUEUE, Costs(**(vars(FREE) | {"learn_s": 2.0})), SHAPES)["wall_s"] == pytest.approx(6)


def test_workers_start_once_the_trainer_has_loaded_what_they_load() -> None:
    starting = Costs(**(vars(FREE) | {"trainer_start_s": 8.0, "worker_start_s": 5.0}))
    assert simulate(QUEUE, starting, SHAPES)["wall_s"] == pytest.approx(5 + (3 + 2 * 5) / 2)

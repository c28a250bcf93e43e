"""What the figures of compiled domains rest on: logs that replay anywhere, forks that leave the trunk alone, refusals that are counted."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from benchmarks.worlds_sections.domains import (
    Log,
    draw_logs,
    draw_tasks,
    fork_figures,
    random_call,
    replay_elsewhere,
    run_apart,
    run_log,
    try_domains,
)
from synth.worlds import WORLDS, make_world
from synth.worlds.declarative.library_worlds import library_specs

NAMES = ("city", *library_specs(), "gen-0", "gen-1", "gen-2")


def test_random_calls_replayed_in_a_fresh_process_end_in_the_same_state() -> None:
    """Given sequences over every kind of world, forked at a random turn, when another process makes the trunk's and the fork's calls apart,
    then both end in the states that they had here, where they were alive together."""
    logs = draw_logs(NAMES, 3 * len(NAMES))
    assert {log.world for log in logs} == set(NAMES)
    assert [run_log(log) for log in logs] == replay_elsewhere(logs)


def test_most_sequences_change_something() -> None:
    """Control: hashes of states that nothing has touched would be equal in any case."""
    logs = [log for log in draw_logs(NAMES, 60) if log.world != "city"]
    changed = 0
    for log in logs:
        world = make_world(log.world, log.seed)
        for call in log.calls:
            world.call(*call)
        changed += bool(world.changes())
    assert changed >= len(logs) / 2


def test_another_call_ends_in_another_state() -> None:
    """Control: the hash tells states apart."""
    world = make_world("banking", 4)
    account = next(key for key, row in world.state()["account"].items() if row["status"] == "active")
    freeze = ("freeze_account", {"account": account})
    assert not world.call(*freeze).is_error
    log = Log("banking", 4, (), 0, ())
    assert run_apart(log) != run_apart(replace(log, calls=(freeze,)))


def test_random_calls_use_every_tool_and_most_pass() -> None:
    world, rng = make_world("hotel", 1), random.Random(3)
    calls = [random_call(world, rng) for _ in range(600)]
    assert {tool for tool, _ in calls} == set(world.callees)
    observed = [world.call(*call) for call in calls]
    assert sum("error" in each.content for each in observed) < 0.5 * len(observed)
    assert not any("no such parameter" in each.content or "is required" in each.content for each in observed)


@pytest.mark.slow
def test_a_fork_costs_what_it_changed() -> None:
    figures = fork_figures(forks=60)
    assert 0 < figures["fork_bytes_share"] <= 0.05


def test_tried_domains_are_admitted_or_counted_and_so_are_their_tasks() -> None:
    tried = try_domains(wanted=6, most=12)
    assert len(tried.names) == 6 == len(tried.compile_s)
    assert all(name in WORLDS for name in tried.names)
    tasks = draw_tasks(tried.names, 5)
    assert tasks.total() == 30
    assert tasks[""] >= 27

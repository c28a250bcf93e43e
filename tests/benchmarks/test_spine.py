"""What the measurement of the spine keeps between calls, what its figures count, and with which calls it measures worlds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import duckdb
import polars as pl
import pytest

from benchmarks import spine
from benchmarks.audits.mutations import KINDS, Audit, Tally
from benchmarks.harness import Deadline, OutOfTime, Section, TreeUsage
from benchmarks.worlds_sections import world_calls


def test_a_cascade_counts_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spine, "WORK", tmp_path)
    spine._store_path().mkdir(parents=True)
    (spine._store_path() / "catalog.duckdb").write_text("the run's")
    calls: list[str] = []

    def cascade(command: Sequence[str], *, log: Path, **_: object) -> TreeUsage:
        target, seed = Path(command[-3]), int(command[-2])
        assert [path.name for path in target.iterdir()] == ["catalog.duckdb"]
        calls.append(target.name)
        (target / "stage").write_text("done")
        if len(calls) == 1:
            raise KeyboardInterrupt
        pl.DataFrame({"policy": ["sft1"], "task_id": ["t"], "outcome": ["success"]}).write_parquet(target / f"outcomes-{seed}.parquet")
        return TreeUsage(wall_s=1.0, cpu_s=42.0, peak_gib=1.0, returncode=0)

    monkeypatch.setattr(spine, "run_tree", cascade)
    # given a cascade that was cut off after a stage
    with pytest.raises(KeyboardInterrupt):
        spine._run_cascade(seed=1, eval_tasks=300)
    # then the next call begins on a fresh copy, and the one after that finds everything there
    assert [spine._run_cascade(seed=1, eval_tasks=300) for _ in range(2)] == [42.0, 42.0]
    assert calls == ["cascade-1"] * 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cascade-1.json", "outcomes-1.parquet", "run"]


def test_calls_are_a_uniform_mix_that_hardly_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world_calls, "PER_TOOL", 40)
    few: Mapping[str, range] = {"city": range(1, 3), "retail": range(1, 6)}
    monkeypatch.setattr(world_calls, "WORLD_SEEDS", few)
    for name, tools in (("city", 10), ("retail", 8)):
        calls = world_calls.draw_calls(name)
        assert calls == world_calls.draw_calls(name)
        assert len(calls) == tools * 40 and len({tool for _, tool, _ in calls}) == tools
        assert world_calls.repeated_share(calls) == 0 and world_calls.repeated_share(calls * 2) == 0.5
        worlds, starts = world_calls.opened(name)
        once, again = ([world_calls.run(worlds, starts, call) for call in calls] for _ in range(2))
        assert not any(each.is_error for each in once)
        assert world_calls.hash_of(once) == world_calls.hash_of(again)
        assert all(isinstance(json.loads(each.content), dict | list) for each in once)


NEVER, NOW = Deadline(float("inf")), Deadline(0.0)
QUIET = "please find me a quiet place near the old bridge for a long evening"
CHAIR = "cancel my order of the blue chair and tell me what it did cost"


def test_duplicates_are_counted_by_planted_pairs_and_needs() -> None:
    """Given three needs: one with a copy and a slip that went, one that a near duplicate took away, and a needle with a slip that was
    missed, another wording, and a copy that could not be read."""
    rows = [
        ("base", 0, None, "admission", True, QUIET),
        ("exact", 0, 0, "exact", False, QUIET.upper()),
        ("near", 0, 0, "near", False, QUIET.replace("quiet", "quite")),
        ("base", 1, None, "near", False, QUIET.replace("evening", "evenings")),
        ("needle", 2, None, "admission", True, CHAIR),
        ("near", 2, 4, "ground", False, CHAIR.replace("chair", "chiar")),
        ("near", 2, 4, "equal", False, "the blue chair: cancel it"),
        ("exact", 2, 4, "ingest", False, CHAIR),
    ]
    plants = pl.DataFrame([row[:3] for row in rows], ["kind", "frame", "twin"], orient="row").with_row_index("row")
    plants = plants.cast({"frame": pl.UInt32, "twin": pl.UInt32})
    verdicts = pl.DataFrame([row[3:] for row in rows], ["step", "kept", "text"], orient="row").with_row_index("row")
    figures = spine._duplicates(verdicts, plants)
    assert figures == pytest.approx({"exact_removed_share": 1.0, "near_pair_recall": 0.5, "needs_lost_share": 1 / 3})
    assert spine._hits(verdicts, plants) == 0.5


def test_lineage_counts_each_task_that_was_trained_on_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with duckdb.connect() as tables:
        tables.execute("CREATE TABLE stages AS FROM (VALUES ('r', 'seed'), ('r', 'rl')) AS t(release_id, split)")
        tables.execute(
            "CREATE TABLE release_items AS FROM (VALUES ('r', 'seed', 'a'), ('r', 'rl', 'a'), ('r', 'rl', 'b'), ('r', 'rl', 'c'),"
            "('r', 'rl', 'd'), ('r', 'hold', 'e')) AS t(release_id, split, task_id)"
        )
        tables.execute(
            "CREATE TABLE tasks AS FROM (VALUES ('a', 'q1'), ('b', 'q1'), ('c', 'q2'), ('d', NULL), ('e', 'q3')) AS t(task_id, query_id)"
        )
        monkeypatch.setattr(spine, "_store", lambda: SimpleNamespace(query=lambda sql: tables.sql(sql).pl()))
        assert spine.measure_lineage(NEVER) == {"tasks_from_queries_share": 0.75, "query_survivors_in_training": 2.0}


def test_the_ladder_compares_policies_on_the_same_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given outcomes of three seeds in which the first policy never succeeds, the second and the control on every other task, RL always."""
    monkeypatch.setattr(spine, "WORK", tmp_path)
    monkeypatch.setattr(spine, "_run_cascade", lambda **_: 0.0)
    with pytest.raises(OutOfTime):
        spine.measure_ladder(NOW)
    succeeds = {
        "sft1": lambda task: False,
        "sft2": lambda task: task % 2 == 0,
        "longer": lambda task: task % 2 == 0,
        "rl": lambda task: True,
    }
    rows = [
        {"policy": policy, "task_id": f"t{task}", "outcome": "success" if rule(task) else "policy_failure"}
        for policy, rule in succeeds.items()
        for task in range(60)
        for _ in range(2)
    ]
    for seed in spine.SEEDS:
        pl.DataFrame(rows).write_parquet(spine._outcomes(seed))
    figures = spine.measure_ladder(NOW)
    assert [figures[f"{name}_rate"] for name in ("sft1", "sft2", "rl")] == pytest.approx([0.0, 0.5, 1.0])
    assert 0.3 < figures["sft2_minus_sft1_lo95"] < 0.5 and 0.3 < figures["rl_minus_sft2_lo95"] < 0.5
    assert -0.1 < figures["sft2_minus_longer_sft1_lo95"] < 0


def test_the_mutations_section_has_a_figure_of_every_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sections: list[Section] = []
    monkeypatch.setattr(spine, "KEPT", tmp_path)
    monkeypatch.setattr(spine, "WORK", tmp_path / "mark")
    monkeypatch.setattr(spine, "run_sections", lambda _, found: sections.extend(found))
    monkeypatch.setattr("sys.argv", ["spine"])
    spine.main()
    (keys,) = (section.keys for section in sections if section.measure is spine.measure_mutations)
    audit = Audit({kind: Tally() for kind in KINDS}, experts=0, experts_accepted=0)
    assert sorted(keys) == sorted(audit.figures())

"""Everything that was synthesised as one release: what is in it, and what is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from filters.release_synthetic import NAME, collect
from storage.errors import BadInput
from storage.releases.export import export
from storage.releases.release import load_split, manifest_of
from storage.store import Store, part_id
from storage.tables import TABLES
from synth.run.config import SynthesisConfig
from synth.run.evolution.controller import EvolutionConfig
from synth.run.synthesize import synthesize


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    made = Store(tmp_path_factory.mktemp("collect"))
    evolution = EvolutionConfig(objective="rarity", proposals_per_round=12)
    worlds = ("retail", "library")
    synthesize(made, SynthesisConfig(worlds=worlds, accepted=120, calibration=24, subsample=24, drills={"retail": 12}, evolution=evolution))
    return made


@pytest.mark.slow
def test_accepted_conversations_and_tasks_each_have_their_split(store: Store) -> None:
    release = collect(store)

    accepted = store.query("SELECT trajectory_id FROM trajectories WHERE accepted")["trajectory_id"].to_list()
    sft, rl = load_split(store, release, "sft"), load_split(store, release, "rl")
    assert manifest_of(store, release)["name"] == NAME
    kept = [item.item.item_id for item in sft]
    assert set(kept) <= set(accepted) and len(set(kept)) == len(kept)
    assert len(accepted) - len(kept) == manifest_of(store, release)["near_duplicates"] < 0.1 * len(accepted)
    assert all(item.task is not None and item.task.use == "train" for item in rl)
    assert any(item.task is None for item in sft), "no conversation with several goals"
    assert collect(store) == release


def read_rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "sft.conversations.jsonl").read_text(encoding="utf-8").splitlines()]


def test_a_conversation_with_several_goals_is_exported_with_the_tools_on_offer(store: Store, tmp_path: Path) -> None:
    folder = export(store, collect(store), tmp_path / "out")

    several = [row for row in read_rows(folder) if row.get("task_id") is None]
    assert several and {row["world"] for row in several} == {"retail", "library"}
    assert all(row["tools"][0]["function"]["name"] for row in several)
    assert "## Diversity" in (folder / "README.md").read_text()


def test_a_conversation_is_exported_with_the_tools_that_only_distracted(store: Store, tmp_path: Path) -> None:
    offered = store.query(
        """SELECT trajectory_id, json_extract(spec, '$.tools')::VARCHAR FROM trajectories JOIN blueprints USING (blueprint_id)
           WHERE accepted AND list_contains(json_extract_string(spec, '$.operators[*]'), 'distractors')"""
    )
    assert offered.height > 0, "no conversation with distractors"

    rows = read_rows(export(store, collect(store), tmp_path / "out"))

    wanted = dict(offered.iter_rows())
    shown = {row["id"]: row["tools"] for row in rows if row["id"] in wanted}
    assert shown
    for trajectory, tools in shown.items():
        assert [tool["function"]["name"] for tool in tools] == json.loads(wanted[trajectory])


def test_a_conversation_that_says_the_same_again_is_left_out(store: Store, tmp_path: Path) -> None:
    again = Store(tmp_path / "again")
    parts = []
    for table in ("tools", "blueprints", "trajectories", "tasks"):
        columns = list(TABLES[table].columns)
        rows = store.query(f"SELECT {', '.join(columns)} FROM {table}")
        if table in ("blueprints", "trajectories"):
            twin = rows.filter(pl.col("blueprint_id").is_in(_accepted_without_task(store)))[:1]
            twin = twin.with_columns(pl.lit("blueprint-twin").alias("blueprint_id"))
            if table == "trajectories":
                twin = twin.with_columns(pl.lit("trajectory-twin").alias("trajectory_id"))
            rows = pl.concat([rows, twin])
        parts.append(again.write(table, part_id(table, [], {}, 1), rows))
    again.commit(parts)

    sft = {item.item.item_id for item in load_split(again, collect(again), "sft")}
    before = {item.item.item_id for item in load_split(store, collect(store), "sft")}
    assert len(sft) == len(before)
    alike = [manifest_of(each, collect(each))["near_duplicates"] for each in (store, again)]
    assert alike[1] == alike[0] + 1


def _accepted_without_task(store: Store) -> list[str]:
    found = store.query("SELECT blueprint_id FROM trajectories WHERE accepted AND task_id IS NULL ORDER BY blueprint_id LIMIT 1")
    return found["blueprint_id"].to_list()


def test_a_store_without_conversations_is_told_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no accepted conversation and no task; run `headrace synthesize`"):
        collect(Store(tmp_path / "empty"))

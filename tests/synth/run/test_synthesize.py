"""Synthesis as a whole: what is committed, that a killed run loses and doubles nothing, that steering steers, and that nothing leaks."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl
import pytest

from storage.conversation import derive_turns
from storage.records import Frame, Task
from storage.releases.release import trajectory_of
from storage.store import Store
from synth.blueprints.blueprint import Blueprint
from synth.blueprints.cell import BANDS, mode_family
from synth.blueprints.diversity import entropy_bits
from synth.conversations.conversation_play import run_conversation
from synth.run import proposals
from synth.run.config import SynthesisConfig
from synth.run.evolution.controller import EvolutionConfig
from synth.run.proposals import Job, Proposal
from synth.run.result import SynthesisResult
from synth.run.synthesize import synthesize
from synth.tasks.solver import are_evaluation_slots, is_evaluation_seed
from synth.tasks.split import DivisionConfig, division
from synth.tasks.verify import verify_teacher
from synth.worlds import WORLDS

SMALL = SynthesisConfig(
    worlds=("retail",),
    accepted=24,
    calibration=24,
    subsample=24,
    drills={"retail": 8},
    max_proposals=200,
    evolution=EvolutionConfig(proposals_per_round=12),
)


BOTH = SynthesisConfig(
    worlds=("city", "retail"), accepted=80, calibration=80, subsample=80, drills={}, evolution=EvolutionConfig(objective="rarity")
)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, SynthesisResult]:
    store = Store(tmp_path_factory.mktemp("small"))
    return store, synthesize(store, SMALL)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, SynthesisResult]:
    store = Store(tmp_path_factory.mktemp("both"))
    return store, synthesize(store, BOTH)


# ---- what is committed ------------------------------------------------------------------------------------------------


def test_counts_add_up(small: tuple[Store, SynthesisResult]) -> None:
    store, result = small

    assert result.accepted == 24
    assert store.query("SELECT count(*) AS n FROM trajectories WHERE accepted")["n"][0] == 24
    assert store.query("SELECT count(*) AS n FROM blueprints WHERE round >= 0")["n"][0] == result.proposals
    assert result.proposals - result.accepted == sum(result.rejected.values())
    conversations = "SELECT count(*) AS n FROM tasks JOIN blueprints USING (blueprint_id) WHERE round >= 0"
    assert store.query(conversations)["n"][0] == result.tasks > 0


def test_a_catalogue_whose_tools_a_world_executes_is_as_good_as_the_world(small: tuple[Store, SynthesisResult], tmp_path: Path) -> None:
    catalogue = tmp_path / "tools.jsonl"
    rows: list[dict[str, object]] = [{"name": tool.name, "world": "retail"} for tool in WORLDS["retail"].tools]
    rows.append({"name": "send_mail", "description": "Sends a mail.", "parameters": {"type": "object", "properties": {}}})
    catalogue.write_text("".join(json.dumps(row) + "\n" for row in rows))
    store = Store(tmp_path / "store")

    result = synthesize(store, SMALL.model_copy(update={"worlds": (), "drills": {}, "tools": catalogue}))

    assert result.accepted == SMALL.accepted
    assert store.query("SELECT DISTINCT world FROM trajectories")["world"].to_list() == ["retail"]
    assert store.query("SELECT name FROM tools WHERE world IS NULL")["name"].to_list() == ["send_mail"]
    assert store.query("SELECT cluster_id FROM clusters WHERE world IS NOT NULL").height > 0


def test_a_run_that_stops_short_says_why(tmp_path: Path) -> None:
    short = SMALL.model_copy(update={"max_proposals": 5, "drills": {}})
    used_up = synthesize(Store(tmp_path / "used up"), short)
    idle = SMALL.model_copy(update={"accepted": 5_000, "max_proposals": 5_000, "drills": {}})
    content = idle.evolution.model_copy(
        update={"stop_gain_bits": 9.0, "stop_band_tolerance": 1.0, "stop_idle_rounds": 1, "objective": "rarity"}
    )
    bored = synthesize(Store(tmp_path / "idle"), idle.model_copy(update={"evolution": content}))

    assert used_up.notes == (f"stopped at {used_up.accepted} of 24 accepted: all 5 proposals are used up (max_proposals)",)
    assert "of 5,000 accepted: the last rounds (1) brought nothing new" in bored.notes[0]


def test_every_row_says_why_it_is_not_accepted(small: tuple[Store, SynthesisResult]) -> None:
    store, _ = small

    assert store.query("SELECT count(*) AS n FROM trajectories WHERE accepted != (reason IS NULL)")["n"][0] == 0
    assert store.query("SELECT count(*) AS n FROM blueprints WHERE (status = 'accepted') AND reason IS NOT NULL")["n"][0] == 0
    assert store.query("SELECT count(*) AS n FROM blueprints WHERE status IN ('rejected', 'unplanned') AND reason IS NULL")["n"][0] == 0
    calibration = store.query("SELECT status, count(*) AS n FROM blueprints WHERE round = -1 GROUP BY status")
    assert calibration["status"].to_list() == ["calibration"]


def test_a_trajectory_leads_back_to_its_tools(small: tuple[Store, SynthesisResult]) -> None:
    store, _ = small
    rows = store.query(
        """SELECT t.trajectory_id, t.tools_used, list(tools.name) AS offered FROM trajectories t
           JOIN blueprints b USING (blueprint_id) JOIN clusters c ON c.cluster_id = b.cluster_id
           JOIN tools ON list_contains(c.tool_ids, tools.tool_id) WHERE t.accepted GROUP BY ALL"""
    )

    assert rows.height == 24
    assert all(set(row["tools_used"]) <= set(row["offered"]) for row in rows.to_dicts())


def test_stored_messages_have_arguments_as_text_and_give_the_stored_modes(small: tuple[Store, SynthesisResult]) -> None:
    store, _ = small
    for row in store.query("SELECT * REPLACE (coalesce(task_id, '') AS task_id) FROM trajectories WHERE accepted").to_dicts():
        trajectory = trajectory_of(row)
        calls = [call for message in json.loads(row["messages"]) for call in message.get("tool_calls", ())]

        assert all(isinstance(call["function"]["arguments"], str) for call in calls)
        assert len(derive_turns(trajectory.messages)) == sum(message.role == "user" for message in trajectory.messages)


@pytest.mark.slow
def test_tasks_of_blueprints_are_admitted_and_their_trajectories_pass_as_a_teachers(both: tuple[Store, SynthesisResult]) -> None:
    store, _ = both
    rows = store.query("SELECT t.*, k.spec FROM trajectories t JOIN tasks k USING (task_id) WHERE t.accepted").to_dicts()

    assert len(rows) > 10
    for row in rows:
        task = Task.model_validate_json(row["spec"])
        assert (task.division, task.use, task.blueprint_id) == ("seed", "train", row["blueprint_id"])
        messages = trajectory_of(row).messages
        if task.conversation is None:
            assert verify_teacher(WORLDS[task.world], task, messages).success
        else:
            said = iter([message for message in messages if message.role == "assistant"])
            replayed, play = run_conversation(WORLDS[task.world], task, lambda *_, said=said: next(said))
            assert play.passed and replayed == messages


def test_figures_of_every_round_are_there(small: tuple[Store, SynthesisResult]) -> None:
    store, result = small
    rounds = store.query("SELECT round, count(DISTINCT metric) AS n FROM diversity GROUP BY round ORDER BY round")

    assert rounds["round"].to_list() == list(range(-1, result.rounds))
    assert min(rounds["n"]) >= 13


# ---- nothing leaks ----------------------------------------------------------------------------------------------------


def test_only_frames_seeds_and_individuals_of_training_are_used(both: tuple[Store, SynthesisResult]) -> None:
    store, _ = both
    for (spec,) in store.query("SELECT spec FROM blueprints WHERE round >= -1 AND spec IS NOT NULL").iter_rows():
        blueprint = Blueprint.model_validate_json(spec)
        assert not is_evaluation_seed(blueprint.world_seed)
        for goal in blueprint.goals:
            frame = Frame(world=blueprint.world, intent=goal.intent, slots=goal.slots)
            entities = frozenset(slot.name for slot in WORLDS[frame.world].intents[frame.intent].slots if slot.is_entity)
            assert frame.id == goal.frame_id
            assert division(frame.id, DivisionConfig()) == "seed"
            assert not are_evaluation_slots(frame.intent, frame.slots, entities)


# ---- steering -----------------------------------------------------------------------------------------------------------


def test_steering_raises_domain_and_mode_entropy_over_the_unsteered_control_at_equal_count(both: tuple[Store, SynthesisResult]) -> None:
    _, result = both
    steered = {figure.metric: figure for figure in result.figures}
    control = {figure.metric: figure for figure in result.unsteered}

    assert steered["domain_entropy_bits"].n == 80 >= control["domain_entropy_bits"].n >= 70
    gain = sum(steered[name].value - control[name].value for name in ("domain_entropy_bits", "mode_entropy_coarse_bits"))
    assert gain > 0.5
    assert steered["domain_evenness"].value > 0.95


def test_mode_families_gain_within_one_domain_and_with_another_seed_too(tmp_path: Path) -> None:
    store = Store(tmp_path)
    synthesize(store, SMALL.model_copy(update={"seed": 2, "accepted": 50, "calibration": 50, "subsample": 50, "drills": {}}))

    def family_bits(which: str) -> float:
        modes = store.query(f"SELECT mode_coarse FROM trajectories WHERE {which}")["mode_coarse"]
        return entropy_bits(Counter(mode_family(mode) for mode in modes).values())

    assert family_bits("accepted") > family_bits("reason = 'calibration'") + 0.5


def test_bands_come_close_to_their_target_shares(both: tuple[Store, SynthesisResult]) -> None:
    store, result = both
    shares = dict(
        store.query("SELECT metric, value FROM diversity WHERE round = ? AND metric LIKE 'band_share_%'", [result.rounds - 1]).iter_rows()
    )

    targets = EvolutionConfig().band_shares
    assert all(abs(shares[f"band_share_{band}"] - target) <= 0.05 for band, target in zip(BANDS, targets, strict=True))
    assert abs(sum(shares.values()) - 1) < 1e-5


# ---- decisions ----------------------------------------------------------------------------------------------------------


def test_every_decision_is_stored_with_what_came_of_it(both: tuple[Store, SynthesisResult]) -> None:
    store, result = both
    rows = store.query("SELECT d.*, b.status AS seen FROM decisions d LEFT JOIN blueprints b USING (blueprint_id) ORDER BY round, position")

    assert rows.height == result.proposals
    assert rows["status"].to_list() == rows["seen"].to_list()
    for row in rows.to_dicts():
        assert (row["status"] == "accepted") == (row["got_domain"] is not None) == (row["reason"] is None)
        assert 0 < row["probability"] <= 1
        assert 0.1 <= row["feasibility"] <= 1
        assert min(row["domain_bits"], row["family_bits"], row["band_deficit"]) >= 0
        assert row["measured_on"] in ("cell", "domain", "mode", "prior")
    assert rows.filter((pl.col("status") == "accepted") & (pl.col("got_complexity_band") != pl.col("complexity_band"))).height < 3


# ---- killed, repeated, side by side -----------------------------------------------------------------------------------------


def test_a_second_run_makes_nothing_and_says_the_same(small: tuple[Store, SynthesisResult], monkeypatch: pytest.MonkeyPatch) -> None:
    store, result = small
    monkeypatch.setattr("synth.run.synthesize.propose", _refuse)

    assert synthesize(store, SMALL) == result


def _refuse(jobs: Sequence[Job]) -> list[Proposal]:
    raise AssertionError("work was done twice")


@pytest.mark.parametrize("batches", [1, 5])
def test_a_run_that_is_cut_off_and_repeated_ends_as_an_undisturbed_one(
    small: tuple[Store, SynthesisResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches: int
) -> None:
    undisturbed, result = small
    done = 0

    def dies(jobs: Sequence[Job]) -> list[Proposal]:
        nonlocal done
        done += 1
        if done > batches:
            raise KeyboardInterrupt
        return proposals.propose(jobs)

    with monkeypatch.context() as patch:
        patch.setattr("synth.run.synthesize.propose", dies)
        with pytest.raises(KeyboardInterrupt):
            synthesize(Store(tmp_path), SMALL)
    again = synthesize(Store(tmp_path), SMALL)

    assert again == result
    assert Store(tmp_path).content_hash() == undisturbed.content_hash()


def test_threads_give_the_same_store(small: tuple[Store, SynthesisResult], tmp_path: Path) -> None:
    undisturbed, result = small
    told: list[tuple[str, int, int]] = []
    progress: Callable[[str, int, int], None] = lambda label, done, total: told.append((label, done, total))  # noqa: E731

    with ThreadPoolExecutor(2) as threads:
        assert synthesize(Store(tmp_path), SMALL, executor=threads, progress=progress) == result

    assert Store(tmp_path).content_hash() == undisturbed.content_hash()
    assert told[-1] == ("synthesize", 24, 24)


@pytest.mark.slow
def test_another_process_with_another_hash_seed_gives_the_same_store(small: tuple[Store, SynthesisResult], tmp_path: Path) -> None:
    undisturbed, _ = small
    code = (
        "import sys; from storage.store import Store; from synth.run.config import SynthesisConfig;"
        "from synth.run.synthesize import synthesize;"
        "synthesize(Store(sys.argv[1]), SynthesisConfig.model_validate_json(sys.argv[2]))"
    )
    env = {**os.environ, "PYTHONHASHSEED": "77"}
    subprocess.run([sys.executable, "-c", code, str(tmp_path), SMALL.model_dump_json()], env=env, check=True)

    assert Store(tmp_path).content_hash() == undisturbed.content_hash()


def test_another_seed_gives_other_trajectories(small: tuple[Store, SynthesisResult], tmp_path: Path) -> None:
    store, _ = small
    other = Store(tmp_path)
    synthesize(other, SMALL.model_copy(update={"seed": 1, "accepted": 5}))

    ids = "SELECT trajectory_id FROM trajectories"
    assert not set(store.query(ids)["trajectory_id"]) & set(other.query(ids)["trajectory_id"])

"""What the last policy fails at: how urgent that is, that it steers what is asked for and nothing else does, and that nothing leaks."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import BadInput
from storage.record_rows import tasks_frame
from storage.records import Division, Message, Task
from storage.store import Store, part_id
from synth.blueprints.blueprint import Bands
from synth.blueprints.cell import Cell
from synth.blueprints.conversation_template import intent_pool
from synth.blueprints.draft import PlanFailed
from synth.blueprints.planner import Planner
from synth.clusters.business_clusters import Cluster, cluster_tools
from synth.engines.base import ChatAnswer, ChatRequest
from synth.intervals import wilson
from synth.roles.model_planner import ModelPlanner
from synth.run import proposals
from synth.run.config import SynthesisConfig
from synth.run.evolution.controller import Controller, EvolutionConfig, Report
from synth.run.evolution.failure_targeting import FailureStats, Focus, build_controller, factors, order_clusters, read_focus, urgency
from synth.run.proposals import Job, Proposal
from synth.run.result import SynthesisResult
from synth.run.synthesize import synthesize
from synth.tasks.solver import Use
from synth.worlds import WORLDS
from tests.synth.probed import WORLDS_USED, K, of, probe, probed_store, promote

FAILING, MASTERED = WORLDS_USED
SKILLS = {FAILING: 0.4, MASTERED: 1.0}
BANDS = Bands(5.0, 12.0)
STEERED = EvolutionConfig(objective="rarity", proposals_per_round=20, focus_weight=3.0)
SMALL = SynthesisConfig(
    worlds=WORLDS_USED, accepted=160, calibration=24, subsample=24, drills={}, max_proposals=600, code_share=0, evolution=STEERED
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A policy that wavers in one world and masters the other. Read-only."""
    return probed_store(tmp_path_factory.mktemp("probed") / "store", SKILLS)


# ---- urgency ----------------------------------------------------------------------------------------------------------


def of_eight(successes: int) -> float:
    rate = successes / 8
    return urgency(rate, rate * (1 - rate) * rate)


def test_wavering_is_more_urgent_than_out_of_reach_and_that_than_mastered() -> None:
    assert [round(of_eight(successes), 2) for successes in range(9)] == [0.5, 0.51, 0.63, 0.8, 0.94, 0.99, 0.9, 0.59, 0.0]
    assert min(of_eight(successes) for successes in range(1, 8)) > of_eight(0) > of_eight(8) == 0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=16))
def test_urgency_of_any_rewards_is_a_share(rewards: list[float]) -> None:
    mean = sum(rewards) / len(rewards)
    variance = sum((reward - mean) ** 2 for reward in rewards) / len(rewards)

    assert -1e-9 <= urgency(mean, variance * mean) < 1


@pytest.mark.slow
def test_few_tasks_weigh_little(store: Store) -> None:
    everything = read_focus(store, {})
    rows = everything.rows.filter(domain=FAILING)

    def urgency_of(tasks: int) -> float:
        return Focus("", "", rows.head(tasks)).by_domain()[FAILING].urgency

    assert 0 < urgency_of(1) < 0.25 < urgency_of(10) < urgency_of(48)
    assert everything.by_domain()[FAILING] == Focus("", "", rows).by_domain()[FAILING]


def test_standings_are_those_of_the_probe(store: Store) -> None:
    found = read_focus(store, {}).by_domain()
    tasks = {world: len(of(world, "probe")) for world in WORLDS_USED}

    assert {domain: (standing.tasks, standing.rollouts) for domain, standing in found.items()} == {
        world: (count, count * K) for world, count in tasks.items()
    }
    assert found[FAILING].low < SKILLS[FAILING] < found[FAILING].high < 0.65
    assert (found[MASTERED].urgency, found[MASTERED].rate, found[MASTERED].always) == (0, 1, tasks[MASTERED])
    assert sum(standing.tasks for standing in read_focus(store, {}).by_mode(BANDS).values()) == sum(tasks.values())


def test_without_a_promoted_policy_or_its_probe_there_is_nothing_to_focus_on(tmp_path: Path) -> None:
    none = Store(tmp_path / "none")
    with pytest.raises(BadInput, match="no promoted policy yet"):
        read_focus(none, {})
    promote(none, "policy-9")
    with pytest.raises(BadInput, match="holds no probe of policy-9"):
        read_focus(none, {})
    with pytest.raises(BadInput, match="holds no probe of policy-9"):
        synthesize(none, SMALL)


# ---- what is asked for ------------------------------------------------------------------------------------------------


def asked(controller: Controller, rounds: int = 16) -> list[str]:
    """Domains of what a controller asks for, where all that is asked for is accepted."""
    rng, domains = random.Random(1), list[str]()
    for _ in range(rounds):
        for draw in controller.draw_round(rng, 50):
            controller.record(Report(draw.cell, draw.cell.family, draw.cell))
            domains.append(draw.cell.domain)
        controller.end_round()
    return domains


def share_of_failing(focus: Focus | None, config: EvolutionConfig) -> tuple[float, float]:
    domains = asked(build_controller(sorted(WORLDS_USED), config, focus, BANDS))
    return wilson(domains.count(FAILING), len(domains))


def shuffled(focus: Focus) -> Focus:
    """The same tasks with outcomes dealt out anew."""
    order = random.Random(3).sample(range(focus.rows.height), focus.rows.height)
    return Focus(focus.part_id, focus.policy_id, focus.rows.with_columns(focus.rows.select("k", "successes", "urgency")[order]))


def test_the_controller_asks_more_for_what_fails_and_not_where_outcomes_are_shuffled(store: Store) -> None:
    focus, config = read_focus(store, {}), EvolutionConfig(focus_weight=1.0)
    low, high = share_of_failing(focus, config)
    control_low, control_high = share_of_failing(shuffled(focus), config)

    assert low > 0.52
    assert high < 2 / 3, "at most twice as often as what is mastered"
    assert control_low < 0.5 < control_high


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_without_weight_the_draws_are_those_of_no_focus_at_all(store: Store, weight: float) -> None:
    focus, config = read_focus(store, {}), EvolutionConfig(focus_weight=weight)
    focused = build_controller(WORLDS_USED, config, focus, BANDS).draw_round(random.Random(0), 100)
    plain = Controller(WORLDS_USED, EvolutionConfig()).draw_round(random.Random(0), 100)

    assert (focused == plain) == (weight == 0)
    assert {draw.focus for draw in plain} == {0.0}


def test_a_draw_says_what_the_focus_added_to_its_score(store: Store) -> None:
    controller = build_controller(WORLDS_USED, EvolutionConfig(focus_weight=1.0), read_focus(store, {}), BANDS)
    plain = Controller(WORLDS_USED)
    for draw in controller.draw_round(random.Random(0), 60):
        assert draw.focus == pytest.approx(controller.score(draw.cell) - plain.score(draw.cell))
    assert len({draw.focus for draw in controller.draw_round(random.Random(0), 60)}) > 2


# ---- clusters and frames ----------------------------------------------------------------------------------------------


def clusters_of(world: str) -> list[Cluster]:
    return [cluster for cluster in cluster_tools(list(WORLDS[world].tools)) if cluster.world is not None]


def test_a_cluster_that_serves_what_fails_has_its_turn_more_often() -> None:
    clusters = clusters_of("banking")
    served = {cluster.id: set(intent_pool(WORLDS["banking"], cluster.tool_names).busy) for cluster in clusters}
    wanted = min(sorted(set().union(*served.values())), key=lambda intent: sum(intent in intents for intents in served.values()))
    holders = {cluster for cluster, intents in served.items() if wanted in intents}
    assert 0 < len(holders) < len(clusters)

    def turns(intent_factors: Mapping[tuple[str, str], float]) -> Counter[str]:
        use: Counter[str] = Counter()
        for _ in range(60 * len(clusters)):
            use[order_clusters(clusters, "banking", use, intent_factors)[0].id] += 1
        return use

    assert set(turns({}).values()) == {60}
    focused = turns(factors({("banking", wanted): FailureStats(1.0, 9, 72, 0.5, 0.4, 0.6, 0, 0)}, 1.0))
    others = next(count for cluster, count in focused.items() if cluster not in holders)
    assert all(focused[cluster] == pytest.approx(2 * others, rel=0.05) for cluster in holders)


def test_the_planner_takes_recipes_of_what_fails_more_often() -> None:
    (cluster,) = clusters_of(FAILING)
    cell, wanted = Cell(FAILING, "C>F", "low"), "order_price"

    def holding(intent_factors: Mapping[tuple[str, str], float]) -> tuple[int, int]:
        """Blueprints with the wanted intent, of all."""
        planner = Planner(lambda frame_id: True, 0.0, BANDS, factors=intent_factors)
        made = []
        for seed in range(150):
            with suppress(PlanFailed):
                made.append(planner.propose(cell, [cluster], 0, random.Random(seed))[1])
        assert len(made) > 140
        return sum(any(goal.intent == wanted for goal in blueprint.goals) for blueprint in made), len(made)

    assert wilson(*holding({}))[1] < wilson(*holding({(FAILING, wanted): 8.0}))[0]


class Refuses:
    """An engine that gives no plan, and keeps what it was asked."""

    name = "refuses"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer]:
        self.asked += [request.messages[-1].content or "" for request in requests]
        return [ChatAnswer(Message(role="assistant", content="no"), "stop") for _ in requests]


def test_a_model_that_plans_is_told_what_is_wanted_most() -> None:
    (cluster,) = clusters_of(FAILING)

    def told(intent_factors: Mapping[tuple[str, str], float]) -> str:
        engine = Refuses()
        planner = ModelPlanner(engine, Planner(lambda frame_id: True, 0.0, BANDS, factors=intent_factors))
        with pytest.raises(PlanFailed):
            planner.propose(Cell(FAILING, "C>F", "low"), [cluster], 0, random.Random(0))
        return engine.asked[0]

    focused = told({(FAILING, "order_price"): 1.9, (FAILING, "call_back"): 1.4})
    intents = [line for line in focused.splitlines() if "(of this domain)" in line]
    assert intents[:2] == ["- order_price (of this domain) (wanted most)", "- call_back (of this domain) (wanted most)"]
    assert focused.count("(wanted most)") == 2 and "an intent that is wanted most" in focused
    assert "wanted most" not in told({})


# ---- a run, killed, resumed, repeated ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def steered(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, SynthesisResult]:
    store = probed_store(tmp_path_factory.mktemp("steered") / "store", SKILLS)
    return store, synthesize(store, SMALL)


def asked_by(store: Store, run: str) -> list[str]:
    return store.query("SELECT domain FROM decisions WHERE run = ? ORDER BY round, position", [run])["domain"].to_list()


@pytest.mark.slow
def test_a_run_in_focus_makes_more_of_what_fails(steered: tuple[Store, SynthesisResult]) -> None:
    store, result = steered
    domains = asked_by(store, result.run)
    without = synthesize(store, SMALL.model_copy(update={"evolution": STEERED.model_copy(update={"focus_weight": 0.0})}))
    plain = asked_by(store, without.run)

    plain_low, plain_high = wilson(plain.count(FAILING), len(plain))
    assert plain_low < 0.5 < plain_high
    assert wilson(domains.count(FAILING), len(domains))[0] > max(0.55, plain.count(FAILING) / len(plain))
    got = store.query("SELECT got_domain, count(*) AS n FROM decisions WHERE run = ? AND status = 'accepted' GROUP BY 1", [result.run])
    assert dict(got.iter_rows())[FAILING] > 1.5 * dict(got.iter_rows())[MASTERED]
    assert set(store.query("SELECT focus FROM decisions WHERE run = ?", [without.run])["focus"]) == {0.0}


def test_by_coverage_a_run_in_focus_makes_more_of_what_fails_too(store: Store) -> None:
    covering = SMALL.model_copy(update={"accepted": 100})

    def share(weight: float) -> float:
        evolution = STEERED.model_copy(update={"objective": "coverage", "focus_weight": weight})
        run = synthesize(store, covering.model_copy(update={"evolution": evolution})).run
        got = store.query("SELECT got_domain FROM decisions WHERE run = ? AND status = 'accepted'", [run])["got_domain"].to_list()
        return got.count(FAILING) / len(got)

    assert share(3.0) > share(0.0) + 0.1


def dies_after(batches: int) -> Callable[[Sequence[Job]], list[Proposal]]:
    done = 0

    def dies(jobs: Sequence[Job]) -> list[Proposal]:
        nonlocal done
        done += 1
        if done > batches:
            raise KeyboardInterrupt
        return proposals.propose(jobs)

    return dies


@pytest.mark.slow
@pytest.mark.parametrize("batches", [1, 7])
def test_a_run_that_is_cut_off_goes_on_with_the_failures_it_began_with(
    steered: tuple[Store, SynthesisResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches: int
) -> None:
    """Given a run that dies, and a policy that is then seen to fail in the other world too, the rest of the run is as if it were not seen;
    a run that begins now is another."""
    undisturbed, result = steered
    store = probed_store(tmp_path / "store", SKILLS)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("synth.run.synthesize.propose", dies_after(batches))
        synthesize(store, SMALL)
    probe(store, "policy-1", of(MASTERED, "seed"), 0.2)
    _again_as(store, of(MASTERED, "seed"), "probe", "train")

    again = synthesize(Store(store.root), SMALL)

    assert again == result
    rows = "SELECT * EXCLUDE (part_id) FROM decisions WHERE run = ? ORDER BY round, position"
    assert store.query(rows, [result.run]).equals(undisturbed.query(rows, [result.run]))
    later = SMALL.model_copy(update={"accepted": 20})
    assert read_focus(store, {"anew": 1}).id != read_focus(undisturbed, {"anew": 1}).id
    assert synthesize(store, later).run != synthesize(undisturbed, later).run


def _again_as(store: Store, tasks: Sequence[Task], division: Division, use: Use) -> None:
    """Copies of tasks, with their tags, of another division and use."""
    name = f"-{division}-{use}"
    copies = [task.model_copy(update={"id": task.id + name, "division": division, "use": use}) for task in tasks]
    tags = store.query("SELECT * EXCLUDE (part_id) FROM tags WHERE task_id IN (SELECT unnest(?))", [[task.id for task in tasks]])
    rows = {"tasks": tasks_frame(copies), "tags": tags.with_columns(pl.col("task_id") + name)}
    store.commit([store.write(table, part_id(table, [name, *frame["task_id"]], {}, 1), frame) for table, frame in rows.items()])


@pytest.mark.slow
def test_the_next_policy_gives_another_run_in_the_same_store(tmp_path: Path) -> None:
    """Given a night of training after which the policy masters what it failed at, and fails at what it mastered, then the same command
    makes other trajectories, of the other world."""
    store = probed_store(tmp_path / "store", SKILLS)
    first = synthesize(store, SMALL)
    for world, skill in ((FAILING, 1.0), (MASTERED, 0.4)):
        probe(store, "policy-2", of(world, "probe"), skill)
    promote(store, "policy-2", 2)

    second = synthesize(store, SMALL)

    domains = asked_by(store, second.run)
    assert second.run != first.run
    assert wilson(domains.count(MASTERED), len(domains))[0] > 0.5
    made = store.query("SELECT count(*) FILTER (accepted) AS accepted FROM trajectories").item()
    assert made == first.accepted + second.accepted
    assert synthesize(store, SMALL) == second


# ---- nothing leaks ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_is_held_out_changes_nothing(tmp_path: Path) -> None:
    """Given a policy that is evaluated on held-out tasks and fails them all, even tagged by mistake, then nothing is asked for differently;
    the same rollouts of probe tasks would change it."""
    store = probed_store(tmp_path / "store", SKILLS)
    before = read_focus(store, {})
    held_out = of(MASTERED, "held_out")
    assert len(held_out) > 10 and {task.use for task in held_out} == {"eval_out"}

    for purpose in ("eval_out", "eval_in", "probe"):
        probe(store, "policy-1", held_out, 0.0, purpose=purpose)
    assert store.query("SELECT count(*) FROM tags JOIN tasks USING (task_id) WHERE division = 'held_out'").item() == len(held_out)

    _again_as(store, held_out, "probe", "eval_in")
    _again_as(store, held_out, "held_out", "train")
    assert read_focus(store, {}).id == before.id

    _again_as(store, held_out, "probe", "train")
    assert read_focus(store, {}).by_domain()[MASTERED].urgency > before.by_domain()[MASTERED].urgency == 0


def test_tags_of_other_policies_say_nothing_of_this_one(tmp_path: Path) -> None:
    store = probed_store(tmp_path / "store", SKILLS)
    before = read_focus(store, {}).id
    probe(store, "policy-0", of(MASTERED, "probe"), 0.0)

    assert read_focus(store, {}).id == before

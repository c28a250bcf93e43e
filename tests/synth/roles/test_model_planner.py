"""The model planner: every answer gives a blueprint with allowed frames, or problems in words. The models are scripted."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from storage.records import JSON, frame_id
from synth.blueprints.blueprint import MAX_USER_TURNS, Bands, Blueprint, static_checks
from synth.blueprints.cell import Band, Cell
from synth.blueprints.conversation_template import intent_pool
from synth.blueprints.draft import PlanFailed, may_use
from synth.blueprints.phrases import PERSONAS, can_withhold, entities_of, slots_of
from synth.blueprints.planner import Planner
from synth.clusters.business_clusters import Cluster, cluster_tools
from synth.engines.base import ChatRequest
from synth.engines.structured import parse_and_check
from synth.roles.model_planner import ModelPlanner, _canonical, _PlanCheck, _schema
from synth.tasks.solver import are_evaluation_slots, training_seed
from synth.tasks.split import DivisionConfig, division
from synth.text.claims import has_chinese
from synth.text.slot_kinds import Date, Identifier, Quantity, Vocabulary
from synth.worlds import WORLDS, make_world
from tests.synth.scripted_models import Standing

BANDS = Bands(low_to=5.0, high_from=12.0)


def is_seed(frame: str) -> bool:
    return division(frame, DivisionConfig()) == "seed"


RULES = Planner(is_seed, chinese_share=0.0, bands=BANDS)


@lru_cache
def cluster_of(world: str) -> Cluster:
    """The one with most tools."""
    return max(cluster_tools(WORLDS[world].tools), key=lambda cluster: len(cluster.tool_names))


def domain_in(world: str) -> str:
    """The domain that most of its intents are of."""
    pool = intent_pool(WORLDS[world], cluster_of(world).tool_names)
    return max(sorted(pool.by_domain), key=lambda domain: len(pool.by_domain[domain]))


def goal_of(world: str, intent: str, slots: Mapping[str, JSON], **changes: JSON) -> dict[str, JSON]:
    """A goal whose request says every slot, in English."""
    spoken_values = []
    for name, value in slots.items():
        slot = slots_of(WORLDS[world], intent).get(name)
        kind = None if slot is None else WORLDS[world].kinds[slot.kind]
        spoken_values.append(kind.names[value]["en"] if isinstance(kind, Vocabulary) and value in kind.names else str(value))
    flags = dict.fromkeys(("chained", "joint", "asks_first", "dropped"), False)
    nothing = dict.fromkeys(("withheld", "reveal", "check")) | {"fault": False}
    return {"intent": intent, "slots": dict(slots), "request": f"I want: {', '.join(spoken_values)}", **nothing, **flags, **changes}


def plan_of(*goals: Mapping[str, JSON]) -> dict[str, JSON]:
    return {"persona": "plain", "parallel": False, "goals": list(goals)}


def plan_check_in(world: str, seed: int = 0, rules: Planner = RULES) -> _PlanCheck:
    return _PlanCheck(rules, rules.offer(cluster_of(world)), Cell(domain_in(world), "C>F", "low"), random.Random(seed))


# ---- values as frames hold them -----------------------------------------------------------------------------------------


def respell(value: JSON) -> JSON:
    """The same value in an unusual spelling."""
    if isinstance(value, str):
        return f" {value.upper()}" if re.fullmatch(r"[a-z]+\d+", value) else value
    return float(value) if isinstance(value, int) else int(value) if value == int(value) else value


def greedy_planner(world: str) -> Callable[[ChatRequest], str]:
    """Scripted: asks for anything that can be done in the world, whether or not it is kept for another use, in other spellings."""
    rng = random.Random(world)

    def answering(request: ChatRequest) -> str:
        intent = rng.choice(re.findall(r"^- (\w+) \(of this domain\)", request.messages[1].content or "", re.MULTILINE))
        names = frozenset(slot.name for slot in slots_of(WORLDS[world], intent).values() if slot.is_required or rng.random() < 0.5)
        drawn = make_world(world, training_seed(rng.randrange(64))).draw_slots(intent, names, rng)
        return json.dumps(plan_of(goal_of(world, intent, {name: respell(value) for name, value in drawn.items()})))

    return answering


@pytest.mark.slow
@pytest.mark.parametrize("world", ["retail", "city"])
def test_what_is_kept_for_another_use_is_not_planned_for_in_another_spelling(world: str) -> None:
    engine, made = Standing(greedy_planner(world)), list[Blueprint]()
    for seed in range(40):
        try:
            made.append(ModelPlanner(engine, RULES).propose(plan_check_in(world).cell, [cluster_of(world)], 0, random.Random(seed))[1])
        except PlanFailed:
            continue

    assert len(made) >= 15
    goals = [goal for blueprint in made for goal in blueprint.goals]
    for goal in goals:
        canonical = {name: canonical_value(world, goal.intent, name, value) for name, value in goal.slots.items()}
        assert goal.frame_id == frame_id(world, goal.intent, canonical)
        assert is_seed(goal.frame_id) and not are_evaluation_slots(goal.intent, canonical, entities_of(WORLDS[world], goal.intent))
    assert any(isinstance(value, int | float) for goal in goals for value in goal.slots.values()), "numbers were among them"
    refused = [one for one in engine.asked if "kept for another use" in (one.messages[-1].content or "")]
    assert len(refused) >= 10, "and what is kept was asked for"


def canonical_value(world: str, intent: str, slot: str, value: Any) -> JSON:
    """A value as the readers of queries write it."""
    kind = WORLDS[world].kinds[slots_of(WORLDS[world], intent)[slot].kind]
    if isinstance(kind, Quantity):
        return kind.canonical(value)
    return value.lower().strip() if isinstance(kind, Identifier) else int(value) if isinstance(kind, Date) else value


@pytest.mark.parametrize("world", ["retail", "city", "library"])
def test_every_usual_value_is_written_as_the_readers_of_queries_write_it(world: str) -> None:
    for kind in WORLDS[world].kinds.values():
        for value in kind.choices if isinstance(kind, Quantity) else ():
            for spelled in (value, float(value), float(value) + 1e-12 if value < kind.high else value):
                found = _canonical(spelled, kind)
                assert repr(found) == repr(kind.canonical(value)), (kind, spelled)


@pytest.mark.parametrize(
    ("slots", "problem"),
    [
        ({"user": "U99"}, "slot user may not be 'u99'"),
        ({"user": "o17"}, "slot user may not be 'o17'"),
        ({"user": 17}, "slot user may not be 17"),
        ({"user": True}, "slot user may not be True"),
        ({"user": "u01", "colours": "blue"}, "there is no slot colours"),
    ],
)
def test_a_value_that_is_none_of_the_kind_is_named(slots: dict[str, JSON], problem: str) -> None:
    found = plan_check_in("retail").problems(plan_of(goal_of("retail", "call_back", slots)))
    assert any(problem in one for one in found), found


# ---- what cannot be planned ---------------------------------------------------------------------------------------------


def usable(check: _PlanCheck, intent: str, *names: str) -> dict[str, JSON]:
    """Slots of an intent that may be planned for in the desk's world, and that can be done there."""
    world, rng = check.offer.world, random.Random(7)
    required = {slot.name for slot in slots_of(world, intent).values() if slot.is_required}
    for _ in range(200):
        place = world(check.seed)
        found = place.draw_such(intent, frozenset(required.union(names)), rng, lambda slots: may_use(is_seed, world, intent, slots))
        if found is not None and (check.problems(plan_of(goal_of(world.name, intent, found))), check.nearest)[1] is not None:
            check.nearest = check.blueprint = None
            return found
    raise AssertionError(f"no such {intent}")


def test_what_the_assistant_has_no_words_to_ask_for_is_not_withheld() -> None:
    unasked = [
        (intent, slot.name)
        for intent in intent_pool(WORLDS["retail"], cluster_of("retail").tool_names).intents
        for slot in slots_of(WORLDS["retail"], intent).values()
        if slot.kind == "problem" and not can_withhold(WORLDS["retail"], slot)
    ]
    intent, name = unasked[0]
    check = plan_check_in("retail")
    slots = usable(check, intent, name)
    request = goal_of("retail", intent, slots)["request"]
    shown = WORLDS["retail"].kinds["problem"].names[slots[name]]["en"]  # type: ignore[union-attr]
    goal = goal_of("retail", intent, slots, withheld=name, reveal=shown, request=request.replace(shown, "something"))

    assert any(f"the assistant cannot ask for {name}; withhold" in one for one in check.problems(plan_of(goal)))


def test_a_goal_asked_in_one_breath_withholds_nothing() -> None:
    check = plan_check_in("retail")
    first = goal_of("retail", "order_status", usable(check, "order_status"))
    second = first | {"joint": True, "withheld": "order", "reveal": first["request"], "request": "And another one's status."}
    assert any("goal 1: a goal that is joint withholds nothing" in one for one in check.problems(plan_of(first, second)))


def test_what_a_chained_goal_leaves_out_is_what_it_points_at() -> None:
    check, (before, after) = next(
        (check, goals) for seed in range(40) if (goals := _follows(check := plan_check_in("retail", seed))) is not None
    )
    assert not any("leave out the one slot" in one for one in check.problems(plan_of(before, after)))
    assert check.nearest is not None and check.nearest.goals[1].hidden == ("order",)

    named = goal_of("retail", after["intent"], {"order": "o17"}, chained=True)
    assert any("leave out the one slot" in one or "kept for" in one for one in check.problems(plan_of(before, named)))


def _follows(check: _PlanCheck) -> tuple[dict[str, JSON], dict[str, JSON]] | None:
    """The status of something that a customer ordered, and then the price of "that order", where the desk's world and rules let it be."""
    for user in WORLDS["retail"].kinds["user"].choices:  # type: ignore[union-attr]
        before = goal_of("retail", "status_by_category", {"user": user, "category": "lamp"})
        after = goal_of("retail", "order_price", {}, chained=True, request="And what does that order cost?")
        check.problems(plan_of(before, after))
        if check.nearest is not None:
            return before, after
    return None


def test_what_breaks_the_worlds_solver_is_told_to_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    check = plan_check_in("retail")
    slots = usable(check, "order_status")

    def breaks(*_: object) -> None:
        raise KeyError("o17")

    monkeypatch.setattr("synth.blueprints.draft.solve", breaks)
    assert check.problems(plan_of(goal_of("retail", "order_status", slots))) == ["this cannot be done with these values"]


# ---- what becomes of it -------------------------------------------------------------------------------------------------


def test_a_plan_that_can_be_done_is_used_after_all_repairs_whatever_its_band() -> None:
    def stubborn(request: ChatRequest) -> str:
        shown = re.search(r"^- order_status .*\n(?:  .*\n)*?  for example (.*)", request.messages[1].content or "", re.MULTILINE)
        assert shown is not None
        return json.dumps(plan_of(goal_of("retail", "order_status", json.loads(shown.group(1)))))

    def proposed(engine: Standing, band: Band) -> Blueprint:
        planner = ModelPlanner(engine, RULES)
        cell = Cell(domain_in("retail"), "C>F", band)
        return planner.propose(cell, [cluster_of("retail")], 0, random.Random(3))[1]

    missing, hitting = Standing(stubborn), Standing(stubborn)
    found = proposed(missing, "high")
    assert found.domain == domain_in("retail") and BANDS.band(found.complexity) == "low"
    assert ["is not in band high" in (one.messages[-1].content or "") for one in missing.asked] == [False, True, True, True]
    assert proposed(hitting, "low").goals == found.goals and len(hitting.asked) == 1
    with pytest.raises(PlanFailed, match="slot order may not be"):
        proposed(Standing(lambda request: re.sub(r"o\d\d", "o100", stubborn(request))), "high")


def test_a_program_is_asked_for_where_one_is_needed_and_only_there() -> None:
    def check(share: float | None) -> _PlanCheck:
        return plan_check_in("library", rules=Planner(is_seed, 0.0, BANDS, code_share=share))

    needing = check(1.0)
    pool = needing.pool
    told = needing.messages()[1].content or ""
    (line,) = [one for one in told.splitlines() if "one goal must need run_python" in one]
    named = line.partition("intents: ")[2].rstrip(";").split(", ")
    assert set(named) <= pool.computing and all(f"- {name}" in told for name in named)
    for share in (None, 0.0):
        assert "must need run_python" not in (check(share).messages()[1].content or "")

    plain = next(name for name in pool.busy if name not in pool.computing)
    for other in (needing, check(0.0)):
        problems = other.problems(plan_of(goal_of("library", plain, usable(other, plain))))
        assert other.nearest is not None, "what needs none is better than nothing"
        assert any("run_python" in one for one in problems) == (other is needing), problems
    problems = needing.problems(plan_of(goal_of("library", named[0], usable(needing, named[0]))))
    assert not any("run_python" in one for one in problems) and needing.nearest is not None, problems


@lru_cache
def some_blueprint() -> Blueprint:
    check = plan_check_in("retail")
    usable_slots = usable(check, "order_status")
    check.problems(plan_of(goal_of("retail", "order_status", usable_slots)))
    assert check.nearest is not None
    return check.nearest


@pytest.mark.parametrize(("turns", "is_right"), [(MAX_USER_TURNS, True), (MAX_USER_TURNS + 1, False)])
def test_a_plan_of_more_turns_than_are_heard_is_refused(turns: int, is_right: bool) -> None:
    blueprint = some_blueprint()
    more = [blueprint.turns[0].model_copy(update={"t": t, "steps": (), "settles": ()}) for t in range(len(blueprint.turns), turns)]
    long = blueprint.model_copy(update={"turns": (*blueprint.turns, *more)})
    found = static_checks(long, {tool.name: tool for tool in WORLDS["retail"].tools})
    assert found == ([] if is_right else [f"the user speaks {turns} times, and may {MAX_USER_TURNS} times"])


# ---- anything at all ----------------------------------------------------------------------------------------------------

SCALARS = st.one_of(
    st.text(max_size=8),
    st.booleans(),
    st.integers(),
    st.integers(-5, 300),
    st.floats(),
    st.sampled_from(["O17", "u99", "o17", "555-1234", "²", "2-3", "", "\ud83d", 1.0, 2.5, 10**400]),
)
RARELY, NOW_AND_THEN = (st.sampled_from([False] * (share - 1) + [True]) for share in (40, 4))


@st.composite
def slots_in(draw: st.DrawFn, world: str, intent: str) -> dict[str, JSON]:
    """Values for an intent; few are none of the kind, or of no slot."""
    slots: dict[str, JSON] = {}
    for slot in slots_of(WORLDS[world], intent).values():
        kind = WORLDS[world].kinds[slot.kind]
        usual = range(kind.horizon_days) if isinstance(kind, Date) else list(kind.names if isinstance(kind, Vocabulary) else kind.choices)
        if draw(RARELY) != (slot.is_required or draw(NOW_AND_THEN)):
            slots[slot.name] = draw(SCALARS if draw(RARELY) else st.sampled_from(usual).map(respell))
    return slots | {draw(st.text(max_size=5)): draw(SCALARS)} if draw(RARELY) else slots


@st.composite
def goals_in(draw: st.DrawFn, world: str, *, is_first: bool) -> dict[str, JSON]:
    intent = draw(st.sampled_from(intent_pool(WORLDS[world], cluster_of(world).tool_names).intents))
    slots, known = draw(slots_in(world, intent)), slots_of(WORLDS[world], intent)
    goal = goal_of(world, intent, slots)
    askable = [name for name in slots if draw(RARELY) or (name in known and can_withhold(WORLDS[world], known[name]))]
    if askable and draw(NOW_AND_THEN):
        name = draw(st.sampled_from(askable))
        rest = {other: value for other, value in slots.items() if other != name}
        reveal = goal_of(world, intent, {name: slots[name]})["request"]
        goal |= {"withheld": name, "reveal": reveal, "request": goal_of(world, intent, rest)["request"]}
    if draw(RARELY):
        goal |= {"request": draw(st.text(min_size=2, max_size=60)), "reveal": draw(st.none() | st.text(max_size=40))}
    goal |= {flag: draw(RARELY if is_first else NOW_AND_THEN) for flag in ("chained", "joint")}
    goal |= {flag: draw(NOW_AND_THEN) for flag in ("asks_first", "dropped")}
    return goal | {"fault": draw(st.booleans()), "check": draw(st.sampled_from([None, "first", "later"]))}


@st.composite
def plans_in(draw: st.DrawFn, world: str) -> dict[str, JSON]:
    """Plans of the schema, most of whose values, words and flags would do, and the others are anything."""
    goals = [draw(goals_in(world, is_first=at == 0)) for at in range(draw(st.integers(1, 5)))]
    return {"persona": draw(st.sampled_from(sorted(PERSONAS))), "parallel": draw(st.booleans()), "goals": goals}


@pytest.mark.parametrize("world", ["retail", "city"])
@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_plan_of_the_schema_gives_problems_or_a_blueprint(world: str, data: st.DataObject) -> None:
    plan, seed = data.draw(plans_in(world)), data.draw(st.integers(0, 3))
    rules = Planner(lambda _: True, chinese_share=0.0, bands=BANDS)
    check = plan_check_in(world, seed, rules)
    value, wrong = parse_and_check(json.dumps(plan), _schema(check.pool.intents))
    assert (value is None) == bool(wrong)

    if value is not None:
        found = check.problems(value)
        assert (check.blueprint is None) == bool(found) and all(found)
        for blueprint in (check.blueprint, check.nearest):
            assert blueprint is None or (blueprint.model_dump_json().encode() and not has_chinese(blueprint.turns[0].text))

"""Blueprints, scripted roles and simulated conversations in two worlds; negative controls for every check."""

import json
import random
from collections import Counter
from collections.abc import Sequence

import pytest

from storage.conversation import derive_turns
from storage.records import Cost, FunctionCall, Message, Outcome, Task, Tool, ToolCall, frame_id
from synth.blueprints.blueprint import Argument, Bands, Blueprint, TurnPlan, static_checks
from synth.blueprints.cell import Band, Cell
from synth.blueprints.conversation_template import OPERATORS, draw_template, evolve, intent_pool
from synth.blueprints.diversity import coarse_mode
from synth.blueprints.draft import Offer, PlanFailed
from synth.blueprints.phrases import slots_of
from synth.blueprints.planner import Planner
from synth.blueprints.schedule import ConversationTemplate
from synth.blueprints.sketch import sketch
from synth.clusters.business_clusters import Cluster, cluster_tools
from synth.conversations.expert import expert_trajectory
from synth.roles.observer import _carries, _waits
from synth.roles.scripted import ScriptedAssistant, ScriptedUser
from synth.roles.simulate import Simulated, simulate
from synth.roles.world_tools import WorldTools
from synth.tasks.verify import verify_teacher
from synth.tasks.wording import spellings
from synth.worlds import WORLDS

BANDS = Bands(3.2, 8.0)


def clusters_of(world: str) -> list[Cluster]:
    return cluster_tools(WORLDS[world].tools)


def draft_of(template: ConversationTemplate, cluster: Cluster, rng: random.Random) -> Blueprint | None:
    """The blueprint of one template, or None if it is infeasible."""
    try:
        return Planner(lambda _: True).draft(template, Offer(cluster), rng)
    except PlanFailed:
        return None


@pytest.fixture(scope="module")
def conversations() -> list[tuple[Blueprint, Simulated]]:
    """Some 150 conversations of both worlds, with everything that operators can add."""
    out = []
    for world in ("retail", "city"):
        clusters, rng = clusters_of(world), random.Random(7)
        for number in range(90):
            cluster = rng.choice(clusters)
            pool = intent_pool(WORLDS[world], cluster.tool_names)
            template = draw_template(pool, rng)
            for operator in list(OPERATORS.values())[: number % 2 * len(OPERATORS)]:
                template = (operator(template, pool, rng) if rng.random() < 0.2 else None) or template
            for _ in range(rng.randrange(3)):
                template = evolve(template, pool, rng)
            blueprint = draft_of(template, cluster, rng)
            if blueprint is not None:
                out.append((blueprint, simulate(blueprint)))
    return out


def first(conversations: Sequence[tuple[Blueprint, Simulated]], fits: object) -> tuple[Blueprint, Simulated]:
    return next((b, s) for b, s in conversations if s.accepted and fits(b))


def tools_of(blueprint: Blueprint) -> dict[str, Tool]:
    return {tool.name: tool for tool in WORLDS[blueprint.world].tools if tool.name in blueprint.tools}


# ---- what comes out -------------------------------------------------------------------------------------------------


def test_nearly_all_conversations_are_accepted_and_the_rest_say_why(conversations: list[tuple[Blueprint, Simulated]]) -> None:
    accepted = [simulated.accepted for _, simulated in conversations]

    assert len(conversations) > 120
    assert sum(accepted) / len(accepted) > 0.95
    for _, simulated in conversations:
        assert simulated.accepted == (simulated.reason == "") == all(simulated.trajectory.checks.values())
        assert simulated.trajectory.teacher == "scripted"
        assert simulated.trajectory.outcome is (Outcome.SUCCESS if simulated.accepted else Outcome.POLICY_FAILURE)


def test_a_search_that_rightly_finds_nothing_is_not_repeated() -> None:
    cluster, rng = clusters_of("helpdesk")[0], random.Random(5)
    found = 0
    for _ in range(300):
        blueprint = draft_of(draw_template(intent_pool(WORLDS["helpdesk"], cluster.tool_names), rng), cluster, rng)
        if blueprint is None or blueprint.perturbations:
            continue
        calls = [call for turn in derive_turns(simulate(blueprint).trajectory.messages) for step in turn.steps for call in step.calls]
        assert len(calls) == sum(len(step) for turn in blueprint.turns for step in turn.steps)
        found += any(call.status == "empty" for call in calls)
    assert found > 0, "no search found nothing"


def test_modes_vary_and_are_those_of_the_messages(conversations: list[tuple[Blueprint, Simulated]]) -> None:
    modes = {simulated.profile.coarse for _, simulated in conversations}

    assert len(modes) > 40
    assert {token for mode in modes for token in mode.replace("+", "").split(">")} == set("NARVSPCF")
    for _, simulated in conversations:
        assert simulated.profile.coarse == coarse_mode(derive_turns(simulated.trajectory.messages))


def test_predicted_modes_and_complexity_are_nearly_always_those_of_the_execution(conversations: list[tuple[Blueprint, Simulated]]) -> None:
    same_modes = [blueprint.mode_coarse == simulated.profile.coarse for blueprint, simulated in conversations]
    near = [abs(planned.complexity - found.profile.complexity) <= 0.1 * max(5.0, planned.complexity) for planned, found in conversations]

    assert sum(same_modes) / len(conversations) > 0.95
    assert sum(near) / len(conversations) > 0.95


def test_sketches_foretell_the_mode_of_a_draft() -> None:
    cluster, rng = clusters_of("retail")[0], random.Random(3)
    pool = intent_pool(WORLDS["retail"], cluster.tool_names)
    pairs = []
    for _ in range(60):
        template = draw_template(pool, rng)
        blueprint, likely = draft_of(template, cluster, rng), sketch(template)
        if blueprint is not None and likely is not None:
            pairs.append((blueprint.mode_coarse, likely.coarse))

    assert sum(a == b for a, b in pairs) / len(pairs) > 0.65


def test_the_same_blueprint_gives_the_same_bytes_and_reads_back_from_json(conversations: list[tuple[Blueprint, Simulated]]) -> None:
    for blueprint, simulated in conversations[::15]:
        again = simulate(Blueprint.model_validate_json(blueprint.model_dump_json()))

        assert again.trajectory.model_dump_json() == simulated.trajectory.model_dump_json()


# ---- what a conversation may and may not contain ---------------------------------------------------------------------


def test_a_withheld_fact_is_asked_for_before_any_call_and_said_only_then(conversations: list[tuple[Blueprint, Simulated]]) -> None:
    seen = 0
    for blueprint, _ in conversations:
        for turn in blueprint.turns:
            for fact in turn.withholds:
                goal = blueprint.goals[int(fact.split(".")[0])]
                slot = fact.split(".")[1]
                names = spellings(WORLDS[blueprint.world], goal.intent, slot, goal.slots[slot], blueprint.language)
                assert turn.is_question
                assert not turn.steps
                assert slots_of(WORLDS[blueprint.world], goal.intent)[slot].is_required, "a request without it would be whole"
                assert not any(name.casefold() in turn.text.casefold() for name in names)
                assert any(name in blueprint.turns[turn.t + 1].text for name in names)
                seen += 1
    assert seen >= 5


def test_what_is_only_pointed_at_comes_from_an_earlier_result(conversations: list[tuple[Blueprint, Simulated]]) -> None:
    chained = [(blueprint, goal) for blueprint, _ in conversations for goal in blueprint.goals if goal.hidden]

    assert chained
    for blueprint, goal in chained:
        nodes = [node for node in blueprint.nodes if blueprint.goals[node.goal] == goal]
        fed_by = [argument.node for node in nodes for argument in node.arguments.values() if argument.node is not None]
        assert any(blueprint.nodes[n].goal < nodes[0].goal for n in fed_by)


def test_a_planned_fault_is_injected_once_and_retried(conversations: list[tuple[Blueprint, Simulated]]) -> None:
    faulty = [(b, s) for b, s in conversations if s.accepted and any(p.kind != "goal_shift" for p in b.perturbations)]

    assert {p.kind for b, _ in faulty for p in b.perturbations} >= {"error"}
    for blueprint, simulated in faulty:
        planned = sum(p.kind != "goal_shift" for p in blueprint.perturbations)
        calls = [call for turn in derive_turns(simulated.trajectory.messages) for step in turn.steps for call in step.calls]
        assert sum(call.status == "error" for call in calls) == planned
        assert len(calls) == len(blueprint.nodes) + planned
        assert "R" in simulated.profile.coarse


def test_a_dropped_goal_changes_nothing(conversations: list[tuple[Blueprint, Simulated]]) -> None:
    dropped = [(b, s) for b, s in conversations if any(goal.is_abandoned for goal in b.goals)]

    assert dropped
    for blueprint, _ in dropped:
        index = next(index for index, goal in enumerate(blueprint.goals) if goal.is_abandoned)
        assert blueprint.goals[index].changes == (blueprint.goals[index - 1].changes if index else {})


def test_every_operator_shapes_some_conversation(conversations: list[tuple[Blueprint, Simulated]]) -> None:
    used = Counter(operator for blueprint, simulated in conversations if simulated.accepted for operator in blueprint.operators)

    assert set(used) == set(OPERATORS)


# ---- what goes wrong is noticed (negative controls) -------------------------------------------------------------------


class ChangedAssistant:
    """A scripted assistant; `change` (message, number of earlier messages) changes each message."""

    name = "spoilt"
    cost = Cost()

    def __init__(self, blueprint: Blueprint, change: object) -> None:
        self._inner, self._change, self._made = ScriptedAssistant(blueprint), change, -1

    def act(self, dialogue: Sequence[Message], tools: Sequence[Tool]) -> Message:
        self._made += 1
        changed: Message = self._change(self._inner.act(dialogue, tools), self._made)
        return changed


def simulate_changed(blueprint: Blueprint, change: object) -> Simulated:
    return simulate(blueprint, assistant=lambda plan: ChangedAssistant(plan, change))


def acts(blueprint: Blueprint) -> bool:
    return len(blueprint.goals) == 1 and bool(blueprint.goals[0].changes) and len(blueprint.nodes) >= 2 and not blueprint.perturbations


def test_an_answer_with_an_unsupported_number_is_refused(conversations: list[tuple[Blueprint, Simulated]]) -> None:
    blueprint, _ = first(conversations, acts)

    def lie(message: Message, _: int) -> Message:
        return message if message.tool_calls else message.model_copy(update={"content": f"{message.content} That is 98765."})

    assert simulate_changed(blueprint, lie).reason.endswith("grounded_answer")


def test_a_call_that_is_left_out_is_noticed(conversations: list[tuple[Blueprint, Simulated]]) -> None:
    blueprint, _ = first(conversations, acts)

    def skip(message: Message, number: int) -> Message:
        return Message(role="assistant", content="done") if message.tool_calls and number == 1 else message

    found = simulate_changed(blueprint, skip)
    assert not found.accepted
    assert not found.trajectory.checks["covers_plan"]


def test_a_call_to_a_tool_that_is_not_offered_is_noticed(conversations: list[tuple[Blueprint, Simulated]]) -> None:
    blueprint, _ = first(conversations, acts)
    stranger = ToolCall(id="x", function=FunctionCall(name="drop_tables", arguments="{}"))

    def add(message: Message, number: int) -> Message:
        return message.model_copy(update={"tool_calls": (*message.tool_calls, stranger)}) if number == 0 else message

    assert simulate_changed(blueprint, add).reason == "schema_valid"


def test_more_than_two_extra_calls_are_refused(conversations: list[tuple[Blueprint, Simulated]]) -> None:
    blueprint, _ = first(conversations, lambda b: acts(b) and b.turns[0].steps)

    def repeat(message: Message, number: int) -> Message:
        extra = tuple(message.tool_calls[0].model_copy(update={"id": f"x{i}"}) for i in range(3)) if number == 0 else ()
        return message.model_copy(update={"tool_calls": (*message.tool_calls, *extra)})

    assert simulate_changed(blueprint, repeat).reason == "covers_plan"


def test_an_extra_call_with_an_invented_identifier_is_noticed(conversations: list[tuple[Blueprint, Simulated]]) -> None:
    def fits(blueprint: Blueprint) -> bool:
        return blueprint.world == "retail" and "get_order" in blueprint.tools

    for blueprint in [b for b, s in conversations if s.accepted and fits(b)][:5]:
        blueprint_json = blueprint.model_dump_json()
        unheard = next(order for order in (f"o{number:02d}" for number in range(100)) if order not in blueprint_json)
        look = FunctionCall(name="get_order", arguments=json.dumps({"order": unheard}))

        def add(message: Message, number: int, look: FunctionCall = look) -> Message:
            extra = (ToolCall(id="x", function=look),) if number == 0 else ()
            return message.model_copy(update={"tool_calls": (*message.tool_calls, *extra)})

        found = simulate_changed(blueprint, add)
        assert [name for name, holds in found.trajectory.checks.items() if not holds and name.endswith("grounded_arguments")], found.reason


@pytest.mark.parametrize("kind", ["date", "place", "clock", "category", "city"])
def test_a_withheld_value_in_any_of_its_forms_is_noticed_in_a_call(conversations: list[tuple[Blueprint, Simulated]], kind: str) -> None:
    """Given a conversation with one goal, when a value that its calls carry was withheld and never revealed, then the check fails."""
    seen = 0
    for blueprint, simulated in conversations:
        if blueprint.world != "city" or len(blueprint.goals) > 1 or not simulated.accepted:
            continue
        turns = derive_turns(simulated.trajectory.messages)
        assert _waits(WORLDS[blueprint.world], blueprint, turns)
        (goal,) = blueprint.goals
        for slot in (name for name, slot in slots_of(WORLDS["city"], goal.intent).items() if slot.kind == kind and name in goal.slots):
            if goal.slots[slot] == "lanchuan":  # where journeys begin that are not said to begin elsewhere: it gives nothing away
                continue
            silent = blueprint.turns[0].model_copy(update={"withholds": (f"0.{slot}",)})
            plan = blueprint.model_copy(
                update={"turns": (silent, *(turn.model_copy(update={"reveals": ()}) for turn in blueprint.turns[1:]))}
            )
            assert _waits(WORLDS[plan.world], plan, turns) == (not blueprint.nodes), (goal.intent, slot, goal.slots)
            seen += 1
    assert seen


def test_a_number_is_not_taken_for_part_of_a_date() -> None:
    assert _carries("30", "30") and _carries("2026-05-30t14:30", "2026-05-30t14:30") and _carries("willow park cafe", "willow park")
    assert not _carries("2026-05-30", "30") and not _carries("104.30,30.12", "30")


def test_a_user_who_leaves_early_is_the_users_fault(conversations: list[tuple[Blueprint, Simulated]]) -> None:
    blueprint, _ = first(conversations, lambda b: len(b.turns) > 1)

    found = simulate(blueprint, user=lambda plan: ScriptedUser(plan.turns[:-1]))

    assert found.trajectory.outcome is Outcome.USER_FAILURE
    assert found.trajectory.reward is None


def test_an_assistant_that_never_answers_is_at_fault_itself(conversations: list[tuple[Blueprint, Simulated]]) -> None:
    blueprint, accepted = first(conversations, lambda b: len(b.turns) > 1 and bool(b.nodes))
    calls = next(message for message in accepted.trajectory.messages if message.tool_calls)

    found = simulate_changed(blueprint, lambda message, _: calls)

    assert found.trajectory.outcome is Outcome.POLICY_FAILURE
    assert found.trajectory.reward == 0.0
    assert sum(message.role == "user" for message in found.trajectory.messages) == 1


def test_answers_in_the_wrong_language_are_graded_down(conversations: list[tuple[Blueprint, Simulated]]) -> None:
    blueprint, _ = first(conversations, lambda b: b.language == "en" and len(b.nodes) == 1)

    def translate(message: Message, _: int) -> Message:
        return message if message.tool_calls else message.model_copy(update={"content": f"好的，{message.content}"})

    assert simulate_changed(blueprint, translate).grades.presentation == 3


# ---- static checks ----------------------------------------------------------------------------------------------------


def changed_node(blueprint: Blueprint, n: int, **update: object) -> Blueprint:
    nodes = [node.model_copy(update=update) if node.n == n else node for node in blueprint.nodes]
    return blueprint.model_copy(update={"nodes": tuple(nodes)})


def test_good_plans_pass_and_each_fault_of_a_plan_is_named(conversations: list[tuple[Blueprint, Simulated]]) -> None:
    assert all(static_checks(blueprint, tools_of(blueprint)) == [] for blueprint, _ in conversations)
    blueprint, _ = first(conversations, lambda b: acts(b) and len(b.turns) == 1)
    tools, last = tools_of(blueprint), blueprint.nodes[-1]
    name = next(iter(last.arguments))
    hidden = {**last.arguments, name: Argument(src="hidden", value="x")}
    nameless = {key: value for key, value in last.arguments.items() if key != name}
    faulty = {
        "has a cycle": changed_node(blueprint, 0, after=(last.n,)),
        "cannot be resolved": changed_node(blueprint, last.n, arguments=hidden),
        f"lacks {name}": changed_node(blueprint, last.n, arguments=nameless),
        "has no parameter": changed_node(blueprint, last.n, arguments={**last.arguments, "zzz": Argument(src="const", value=1)}),
        "may not be 1": changed_node(blueprint, last.n, arguments={**last.arguments, name: Argument(src="const", value=1)}),
        "is not in the cluster": changed_node(blueprint, last.n, tool="drop_tables"),
        "is forbidden": blueprint.model_copy(update={"forbidden_tools": (last.tool,)}),
        "never revealed": blueprint.model_copy(update={"turns": (blueprint.turns[0].model_copy(update={"withholds": ("0.order",)}),)}),
        "left unanswered": blueprint.model_copy(update={"turns": (blueprint.turns[0].model_copy(update={"settles": ()}),)}),
        "says nothing": blueprint.model_copy(update={"turns": (blueprint.turns[0].model_copy(update={"text": " "}),)}),
        "every node exactly once": blueprint.model_copy(update={"turns": (blueprint.turns[0].model_copy(update={"steps": ((0,),)}),)}),
        "nothing to succeed at": blueprint.model_copy(
            update={"goals": (blueprint.goals[0].model_copy(update={"changes": {}, "facts": (), "refusal": None}),)}
        ),
    }
    for words, plan in faulty.items():
        assert any(words in problem for problem in static_checks(plan, tools)), words


def test_a_plan_outside_the_band_that_was_asked_for_is_refused(conversations: list[tuple[Blueprint, Simulated]]) -> None:
    blueprint, _ = first(conversations, acts)
    bands = Bands(blueprint.complexity - 1, blueprint.complexity + 1)

    assert static_checks(blueprint, tools_of(blueprint), bands=bands, band="mid") == []
    assert "not in band high" in static_checks(blueprint, tools_of(blueprint), bands=bands, band="high")[0]


# ---- the planner, the tools role, the teacher ---------------------------------------------------------------------------


CELLS = [("A>C", "mid"), ("C>R", "mid"), ("C>V", "mid"), ("C>A", "mid"), ("C>F", "high"), ("N", "low")]


@pytest.mark.parametrize(("family", "band"), CELLS)
def test_what_is_planned_for_a_cell_lies_in_it(family: str, band: Band) -> None:
    cluster, cell = clusters_of("retail")[0], Cell("retail", family, band)
    found = []
    for seed in range(6):
        try:
            found.append(Planner(lambda _: True, bands=BANDS, tries=100).propose(cell, [cluster], 2, random.Random(seed))[1])
        except PlanFailed:
            continue

    assert len(found) >= 2
    for blueprint in found:
        assert (blueprint.domain, blueprint.family, BANDS.band(blueprint.complexity)) == ("retail", family, band)


def test_where_a_cell_cannot_be_had_the_blueprint_is_of_its_domain_and_band_and_of_the_first_other_family_that_can() -> None:
    cell, planner = Cell("retail", "C>R", "low"), Planner(lambda _: True, bands=BANDS)
    with pytest.raises(PlanFailed, match="no_recipe"):
        planner.propose(cell, clusters_of("retail"), 9, random.Random(0))

    for seed in range(6):
        _, blueprint = planner.propose(cell, clusters_of("retail"), 9, random.Random(seed), else_families=("P>R", "C>F", "N"))
        assert (blueprint.domain, blueprint.family, BANDS.band(blueprint.complexity)) == ("retail", "C>F", "low")


def test_a_band_that_cannot_be_had_fails_with_a_reason() -> None:
    with pytest.raises(PlanFailed, match="no_recipe"):
        Planner(lambda _: True, bands=Bands(0.001, 900)).propose(Cell("retail", "C>F", "high"), clusters_of("retail"), 0, random.Random(0))


def test_frames_that_are_kept_for_another_use_are_never_planned() -> None:
    with pytest.raises(PlanFailed, match="not_allowed"):
        Planner(lambda _: False).draw_unsteered(clusters_of("retail")[0], random.Random(0))


def test_what_comes_as_it_comes_leaves_out_jobs_whose_every_frame_is_kept_for_another_use() -> None:
    without_slots = {frame_id("banking", intent, {}) for intent in WORLDS["banking"].intents}
    (cluster, *_), draft_of = clusters_of("banking"), Planner(lambda _: True)
    kept = [Planner(lambda known: known not in without_slots).draw_unsteered(cluster, random.Random(seed)) for seed in range(40)]
    free = [draft_of.draw_unsteered(cluster, random.Random(seed)) for seed in range(40)]

    assert all(goal.slots for blueprint in kept for goal in blueprint.goals)
    assert any(not goal.slots for blueprint in free for goal in blueprint.goals)


def test_the_tools_role_offers_the_clusters_tools_only(conversations: list[tuple[Blueprint, Simulated]]) -> None:
    blueprint, _ = first(conversations, lambda b: b.world == "city")
    missing, *others = blueprint.tools
    box = WorldTools(WORLDS[blueprint.world](blueprint.world_seed), blueprint.model_copy(update={"tools": tuple(others)}))

    observed = box.run(ToolCall(id="1", function=FunctionCall(name=missing, arguments="{}")))

    assert observed.content == '{"error":"no such tool"}'


def test_turn_plans_are_spoken_in_order_whatever_is_answered() -> None:
    user = ScriptedUser([TurnPlan(t=0, text="one"), TurnPlan(t=1, text="two")])

    assert user.speak([]) == "one"
    assert user.speak([Message(role="user", content="one"), Message(role="assistant", content="?")]) == "two"
    assert user.speak([Message(role="user", content="x"), Message(role="user", content="y")]) is None


def test_the_teachers_trajectory_of_a_task_is_verified(task: Task) -> None:
    trajectory = expert_trajectory(WORLDS[task.world], task)

    assert trajectory.outcome is Outcome.SUCCESS
    assert trajectory.teacher == "scripted"
    assert verify_teacher(WORLDS[task.world], task, trajectory.messages).success
    assert trajectory == expert_trajectory(WORLDS[task.world], task)


@pytest.fixture(scope="module")
def task() -> Task:
    from storage.records import Frame
    from synth.tasks.solver import admit_any

    frame = Frame(world="retail", intent="buy_pick", slots={"user": "u07", "category": "lamp", "pick": "cheapest"})
    return admit_any(WORLDS[frame.world], frame, text="buy the cheapest lamp for u07", language="en", seeds=range(20), division="seed")

"""Intents that a spec defines by steps: actions chosen by state, several actions in one request, answers, problems of wrong specs."""

from __future__ import annotations

import copy
import json
import random
from collections import Counter
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any

import pytest

from storage.records import JSON, Frame, RefusalReason
from synth.tasks.solver import admit, expert_messages
from synth.tasks.verify import verify_teacher
from synth.tasks.wording import render
from synth.text.slot_kinds import Quantity, Vocabulary
from synth.worlds import WORLDS
from synth.worlds.base import Solution, Unsolvable
from synth.worlds.declarative.compile import compile_spec
from synth.worlds.declarative.compiled_world import SpecWorld
from synth.worlds.declarative.language.problems import SpecError
from synth.worlds.declarative.language.yaml_text import parse_text

STARTER = files("synth.worlds.declarative").joinpath("starter.yaml").read_text(encoding="utf-8")
OWN = """
kinds:
  kind: {type: choice, like: tool.kind}
  pick: {type: choice, values: {cheapest: cheapest / 最便宜的, dearest: dearest / 最贵的}}
  most: {type: money, min: 2, max: 90, usual: [20, 40, 60]}
  days: {type: integer, min: 7, max: 14, step: 7, unit: days}
procedures:
  settle:
    - choose:
        - {if: loan.status == out and loan.due < today, steps: [{do: return_tool}]}
        - {if: loan.status == out and loan.renewals < 2, steps: [{do: renew_loan}]}
intents:
  settle_loan:
    leaf: loan.settle
    slots: {loan: loan, days: days}
    steps: [{get: loan}, {run: settle}]
    says: ["bring back {loan}, or keep it {days} / 归还{loan}，或再借{days}"]
  settle_mine:
    leaf: loan.settle
    slots: {member: member, due: term, days: days}
    steps: [{list: loan, of: member, where: {kind: due}}, {run: settle}]
    says: ["I am {member}, settle my {due} loan, {days} / 我是{member}，处理我的{due}借单，{days}"]
  settle_and_borrow:
    leaf: loan.settle
    slots: {loan: loan, kind: kind, pick: pick, most: most, days: days}
    optional: [most]
    steps:
      - get: loan
      - search: tool
        where: {kind: kind, status: free, max_fee: most}
        sort: fee_asc if pick == cheapest else fee_desc
      - fits: tool != loan.tool
      - run: settle
      - {do: lend_tool, with: {member: loan.member}}
    says: ["settle {loan} and get me the {pick} {kind}, {days}[ for at most {most}] / 处理{loan}，再借{pick}{kind}，{days}[，{most}以内]"]
  ask_fee:
    leaf: tool.fee
    slots: {kind: kind, pick: pick, most: most}
    optional: [most]
    steps:
      - {search: tool, where: {kind: kind, max_fee: most}, sort: fee_asc if pick == cheapest else fee_desc}
      - {tell: tool.fee, words: "{tool} costs {value}. / {tool}要{value}。"}
    says: ["what is the fee of the {pick} {kind}[ for at most {most}] / {pick}{kind}的租金是多少[，{most}以内]"]
  late_renewal:
    leaf: loan.refused
    slots: {loan: loan}
    steps:
      - get: loan
      - choose: [{if: loan.due < today, steps: [{refuse: rule, words: Late loans are not allowed to stay. / 按规定，逾期的借单不能留。}]}]
    says: ["keep {loan} although it is late / {loan}逾期了也想留着"]
"""
TERM = {"type": "choice", "like": "loan.kind"}


def raw_spec(change: Callable[[Any], object] = lambda raw: None) -> Any:
    raw = parse_text(STARTER)
    raw.update(copy.deepcopy(parse_text(OWN)))
    raw["kinds"]["term"] = TERM
    change(raw)
    return raw


@cache
def world_class() -> type[SpecWorld]:
    world = compile_spec(raw_spec())
    if world.name not in WORLDS:
        WORLDS.register(world)
    return world


def draw_solution(name: str, seed: int, *, optional: bool = True) -> tuple[SpecWorld, dict[str, JSON], Solution]:
    """Slots of a job that fit a seed from `seed` on, and what solves it."""
    World = world_class()
    intent = World.intents[name]
    names = frozenset(slot.name for slot in intent.slots if slot.is_required or optional)
    for place in range(seed, seed + 20):
        world = World(place)
        slots = world.draw_slots(name, names, random.Random(place))
        try:
            return world, slots, intent.solve(world, slots, "en")
        except Unsolvable:
            continue
    raise AssertionError(name)


OWN_NAMES = ("settle_loan", "settle_mine", "settle_and_borrow", "ask_fee", "late_renewal")


@pytest.mark.parametrize("name", OWN_NAMES)
def test_a_job_that_is_written_is_a_job_like_any_other(name: str) -> None:
    """Given a job, when its tasks are drawn and worded, then they are admitted, the teacher passes, and its calls do what is promised."""
    World = world_class()
    for seed in range(0, 40, 4):
        world, slots, solution = draw_solution(name, seed)
        assert not world.changes()
        for call in solution.plan.calls:
            assert not world.call(call.tool, call.arguments).is_error
        assert world.changes() == solution.success.changes
        frame = Frame(world=World.name, intent=name, slots=slots)
        text = render(World, frame, "zh", random.Random(seed))
        task = admit(World, frame, text=text, language="zh", seed=world.seed, division="seed")
        assert verify_teacher(World, task, expert_messages(World, task)).success


def test_the_act_follows_the_state_which_must_be_seen() -> None:
    acts = Counter[str]()
    for seed in range(30):
        world, slots, solution = draw_solution("settle_loan", seed)
        row = world.state()["loan"][slots["loan"]]
        look, act = solution.plan.calls
        acts[act.tool] += 1
        assert (look.tool, look.arguments) == ("get_loan", {"loan": slots["loan"]})
        assert act.tool == ("return_tool" if row["due"] < "2026-05-13" else "renew_loan")
        assert ("days" in act.arguments) == (act.tool == "renew_loan")
        shown = {fact.value for fact in solution.success.evidence}
        assert {f'"id":"{slots["loan"]}"', f'"due":"{row["due"]}"', '"status":"out"'} <= shown
    assert min(acts["return_tool"], acts["renew_loan"]) > 3


def test_several_acts_of_one_request_each_see_what_the_one_before_did() -> None:
    for seed in range(12):
        world, slots, solution = draw_solution("settle_and_borrow", seed)
        tools = [call.tool for call in solution.plan.calls]
        assert tools[:2] == ["get_loan", "search_tools"]
        assert tools[2] in ("return_tool", "renew_loan")
        assert tools[3:] == ["lend_tool"]
        whose = world.state()["loan"][slots["loan"]]["member"]
        assert solution.plan.calls[3].arguments["member"] == whose
        assert len([path for path in solution.success.changes if path.startswith("loan/")]) > 6, "the old loan, and a new one"


def test_a_slot_that_nobody_says_is_no_argument() -> None:
    _, slots, solution = draw_solution("ask_fee", 3, optional=False)
    assert "most" not in slots
    assert "max_fee" not in solution.plan.calls[0].arguments
    _, slots, solution = draw_solution("ask_fee", 3)
    assert solution.plan.calls[0].arguments["max_fee"] == slots["most"]


def test_what_is_told_has_the_others_of_its_search_as_rivals() -> None:
    world, slots, solution = draw_solution("ask_fee", 5)
    rows = [row for row in world.state()["tool"].values() if row["kind"] == slots["kind"]]
    (fact,) = solution.success.facts
    assert fact.kind == "price"
    assert set(fact.rivals) == {str(row["fee"]) for row in rows} - {fact.value}


def test_a_row_of_an_owner_is_found_only_where_there_is_one_such() -> None:
    for seed in range(10):
        world, slots, _ = draw_solution("settle_mine", seed)
        mine = [row for row in world.state()["loan"].values() if (row["member"], row["kind"]) == (slots["member"], slots["due"])]
        assert len(mine) == 1


def test_shapes_constraints_and_conflicts_are_known_without_a_world() -> None:
    intents = world_class().intents
    every = frozenset(intents["settle_and_borrow"].kinds) and frozenset(slot.name for slot in intents["settle_and_borrow"].slots)
    assert str(intents["settle_and_borrow"].shape(every)) == "get_loan[]>search_tools[]>return_tool[0]>lend_tool[0,1]"
    assert intents["settle_and_borrow"].constraints(every) == 4
    assert intents["settle_and_borrow"].has_conflict(every)
    assert not intents["settle_and_borrow"].has_conflict(every - {"most"})
    assert intents["late_renewal"].refusal is RefusalReason.RULE
    assert intents["settle_loan"].leaf == "tool_library.loan.settle"


def test_kinds_say_what_people_say() -> None:
    kinds = world_class().kinds
    most, kind = kinds["most"], kinds["kind"]
    assert isinstance(most, Quantity)
    assert most.choices == (20, 40, 60)
    assert all(isinstance(choice, int) for choice in most.choices)
    assert (most.unit, most.low, most.high) == ("dollars", 2, 90)
    assert isinstance(kind, Vocabulary)
    assert kind.names["saw"] == {"en": "saw", "zh": "锯子"}


def test_a_job_of_ones_own_takes_the_place_of_ours_of_that_name() -> None:
    def rename(raw: Any) -> None:
        raw["intents"]["ask_loan"] = raw["intents"].pop("settle_loan")

    world = compile_spec(raw_spec(rename))(4)
    assert [slot.name for slot in world.intents["ask_loan"].slots] == ["loan", "days"]
    assert "ask_loan" in world_class().intents, "a combined intent, because the spec defines none of this name"


def test_an_action_of_combined_jobs_says_its_own_reply_too() -> None:
    def reply(raw: Any) -> None:
        raw["actions"]["change_level"]["reply"] = "{member} is {level} now. / {member}现在是{level}会员。"

    world = compile_spec(raw_spec(reply))(4)
    slots = world.draw_slots("change_level", frozenset({"member", "level"}), random.Random(1))
    level = world.kinds["change_level.level"].names[slots["level"]]
    assert world.intents["change_level"].solve(world, slots, "zh").plan.answer == f"{slots['member']}现在是{level['zh']}会员。"


# ---- what is refused --------------------------------------------------------------------------------------------------------------


def settle(raw: Any) -> Any:
    return raw["intents"]["settle_loan"]


def borrow(raw: Any) -> Any:
    return raw["intents"]["settle_and_borrow"]["steps"]


def cases(raw: Any) -> Any:
    return raw["procedures"]["settle"][0]["choose"]


def only_own(raw: Any) -> Any:
    raw["combined"] = "false"
    return raw


def lend(raw: Any) -> Any:
    return only_own(raw)["actions"]["lend_tool"]


BORROW, SETTLE = "intents.settle_and_borrow", "intents.settle_loan"
GOLDEN: list[tuple[Callable[[Any], object], str]] = [
    (lambda raw: settle(raw)["slots"].update(loan="lone"), f"{SETTLE}.slots.loan: no kind or entity 'lone'; did you mean 'loan'?"),
    (lambda raw: settle(raw).update(optional=["day"]), f"{SETTLE}.optional: no slot 'day'; did you mean 'days'?"),
    (lambda raw: settle(raw)["steps"][1].update(run="setle"), f"{SETTLE}.steps[1].run: no procedure 'setle'; did you mean 'settle'?"),
    (
        lambda raw: settle(raw)["steps"].append({"look": "loan"}),
        f"{SETTLE}.steps[2]: is no step; one begins with get, list, search, do, run, choose, fits, tell, refuse, answer",
    ),
    (lambda raw: settle(raw)["steps"].pop(0), "procedures.settle[0].choose[0].if: looks at loan.status, and no step before shows 'loan'"),
    (lambda raw: borrow(raw)[0].update(get="kind"), f"{BORROW}.steps[0].get: no slot 'kind' that names a row; there are loan"),
    (lambda raw: borrow(raw)[1].update(search="loans"), f"{BORROW}.steps[1].search: no entity 'loans'; did you mean 'loan'?"),
    (
        lambda raw: borrow(raw)[1].update(search="branch"),
        f"{BORROW}.steps[1].search: branch has no search with an order; give it `search`, and a field `low` or `high`",
    ),
    (lambda raw: borrow(raw)[1]["where"].update(fee="most"), f"{BORROW}.steps[1].where.fee: no filter 'fee'; did you mean 'max_fee'?"),
    (
        lambda raw: borrow(raw)[1]["where"].update(max_fee="most + 1"),
        f"{BORROW}.steps[1].where.max_fee: 'most' may be left unsaid; it can stand alone only",
    ),
    (lambda raw: borrow(raw)[1].update(sort="fee_up"), f"{BORROW}.steps[1].sort: no value 'fee_up'; did you mean 'fee_asc'?"),
    (
        lambda raw: borrow(raw)[1].update({"as": "loan"}),
        f"{BORROW}.steps[1].search: 'loan' is there already; call it something else with `as`",
    ),
    (lambda raw: borrow(raw)[4].update({"do": "lend"}), f"{BORROW}.steps[4].do: no action 'lend'; did you mean 'lend_tool'?"),
    (
        lambda raw: borrow(raw)[4].pop("with"),
        f"{BORROW}.steps[4]: lend_tool needs 'member', and nothing here is called so; give it under `with`",
    ),
    (
        lambda raw: borrow(raw)[4]["with"].update(reader="loan.member"),
        f"{BORROW}.steps[4].with.reader: no parameter 'reader' of lend_tool; there are days, member, tool",
    ),
    (
        lambda raw: borrow(raw)[4]["with"].update(member="loan.tool"),
        f"{BORROW}.steps[4].with.member: 'loan.tool' is a tool, expected a member",
    ),
    (
        lambda raw: raw["intents"]["settle_mine"]["steps"][0].update(list="branch"),
        "intents.settle_mine.steps[0].list: rows of branch belong to nobody; make a reference `owned`",
    ),
    (
        lambda raw: raw["intents"]["ask_fee"]["steps"][1].update(tell="tool.fees"),
        "intents.ask_fee.steps[1].tell: no field 'fees' of tool; did you mean 'fee'?",
    ),
    (
        lambda raw: raw["intents"]["ask_fee"]["steps"][1].update({"if": "pick"}),
        "intents.ask_fee.steps[1].if: no mark 'pick' among the slots; there are none",
    ),
    (
        lambda raw: raw["intents"]["ask_fee"]["steps"].pop(1),
        "intents.ask_fee: comes to nothing; let it `do`, `tell`, `answer` or `refuse` something in every case",
    ),
    (
        lambda raw: cases(raw)[0].update(steps=[{"refuse": "rule", "words": "That is against the rules. / 按规定不行。"}]),
        f"{BORROW}: refuses in some cases only, or for several reasons; make an intent of each",
    ),
    (
        lambda raw: cases(raw)[0].update({"if": "count(loan, status=out) > 3"}),
        "procedures.settle[0].choose[0].if: counts rows, and no step before shows how many there are",
    ),
    (
        lambda raw: cases(raw)[0].update({"if": "loan.member.level == plus"}),
        "procedures.settle[0].choose[0].if: looks at loan.member.level, which the step that shows 'loan' does not show",
    ),
    (lambda raw: cases(raw)[0].update(steps=[{"run": "settle"}]), "procedures.settle[0].choose[0].steps[0].run: 'settle' runs itself"),
    (
        lambda raw: raw["procedures"].update(other=[{"get": "loan"}]),
        "procedures.other: no intent runs it; leave it out, or `run` it",
    ),
    (
        lambda raw: raw["kinds"]["kind"].update(like="tool.kinds"),
        "kinds.kind.like: no choice or name 'tool.kinds'; did you mean 'tool.kind'?",
    ),
    (lambda raw: raw["kinds"].update(loan=TERM), "kinds.loan: is the name of an entity, whose rows are a kind already; take another name"),
    (
        lambda raw: raw["intents"]["ask_fee"].pop("says"),
        "intents.ask_fee.says: is missing; how people ask for it, as: english / 中文, with {slot} fields",
    ),
    (
        lambda raw: raw["intents"]["ask_fee"].update(says=["what is the fee of the {kind} / {kind}的租金"]),
        "intents.ask_fee.says[0].en: leaves out {pick}",
    ),
    (
        lambda raw: raw["intents"]["late_renewal"]["steps"][1]["choose"][0]["steps"][0].update(words="No. / 按规定不行。"),
        "intents.late_renewal.steps[1].choose[0].steps[0].words.en: does not name 'rule' as the reason; say so, as: That is against the "
        "rules.",
    ),
    # what its tools tell
    (
        lambda raw: raw["naming"].update(row_ids="entity") if "naming" in raw else raw.update(naming={"row_ids": "entity"}),
        "naming.row_ids: jobs that are put together expect the usual answers; say `combined: false` at the top, and write `intents`",
    ),
    (
        lambda raw: raw["entities"]["tool"].update(tools={"get": {}, "search": {"bare": "true"}}),
        "entities.tool.tools: jobs that are put together expect the usual answers; say `combined: false` at the top, and write `intents`",
    ),
    (
        lambda raw: only_own(raw)["entities"]["tool"].update(tools={"get": {"shows": ["fees"]}, "search": {}}),
        "entities.tool.tools.get.shows: no field 'fees'; did you mean 'fee'?",
    ),
    (
        lambda raw: only_own(raw)["entities"]["tool"].update(tools={"search": {"needs": ["kinds"]}, "get": {}}),
        "entities.tool.tools.search.needs: no filter 'kinds'; did you mean 'kind'?",
    ),
    (
        lambda raw: only_own(raw)["entities"]["tool"].update(tools={"search": {"sort": "fee"}, "get": {}}),
        "entities.tool.tools.search.sort: no order 'fee'; did you mean 'fee_asc'?",
    ),
    (
        lambda raw: only_own(raw)["entities"]["tool"].update(tools={"list": {"bare": "true"}, "search": {}, "get": {}}),
        "entities.tool.tools.list: 0 references are `owned`, which give a list each; say this where it is one",
    ),
    (
        lambda raw: lend(raw).update(either={"who": ["member", "tools"]}),
        "actions.lend_tool.either.who: no row 'tools' in `takes`; did you mean 'tool'?",
    ),
    (
        lambda raw: lend(raw).update(counts={"loan": {"by": ["tool"]}}),
        "actions.lend_tool.counts.loan: is the name of an entity, or `acts`; take another",
    ),
    (
        lambda raw: lend(raw).update(counts={"lent": {"by": ["tol"]}}),
        "actions.lend_tool.counts.lent.by: no parameter 'tol'; did you mean 'tool'?",
    ),
    (
        lambda raw: lend(raw).update(tells={"left": "tool.fees"}),
        "actions.lend_tool.tells.left: no field 'fees' of tool; did you mean 'fee'?",
    ),
    (
        lambda raw: lend(raw)["needs"][0].update({"else": "it is {tool.state}"}),
        "actions.lend_tool.needs[0].else: no field 'state' of tool; did you mean 'status'?",
    ),
    (
        lambda raw: borrow(raw)[4]["with"].update(days="loan.tool.fee"),
        f"{BORROW}.steps[4].with.days: looks at loan.tool.fee, which the step that shows 'loan' does not show",
    ),
    (
        lambda raw: raw["entities"]["loan"].update(grows="false"),
        "actions.lend_tool.creates.loan: loan has `grows: false`; leave that out where an action creates some",
    ),
    # a fresh world
    (
        lambda raw: raw["entities"]["tool"]["fields"]["fee"].update(within="status"),
        "entities.tool.fields.fee.within: no choice, name, flag or ref 'status' above it; there are branch, kind",
    ),
    (
        lambda raw: raw["entities"]["loan"]["fields"]["tool"].update(within="member", apart="kinds"),
        "entities.loan.fields.tool.apart: no stored field 'kinds' of tool; did you mean 'kind'?",
    ),
    (
        lambda raw: raw["entities"]["tool"]["fields"]["kind"].update(mix=["2", "1"]),
        "entities.tool.fields.kind: give `within` and `mix` together: which rows are a group, and how often it has each of its values",
    ),
    (
        lambda raw: raw["entities"]["tool"]["fields"]["fee"].update(filter="only"),
        "entities.tool.fields.fee.filter: 'only' is for a flag, and this is a whole number",
    ),
]


@pytest.mark.parametrize(("change", "problem"), GOLDEN)
def test_a_job_that_makes_no_sense_is_refused_with_its_place_and_a_remedy(change: Callable[[Any], object], problem: str) -> None:
    with pytest.raises(SpecError) as caught:
        compile_spec(raw_spec(change))
    assert problem in [str(each) for each in caught.value.problems]
    assert len(caught.value.problems) <= 4


def test_a_job_that_fits_no_world_is_refused() -> None:
    def never(raw: Any) -> None:
        settle(raw)["steps"].insert(1, {"fits": "loan.renewals > 100"})

    with pytest.raises(SpecError, match=r"intents\.settle_loan: can hardly ever be done .*let more rows fit it"):
        compile_spec(raw_spec(never))


# ---- what tools tell --------------------------------------------------------------------------------------------------------------


def _short(raw: Any) -> None:
    """A desk whose tools tell little, in a fresh world that is dealt evenly."""
    only_own(raw)
    raw["naming"] = {"row_ids": "entity", "server": "desk"}
    entities, actions = raw["entities"], raw["actions"]
    entities["tool"]["tools"] = {
        "get": {"shows": ["status", "fee"]},
        "search": {
            "shows": ["fee"],
            "needs": ["kind"],
            "sort": "fee_asc",
            "limit": "2",
            "most": "4",
            "bare": "true",
            "about": "Tools of a kind.",
        },
    }
    entities["loan"]["tools"] = {"get": {}, "list": {"name": "my_loans", "shows": ["kind", "status"], "bare": "true"}}
    entities["branch"]["grows"] = "false"
    fields = entities["tool"]["fields"]
    fields["kind"]["even"] = "true"
    fields["fee"]["within"] = "kind"
    fields["lent_out"] = {"type": "flag", "derived": "status == lent", "filter": "only", "label": "lent out / 已借出"}
    entities["loan"]["fields"]["member"]["even"] = "true"
    entities["loan"]["fields"]["tool"].update(within="member", apart="kind")
    lend_tool = actions["lend_tool"]
    lend_tool["needs"] = [{"if": "tool.status == free", "else": "the tool is {tool.status}"}]
    lend_tool.update(
        tells={"tool": "tool", "cost": {"value": "days * tool.fee", "unit": "dollars"}}, counts={"lent": {"by": ["member"], "add": "days"}}
    )
    lend_tool["reply"] = "{tool} is yours for {days} days. / {tool}借给您{days}天。"
    report = {"type": "choice", "values": {"broken": "broken / 坏了", "late": "late / 晚了"}, "label": "reason / 原因"}
    actions["report"] = {
        "verb": "report / 报告", "takes": {"tool": "tool", "loan": "loan", "reason": report}, "either": {"subject": ["tool", "loan"]},
        "counts": {"reports": {"by": ["subject", "reason"]}}, "tells": {"reported": "subject", "reason": "reason"},
    }  # fmt: skip
    raw["kinds"].update(cost={"type": "mark", "words": "tell me the cost / 告诉我费用"}, level={"type": "choice", "like": "member.level"})
    raw["intents"] = {
        "borrow": {
            "leaf": "tool.borrow", "slots": {"member": "member", "kind": "kind", "pick": "pick", "days": "days", "cost": "cost"},
            "optional": ["cost"],
            "steps": [
                {"search": "tool", "where": {"kind": "kind"}, "sort": "fee_asc if pick == cheapest else fee_desc"},
                {"do": "lend_tool"},
                {"tell": "lend_tool.cost", "if": "cost", "words": "It costs {value}. / 要{value}。"},
            ],
            "says": ["I am {member}, {pick} {kind}, {days}[ {cost}] / 我是{member}，{pick}{kind}，{days}[，{cost}]"],
        },
        "settle": {**settle(raw_spec())},
        "set_level": {
            "leaf": "member.level", "slots": {"member": "member", "level": "level"}, "steps": [{"do": "change_level"}],
            "says": ["put {member} on {level} / 把{member}改为{level}"],
        },
        "complain": {
            "leaf": "tool.report", "slots": {"tool": "tool"}, "steps": [{"do": "report", "with": {"tool": "tool", "reason": "broken"}}],
            "says": ["{tool} is broken / {tool}坏了"],
        },
    }  # fmt: skip


@cache
def short() -> type[SpecWorld]:
    return compile_spec(raw_spec(_short))


def call_tool(world: SpecWorld, called: str, /, **arguments: JSON) -> Any:
    return json.loads(world.call(called, arguments).content)


def test_tools_tell_what_the_spec_says_and_there_is_no_program_without_combined_jobs() -> None:
    world = short()(2)
    tools = {tool.name: tool for tool in world.tools}
    assert "my_loans" in tools
    assert "run_python" not in tools
    assert call_tool(world, "run_python", code="print(1)") == {"error": "no such tool"}
    assert {tool.server.partition("-")[0] for tool in tools.values()} == {"desk"}
    assert (tools["search_tools"].description, tools["search_tools"].parameters["required"]) == ("Tools of a kind.", ["kind"])
    rows = call_tool(world, "search_tools", kind="saw")
    held = {key: row for key, row in world.state()["tool"].items() if row["kind"] == "saw"}
    assert rows == [{"tool": key, "fee": row["fee"]} for key, row in sorted(held.items(), key=lambda pair: pair[1]["fee"])][:2]
    assert len(call_tool(world, "search_tools", kind="saw", limit=4)) == 4
    assert "error" in call_tool(world, "search_tools", kind="saw", limit=5)
    lent = sum(row["status"] == "lent" for row in held.values())
    assert len(call_tool(world, "search_tools", kind="saw", lent_out=True, limit=4)) == min(lent, 4)
    assert call_tool(world, "search_tools", kind="saw", lent_out=False) == rows
    tool, row = next(iter(held.items()))
    assert call_tool(world, "get_tool", tool=tool) == {"tool": tool, "status": row["status"], "fee": row["fee"]}
    mine = call_tool(world, "my_loans", member="m003")
    assert [set(each) for each in mine] == [{"loan", "kind", "status"}] * len(mine)
    assert tools["get_branch"].parameters["properties"]["branch"]["pattern"] == r"^b\d\d$"


def test_an_action_tells_counts_and_says_why_not() -> None:
    world = short()(2)
    rows = world.state()["tool"]
    free = next(key for key, row in rows.items() if row["status"] == "free" and row["fee"] < 10)
    rich = next(key for key, row in world.state()["member"].items() if row["deposit"] > 20)
    before = world.snapshot()
    assert call_tool(world, "lend_tool", member=rich, tool=free, days=3) == {"tool": free, "cost": 3 * rows[free]["fee"]}
    assert call_tool(world, "lend_tool", member=rich, tool=free, days=3) == {"error": "the tool is lent"}
    assert world.changes()[f"lent/{rich}"] == 3
    assert world.state()["lent"] == {rich: 3}
    world.restore(before)
    assert not world.changes()


def test_one_of_two_rows_is_given_and_goes_by_one_name() -> None:
    world = short()(2)
    for arguments in ({}, {"tool": "t001", "loan": "l001"}):
        assert call_tool(world, "report", reason="late", **arguments) == {"error": "give one of tool, loan"}
    assert call_tool(world, "report", reason="late", loan="l001") == {"reported": "l001", "reason": "late"}
    call_tool(world, "report", reason="late", loan="l001")
    assert world.changes() == {"reports/l001-late": 2}
    needed = next(tool for tool in world.tools if tool.name == "report").parameters["required"]
    assert needed == ["reason"]


def test_what_one_says_of_an_action_may_differ_from_job_to_job() -> None:
    def mine(raw: Any) -> None:
        _short(raw)
        raw["intents"]["complain"]["steps"][0]["words"] = "{tool} will be mended: {reason}. / {tool}会修好。"

    for world, answer in ((short(), "I have reported tool t004."), (compile_spec(raw_spec(mine)), "t004 will be mended: broken.")):
        assert world.intents["complain"].solve(world(3), {"tool": "t004"}, "en").plan.answer == answer


def test_what_an_action_told_is_said_where_somebody_asked() -> None:
    for seed in range(20):
        world = short()(seed)
        intent = world.intents["borrow"]
        slots = world.draw_slots("borrow", frozenset({"member", "kind", "pick", "days", "cost"}), random.Random(seed))
        try:
            solution = intent.solve(world, slots, "en")
        except Unsolvable:
            continue
        tool = solution.plan.calls[1].arguments["tool"]
        cost = slots["days"] * world.state()["tool"][tool]["fee"]
        assert solution.plan.answer == f"{tool} is yours for {slots['days']} days. It costs {cost} dollars."
        assert [(fact.kind, fact.value) for fact in solution.success.facts] == [("price", str(cost))]
        plain = intent.solve(world, {name: value for name, value in slots.items() if name != "cost"}, "en")
        assert not plain.success.facts
        assert world.units["cost"] == "dollars"
        return
    raise AssertionError("no seed suits")


@pytest.mark.parametrize("seed", range(6))
def test_a_fresh_world_is_dealt_as_the_spec_says(seed: int) -> None:
    state = short()(seed).state()
    tools, loans = state["tool"], state["loan"]
    kinds = Counter(row["kind"] for row in tools.values())
    assert max(kinds.values()) - min(kinds.values()) <= 1
    assert len({(row["kind"], row["fee"]) for row in tools.values()}) == len(tools)
    assert max(Counter(row["member"] for row in loans.values()).values()) == 2
    assert len({(row["member"], tools[row["tool"]]["kind"]) for row in loans.values()}) == len(loans)

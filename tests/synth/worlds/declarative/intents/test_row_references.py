"""References to rows: a request contains everything that its plan uses, and names one row."""

from __future__ import annotations

import random
from importlib.resources import files
from typing import Any

from storage.records import Frame
from synth.tasks.solver import admit, training_seed
from synth.tasks.wording import render
from synth.worlds import WORLDS, make_world
from synth.worlds.declarative.compile import compile_spec
from synth.worlds.declarative.intents.acts import ActIntent
from synth.worlds.declarative.intents.row_references import OwnedReference, pick_orders
from synth.worlds.declarative.language.resolve import resolve
from synth.worlds.declarative.language.yaml_text import parse_text
from synth.worlds.declarative.tools import LIST_LIMIT


def starter() -> Any:
    return parse_text(files("synth.worlds.declarative").joinpath("starter.yaml").read_text(encoding="utf-8"))


def test_a_request_contains_the_conditions_of_the_best_row() -> None:
    """Given tools that can only be lent when insured and available, when a request asks for the best one, then it contains both, and a
    value without words is no filter of the plan."""
    raw = starter()
    raw["entities"]["tool"]["fields"] |= {
        "insured": {"type": "flag", "share": "0.9", "label": "insured / 已投保", "want": "with insurance / 有保险的"},
        "loud": {"type": "flag", "share": "0.1", "label": "loud / 噪音大", "want": "that roars / 轰鸣的"},
    }
    raw["entities"]["tool"]["fields"]["status"]["phrase"] = "that is _ / 状态为_的"
    raw["actions"]["lend_tool"]["needs"] = [{"if": "tool.status == free and tool.insured == true and tool.loud == false"}]
    world = compile_spec(raw)
    WORLDS.register(world)
    intent, rng, plans = "lend_tool_pick_tool", random.Random(2), []
    for turn in range(8):
        seed, names = training_seed(turn), frozenset(slot.name for slot in world.intents[intent].slots if slot.is_required)
        frame = Frame(world=world.name, intent=intent, slots=make_world(world.name, seed).draw_slots(intent, names, rng))
        text = {language: render(WORLDS[frame.world], frame, language, rng) for language in ("en", "zh")}
        plans.append(admit(WORLDS[frame.world], frame, text=text["en"], language="en", seed=seed, division="seed").plan)
        assert "that is available" in text["en"] and "with insurance" in text["en"] and "roars" not in text["en"]
        assert "状态为可借的" in text["zh"] and "有保险的" in text["zh"]
    for plan in plans:
        search = next(call for call in plan.calls if call.tool == "search_tools")
        assert set(search.arguments) == {"status", "insured", "kind", "sort"}


def test_a_row_is_named_as_the_only_one_of_its_kind_where_the_list_shows_it() -> None:
    """Given members with more loans than their list shows, and kinds of which each has about one, then no task is about a loan that the
    list cuts off."""
    raw = starter()
    raw["entities"]["member"]["rows"] = "20"
    raw["entities"]["loan"] |= {"rows": "900", "id": "l####"}
    raw["entities"]["loan"]["fields"]["kind"]["values"] = {f"k{at}": f"kind{chr(97 + at)} / 类{chr(0x4E00 + at)}" for at in range(24)}
    raw["actions"]["lend_tool"]["creates"]["loan"]["kind"] = "k0"
    world = compile_spec(raw)
    state = world(training_seed(1)).now
    acts = [intent for intent in world.jobs() if isinstance(intent, ActIntent)]
    owned = [each for intent in acts for each in intent.references.values() if isinstance(each, OwnedReference)]
    reference = next(each for each in owned if each.name is None and each.attribute.name == "kind")
    keys = [key for key, _ in reference.propose(state, frozenset(), {}, reference.entity.ids, random.Random(1))]
    shown = {
        key
        for member in reference.owner_entity.ids
        for key, _ in state.select(reference.entity.number, ((reference.owner.place, member),))[:LIST_LIMIT]
    }
    assert keys and set(keys) <= shown


def test_two_orders_never_share_a_superlative_in_either_language() -> None:
    raw = starter()
    raw["entities"]["tool"]["fields"]["wear"] = {
        "type": "integer",
        "min": "0",
        "max": "90",
        "label": "wear / 磨损",
        "low": "least worn / 最便宜的",
    }
    raw["entities"]["tool"]["fields"]["age"] = {
        "type": "integer",
        "min": "0",
        "max": "90",
        "label": "age / 年限",
        "high": "most expensive / 最旧的",
    }
    orders = pick_orders(resolve(raw).entities["tool"])
    assert list(orders) == ["fee_asc", "fee_desc"]

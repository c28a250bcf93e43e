"""Plans that are found by execution are tasks: their effect is there, they are minimal, and the same in every replay."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from filters.reading.world_reader import WorldReader
from storage.records import Frame
from synth.explore.call_proposals import Proposer
from synth.explore.conformance import measure
from synth.explore.explorer import Exploration, Explorer
from synth.explore.lookups import routes_to
from synth.explore.plan_wording import act_phrase
from synth.explore.sql import propose_statement
from synth.explore.value_records import Records, is_key_like, match, words_of
from synth.tasks.solver import NotAdmitted, admit, execute, expert_messages
from synth.tasks.verify import judge, verify
from synth.tasks.wording import render
from synth.worlds.live.live_intents import id_pattern
from synth.worlds.live.live_world import LiveWorld, make_live_world
from synth.worlds.live.lock import LiveTool
from tests.synth.live_servers.specs import NEEDS_BOX, notes_spec


@pytest.fixture(scope="module")
def explored() -> Iterator[tuple[type[LiveWorld], Exploration]]:
    measured = measure(notes_spec())
    bare = make_live_world(measured.spec, measured.lock)
    found = Explorer(bare, seconds=12, most=60).run()
    world = make_live_world(measured.spec, measured.lock.model_copy(update={"intents": tuple(found.intents)}))
    yield world, found
    bare.pool.close()
    world.pool.close()


@NEEDS_BOX
def test_most_plans_are_admitted_and_of_many_kinds(explored: tuple[type[LiveWorld], Exploration]) -> None:
    _, found = explored
    assert found.admitted >= 20
    assert found.admitted >= 0.9 * found.tried
    assert {intent.calls[-1].tool for intent in found.intents} >= {"add_note", "move_note", "remove_note", "get_note"}
    assert any(len(intent.calls) > 1 for intent in found.intents)


@NEEDS_BOX
def test_every_example_is_a_task_in_every_replay(explored: tuple[type[LiveWorld], Exploration]) -> None:
    kind, found = explored
    rng = random.Random(0)
    for intent in found.intents[:12]:
        world = kind(0)
        frame = Frame(world=kind.name, intent=intent.name, slots=world.draw_slots(intent.name, frozenset(intent.examples[0]), rng))
        text = render(world, frame, "en", rng, canonical=True)
        task = admit(kind, frame, text=text, language="en", seed=0, division="seed")
        messages = [expert_messages(kind, task) for _ in range(2)]
        assert messages[0] == messages[1]
        assert verify(kind, task, messages[0]).success
        idle = execute(kind(0), task.messages, (), task.plan.answer)
        assert not judge(kind, task, idle.messages, idle.changes).success


@NEEDS_BOX
def test_a_plan_with_a_value_that_nobody_said_is_refused(explored: tuple[type[LiveWorld], Exploration]) -> None:
    kind, found = explored
    intent = next(each for each in found.intents if each.calls[-1].tool == "add_note" and len(each.calls) == 1)
    frame = Frame(world=kind.name, intent=intent.name, slots=dict(intent.examples[0]))
    with pytest.raises(NotAdmitted):
        admit(kind, frame, text="Please add a note.", language="en", seed=0, division="seed")


# ---- parts -------------------------------------------------------------------------------------------------------------


def test_parameters_match_fields_called_like_them() -> None:
    assert match("order_id", "order_id") == 1
    assert match("new_item_ids", "item_id") == 0.8
    assert match("zip", "zip_code") == 0.8
    assert match("name", "entityName") == 0.6
    assert match("entityName", "name") == 0.6
    assert match("status", "city") == 0
    assert words_of("newItemIds") == ("new", "item", "id")
    assert is_key_like("user_id") and is_key_like("email") and not is_key_like("city")


def test_records_know_what_hangs_together() -> None:
    records = Records()
    records.add({"users": {"u1": {"name": "Ada", "orders": ["o1"]}}, "orders": {"o1": {"user_id": "u1", "status": "open"}}})
    order = records.by_key["o1"][0]
    near = [record.key for record in records.near(order)]
    assert near[0] == "o1" and "u1" in near[:3]
    assert records.matching("order_id")[0] == (1.0, "order_id")


def test_a_route_is_determined_by_what_is_said() -> None:
    result = {"payments": {"p1": {"source": "card", "last": 11}, "p2": {"source": "paypal"}}, "orders": ["o1"]}
    assert [route.path for route in routes_to("o1", result)] == [("orders", "*")]
    (route, *_) = routes_to("p2", result, "x_")
    assert route.path == ("payments", {"where": ["source", "x_payment_source"]}, "@")
    assert route.slots == {"x_payment_source": "paypal"}
    same = {"payments": {"p1": {"source": "card"}, "p2": {"source": "card"}}}
    assert routes_to("p2", same) == []


def test_a_statement_says_all_that_it_holds() -> None:
    rows = [{"id": 1, "name": "mug", "price": 5}, {"id": 2, "name": "kettle", "price": 30}]
    for seed in range(30):
        statement = propose_statement({"products": rows}, "Execute an INSERT, UPDATE, or DELETE query", random.Random(seed))
        assert statement is not None
        assert all(f"{{{slot}}}" in statement.says for slot in statement.slots)


def test_an_act_is_told_by_its_description() -> None:
    assert act_phrase("cancel_order", "Cancel a pending order. Ask first.") == "cancel a pending order"
    assert act_phrase("write_file", "Create a new file or completely overwrite an existing file with new content.") == "write file"


def test_values_of_one_form_are_identifiers() -> None:
    assert id_pattern(["#W51", "#W7"]) == r"\#[A-Za-z]+\d+"
    assert id_pattern(["/data/a.txt", "/data/b/c.md"]) == r"/[\w./-]+"
    assert id_pattern(["ada@x.org"]) == r"[\w.+-]+@[\w-]+\.[\w.-]+"
    assert id_pattern(["pending", "o12"]) == ""
    assert id_pattern(["buy milk"]) == ""


@NEEDS_BOX
def test_a_request_of_a_log_is_read_into_the_live_world(explored: tuple[type[LiveWorld], Exploration]) -> None:
    kind, _ = explored
    (reading,) = WorldReader([kind]).read(["could you get rid of note n3, remove it please"])
    assert "remove_note" in kind.intents[reading.intent].shape(frozenset()).tools
    assert "n3" in [value.value for value in reading.values]


def test_what_replaces_an_individual_is_another_of_its_collection() -> None:
    """Variants of two products; an order names one. The new item is a variant of the same product, not any value that is called an item."""
    records = Records()
    variants = {"p1": ("i1", "i2", "i3"), "p2": ("j1", "j2")}
    products = {
        name: {"name": name, "variants": {item: {"item_id": item, "price": 3} for item in items}} for name, items in variants.items()
    }
    records.add({"products": products, "orders": {"W1": {"order_id": "W1", "items": [{"item_id": "i1"}]}}})
    ids = {"type": "array", "items": {"type": "string"}}
    schema = {"type": "object", "properties": {"item_ids": ids, "new_item_ids": ids}, "required": ["item_ids", "new_item_ids"]}
    tool = LiveTool(name="exchange", description="", parameters=schema, changes_state=True)
    proposer = Proposer(records, {}, random.Random(0))
    drawn = [proposal.slots for _ in range(40) if (proposal := proposer.propose(tool, is_writer=True)) is not None]
    of_product = {item: set(items) for items in variants.values() for item in items}
    assert len({slots["item_ids"] for slots in drawn}) > 2
    assert all(slots["new_item_ids"] in of_product[str(slots["item_ids"])] - {slots["item_ids"]} for slots in drawn)

"""Labels: the tree, what a text is about, what constraints it states."""

import polars as pl
import pytest

from filters import normalise, taxonomy
from synth.worlds import WORLDS
from synth.worlds.city.taxonomy import CLASSES, GROUPS, LEAVES


def labels(texts: list[str]) -> list[dict[str, object]]:
    rows = normalise.step(pl.DataFrame({"row": range(len(texts)), "text": texts}, schema={"row": pl.UInt32, "text": pl.String})).drop(
        "reason"
    )
    return taxonomy.step(rows).select("leaf", "leaf_2", "constraints", "reason").to_dicts()


def test_the_published_tree_has_its_size() -> None:
    assert (len(CLASSES), len(GROUPS), len(LEAVES)) == (5, 16, 30)


def test_every_intent_of_every_world_is_a_leaf_and_every_inner_node_has_an_other() -> None:
    leaves, nodes = set(taxonomy.leaves()), taxonomy.nodes()
    assert {intent.leaf for world in WORLDS.values() for intent in world.intents.values()} <= leaves
    inner = set(nodes) - leaves - {node for node in nodes if node.rsplit(".", 1)[-1] == taxonomy.OTHER}
    assert all(f"{node}.{taxonomy.OTHER}" in nodes for node in inner)
    assert taxonomy.OTHER in nodes and len(nodes) == len(set(nodes))
    assert all(".".join(leaf.split(".")[:1]) in nodes for leaf in leaves)


@pytest.mark.parametrize(
    ("text", "leaf"),
    [
        ("close order o17 please", "retail.orders.cancel_or_return"),
        ("find a coffee shop near Willow Park", "discovery.poi_search.constrained_poi_search"),
        ("明天昆明天气怎么样", "dynamic_information.realtime_weather"),
        ("directions please, which route is it", "planning_and_decision.route_planning"),
    ],
)
def test_a_text_is_labelled_whether_or_not_it_is_complete(text: str, leaf: str) -> None:
    assert labels([text])[0]["leaf"] == leaf


def test_constraints_are_labelled_beside_the_subject() -> None:
    found = labels(["a coffee shop within 2 km of Willow Park for at most 50 yuan with wifi, open now"])[0]
    assert set(str(found["constraints"]).split()) == {"spatial_range", "budget", "features"}


def test_what_is_about_nothing_known_is_other_and_nothing_is_dropped() -> None:
    found = labels(["write me a poem about autumn", "close order o17"])
    assert found[0]["leaf"] is None
    assert [one["reason"] for one in found] == [None, None]

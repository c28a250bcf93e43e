"""Leaves: the tree, and what a text is about, executable or not."""

import polars as pl
import pytest

from filters import normalised_text, taxonomy
from filters.grounding import ground
from filters.lexicon_worlds import lexicon_worlds
from filters.taxonomy import label
from filters.taxonomy.built_in import built_in
from synth.engines.encoder import encode
from synth.worlds.city.query_taxonomy import CLASSES, GROUPS, LEAVES


def labels(texts: list[str]) -> list[dict[str, object]]:
    rows = normalised_text.step(pl.DataFrame({"row": range(len(texts)), "text": texts}, schema={"row": pl.UInt32, "text": pl.String})).drop(
        "reason"
    )
    grounded = ground.step(rows, lexicon_worlds(), ungrounded=True).drop("reason")
    labelled = taxonomy.step(grounded)
    assert labelled["row"].equals(rows["row"])
    return labelled.select("frame_id", "leaf", "reason").to_dicts()


def test_the_published_tree_has_its_size() -> None:
    assert (len(CLASSES), len(GROUPS), len(LEAVES)) == (5, 16, 30)


@pytest.mark.parametrize(
    ("text", "leaf", "is_executable"),
    [
        ("close order o17 please", "retail.orders.cancel_or_return", True),
        ("find a coffee shop near Willow Park", "discovery.poi_search.constrained_poi_search", True),
        ("明天昆明天气怎么样", "dynamic_information.realtime_weather", True),
        ("directions please, which route is it", "planning_and_decision.route_planning", False),
        ("write me a poem about autumn", taxonomy.OTHER, False),
    ],
)
def test_a_text_has_one_leaf_whether_or_not_it_can_be_executed(text: str, leaf: str, is_executable: bool) -> None:
    (row,) = labels([text])
    assert (row["leaf"], row["frame_id"] is not None, row["reason"]) == (leaf, is_executable, None)


def test_neighbours_change_no_leaf() -> None:
    texts = ["write me a poem about autumn", "close order o17", "directions please, which route is it", "明天昆明天气怎么样"]
    assert labels(texts) == [label for text in texts for label in labels([text])]
    assert labels([]) == []


@pytest.mark.slow
def test_labels_by_vector_are_those_of_rows_alone_and_leave_grounded_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["write me a poem about autumn", "close order o17", "directions please, which route is it", "how is the weather usually"]
    rows = normalised_text.step(pl.DataFrame({"row": range(4), "text": texts}, schema={"row": pl.UInt32, "text": pl.String})).drop("reason")
    grounded, vectors = ground.step(rows, lexicon_worlds(), ungrounded=True).drop("reason"), encode(rows["norm"].to_list())
    together = taxonomy.by_vectors(grounded, vectors, built_in(), encode)
    monkeypatch.setattr(label, "_AT_ONCE", 1)
    classify, sizes = label.Scripted.classify, list[int]()
    monkeypatch.setattr(label.Scripted, "classify", lambda self, texts, *rest: sizes.append(len(texts)) or classify(self, texts, *rest))
    alone = taxonomy.by_vectors(grounded, vectors, built_in(), encode)
    assert sizes == [1, 1, 1]
    assert alone["leaf"].equals(together["leaf"])
    assert alone["leaf_confidence"].to_list() == pytest.approx(together["leaf_confidence"].to_list(), abs=1e-4)
    assert together.select("leaf", "leaf_confidence").row(1) == ("retail.orders.cancel_or_return", 1.0)
    assert together["leaf_confidence"][0] < 1 and together["leaf"].n_unique() > 1

"""Labels, their confidence, and what the scripted annotator says in its own words."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from filters import normalised_text
from filters.taxonomy import prototypes
from filters.taxonomy.annotate import Scripted
from filters.taxonomy.built_in import built_in
from filters.taxonomy.label import by_vectors
from filters.taxonomy.salient_terms import Corpus
from filters.taxonomy.tree import Node, Tree, tree_of
from synth.engines import encoder
from synth.engines.encoder import Encode
from tests.filters.taxonomy.conftest import worded


def leaf(node: str, stem: str, **more: tuple[str, ...]) -> Node:
    return Node(id=node, examples=tuple(worded(stem, 20, seed=0)), **more)


@pytest.fixture
def tree() -> Tree:
    return tree_of([Node(id="shop"), leaf("shop.buy", "buy"), leaf("shop.swap", "swap"), leaf("weather", "sky"), leaf("ways", "road")])


def labels(texts: list[str], tree: Tree, encode: Encode) -> tuple[list[str], list[float]]:
    found = Scripted(encode, Corpus(texts)).annotate(texts, encode(texts), tree)
    return found.labels, found.confidence.tolist()


def test_rows_get_their_leaf_and_strangers_get_other(tree: Tree, encode: Encode) -> None:
    """Given four leaves, when texts of their classes and of none are annotated, then the first have their leaf, the others `other`."""
    texts = [text for stem in ("buy", "swap", "sky", "road", "zzz") for text in worded(stem, 40, seed=1)]
    expected = [node for node in ("shop.buy", "shop.swap", "weather", "ways", "other") for _ in range(40)]
    found, confidence = labels(texts, tree, encode)
    assert np.mean([label == right for label, right in zip(found, expected, strict=True)]) > 0.95
    assert all(0 <= sure <= 1 for sure in confidence)


def test_what_a_nodes_leaves_do_not_tell_apart_is_the_nodes_other(encode: Encode) -> None:
    """Given three leaves of one node with examples of one kind, when rows of that kind are annotated, then most are the node's `other`."""
    parts = (tuple(worded("buy", 60, seed=0)[part::3]) for part in range(3))
    alike = [Node(id=f"shop.{name}", examples=examples) for name, examples in zip("abc", parts, strict=True)]
    found, _ = labels(worded("buy", 60, seed=1), tree_of([Node(id="shop"), *alike, leaf("weather", "sky")]), encode)
    assert all(label.startswith("shop.") for label in found)
    assert found.count("shop.other") > 20


def test_labels_in_random_classes_are_hardly_ever_sure(encode: Encode) -> None:
    """Negative control: given examples whose classes are drawn at random, when rows are annotated, then almost all are `other`."""
    texts = [text for stem in ("buy", "swap", "sky", "road") for text in worded(stem, 20, seed=0)]
    drawn = np.random.default_rng(0).permutation(len(texts)) % 4
    wrong = tree_of(Node(id=f"c{number}", examples=tuple(np.array(texts)[drawn == number].tolist())) for number in range(4))
    fresh = [text for stem in ("buy", "swap", "sky", "road") for text in worded(stem, 40, seed=1)]
    found, _ = labels(fresh, wrong, encode)
    assert np.mean([label == "other" for label in found]) > 0.8


def test_a_cue_that_a_person_adds_speaks_for_its_leaf(encode: Encode) -> None:
    """Given two leaves with examples of one kind, when one gets a cue, then rows that have the word, whole, get this leaf."""
    halves = (tuple(worded("buy", 40, seed=0)[part::2]) for part in range(2))
    alike = [Node(id=name, examples=examples, cues=("Red Wine",) * (name == "a")) for name, examples in zip("ab", halves, strict=True)]
    texts = worded("buy", 60, seed=1)
    with_cue, _ = labels([f"{text}, red wine!" for text in texts], tree_of(alike), encode)
    part_of_it, _ = labels([f"{text}, red wines!" for text in texts], tree_of(alike), encode)
    assert with_cue.count("a") > 50
    assert part_of_it.count("a") < 40


def test_open_labels_and_names_are_what_sets_a_group_apart(tree: Tree, encode: Encode) -> None:
    texts = [*worded("sky", 60, seed=1), *(f"please 帮我退货 refund {number:03d}" for number in range(30))]
    scripted = Scripted(encode, Corpus(texts))
    found = scripted.annotate(texts, encode(texts), tree)
    assert all((open_label is not None) == (label == "other") for label, open_label in zip(found.labels, found.open_labels, strict=True))
    proposal = scripted.propose(texts[60:])
    assert "refund" in proposal.name
    assert set(proposal.cues) <= {"refund", "please", "帮我", "退货", "我退"}


def test_an_empty_tree_and_no_rows_are_no_error(encode: Encode) -> None:
    assert labels(["a b c"], Tree(()), encode) == (["other"], [1.0])
    assert labels([], Tree(()), encode) == ([], [])


def test_the_projection_tells_leaves_apart_better_than_plain_cosines() -> None:
    """Given examples of the built-in leaves, when half of them stand for the leaves and the others are labelled with the sentence encoder,
    then the projected cosines get more right than plain ones, and confidence is about the share that is right."""
    leaves = built_in().leaves
    texts = [text for leaf in leaves for text in leaf.examples]
    which = np.repeat(np.arange(len(leaves)), [len(leaf.examples) for leaf in leaves])
    tops = np.unique([leaf.id.split(".")[0] for leaf in leaves], return_inverse=True)[1]
    norm = normalised_text.step(pl.DataFrame({"row": range(len(texts)), "text": texts}, schema_overrides={"row": pl.UInt32}))["norm"]
    vectors = encoder.encode(norm.to_list())
    held = np.random.default_rng(0).permutation(len(texts)) % 2 == 1
    found = prototypes.fit(vectors[~held], which[~held], tops).probabilities(vectors[held])
    means = np.stack([vectors[~held][which[~held] == leaf].mean(axis=0) for leaf in range(len(leaves))])
    plain = (vectors[held] @ (means / np.linalg.norm(means, axis=1, keepdims=True)).T).argmax(axis=1)
    right = found.argmax(axis=1) == which[held]
    assert right.mean() > (plain == which[held]).mean() + 0.02
    sure = found.max(axis=1) > 0.5
    assert abs(found.max(axis=1)[sure].mean() - right[sure].mean()) < 0.1


def test_the_funnels_rows_are_labelled_by_vectors_unless_they_are_grounded(tree: Tree, encode: Encode) -> None:
    told = tree_of(node.model_copy(update={"intents": ("retail/buy_product",)}) if node.id == "shop.buy" else node for node in tree.nodes)
    texts = [worded("sky", 1, seed=1)[0], worded("sky", 1, seed=2)[0], "a"]
    rows = pl.DataFrame({"norm": texts, "world": [None, "retail", "city"], "intent": [None, "buy_product", "route"]})
    labelled = by_vectors(rows, encode(texts), told, encode)
    assert labelled["leaf"].to_list() == ["weather", "shop.buy", "other"]
    assert labelled["leaf_confidence"].to_list()[1:] == [1.0, 1.0]

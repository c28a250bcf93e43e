"""The loop: what is new is found, noise is not, and it ends when labels stand still."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from filters.taxonomy.annotate import Scripted
from filters.taxonomy.evolve import EvolveConfig, Evolved, evolve
from filters.taxonomy.groups import MAX_ROWS, coherent_groups, shuffled_vectors
from filters.taxonomy.salient_terms import Corpus
from filters.taxonomy.tree import Node, Tree, other_of, tree_of
from synth.engines.encoder import Encode
from tests.filters.taxonomy.conftest import bag_of_words, worded

KNOWN = ("buy", "sky", "road")
TREE = tree_of(Node(id=stem, examples=tuple(worded(stem, 20, seed=0))) for stem in KNOWN)


def log(stems: Sequence[str], count: int = 150) -> tuple[list[str], list[str]]:
    """Texts and their classes, mixed."""
    rows = [(text, stem) for stem in stems for text in worded(stem, count, seed=5)]
    order = np.random.default_rng(9).permutation(len(rows))
    return [rows[row][0] for row in order], [rows[row][1] for row in order]


def grown(texts: list[str], tree: Tree | None, encode: Encode = bag_of_words, **config: float) -> Evolved:
    return evolve(texts, encode(texts), Scripted(encode, Corpus(texts)), tree, EvolveConfig.model_validate(config))


def held(evolved: Evolved, classes: list[str], stem: str, labels: set[str]) -> tuple[float, float]:
    """The share of a class's rows that have one of these labels, and the share of the rows with these labels that are of the class."""
    has_label, mine = np.isin(evolved.annotation.labels, sorted(labels)), np.array(classes) == stem
    return float(has_label[mine].mean()), float(mine[has_label].mean())


def new_leaves(evolved: Evolved) -> set[str]:
    return {leaf.id for leaf in evolved.tree.leaves} - set(KNOWN)


def test_a_class_that_the_tree_lacks_is_found_in_other() -> None:
    """Given a tree without one class of the log, when it evolves, then new leaves hold that class, and the others keep theirs."""
    texts, classes = log([*KNOWN, "refund"])
    evolved = grown(texts, TREE)
    recall, purity = held(evolved, classes, "refund", new_leaves(evolved))
    assert recall > 0.9
    assert purity > 0.95
    assert all(held(evolved, classes, stem, {stem}) > (0.9, 0.95) for stem in KNOWN)
    assert set(evolved.rounds[0].added) <= new_leaves(evolved)


def alike() -> Tree:
    """A node `shop` with three leaves of one kind, so that its rows are its `other`, beside the known leaves."""
    parts = (tuple(worded("shop", 60, seed=0)[part::3]) for part in range(3))
    leaves = [Node(id=f"shop.{name}", examples=examples) for name, examples in zip("abc", parts, strict=True)]
    return tree_of([Node(id="shop"), *leaves, *TREE.nodes])


def test_what_is_coherent_in_the_other_of_a_node_becomes_its_child() -> None:
    texts, classes = log([*KNOWN, "gift"])
    texts = [f"{text} {shop}" if stem == "gift" else text for text, stem, shop in zip(texts, classes, worded("shop", 600, 7), strict=True)]
    evolved = grown(texts, alike())
    fresh = {leaf.id for leaf in evolved.tree.leaves} - {leaf.id for leaf in alike().leaves}
    assert held(evolved, classes, "gift", fresh) > (0.8, 0.95)
    assert all(leaf.startswith("shop.") for leaf in fresh)


def test_a_new_leaf_that_wins_no_rows_goes_again() -> None:
    """Given rows in the `other` of a node that its leaves do not tell apart, when a further leaf does not either, then it is dropped, and
    the node is not tried again."""
    texts, _ = log([*KNOWN, "shop"])
    evolved = grown(texts, alike())
    assert evolved.rounds[0].added
    assert {leaf.id for leaf in evolved.tree.leaves} == {leaf.id for leaf in alike().leaves}
    assert evolved.stopped == "labels stand still; what is left in `other` is not coherent"


def test_a_tree_is_induced_from_nothing() -> None:
    stems = ("one", "two", "three", "four", "five")
    texts, classes = log(stems)
    evolved = grown(texts, None)
    labels = np.array(evolved.annotation.labels)
    for leaf in evolved.tree.leaves:
        assert max(held(evolved, classes, stem, {leaf.id})[1] for stem in stems) > 0.95
    assert np.mean([label.endswith("other") for label in labels]) < 0.05


@pytest.mark.parametrize("seed", range(3))
def test_noise_has_no_class(seed: int) -> None:
    """Negative control: given vectors without structure (drawn, or a log's with every column shuffled), then nothing is coherent."""
    rng = np.random.default_rng(seed)
    drawn = rng.normal(size=(600, 64)).astype(np.float32)
    texts, _ = log([*KNOWN, "refund"])
    shuffled = np.stack([rng.permutation(column) for column in bag_of_words(texts).T], axis=1)
    for vectors in (drawn, shuffled):
        unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        assert coherent_groups(unit, shuffled_vectors(unit, len(unit), rng), 20) == []
        evolved = evolve(texts, unit, Scripted(bag_of_words, Corpus(texts)), TREE, EvolveConfig(rounds=2))
        assert {leaf.id for leaf in evolved.tree.leaves} == set(KNOWN)


def test_groups_are_whole_large_enough_and_nearest_first() -> None:
    texts, classes = log(["one", "two"], count=40)
    vectors = bag_of_words([*texts, *(f"alone{number} solitary{number} single{number}" for number in range(15))])
    unrelated = shuffled_vectors(vectors, len(vectors), np.random.default_rng(0))
    groups = coherent_groups(vectors, unrelated, 20)
    assert sorted(len(group.members) for group in groups) == [40, 40]
    assert all(len({classes[row] for row in group.members}) == 1 for group in groups)
    mean = vectors[groups[0].members].mean(axis=0)
    assert np.all(np.diff(vectors[groups[0].members] @ mean) <= 1e-6)
    assert coherent_groups(vectors, unrelated, 41) == []
    assert coherent_groups(vectors[:0], unrelated[:0], 20) == []
    assert [len(group.members) for group in coherent_groups(np.repeat(vectors[:1], 30, axis=0), unrelated[:30], 20)] == [30]
    with pytest.raises(ValueError, match="draw a sample"):
        coherent_groups(np.zeros((MAX_ROWS + 1, 2), np.float32), unrelated, 20)


def test_it_ends_when_labels_stand_still_and_says_so() -> None:
    texts, _ = log(KNOWN)
    evolved = grown(texts, TREE)
    assert evolved.stopped == "labels stand still"
    assert evolved.rounds[-1].agreement >= 0.97
    assert evolved.rounds[-1].other <= 0.03
    assert sum(evolved.counts.values()) == len(texts)
    strange, _ = log([*KNOWN, "refund"])
    assert grown(strange, TREE, rounds=1).stopped == "the limit of 1 rounds was reached"
    lonely = [*texts, *(f"alone{number} solitary{number} single{number}" for number in range(60))]
    left = grown(lonely, TREE)
    assert left.stopped == "labels stand still; what is left in `other` is not coherent"
    assert left.rounds[-1].other > 0.03


def test_what_the_tree_said_is_only_added_to() -> None:
    texts, _ = log([*KNOWN, "refund"])
    after = {node.id: node for node in grown(texts, TREE).tree.nodes}
    for node in TREE.nodes:
        assert after[node.id].examples[: len(node.examples)] == node.examples
        assert after[node.id].model_copy(update={"examples": node.examples}) == node


def test_a_seed_gives_one_tree_in_every_process() -> None:
    texts, _ = log([*KNOWN, "refund"])
    code = "from tests.filters.taxonomy.test_evolve import KNOWN, TREE, grown, log\nprint(grown(log([*KNOWN, 'refund'])[0], TREE).tree.id)"
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join([str(Path.cwd()), *sys.path])}
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert said.stdout.strip() == grown(texts, TREE).tree.id


@pytest.mark.parametrize("seed", range(3))
def test_whatever_the_rows_the_tree_stays_a_tree(seed: int) -> None:
    """Given classes that share most of their words, when a tree is induced and grows, then every row has a label of the tree."""
    rng = np.random.default_rng(seed)
    words = [f"w{number}" for number in range(12)]
    texts = list(dict.fromkeys(" ".join(rng.permutation(words[start : start + 6])[:4]) for start in rng.integers(0, 7, 250)))
    first = grown(texts, None, seed=seed, min_group=5, rounds=3)
    again = grown(texts[::-1], first.tree, seed=seed, min_group=5, rounds=3)
    for evolved in (first, again):
        known = {leaf.id for leaf in evolved.tree.leaves} | {other_of(node.parent) for node in evolved.tree.nodes} | {"other"}
        assert set(evolved.annotation.labels) <= known


def test_no_rows_leave_the_tree_as_it_is() -> None:
    assert grown([], TREE).tree == TREE

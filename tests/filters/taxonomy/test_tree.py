"""The tree as data: what is refused, its id, its YAML form."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filters.taxonomy.built_in import built_in
from filters.taxonomy.tree import Node, Tree, tree_of
from filters.taxonomy.yaml_form import dump, load, parse
from storage.errors import BadInput
from synth.worlds import WITH_LEXICON, WORLDS

SEGMENTS = st.sampled_from(["a", "b", "退货", "x_1"])
TEXTS = st.text(min_size=1, max_size=30).filter(str.strip)


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    """Any tree of up to three levels with any texts."""
    paths = draw(st.sets(st.lists(SEGMENTS, min_size=1, max_size=3).map(".".join), max_size=8))
    ids = {path.rsplit(".", cut)[0] for path in paths for cut in range(3)}
    ids |= {node.rpartition(".")[0] for node in ids} - {""}
    inner = {node.rpartition(".")[0] for node in ids}
    texts = iter(draw(st.lists(TEXTS, min_size=3 * len(ids), max_size=3 * len(ids), unique=True)))
    return tree_of(
        Node(id=node, name=next(texts), description=draw(st.text(max_size=20)))
        if node in inner
        else Node(id=node, examples=(next(texts), next(texts)), cues=(next(texts),))
        for node in ids
    )


@given(trees())
def test_a_tree_that_is_written_and_read_is_the_same(tree: Tree) -> None:
    assert parse(dump(tree)) == tree
    assert parse(dump(tree)).id == tree.id


def test_the_built_in_tree_holds_every_intent_once_and_tells_what_belongs_where() -> None:
    tree = built_in()
    expected = {f"{world}/{name}": intent.leaf for world in WITH_LEXICON for name, intent in WORLDS[world].intents.items()}
    assert tree.leaf_of_intent == expected
    assert [node.id for node in tree.nodes if not node.description] == []
    assert min(len(leaf.examples) for leaf in tree.leaves) >= 8
    assert parse(dump(tree)) == tree


def test_the_built_in_tree_is_the_same_in_every_process() -> None:
    code = "from filters.taxonomy.built_in import built_in; print(built_in().id)"
    environment = {**os.environ, "PYTHONHASHSEED": "77"}
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment, cwd=Path.cwd())
    assert said.stdout.strip() == built_in().id


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("nodes:\n  a.b: {examples: [x]}", "a.b: its parent a is missing; add it"),
        ("nodes:\n  a: {}", "a: a leaf needs examples"),
        ("nodes:\n  a: {examples: [x]}\n  a.b: {examples: [y]}", "a: it has children, so examples"),
        ("nodes:\n  a: {examples: [x]}\n  b: {examples: [x]}", "b: the example 'x' is in a as well"),
        ("nodes:\n  a: {}\n  a.other: {examples: [x]}", "a.other: `other` is below every node anyway"),
        ("nodes:\n  Big: {examples: [x]}", "'Big' is no part of an id"),
        ("nodes:\n  a: {examples: [x]}\n  a: {examples: [y]}", "f.yaml:3: the key 'a' is given twice"),
        ("nodes:\n  a: {examples: x}", "f.yaml:2: a: examples is a list"),
        ("nodes:\n  a:\n    exmples: [x]", "f.yaml:3: a: there is no key 'exmples'"),
        ("nodes:\n  a: {examples: [[x]]}", "a: examples holds something that is no text"),
        ("nodes:\n  a: {examples: [x], intents: [city/nothing]}", "a: there is no intent city/nothing"),
        ("classes: {}", "the one key at the top is `nodes`"),
        ("nodes: [1]", "f.yaml:1: keys with values are wanted"),
        ("nodes: {a: {examples: [x}", "not valid YAML"),
        ("nodes: &n {a: *n}", "f.yaml"),
        ("", "the one key at the top is `nodes`, this has none"),
    ],
)
def test_what_is_no_tree_is_refused_with_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, told: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("f.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(BadInput) as refused:
        load(Path("f.yaml"))
    assert str(refused.value).startswith("f.yaml")
    assert told in str(refused.value)


def test_a_file_that_is_not_there_or_not_utf8_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        load(tmp_path / "none.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"nodes: {a: {name: \xe9}}")
    with pytest.raises(BadInput, match="not UTF-8 at byte"):
        load(tmp_path / "latin.yaml")


def test_a_tree_without_a_class_has_none_of_its_leaves() -> None:
    less = built_in().without("retail")
    assert {leaf.id.split(".")[0] for leaf in built_in().leaves} - {leaf.id.split(".")[0] for leaf in less.leaves} == {"retail"}
    assert less.id != built_in().id

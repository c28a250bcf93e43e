"""Grows a tree with the rows that it labels: annotate, add examples, make classes of coherent groups in `other`, annotate again.

A round has four steps. (1) Draw seeds: rows of every label, a third of them the least certain. (2) Leaves get rows with a high confidence
as further examples. (3) If the `other` of an inner node has more than `expand_share` of the node's rows, its coherent groups become classes
below the node, and groups of one family get a common parent; but if the annotator assigns the mean of a group to a leaf, the leaf gets its
rows as examples. (4) Annotate all rows again.

Rounds end when `min_agreement` of the seeds keep their label, and `other` has at most `max_other` of the rows or gives no more classes.
Without a tree, all rows start in `other`, and the first round induces one. The given tree is only extended, never changed.

Source: STAgent (2512.24957), seed-driven taxonomy evolution; thresholds by this project. Annotators: `annotate.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from filters.frames.numba_types import I64
from filters.taxonomy.annotate import Annotation, Annotator, Proposal, is_other
from filters.taxonomy.groups import MAX_ROWS, Group, coherent_groups, shuffled_vectors
from filters.taxonomy.tree import MAX_DEPTH, MAX_EXAMPLES, MAX_TEXT, OTHER, Node, Tree, other_of, tree_of
from storage.execution import Progress
from synth.engines.encoder import Vectors

_TAKEN, _BORN_WITH = 12, 24
"""Examples that a leaf gets from the rows; examples of a new leaf."""
_SURE = 0.8
_UNSURE_SHARE = 1 / 3
_NAMED_BY = 200


class EvolveConfig(BaseModel):
    """When a tree is good enough, and what makes a class."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seed: int = Field(0, ge=0, description="Of everything that is drawn.")
    seeds: int = Field(600, ge=10, description="Rows on which two rounds are compared.")
    rounds: int = Field(10, ge=1, le=100, description="Rounds at most.")
    min_agreement: float = Field(0.97, gt=0, le=1, description="Share of the seeds that keep their label, for the tree to stand still.")
    max_other: float = Field(0.03, ge=0, le=1, description="Share of the rows labelled `other` (at any node) that is good enough.")
    expand_share: float = Field(0.05, ge=0, le=1, description="A node is expanded where its `other` holds more than this of its rows.")
    min_group: int = Field(20, ge=2, description="Rows that a coherent group has at least.")


@dataclass(frozen=True)
class Round:
    """The result of one round.

    agreement: share of the seeds that kept their label, 0..1.
    other: share of all rows labelled `other`.
    added: ids of new leaves.
    merged: leaves that got a group as examples.
    """

    agreement: float
    other: float
    added: tuple[str, ...]
    merged: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Evolved:
    """tree: the tree after the last round. annotation: of all rows, by this tree. stopped: why the rounds ended."""

    tree: Tree
    annotation: Annotation
    rounds: tuple[Round, ...]
    stopped: str

    @property
    def counts(self) -> dict[str, int]:
        """Rows by label."""
        return dict(sorted(Counter(self.annotation.labels).items()))


def evolve(
    texts: Sequence[str],
    vectors: Vectors,
    annotator: Annotator,
    tree: Tree | None = None,
    config: EvolveConfig | None = None,
    *,
    progress: Progress | None = None,
) -> Evolved:
    """A tree that fits the rows.

    Args:
        texts: distinct normalised texts. vectors: their unit rows [n, d]. tree: what to begin with; None: nothing, a tree is induced.
    """
    config = config or EvolveConfig()
    growth = _Growth(texts, vectors, annotator, tree or Tree(()), config)
    rounds: list[Round] = []
    stopped = f"the limit of {config.rounds} rounds was reached"
    for number in range(config.rounds):
        rounds.append(growth.round())
        if progress is not None:
            progress("taxonomy", number + 1, config.rounds)
        last = rounds[-1]
        if last.agreement >= config.min_agreement and (last.other <= config.max_other or not (last.added or last.merged)):
            enough = last.other <= config.max_other
            stopped = "labels stand still" if enough else "labels stand still; what is left in `other` is not coherent"
            break
    return Evolved(growth.tree, growth.now, tuple(rounds), stopped)


class _Growth:
    """The tree so far, and its annotation of all rows.

    order: rows in the order of preference for seeds and examples.
    own: leaf -> examples that it always keeps: those of the given tree and of merged groups.
    born: new leaf -> the node whose `other` it came from.
    barren: nodes whose new leaves all got no rows; they are not expanded again.
    """

    def __init__(self, texts: Sequence[str], vectors: Vectors, annotator: Annotator, base: Tree, config: EvolveConfig) -> None:
        self.texts, self.vectors, self.annotator, self.config = texts, vectors, annotator, config
        self.tree = base
        self.kept = {node.id for node in base.nodes}
        self.own = {leaf.id: leaf.examples for leaf in base.leaves}
        self.born: dict[str, str] = {}
        self.barren: set[str] = set()
        self.rng = np.random.default_rng(config.seed)
        self.order: I64 = self.rng.permutation(len(texts))
        self.now = annotator.annotate(texts, vectors, base)

    def round(self) -> Round:
        seeds = self._seeds()
        grown, added, merged = self._grow(self._update_examples())
        after = self.annotator.annotate(self.texts, self.vectors, grown)
        unchanged = [after.labels[row] == self.now.labels[row] for row in seeds.tolist()]
        self.tree, self.now = grown, after
        other = sum(map(is_other, after.labels)) / max(len(self.texts), 1)
        return Round(float(np.mean(unchanged)) if unchanged else 1.0, other, tuple(added), tuple(merged))

    def _rows_by_label(self) -> dict[str, I64]:
        """Rows in the preferred order, by label."""
        by_label: dict[str, list[int]] = {}
        for row in self.order.tolist():
            by_label.setdefault(self.now.labels[row], []).append(row)
        return {label: np.array(by_label[label], np.int64) for label in sorted(by_label)}

    def _seeds(self) -> I64:
        """Rows of every label in equal shares as far as there are so many, a third of each the least sure."""
        by_label = self._rows_by_label()
        share = -(-self.config.seeds // max(len(by_label), 1))
        seeds = []
        for rows in by_label.values():
            unsure = rows[np.argsort(self.now.confidence[rows], kind="stable")][: round(share * _UNSURE_SHARE)]
            seeds.append(np.concatenate([unsure, rows[~np.isin(rows, unsure)][: share - len(unsure)]]))
        return np.concatenate(seeds) if seeds else np.zeros(0, np.int64)

    def _update_examples(self) -> dict[str, Node]:
        """The nodes by id: leaves get rows with a high confidence as examples; new leaves without rows are removed."""
        nodes = {node.id: node for node in self.tree.nodes}
        by_label = self._rows_by_label()
        used_texts = {text for examples in self.own.values() for text in examples}
        left: set[str] = set()
        for leaf in self.tree.leaves:
            rows = by_label.get(leaf.id, np.zeros(0, np.int64))
            own_examples = self.own.get(leaf.id, ())
            room = min(_TAKEN, MAX_EXAMPLES - len(own_examples)) if own_examples else _BORN_WITH
            sure = (self.texts[row] for row in rows[self.now.confidence[rows] >= _SURE].tolist())
            fed_back = [text for text in sure if text not in used_texts and len(text) <= MAX_TEXT][:room]
            if not own_examples and len(fed_back) < _BORN_WITH // 2:
                fed_back = [text for text in leaf.examples if text not in used_texts]
            used_texts.update(fed_back)
            nodes[leaf.id] = leaf.model_copy(update={"examples": (*own_examples, *fed_back)})
            if leaf.id in self.born and len(rows) < self.config.min_group // 2:
                left.add(self.born.pop(leaf.id))
                del nodes[leaf.id]
                self._prune(leaf.parent, nodes)
        self.barren |= left - set(self.born.values())
        return nodes

    def _prune(self, place: str, nodes: dict[str, Node]) -> None:
        """Removes a new inner node without children, and then its parents likewise."""
        while place and place not in self.kept and not any(node.parent == place for node in nodes.values()):
            place = nodes.pop(place).parent

    def _grow(self, nodes: dict[str, Node]) -> tuple[Tree, list[str], list[str]]:
        """The tree with classes for coherent groups in an `other`; the new leaves; the leaves that got a group as examples."""
        added: list[str] = []
        merged: list[str] = []
        by_label = self._rows_by_label()
        inner = sorted({node.parent for node in nodes.values()} | {""})
        for place in inner:
            rows = by_label.get(other_of(place), np.zeros(0, np.int64))
            all_here = sum(len(rows_of_label) for label, rows_of_label in by_label.items() if not place or label.startswith(f"{place}."))
            if place in self.barren or len(rows) <= self.config.expand_share * all_here or place.count(".") >= MAX_DEPTH - 2:
                continue
            pool = np.sort(rows[:MAX_ROWS])
            groups = coherent_groups(self.vectors[pool], shuffled_vectors(self.vectors, len(pool), self.rng), self.config.min_group)
            fresh = [group for group in groups if not self._merge(pool, group, nodes, merged)]
            created = self._make(place, pool, fresh, nodes)
            self.born |= dict.fromkeys(created, place)
            added += created
        return tree_of(nodes.values()), added, merged

    def _merge(self, pool: I64, group: Group, nodes: dict[str, Node], merged: list[str]) -> bool:
        """Whether the group belongs to an existing leaf; if so, the leaf gets its rows as examples."""
        members = pool[group.members]
        mean = self.vectors[members].mean(axis=0, keepdims=True)
        label = self.annotator.annotate([self.texts[members[0]]], mean / max(float(np.linalg.norm(mean)), 1e-12), self.tree).labels[0]
        if label not in nodes:
            return False
        leaf = nodes[label]
        room = min(_TAKEN, MAX_EXAMPLES - len(leaf.examples))
        fresh = self._examples(members, nodes)[: max(room, 0)]
        if fresh:
            self.own[label] = (*self.own.get(label, leaf.examples), *fresh)
            nodes[label] = leaf.model_copy(update={"examples": (*leaf.examples, *fresh)})
            merged.append(label)
        return True

    def _make(self, place: str, pool: I64, groups: Sequence[Group], nodes: dict[str, Node]) -> list[str]:
        """New leaves below a node; groups of one family get a parent of their own."""
        families: dict[int, list[tuple[I64, tuple[str, ...]]]] = {}
        for group in groups:
            if examples := self._examples(pool[group.members], nodes):
                families.setdefault(group.family, []).append((pool[group.members], examples))
        added: list[str] = []
        for family in families.values():
            parent = place
            if len(family) > 1:
                proposal = self._proposal(np.concatenate([members for members, _ in family]))
                parent = _free_id(place, proposal.name, nodes)
                nodes[parent] = Node(id=parent, name=proposal.name, description=proposal.description)
            for members, examples in family:
                proposal = self._proposal(members)
                leaf = _free_id(parent, proposal.name, nodes)
                nodes[leaf] = Node(id=leaf, name=proposal.name, description=proposal.description, examples=examples, cues=proposal.cues)
                added.append(leaf)
        return added

    def _proposal(self, rows: I64) -> Proposal:
        return self.annotator.propose([self.texts[row] for row in rows[_spread(len(rows), _NAMED_BY)].tolist()])

    def _examples(self, members: I64, nodes: dict[str, Node]) -> tuple[str, ...]:
        """Texts from the middle of a group to its edge that no leaf has yet."""
        used_texts = {text for node in nodes.values() for text in node.examples}
        free = [text for row in members.tolist() if (text := self.texts[row]) not in used_texts and len(text) <= MAX_TEXT]
        return tuple(free[number] for number in _spread(len(free), _BORN_WITH).tolist())


def _spread(count: int, limit: int) -> I64:
    """Up to `limit` places of `count`, evenly."""
    return np.unique(np.linspace(0, count - 1, min(count, limit)).round().astype(np.int64)) if count else np.zeros(0, np.int64)


def _free_id(parent: str, name: str, nodes: dict[str, Node]) -> str:
    """An id below `parent` that no node has, from the first two words of a name."""
    words = "".join(letter if letter.isalnum() else " " for letter in name.lower()).split()[:2]
    stem = "_".join(words) if words and words != [OTHER] else "group"
    base_id = f"{parent}.{stem}" if parent else stem
    number = 2
    free_id = base_id
    while free_id in nodes:
        free_id, number = f"{base_id}_{number}", number + 1
    return free_id

"""Annotators put rows into classes of a tree: the interface, and a scripted annotator with rules and vectors.

An annotator gives every row a node of the tree and a confidence; a row that fits no node gets an open label in free words. It also names
groups. A language model (`model_annotator.py`) has the same two methods.
The scripted annotator multiplies the odds of prototypes (`prototypes.py`) and of cues (words of a node, and the grounding rules of intents:
`CUE_FACTOR` each). It goes down the tree while a node has a probability of at least one half; a row that stops at an inner node is labelled
`other` there. Its open labels and names are salient terms (`salient_terms.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
import polars as pl

from filters.frames.numba_types import I64
from filters.grounding.ground import nearest_leaves
from filters.lexicon_worlds import lexicon_worlds
from filters.normalised_text import languages, normalise_text
from filters.taxonomy import prototypes
from filters.taxonomy.prototypes import Prototypes, Reals
from filters.taxonomy.salient_terms import Corpus
from filters.taxonomy.tree import OTHER, Tree, ancestors, is_below, other_of
from synth.engines.encoder import Encode, Vectors

CUE_FACTOR = 10.0
"""How much likelier a cue makes a leaf."""
_LIKELY = 0.5
_TERMS = 3
_CUE_SHARE, _CUE_LIFT = 0.5, 10.0
"""A term becomes a cue of a group if this share of its texts has it, and so many times the corpus's."""


@dataclass(frozen=True, eq=False)
class Annotation:
    """The labels of some rows.

    labels: id of a leaf, or the `other` of an inner node.
    confidence: probability that the label is right, 0..1.
    open_labels: the topic of a row labelled `other`, in free words; None for other rows.
    """

    labels: list[str]
    confidence: Reals
    open_labels: list[str | None]


@dataclass(frozen=True)
class Proposal:
    """Name and description of a group, and words that speak for it."""

    name: str
    description: str
    cues: tuple[str, ...]


class Annotator(Protocol):
    """Texts are normalised; vectors are their unit rows [n, d]. The same question gets the same answer."""

    def annotate(self, texts: Sequence[str], vectors: Vectors, tree: Tree) -> Annotation: ...

    def propose(self, texts: Sequence[str]) -> Proposal: ...


class Scripted:
    """An annotator with rules and vectors.

    encode: the encoder of the rows' vectors.
    corpus: texts with whose terms the terms of a group are compared.
    """

    def __init__(self, encode: Encode, corpus: Corpus) -> None:
        self._encode, self._corpus = encode, corpus
        self._vectors: dict[str, Vectors] = {}
        self._prototypes = lru_cache(maxsize=1)(self._fit)

    def annotate(self, texts: Sequence[str], vectors: Vectors, tree: Tree) -> Annotation:
        labels, confidence = self.classify(texts, vectors, tree)
        strange = (self._corpus.salient([text], _TERMS) if is_other(label) else None for text, label in zip(texts, labels, strict=True))
        return Annotation(labels, confidence, [" ".join(terms) if terms else None for terms in strange])

    def propose(self, texts: Sequence[str]) -> Proposal:
        terms = self._corpus.salient(texts, _TERMS)
        cues = self._corpus.frequent_terms(texts, _CUE_SHARE, _CUE_LIFT)[:_TERMS]
        return Proposal(" ".join(terms) or "unnamed", f"Texts that share: {', '.join(self._corpus.salient(texts, 8))}", tuple(cues))

    def classify(self, texts: Sequence[str], vectors: Vectors, tree: Tree) -> tuple[list[str], Reals]:
        """`annotate` without open labels."""
        if not tree.leaves or not len(texts):
            return [OTHER] * len(texts), np.ones(len(texts))
        probabilities = self._prototypes(tree).probabilities(vectors, math.log(CUE_FACTOR) * _cues(texts, tree))
        return _descend(probabilities, tree)

    def _fit(self, tree: Tree) -> Prototypes:
        examples = {text: None for leaf in tree.leaves for text in leaf.texts if text not in self._vectors}
        fresh = pl.DataFrame({"text": list(examples)}, schema={"text": pl.String})
        encoded = self._encode(fresh.select(normalise_text(pl.col("text"))).to_series().to_list())
        self._vectors.update(zip(examples, encoded, strict=True))
        leaf_of_text = np.repeat(np.arange(len(tree.leaves)), [len(leaf.texts) for leaf in tree.leaves])
        classes = [leaf.id.split(".")[0] for leaf in tree.leaves]
        tops = np.unique(classes, return_inverse=True)[1].astype(np.int64)
        return prototypes.fit(np.stack([self._vectors[text] for leaf in tree.leaves for text in leaf.texts]), leaf_of_text, tops)


def is_other(label: str) -> bool:
    """Whether a label is the `other` of some node."""
    return label.rpartition(".")[2] == OTHER


def _cues(texts: Sequence[str], tree: Tree) -> Reals:
    """How many kinds of cues (a node's words, the worlds' rules) speak for each leaf, [n, leaves]."""
    counts = np.zeros((len(texts), len(tree.leaves)))
    norm = pl.Series("norm", texts, dtype=pl.String)
    padded = " " + norm.str.replace_all(r"[^\w]+", " ") + " "
    place = {leaf.id: number for number, leaf in enumerate(tree.leaves)}
    for leaf in tree.leaves:
        if leaf.cues:
            words = [f" {cue} " if cue.isascii() else cue for cue in (cue.lower() for cue in leaf.cues)]
            counts[:, place[leaf.id]] += padded.str.contains_any(words).to_numpy()
    if tree.leaf_of_intent:
        labels = nearest_leaves(norm.to_frame().with_columns(language=languages(norm)), tree.leaf_of_intent, lexicon_worlds())
        rows = np.array([row for row, leaf in enumerate(labels) if leaf is not None], np.int64)
        counts[rows, [place[leaf] for leaf in labels if leaf is not None]] += 1
    return counts


def _descend(probabilities: Reals, tree: Tree) -> tuple[list[str], Reals]:
    """The deepest likely node on the path to each row's most likely leaf, and the confidence: the probability of the leaf, or for an
    `other` the probability of its node less that of the next node on the path."""
    below = {node.id: np.array([is_below(leaf.id, node.id) for leaf in tree.leaves]) for node in tree.nodes}
    best: I64 = probabilities.argmax(axis=1)
    labels = np.full(len(probabilities), OTHER, dtype=object)
    confidence = np.ones(len(probabilities))
    for number, leaf in enumerate(tree.leaves):
        rows = np.flatnonzero(best == number)
        reached = np.ones(len(rows))
        is_open = np.ones(len(rows), bool)
        for node in ancestors(leaf.id):
            likely = probabilities[np.ix_(rows, np.flatnonzero(below[node]))].sum(axis=1)
            stops = is_open & (likely < _LIKELY)
            confidence[rows[stops]] = reached[stops] - likely[stops]
            is_open &= ~stops
            labels[rows[is_open]] = node if node == leaf.id else other_of(node)
            reached = likely
        confidence[rows[is_open]] = reached[is_open]
    return labels.tolist(), confidence

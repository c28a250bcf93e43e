"""Topics: groups of patterns that ask for the same kind of thing, and the order in which rows of a topic are kept.

One idea: what is common in a log is common in few wordings. So patterns count, not rows: near duplicates among patterns are one
(`filters/dedup/near.py`), and the others are joined by average linkage over their vectors, cut halfway between the nearness of any two
and that of neighbours (`filters/taxonomy/groups.py`). A topic's name is its salient terms, in the order of a text of it.

Inside a topic rows come from all its parts in turn (k-means that begins with k-center), the most demanding row of each part first.

What it does not do: choose how many rows of a topic are kept (`filters/steps/selection/coverage.py`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
import polars as pl

from filters.dedup import near
from filters.frames.numba_types import I64
from filters.taxonomy.groups import partition
from filters.taxonomy.salient_terms import Corpus
from synth.engines.encoder import Encode, Vectors

_SAME = near.NearConfig(protect=())
_GROUPED = 3_000
"""Patterns that are grouped at most: among more of them neighbours are nearer, and topics would be finer."""
_MAX_TERMS, _MAX_CANDIDATES = 3, 12
_FUNCTION_WORDS = frozenset(
    re.split(
        "[ \n]+",
        """the and for but not you your our his her its their this that these those there here with without from into onto under over than
then are was were been being has have had having does did doing done can could may might must shall should will would who whom whose which
what when where why how all any both each few more most other some such only own same too very just also please out off down again because
while until about against between during before after above below get got let like want need know tell help yet now
一个 一下 这个 那个 什么 怎么 怎样 如何 可以 能否 是否 我想 我要 帮我 请帮 请问 有没 没有 我的 你们 我们 为什 么办 的吗""",
    )
)
"""Words that say nothing of what is asked."""
_ROUNDS = 5


def find_topics(patterns: Sequence[str], encode: Encode) -> tuple[list[str], Vectors]:
    """The topic of each pattern, and its vector [n, d], unit rows; near duplicates have the vector of the first of them.

    patterns: distinct.
    """
    texts = pl.DataFrame({"row": pl.int_range(len(patterns), dtype=pl.UInt32, eager=True), "norm": pl.Series(patterns, dtype=pl.String)})
    repeats = near.step(texts, _SAME)
    kept = repeats["reason"].is_null()
    first = np.zeros(len(patterns), np.int64)
    first[kept.arg_true().to_numpy()] = np.arange(int(kept.sum()))
    representative: I64 = first[repeats.select(pl.coalesce("duplicate_of", "row")).to_series().to_numpy()]
    distinct = texts["norm"].filter(kept).to_list()
    vectors = encode(distinct)
    topic_of = _group(vectors)
    names = _name(distinct, topic_of)
    return [names[number] for number in topic_of[representative]], vectors[representative]


def _group(vectors: Vectors) -> I64:
    """The number of each row's topic. Of too many rows a part is grouped, and the others join the group with the nearest mean."""
    if len(vectors) <= _GROUPED:
        return partition(vectors)
    drawn = np.linspace(0, len(vectors) - 1, _GROUPED).astype(np.int64)
    groups = partition(vectors[drawn])
    means = np.stack([vectors[drawn[groups == number]].mean(axis=0) for number in range(groups.max() + 1)])
    joined: I64 = (vectors @ _unit(means).T).argmax(axis=1)
    joined[drawn] = groups
    return joined


def _name(texts: Sequence[str], topic_of: I64) -> list[str]:
    """A name for each topic, no two the same: its salient terms that other texts have too, else its first text."""
    corpus, names = Corpus(texts), list[str]()
    for number in range(int(topic_of.max(initial=-1)) + 1):
        members = [texts[place] for place in np.flatnonzero(topic_of == number).tolist()]
        names.append(_terms(corpus, members) or members[0] or "no words")
    times = Counter[str]()
    for place, name in enumerate(names):
        times[name] += 1
        names[place] = name if times[name] == 1 else f"{name} ({times[name]})"
    return names


def _terms(corpus: Corpus, members: Sequence[str]) -> str:
    """Up to three salient terms in the order of the first text that has most of them. A term in one text only may be a slip, so it counts
    only where there are not two others, and most members have it."""
    salient = [term for term in corpus.salient(members, _MAX_CANDIDATES) if term not in _FUNCTION_WORDS]
    shared = [term for term in salient if corpus.counts[term] > 1][:_MAX_TERMS]
    common = [term for term in salient if term not in shared and 2 * sum(term in text for text in members) > len(members)]
    chosen = shared if len(shared) > 1 else [*shared, *common][:2]
    typical = max(members, key=lambda text: sum(term in text for term in chosen))
    return " ".join(sorted(chosen, key=lambda term: (typical.find(term) % (len(typical) + 1), term)))


def order_rows(vectors: Vectors, demand: Sequence[float], centres: I64) -> I64:
    """The places of a topic's rows in the order in which they are kept: the most demanding row of each part, then the second of each.

    Args:
        vectors: unit rows [n, d]. demand: of each row; of equal ones the earlier row comes first. centres: places of the rows that the
        parts begin with; the part of the first comes first.
    """
    means = vectors[centres]
    for _ in range(_ROUNDS):
        part: I64 = (vectors @ means.T).argmax(axis=1)
        means = np.stack(
            [vectors[part == number].mean(axis=0) if (part == number).any() else means[number] for number in range(len(centres))]
        )
        means = _unit(means)
    inside = pl.DataFrame({"part": part, "demand": demand}).with_row_index("place").sort("demand", "place", descending=[True, False])
    ordered: I64 = inside.sort(pl.int_range(pl.len()).over("part"), "part", maintain_order=True)["place"].to_numpy().astype(np.int64)
    return ordered


def _unit(vectors: Vectors) -> Vectors:
    out: Vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.float32(1e-12))
    return out

"""Salient terms of a group of texts, by class-based TF-IDF (as BERTopic names its topics).

A term is a Latin word of three letters or more, or two Chinese characters that stand side by side; its weight in a group is its share of
the group's texts times the logarithm of how much rarer it is in the corpus. It finds words, not concepts.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

_WORDS = re.compile(r"[^\W\d_]{3,}")
_HAN = re.compile(r"[㐀-鿿]+")


def terms_of(text: str) -> set[str]:
    """The distinct terms of a normalised text."""
    pairs = {left + right for run in _HAN.findall(text) for left, right in pairwise(run)}
    return pairs | set(_WORDS.findall(_HAN.sub(" ", text)))


class Corpus:
    """The number of texts that contain each term."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.size = 0
        self.counts: Counter[str] = Counter()
        for text in texts:
            self.size += 1
            self.counts.update(terms_of(text))

    def salient(self, texts: Sequence[str], limit: int) -> list[str]:
        """Up to `limit` terms of a group, the most salient first; of Chinese terms that overlap (退货 货单) only the first."""
        inside = Corpus(texts).counts
        terms: list[str] = []
        for term in sorted(inside, key=lambda term: (-self._weight(inside[term] / len(texts), term), term)):
            if self._weight(inside[term] / len(texts), term) <= 0 or len(terms) == limit:
                break
            if not any(_overlap(term, other) for other in terms):
                terms.append(term)
        return terms

    def frequent_terms(self, texts: Sequence[str], share: float, lift: float) -> list[str]:
        """Terms that at least this share of a group's texts have, and `lift` times the corpus's share; the commonest first."""
        inside = Corpus(texts).counts
        marks = [
            term
            for term, count in inside.items()
            if count >= share * len(texts) and count / len(texts) >= lift * self.counts[term] / max(self.size, 1)
        ]
        return sorted(marks, key=lambda term: (-inside[term], term))

    def _weight(self, share: float, term: str) -> float:
        return share * math.log(share * (self.size + 1) / (self.counts[term] + 1))


def _overlap(term: str, other: str) -> bool:
    return not term.isascii() and (term[0] == other[-1] or term[-1] == other[0])

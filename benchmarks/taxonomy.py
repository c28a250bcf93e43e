"""Figures of the taxonomy's evolution: recovery of a class that was removed from the tree, rejection of noise, accuracy of labels.

One idea: the intent of every row of a generated log is known, so the result of the loop can be scored. The tree is the built-in one without
one top class: `retail`, which is similar to no other class, and `discovery`, whose rows are similar to those of planning a
route. Rows: 5,000 of a log of 20,000 that pass the rules; means of three seeds. The templates of the log's wordings are those of the tree's
examples: figures are high for known classes, and do not apply to other wordings.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchmarks.harness import Deadline, Section, run_sections
from filters import normalised_text
from filters.grounding import ground
from filters.lexicon_worlds import lexicon_worlds
from filters.step import alive
from filters.steps import rules
from filters.steps.rules import RulesConfig
from filters.taxonomy.annotate import Scripted, is_other
from filters.taxonomy.built_in import built_in
from filters.taxonomy.evolve import EvolveConfig, Evolved, evolve
from filters.taxonomy.groups import shuffled_vectors
from filters.taxonomy.label import by_vectors, step
from filters.taxonomy.salient_terms import Corpus
from filters.taxonomy.tree import is_below
from synth.engines.encoder import Vectors, encode
from synth.haystack.generate import HaystackConfig, generate
from synth.worlds import WITH_LEXICON, WORLDS

SEEDS, ROWS, LOG_ROWS = (1, 2, 3), 5_000, 20_000
Texts = NDArray[np.str_]


@dataclass(frozen=True, eq=False)
class Log:
    """rows: row, norm, language, intent (world/intent, empty for junk), leaf (empty for junk); vectors of norm."""

    rows: pl.DataFrame
    vectors: Vectors

    @property
    def leaves(self) -> Texts:
        return self.rows["leaf"].to_numpy().astype(np.str_)

    @property
    def intents(self) -> Texts:
        return self.rows["intent"].to_numpy().astype(np.str_)


def drawn_log(seed: int) -> Log:
    leaf_of = {f"{world}/{name}": intent.leaf for world in WITH_LEXICON for name, intent in WORLDS[world].intents.items()}
    with tempfile.TemporaryDirectory() as folder:
        queries, plants = generate(Path(folder), HaystackConfig(rows=LOG_ROWS, seed=seed), 60)
        planted = pl.read_parquet(plants).select(intent=pl.concat_str("world", "intent", separator="/").fill_null(""))
        rows = pl.read_parquet(queries).with_row_index("row").hstack(planted)
    sifted = alive(rules.step(alive(normalised_text.step(rows)), RulesConfig())).unique("norm", keep="first", maintain_order=True)
    chosen = sifted.sample(ROWS, seed=seed).sort("row").select("row", "norm", "language", "intent")
    told = chosen.with_columns(leaf=pl.col("intent").replace_strict(leaf_of, default=""))
    return Log(told, encode(told["norm"].to_list()))


def evolved_without(log: Log, top: str, vectors: Vectors, seed: int) -> Evolved:
    texts = log.rows["norm"].to_list()
    return evolve(texts, vectors, Scripted(encode, Corpus(texts)), built_in().without(top), EvolveConfig(seed=seed))


def removed(top: str, seed: int) -> list[float]:
    """Purity and recall of the class in the new leaves that are mostly of it, ARI of these with the planted intents, share of the other
    classes' rows that have their own leaf, rounds."""
    log = drawn_log(seed)
    evolved = evolved_without(log, top, log.vectors, seed)
    labels = np.array(evolved.annotation.labels)
    known = {leaf.id for leaf in built_in().leaves}
    is_mine = np.array([is_below(leaf, top) for leaf in log.leaves])
    new = [leaf.id for leaf in evolved.tree.leaves if leaf.id not in known and (labels == leaf.id).any()]
    found = np.isin(labels, [leaf for leaf in new if is_mine[labels == leaf].mean() >= 0.5])
    hits, others = found & is_mine, ~is_mine & (log.leaves != "")
    purity = float(is_mine[found].mean()) if found.any() else 0.0
    right = float((labels == log.leaves)[others].mean())
    return [purity, float(hits.sum() / is_mine.sum()), adjusted_rand(labels[hits], log.intents[hits]), right, float(len(evolved.rounds))]


def adjusted_rand(left: Texts, right: Texts) -> float:
    """Agreement of two labellings beyond chance: 1 equal, 0 as by chance (Hubert and Arabie, 1985)."""
    table, _, _ = np.histogram2d(
        *(np.unique(each, return_inverse=True)[1] for each in (left, right)), bins=[len(set(left)), len(set(right))]
    )

    def pairs(counts: NDArray[np.float64]) -> float:
        return float((counts * (counts - 1) / 2).sum())

    both, rows, columns = pairs(table), pairs(table.sum(axis=1)), pairs(table.sum(axis=0))
    chance = rows * columns / max(pairs(np.array([float(len(left))])), 1.0)
    most = (rows + columns) / 2
    return (both - chance) / (most - chance) if most > chance else 0.0


def class_section(name: str, top: str) -> Section:
    keys = tuple(f"{name}_{what}" for what in ("purity", "recall", "ari_intents", "known_right", "rounds"))
    return Section(
        f"the class {top}, taken out",
        keys,
        lambda deadline: dict(zip(keys, np.mean([removed(top, seed) for seed in SEEDS], axis=0).tolist(), strict=True)),
        minutes=12,
    )


def noise(_: Deadline) -> Mapping[str, float]:
    """New leaves, and the share that keeps out of the known ones, where the same rows have vectors with every column shuffled."""
    log = drawn_log(SEEDS[0])
    evolved = evolved_without(log, "retail", shuffled_vectors(log.vectors, len(log.vectors), np.random.default_rng(0)), 0)
    before = {leaf.id for leaf in built_in().leaves}
    return {
        "noise_new_leaves": sum(leaf.id not in before for leaf in evolved.tree.leaves),
        "noise_other": float(np.mean([is_other(label) for label in evolved.annotation.labels])),
    }


def ungrounded(_: Deadline) -> Mapping[str, float]:
    """Of the rows that no world can execute: share with their own leaf, and share of junk with any leaf, by rules alone and by vectors."""
    logs = [drawn_log(seed) for seed in SEEDS]
    log = Log(pl.concat([each.rows for each in logs]), np.concatenate([each.vectors for each in logs]))
    grounded = ground.step(log.rows.drop("intent", "leaf"), lexicon_worlds(), ungrounded=True).drop("reason")
    strange = grounded["intent"].is_null()
    rows, truth = grounded.filter(strange), log.leaves[strange.to_numpy()]
    told = {"rules": step(rows), "vectors": by_vectors(rows, log.vectors[strange.to_numpy()], built_in(), encode)}
    figures: dict[str, float] = {"ungrounded_rows": len(rows), "ungrounded_junk": int((truth == "").sum())}
    for name, labelled in told.items():
        labels = labelled["leaf"].to_numpy().astype(np.str_)
        has_leaf = np.array([not is_other(label) for label in labels])
        figures[f"{name}_right"] = float((labels == truth)[truth != ""].mean())
        figures[f"{name}_junk_labelled"] = float(has_leaf[truth == ""].mean())
    return figures


SECTIONS = [
    class_section("far", "retail"),
    class_section("near", "discovery"),
    Section("vectors without structure", ("noise_new_leaves", "noise_other"), noise, minutes=3),
    Section(
        "rows that no world can execute",
        ("ungrounded_rows", "ungrounded_junk", "rules_right", "rules_junk_labelled", "vectors_right", "vectors_junk_labelled"),
        ungrounded,
        minutes=5,
    ),
]


if __name__ == "__main__":
    sys.exit(run_sections("taxonomy", SECTIONS))

"""The taxonomy: a tree of what people ask for, with a forced `other` at every node, and each row's leaf in it.

One idea: worlds declare a leaf for each of their intents, so the tree is theirs (5 classes, 16 groups and 30 leaves of spatio-temporal
queries after STAgent, the shop's beside them), and a row's label follows from the one reading that grounding makes: its intent's leaf.
A row that no world understands is `other` at the root; one whose intent is known but cannot be executed keeps its leaf.
The slots that a row states are its constraint labels; they stand in its combination.

What it does not do: evolve the tree, or read text a second time.
"""

from __future__ import annotations

from functools import cache

import polars as pl

from synth.worlds import WORLDS

VERSION = 1
OTHER = "other"


@cache
def tree() -> dict[str, tuple[str, ...]]:
    """Node -> its children, as dotted names; the root is "". Every inner node ends with its `other`."""
    children: dict[str, dict[str, None]] = {}
    for world in WORLDS.values():
        for intent in world.intents.values():
            parts = intent.leaf.split(".")
            for depth in range(len(parts)):
                children.setdefault(".".join(parts[:depth]), {})[".".join(parts[: depth + 1])] = None
    return {node: (*found, f"{node}.{OTHER}".lstrip(".")) for node, found in sorted(children.items())}


@cache
def _leaves() -> pl.DataFrame:
    rows = [(name, intent.name, intent.leaf) for name, world in WORLDS.items() for intent in world.intents.values()]
    return pl.DataFrame(rows, schema={"world": pl.String, "intent": pl.String, "leaf": pl.String}, orient="row")


def step(rows: pl.DataFrame) -> pl.DataFrame:
    """The batch step: adds leaf (dotted; `other` where no intent was read) to rows with world and intent; drops nothing."""
    labelled = rows.join(_leaves(), on=["world", "intent"], how="left", maintain_order="left")
    return labelled.with_columns(leaf=pl.col("leaf").fill_null(OTHER), reason=pl.lit(None, pl.String))

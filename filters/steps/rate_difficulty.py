"""Static difficulty of every row, by combination of intent and slot names (`synth/tasks/difficulty.py` holds the definition, P6).

A rating depends on the combination and on whether the text names a tool of the plan. So each combination is rated twice at most, and the
texts are searched once for each set of tool words. A tool load judged by a model (`tool_load.py`) replaces the counted one.
A row that no world reads has no plan; it is rated by cues in its words (`filters/requests/cues.py`). `difficulty_by` tells them apart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import polars as pl

from filters.requests.cues import SCORES, rate_by_cues
from filters.step import BatchStep
from storage.records import parse_arguments
from synth.tasks.difficulty import rate, tool_words, with_tool_load
from synth.worlds import WORLDS

TOOL_LOAD = "tool_load"
"""Name of the survey whose grades replace the counted tool load."""
PLAN, CUES = "plan", "cues"
"""What a rating was made from: the shape of a plan, or words of the text."""


def step(rows: pl.DataFrame, judged: pl.DataFrame | None = None) -> pl.DataFrame:
    """Adds difficulty, s_tool, s_chain, s_constraints (Int8) and difficulty_by (PLAN or CUES) to rows with norm, world, intent and slots;
    drops nothing. judged: as of `tool_load.judged`.
    """
    rated = rate_rows(rows, judged=judged).drop("is_explicit")
    places = rated["intent"].is_null().arg_true()
    guessed = rate_by_cues(rated["norm"].gather(places))
    rated = rated.with_columns(rated[name].scatter(places, guessed[name]) for name in SCORES)
    by = pl.when(pl.col("intent").is_null()).then(pl.lit(CUES)).otherwise(pl.lit(PLAN))
    return rated.with_columns(difficulty_by=by, reason=pl.lit(None, pl.String))


def rate_rows(rows: pl.DataFrame, *, judged: pl.DataFrame | None = None) -> pl.DataFrame:
    """The rows with their ratings (null without an intent), and is_explicit: whether the text names a tool of the plan."""
    combinations = (
        rows.select("world", "intent", "combination", "slots").drop_nulls().unique("combination", keep="first").sort("combination")
    )
    loads = {} if judged is None else {(name, explicit): load for name, explicit, load in judged.drop_nulls().iter_rows()}
    table = pl.DataFrame(
        [row for values in combinations.iter_rows() for row in _both(*values, loads=loads)],
        schema={"combination": pl.String, "words": pl.String, "is_explicit": pl.Boolean, **dict.fromkeys(SCORES, pl.Int8)},
        orient="row",
    )
    worded = rows.select("row", "norm", "combination").join(
        table.select("combination", "words").unique(), on="combination", how="left", maintain_order="left"
    )
    explicit = worded.with_columns(is_explicit=_contains(worded)).select("row", "combination", "is_explicit")
    scores = explicit.join(table.drop("words"), on=["combination", "is_explicit"], how="left", maintain_order="left")
    return rows.with_columns(*(scores[name] for name in (*SCORES, "is_explicit")))


def _both(
    world: str, intent: str, combination: str, slots: str, *, loads: Mapping[tuple[str, bool], int]
) -> tuple[tuple[object, ...], tuple[object, ...]]:
    names = frozenset(parse_arguments(slots) or ())
    pattern = _pattern(tool_words(WORLDS[world], intent, names))

    def row(is_explicit: bool) -> tuple[object, ...]:
        rating = rate(WORLDS[world], intent, names, is_explicit)
        if (load := loads.get((combination, is_explicit))) is not None:
            rating = with_tool_load(rating, load)
        return (combination, pattern, is_explicit, rating.r, rating.s_tool, rating.s_chain, rating.s_constraints)

    return row(False), row(True)


def _pattern(words: Sequence[str]) -> str:
    """A regular expression that finds any of the words: whole words in spaced scripts, anywhere in unspaced ones."""
    spaced = sorted(re.escape(word) for word in words if word.isascii())
    unspaced = sorted(re.escape(word) for word in words if not word.isascii())
    parts = [rf"(?:^|[^a-z0-9])(?:{'|'.join(spaced)})(?:$|[^a-z0-9])"] if spaced else []
    return "|".join(parts + unspaced)


def _contains(worded: pl.DataFrame) -> pl.Series:
    """Whether each norm matches its own pattern; one pass a distinct pattern."""
    is_explicit = pl.Series("is_explicit", [False] * worded.height, dtype=pl.Boolean)
    for pattern in worded["words"].unique().drop_nulls().sort():
        if pattern:
            is_explicit |= (worded["words"] == pattern).fill_null(False) & worded["norm"].str.contains(pattern)
    return is_explicit


STEP = BatchStep(
    name="difficulty",
    needs=("norm", "world", "intent", "slots", "combination"),
    adds=(*SCORES, "difficulty_by"),
    uses=TOOL_LOAD,
    function=step,
)

"""Static difficulty of a request that no world reads, by cues in its words (definition P6, with counts that are guessed).

One idea: the scale is that of plans (`synth/tasks/difficulty.py`); what a plan would count is counted in the text.

    calls        1, and 1 for each further sentence or step, condition, comparison and reference to something mentioned
    constraints  values (dates, amounts, ids), limits ("at most", "before") and conditions
    conflict     a condition with two outcomes ("unless", "otherwise")
    tools        the tools of the store that are in reach of the request; where none is known, a third of the calls, rounded up

So it is 1 to 5: words alone do not tell what is to be refused, or needs no tool. Greetings count for nothing, and values are masked before
other cues are counted, so the stop in "120.50" ends no sentence.
"""

from __future__ import annotations

import polars as pl

from filters.requests.greetings import strip_greetings
from filters.requests.patterns import LINK, VALUES
from synth.tasks.difficulty import score_counts

_CONDITION = (
    r"\b(?:if|unless|otherwise|else|in case|provided (?:that )?|as long as|only when|depending on|whether)\b|"
    "如果|要是|假如|假设|万一|除非|否则|不然|的话|只有"
)
_CONFLICT = r"\b(?:unless|otherwise|or else|if not|instead)\b|除非|否则|不然|如果不"
_STEP = (
    r"\p{L}{3,}[.;?!]+ +\p{L}|[。；？！]+ ?\p{L}|\b(?:then|also|after that|afterwards|as well as|"
    r"and (?:then|also|if|what|how|can|tell|send|book))\b|然后|再[^见度]|并且|同时|顺便|还有|接着"
)
_COMPARISON = (
    r"\b(?:compare|comparison|versus|vs|difference|better|worse|cheaper|faster|rather|than|worth|which of|either)\b|"
    "比较|对比|相比|区别|哪个|还是|更(?:[好快慢近远早晚大小高低多少贵]|便宜|方便|合适|划算|舒服)"
)
_NO_REFERENCE = r"\b(?:is|was|does|will|can|would) it\b|\bit(?:'s| is| was| will| would)\b"
"""Here "it" is what the question is about, and nothing that was mentioned."""
_REFERENCE = r"\b(?:it|that one|this one|those|the same|the other|previous|earlier one|instead of it)\b|那个|这个|同样|上次|之前的"
_LIMIT = (
    r"\b(?:at least|at most|no more than|not more than|less than|more than|under|over|before|after|until|within|between|without|only|"
    r"max(?:imum)?|min(?:imum)?|cheapest|earliest|latest|as soon as|both|exactly)\b|"
    "至少|最多|不超过|以内|以上|以下|之前|之后|不要|最便宜|最早|最晚|只要"
)
_CUES = {
    "conditions": _CONDITION,
    "steps": _STEP,
    "comparisons": _COMPARISON,
    "references": _REFERENCE,
    "values": VALUES,
    "limits": _LIMIT,
}
SCORES = ("difficulty", "s_tool", "s_chain", "s_constraints")
"""Columns of a rating."""
_MASKED = " value "
_MAX_COUNT = 9
"""Counts beyond it change no score."""


def rate_by_cues(norm: pl.Series, tools: pl.Series | None = None) -> pl.DataFrame:
    """Columns difficulty, s_tool, s_chain, s_constraints (Int8), of normalised texts.

    tools: number of tools in reach; null or 0: none is known.
    """
    request = strip_greetings(pl.col("norm")).str.replace_all(LINK, " ")
    masked = request.str.replace_all(VALUES, _MASKED)
    texts = dict.fromkeys(_CUES, masked) | {"values": request, "references": masked.str.replace_all(_NO_REFERENCE, " ")}
    found = {name: texts[name].str.count_matches(pattern) for name, pattern in _CUES.items()}
    known = pl.Series("tools", [None] * len(norm), pl.Int64) if tools is None else tools.cast(pl.Int64).alias("tools")
    rows = norm.alias("norm").to_frame().with_columns(known).with_columns(**found, masked=masked)
    calls = (1 + pl.sum_horizontal("conditions", "steps", "comparisons", "references")).clip(upper_bound=_MAX_COUNT).cast(pl.Int64)
    counts = rows.select(
        calls=calls,
        constraints=pl.sum_horizontal("conditions", "values", "limits").clip(upper_bound=_MAX_COUNT).cast(pl.Int64),
        has_conflict=pl.col("masked").str.contains(_CONFLICT),
        tools=pl.when(pl.col("tools") > 0).then("tools").otherwise((calls + 2) // 3),
    )
    distinct_counts = counts.unique(maintain_order=True)
    ratings = [
        score_counts(tools, calls, constraints, has_conflict=has_conflict)
        for calls, constraints, has_conflict, tools in distinct_counts.select("calls", "constraints", "has_conflict", "tools").iter_rows()
    ]
    scores = pl.DataFrame(
        [(one.r, one.s_tool, one.s_chain, one.s_constraints) for one in ratings], dict.fromkeys(SCORES, pl.Int8), orient="row"
    )
    rated = pl.concat([distinct_counts, scores], how="horizontal")
    return counts.join(rated, on=counts.columns, how="left", maintain_order="left").select(SCORES)

"""Static difficulty of a request that no world reads, by cues in its words (definition P6, with counts that are guessed).

One idea: the scale is that of plans (`synth/tasks/difficulty.py`); what a plan would count is counted in the text.

    calls        1, and 1 for each further sentence or step, condition, comparison and reference to something mentioned
    constraints  values (dates, amounts, ids), limits ("at most", "before") and conditions
    conflict     a condition with two outcomes ("unless", "otherwise")
    tools        the tools of the store that are in reach of the request; where none is known, a third of the calls, rounded up

So it is 1 to 5: words alone do not tell what is to be refused, or needs no tool.
"""

from __future__ import annotations

import polars as pl

from filters.requests.patterns import VALUES
from synth.tasks.difficulty import score_counts

_CONDITION = (
    r"\b(?:if|unless|otherwise|else|in case|provided (?:that )?|as long as|only when|depending on|whether)\b|"
    "如果|要是|假如|假设|万一|除非|否则|不然|的话|是否|只有"
)
_CONFLICT = r"\b(?:unless|otherwise|or else|if not|instead)\b|除非|否则|不然|如果不"
_STEP = (
    r"[.;?!。；？！]+ ?[\p{L}0-9]|\b(?:then|also|after that|afterwards|as well as|"
    r"and (?:then|also|if|what|how|can|tell|send|book))\b|然后|再|并且|同时|顺便|还有|接着"
)
_COMPARISON = (
    r"\b(?:compare|comparison|versus|vs|difference|better|worse|cheaper|faster|rather|than|worth|which of|either)\b|"
    "比较|对比|相比|区别|哪个|更|还是"
)
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
_SCORES = ("difficulty", "s_tool", "s_chain", "s_constraints")
_MOST = 9
"""Counts beyond it change no score."""


def rate_by_cues(norm: pl.Series, tools: pl.Series | None = None) -> pl.DataFrame:
    """Columns difficulty, s_tool, s_chain, s_constraints (Int8), of normalised texts.

    tools: number of tools in reach; null or 0: none is known.
    """
    text = pl.col("norm")
    found = {name: text.str.count_matches(pattern) for name, pattern in _CUES.items()}
    known = pl.Series("tools", [None] * len(norm), pl.Int64) if tools is None else tools.cast(pl.Int64).alias("tools")
    rows = norm.alias("norm").to_frame().with_columns(known).with_columns(**found)
    calls = (1 + pl.sum_horizontal("conditions", "steps", "comparisons", "references")).clip(upper_bound=_MOST).cast(pl.Int64)
    counts = rows.select(
        calls=calls,
        constraints=pl.sum_horizontal("conditions", "values", "limits").clip(upper_bound=_MOST).cast(pl.Int64),
        has_conflict=text.str.contains(_CONFLICT),
        tools=pl.when(pl.col("tools") > 0).then("tools").otherwise((calls + 2) // 3),
    )
    kinds = counts.unique(maintain_order=True)
    ratings = [
        score_counts(tools, calls, constraints, has_conflict=has_conflict)
        for calls, constraints, has_conflict, tools in kinds.select("calls", "constraints", "has_conflict", "tools").iter_rows()
    ]
    scores = pl.DataFrame(
        [(one.r, one.s_tool, one.s_chain, one.s_constraints) for one in ratings], dict.fromkeys(_SCORES, pl.Int8), orient="row"
    )
    return counts.join(pl.concat([kinds, scores], how="horizontal"), on=counts.columns, how="left", maintain_order="left").select(_SCORES)

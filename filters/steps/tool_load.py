"""The tool load of static difficulty, judged by a language model instead of counted (definition P6).

A kind of request is a combination of intent and slot names, worded with or without a tool's name (`synth/tasks/difficulty.py`); one
question rates all rows of a kind. The model sees the first row of the kind, the available tools, the tools of a solution, and five rated
examples (`synth/prompts/tool_load.md`). Kinds with most rows come first. A kind without a usable answer after two repairs keeps the counted
load.

Tasks that are drawn later (siblings, blueprints) are not rated, because no query words them.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

import polars as pl
from pydantic import BaseModel, ConfigDict, Field

from filters.llm_calls import ask_each, open_cached_engine
from filters.step import Context, SurveyStep
from filters.steps import rate_difficulty
from storage.execution import Progress
from storage.records import JSON, parse_arguments
from storage.store import Store
from synth.engines.base import ChatRequest, Engine, EngineFailure, check_window
from synth.engines.budget import Budget
from synth.engines.engine_names import check_engine, weights_of
from synth.engines.structured import Structured
from synth.prompts import prompt
from synth.worlds import WORLDS

PROMPT = "tool_load"
_MAX_TOKENS = 200
_SCHEMA: Mapping[str, JSON] = {
    "type": "object",
    "properties": {"why": {"type": "string"}, "s_tool": {"type": "integer", "minimum": 1, "maximum": 5}},
    "required": ["why", "s_tool"],
    "additionalProperties": False,
}


class DifficultyConfig(BaseModel):
    """The model that judges the tool load of static difficulty."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    engine: str | None = Field(
        None,
        pattern=r"^(openai|vllm|hf):.+",
        description="Language model that judges how difficult the tools are: openai:MODEL, vllm:MODEL or hf:FOLDER; null: by their number.",
    )
    max_asked: int = Field(2_000, ge=1, description="Most kinds of request that the model is asked about; those with most rows come first.")
    max_tokens: int | None = Field(
        None,
        ge=1,
        description="Budget of prompt and answer tokens; the run stops where it is spent and continues with a larger one. null: no limit.",
    )


def made_by(config: DifficultyConfig) -> tuple[str, ...]:
    """What decides the answers beside the configuration and the code: the prompt's version and the weights."""
    return (prompt(PROMPT).version, weights_of(config.engine)) if config.engine is not None else ()


def judge_loads(engine: Engine, rows: pl.DataFrame, most: int, *, progress: Progress | None = None) -> pl.DataFrame:
    """A model's grades of the kinds of rows: combination, is_explicit, judged (1 to 5; null without a grade).

    Args:
        rows: the result of `rate_difficulty.rate_rows`.
        most: highest number of kinds that the model is asked about.

    Raises:
        BadInput: the engine's window is too short. EngineFailure: it does not answer. BudgetSpent: the budget is spent.
    """
    kinds = (
        rows.filter(pl.col("difficulty") >= 1)
        .sort("row")
        .group_by("combination", "is_explicit", maintain_order=True)
        .agg(pl.col("norm", "world", "intent", "slots").first(), rows=pl.len())
        .sort("rows", "combination", "is_explicit", descending=[True, False, False])
        .head(most)
    )
    requests = [_request(*values) for values in kinds.select("norm", "world", "intent", "slots").iter_rows()]
    for request in requests:
        check_window(engine, request.messages, _MAX_TOKENS)
    answers = ask_each(engine, requests, lambda *_: (), label="judge tool load", progress=progress)
    return kinds.select("combination", "is_explicit").with_columns(pl.Series("judged", [_grade(one) for one in answers], dtype=pl.Int8))


def note(config: DifficultyConfig, ratings: pl.DataFrame) -> str:
    """A summary of the model's grades, for the user."""
    graded = ratings["judged"].drop_nulls().len()
    return f"{config.engine} judged the tool load of {ratings.height:,} kinds of request; {ratings.height - graded:,} keep the counted one"


def _request(text: str, world: str, intent: str, slots: str) -> ChatRequest:
    used = WORLDS[world].intents[intent].shape(frozenset(parse_arguments(slots) or ())).tools
    messages = prompt(PROMPT).messages(
        tools=_offered_tools(world), used=", ".join(dict.fromkeys(used)), text=json.dumps(text, ensure_ascii=False)
    )
    return ChatRequest(messages, max_tokens=_MAX_TOKENS, schema=_SCHEMA)


@lru_cache(maxsize=64)
def _offered_tools(world: str) -> tuple[Mapping[str, str], ...]:
    return tuple({"name": tool.name, "description": tool.description} for tool in WORLDS[world].tools)


def _grade(answer: Structured | EngineFailure) -> int | None:
    return None if isinstance(answer, EngineFailure) or not isinstance(answer.value, dict) else int(str(answer.value["s_tool"]))


def _judge(framed: Iterable[pl.DataFrame], config: DifficultyConfig, _opened: object, context: Context) -> pl.DataFrame:
    assert config.engine is not None
    rows = rate_difficulty.rate_rows(pl.concat(framed).drop_nulls("combination"))
    with open_cached_engine(context.setup.store, config.engine, Budget(tokens=config.max_tokens)) as engine:
        return judge_loads(engine, rows, config.max_asked, progress=context.progress)


@contextlib.contextmanager
def _check_engine(config: DifficultyConfig, _: Store, is_done: bool) -> Iterator[None]:
    """Checks the engine before rows are read, if it has work to do; `_judge` opens it."""
    if config.engine is not None and not is_done:
        check_engine(config.engine)
    yield


STEP = SurveyStep(
    name=rate_difficulty.TOOL_LOAD,
    needs=("norm", "world", "intent", "slots", "combination"),
    config=DifficultyConfig,
    made_by=made_by,
    function=_judge,
    open=_check_engine,
    note=note,
    is_on=lambda config: config.difficulty.engine is not None,
    is_counted=False,
)

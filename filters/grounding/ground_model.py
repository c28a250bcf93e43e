"""Grounding by a language model: reads a limited number of texts that the parser could not ground; code checks the answers.

The prompt lists the worlds' intents, slots and legal values; the model answers with an intent and slots. `frame_check.py` checks the answer
against the text, and the model gets its problems back, twice at most. So the model gives a frame of the parser's form, or none. The
selection depends on the texts alone: texts of which the parser understood most come first. `ask_unsure.py` asks about texts of which the
reader was unsure.

A valid answer that no intent fits (missing_tool, missing_information, not_actionable) replaces the parser's reason. A wrong answer says
nothing about the query: the row keeps the parser's reason, and is dropped as `model_` and the problem (`malformed`: not the requested JSON;
`engine_failure`: no answer; else the reason of `frame_check.Problem`). A text that did not fit into the engine's window (`overflow`) counts
as not asked. Code cannot check whether a frame is the intended one; `agreement.py` measures it.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import BaseModel, ConfigDict, Field, field_validator

from filters.frames.hash_join import key_of
from filters.grounding import ground
from filters.grounding.frame_check import Mention, Problem, Supported, check_frame, mentions
from filters.lexicon_worlds import Worlds
from filters.llm_calls import ask_each, is_overflow, name_of, open_cached_engine
from storage.execution import Progress
from storage.records import JSON, Frame, Language, canonical_json
from storage.store import Store
from synth.engines.base import ChatRequest, Engine, EngineFailure, check_window
from synth.engines.budget import Budget
from synth.engines.engine_names import weights_of
from synth.engines.structured import Structured, parse_and_check
from synth.prompts import prompt
from synth.tasks.wording import REST, load_templates
from synth.text.slot_kinds import Date, Identifier, Quantity, SlotKind, Vocabulary
from synth.worlds import WORLDS
from synth.worlds.base import Intent, World

PROMPT = "ground"
VERDICTS = ("missing_tool", "missing_information", "not_actionable")
_NONE = "none"
_OVERFLOW = "overflow"
PARSER_REASONS = ("unparsed", "ambiguous", "missing_information", "unknown", "missing_tool", "not_actionable")
"""Reasons of the parser, the best understood texts first."""
_LISTED = 40
"""Longest vocabulary that the prompt lists in full; of a longer one it shows a few values."""
_MAX_TOKENS = 600
_KEPT = 4_096
"""Descriptions of intents that are kept in memory."""
Intents = tuple[tuple[type[World], str], ...]
"""Intents with their worlds."""


class GroundConfig(BaseModel):
    """Configuration of how requests are read."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    min_precision: float = Field(
        0.9,
        gt=0.0,
        le=1.0,
        description="Least probability that a frame of the reader, in a world without a lexicon, is right in every value.",
    )
    id_patterns: tuple[str, ...] = Field(
        (),
        description="Identifiers as your users write them, beside those of the worlds: regular expressions such as '#\\d+'; capitals do not"
        " matter. In a task each stands for one that the world has.",
    )
    labelled: Path | None = Field(
        None,
        description="File of labelled requests, one a line, of which the reader learns; `headrace ground teach` says how much.",
    )
    complete: bool = Field(
        True, description="Whether values that a request leaves out are drawn and added to it; false: the reader leaves such requests out."
    )
    max_read: int = Field(
        20_000,
        ge=1,
        description="Most texts that the reader reads, a few hundred a second on a core; a gate chooses the most promising ones.",
    )
    engine: str | None = Field(
        None,
        pattern=r"^(openai|vllm|hf):.+",
        description="Language model that reads what stayed unsure: openai:MODEL, vllm:MODEL or hf:FOLDER; null: none.",
    )
    max_asked: int = Field(
        5_000,
        ge=1,
        description="Most texts that the model is asked about: first those of which the reader was nearly sure, then those that the parser "
        "understood best.",
    )
    max_tokens: int | None = Field(
        None,
        ge=1,
        description="Budget of prompt and answer tokens; the run stops where it is spent and continues with a larger one. null: no limit.",
    )

    @field_validator("id_patterns")
    @classmethod
    def _are_patterns(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            try:
                is_empty = re.compile(pattern).match("") is not None
            except re.error as error:
                raise ValueError(f"{pattern!r} is no regular expression: {error}") from None
            if is_empty:
                raise ValueError(f"{pattern!r} matches an empty text; give one that matches an identifier, such as '#\\d+'")
        return patterns


@dataclass(frozen=True, slots=True)
class Reading:
    """A model's reading of one text.

    frame: the frame; None if there is none.
    reason: why there is no frame: one of `VERDICTS`, or what was wrong with the answer.
    unexplained: number of mentions that are not in the frame.
    text: the request of its task; None for the text itself.
    foreign: words that nothing explains, with blanks between them; None where the parser knows them.
    """

    frame: Frame | None
    reason: str | None = None
    unexplained: int = 0
    text: str | None = None
    foreign: str | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked about a text. judge: an answer of the request's schema -> its reading, or all that is wrong with it."""

    request: ChatRequest
    judge: Callable[[Any], Reading | list[Problem]]


def made_by(config: GroundConfig) -> tuple[str, ...]:
    """What decides the readings beside the configuration and the code: the prompt's version and the weights."""
    return (prompt(PROMPT).version, weights_of(config.engine)) if config.engine is not None else ()


@contextlib.contextmanager
def open_engine(config: GroundConfig, store: Store, worlds: Worlds, *, is_done: bool = False) -> Iterator[Engine | None]:
    """The engine of the configuration, checked before it is used; None if there is none, or if its work is done.

    Raises:
        BadInput: its window is too short for the question. BadInput, HeadraceError: see `engine_named`.
    """
    if config.engine is None or is_done:
        yield None
    else:
        with open_cached_engine(store, config.engine, Budget(tokens=config.max_tokens)) as engine:
            if worlds:
                _check_window(engine, worlds)
            yield engine


def read(engine: Engine, norm: Sequence[str], worlds: Worlds, *, progress: Progress | None = None) -> list[Reading]:
    """A model's readings of normalised texts; each distinct text is asked once. Raises what `answer` raises."""
    texts = list(dict.fromkeys(norm))
    readings = dict(zip(texts, answer(engine, questions(texts, worlds), progress=progress), strict=True))
    return [readings[text] for text in norm]


def questions(norm: Sequence[str], worlds: Worlds) -> list[Question]:
    """A question about each normalised text, with all intents of the worlds."""
    judges = (partial(_judge, in_text=in_text, worlds=worlds) for in_text in mentions(norm, worlds))
    return [Question(_request(text, worlds), judge) for text, judge in zip(norm, judges, strict=True)]


def answer(engine: Engine, asked: Sequence[Question], *, progress: Progress | None = None) -> list[Reading]:
    """The reading of each question's text.

    Raises:
        BadInput: the engine's window is too short for any of them. EngineFailure: it is gone. BudgetSpent: nothing more may be asked.
    """
    if asked:
        shortest = min((one.request.messages for one in asked), key=lambda messages: sum(len(each.content or "") for each in messages))
        check_window(engine, shortest, _MAX_TOKENS)

    def check(place: int, value: JSON) -> list[str]:
        judged = asked[place].judge(value)
        return [problem.text for problem in judged] if isinstance(judged, list) else []

    exchanges = ask_each(engine, [one.request for one in asked], check, label="ask", progress=progress)
    return [_reading(exchange, one) for exchange, one in zip(exchanges, asked, strict=True)]


def _check_window(engine: Engine, worlds: Worlds) -> None:
    check_window(engine, _request("", worlds).messages, _MAX_TOKENS)


def _request(text: str, worlds: Worlds) -> ChatRequest:
    return request_of(text, tuple((world, name) for world in worlds for name in world.intents))


def request_of(text: str, intents: Intents, *, may_be_new: bool = False) -> ChatRequest:
    """Which of some intents a text asks for, and with which values. may_be_new: whether open names may be others than the world's own."""
    messages = prompt(PROMPT).messages(worlds=_describe_worlds(intents, may_be_new), text=json.dumps(text, ensure_ascii=False))
    return ChatRequest(messages, max_tokens=_MAX_TOKENS, schema=_schema(intents))


def no_intent(value: Any) -> Reading | list[Problem] | None:
    """The reading of an answer that names no intent, or what is wrong with it; None where it names one."""
    if value["intent"] != _NONE:
        return None
    if value["why"] not in VERDICTS:
        return [Problem("malformed", f"why: say why no intent fits: {', '.join(VERDICTS)}")]
    return Reading(None, value["why"])


def said_slots(value: Any) -> list[tuple[str, str | float]]:
    """The slots of an answer, with their values."""
    return [(one["slot"], one["value"]) for one in value["slots"]]


def _judge(value: Any, in_text: Sequence[Mention], worlds: Worlds) -> Reading | list[Problem]:
    """The reading of an answer of the schema, or its problems."""
    if (none := no_intent(value)) is not None:
        return none
    checked = check_frame(value["intent"], said_slots(value), in_text, worlds)
    return Reading(checked.frame, unexplained=checked.unexplained) if isinstance(checked, Supported) else checked


def _reading(exchange: Structured | EngineFailure, asked: Question) -> Reading:
    if isinstance(exchange, EngineFailure):
        return Reading(None, "engine_failure")
    if is_overflow(exchange):
        return Reading(None, _OVERFLOW)
    assert asked.request.schema is not None
    value, problems = parse_and_check(exchange.answers[-1].message.content or "", asked.request.schema)
    if problems:
        return Reading(None, "malformed")
    judged = asked.judge(value)
    return Reading(None, judged[0].reason) if isinstance(judged, list) else judged


# ---- prompt and schema ---------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=_KEPT)
def _schema(intents: Intents) -> dict[str, JSON]:
    names: list[JSON] = [f"{world.name}/{name}" for world, name in intents]
    slot: dict[str, JSON] = {
        "type": "object",
        "properties": {"slot": {"type": "string"}, "value": {"type": ["string", "number"]}},
        "required": ["slot", "value"],
        "additionalProperties": False,
    }
    return {
        "type": "object",
        "properties": {
            "intent": {"type": "string", "enum": [*names, _NONE]},
            "why": {"type": "string", "enum": ["", *VERDICTS]},
            "slots": {"type": "array", "items": slot},
        },
        "required": ["intent", "why", "slots"],
        "additionalProperties": False,
    }


@lru_cache(maxsize=_KEPT)
def _describe_worlds(intents: Intents, may_be_new: bool) -> tuple[Mapping[str, Any], ...]:
    described = []
    for world in dict.fromkeys(world for world, _ in intents):
        names = [name for of_world, name in intents if of_world is world]
        described.append({"name": world.name, "kinds": _kinds(world, names, may_be_new), "intents": _intents(world, names)})
    return tuple(described)


def _kinds(world: type[World], intents: Sequence[str], may_be_new: bool) -> list[Mapping[str, str]]:
    used = dict.fromkeys(slot.kind for name in intents for slot in world.intents[name].slots)
    return [{"name": name, "legal": _legal(world.kinds[name], world.language_near("en"), may_be_new)} for name in used]


def _legal(kind: SlotKind, language: Language, may_be_new: bool) -> str:
    if isinstance(kind, Vocabulary):
        names = [spelt[language] for spelt in kind.names.values()]
        if kind.is_open and may_be_new:
            return f"a name, as the request has it, e.g. {'; '.join(names[:5])}"
        return "; ".join(names) if len(names) <= _LISTED else f"as the request names it, e.g. {'; '.join(names[:5])}"
    if isinstance(kind, Identifier):
        return f"an identifier such as {kind.choices[0]}"
    if isinstance(kind, Quantity):
        return f"a number of {kind.unit}, {kind.low:g} to {kind.high:g}"
    assert isinstance(kind, Date)
    return f"a day: days from {kind.today:%A, %d %B %Y} (0 is this day), up to {kind.horizon_days}"


def _intents(world: type[World], names: Sequence[str]) -> list[Mapping[str, str]]:
    templates, language = load_templates(world), world.language_near("en")
    wordings = {name: templates.of_intent(name, language)[0].replace(f"{{{REST}}}", "") for name in names}
    return [{"name": name, "slots": _slots(world.intents[name]), "wording": wordings[name]} for name in names]


def _slots(intent: Intent) -> str:
    return ", ".join(f"{slot.name}{'' if slot.is_required else '?'}: {slot.kind}" for slot in intent.slots)


# ---- columns -------------------------------------------------------------------------------------------------------------------

_FRAME: Mapping[str, Any] = dict.fromkeys(("world", "intent", "slots", "combination", "shape", "frame_id"), pl.String) | {
    "unexplained": pl.Int32
}


_TEXTS: Mapping[str, Any] = {"reworded": pl.String, "foreign": pl.String}
READINGS: Mapping[str, Any] = {"norm": pl.String, "outcome": pl.String, "read_by": pl.String, **_FRAME, **_TEXTS}
"""Columns of readings, as `step` takes them. reworded: the request of the task, foreign: what is left unread; null: as the rows have it."""


def unread_texts(parsed: Iterable[pl.DataFrame], limit: int) -> list[str]:
    """Up to `limit` distinct texts that the parser could not ground: the best understood first, then by a hash of the text.

    Args:
        parsed: rows in pieces, columns norm, ungrounded (null: has a frame).
    """
    rank = pl.col("ungrounded").replace_strict({reason: place for place, reason in enumerate(PARSER_REASONS)}, return_dtype=pl.Int64)
    smallest = pl.DataFrame(schema={"norm": pl.String, "rank": pl.Int64, "key_high": pl.UInt64})
    for rows in parsed:
        fresh = rows.drop_nulls("ungrounded").select("norm", rank.alias("rank"), key_of("norm")[0])
        smallest = (
            pl.concat([smallest, fresh]).sort("rank", "key_high", "norm").unique("norm", keep="first", maintain_order=True).head(limit)
        )
    return smallest["norm"].to_list()


def read_table(engine: Engine, asked: Mapping[str, Question], *, progress: Progress | None = None) -> pl.DataFrame:
    """What the model makes of texts, for `step`: norm, the columns of a frame (null where there is none), outcome (null, or why there is
    none), read_by (engine and prompt). Raises what `answer` raises. asked: by the normalised text."""
    by = f"read by {name_of(engine)}, prompt {PROMPT}@{prompt(PROMPT).version}"
    rows = [
        {"norm": text, "outcome": one.reason, "read_by": by if one.frame else None, **_columns(one)}
        for text, one in zip(asked, answer(engine, list(asked.values()), progress=progress), strict=True)
    ]
    return pl.DataFrame(rows, schema=READINGS)


def _columns(one: Reading) -> dict[str, str | int | None]:
    if one.frame is None:
        return dict.fromkeys((*_FRAME, *_TEXTS))
    return {**frame_columns(one.frame, one.unexplained), "reworded": one.text, "foreign": one.foreign}


def frame_columns(frame: Frame, unexplained: int) -> dict[str, str | int | None]:
    """The columns of a frame."""
    return {
        "world": frame.world,
        "intent": frame.intent,
        "slots": canonical_json(frame.slots),
        "combination": frame.combination,
        "shape": ground.shape_text(WORLDS[frame.world], frame.intent, frozenset(frame.slots)),
        "frame_id": frame.id,
        "unexplained": unexplained,
    }


def step(rows: pl.DataFrame, *, read_again: pl.DataFrame, ungrounded: bool = False) -> pl.DataFrame:
    """The batch step after `ground.step(..., ungrounded=True)`: frames where one was read, with read_by; all else as there. A row with a
    frame has the request of its task as text, and as residue what its reader left unread.

    Args:
        rows: columns text, residue, and those of `ground.step`.
        read_again: what was made of texts (`READINGS`). ungrounded: keep rows without a frame.
    """
    both = rows.join(read_again, on="norm", how="left", maintain_order="left", suffix="_again")
    is_read, outcome = pl.col("frame_id_again").is_not_null(), pl.col("outcome")
    is_wrong = outcome.is_not_null() & ~outcome.is_in((*VERDICTS, _OVERFLOW))
    why = pl.when(~is_read).then(pl.when(outcome.is_in(VERDICTS)).then(outcome).otherwise("ungrounded"))
    reason = pl.when(is_wrong).then(pl.format("model_{}", outcome)).otherwise(why)
    return both.with_columns(
        *(pl.coalesce(f"{name}_again", name).alias(name) for name in _FRAME),
        read_by=pl.when(is_read).then(pl.format("{} (parser: {})", "read_by_again", "ungrounded")).otherwise("read_by"),
        ungrounded=why,
        text=pl.when(is_read).then(pl.coalesce("reworded", "text")).otherwise("text"),
        residue=pl.when(is_read).then(pl.coalesce("foreign", "residue")).otherwise("residue"),
        reason=pl.lit(None, pl.String) if ungrounded else reason,
    ).select(*rows.columns, "reason")


def note(config: GroundConfig, read_again: pl.DataFrame) -> str:
    """A summary of the model's readings, for the user."""
    if read_again.is_empty():
        return f"{config.engine} was not asked: no text was left without a frame"
    counts = dict(read_again["outcome"].drop_nulls().value_counts(sort=True).iter_rows())
    why = ", ".join(f"{reason} {count:,}" for reason, count in counts.items())
    frames = read_again["frame_id"].drop_nulls().len()
    others = f"; the others have none: {why}" if why else ""
    return f"{config.engine} was asked about {read_again.height:,} texts without a frame: {frames:,} have one now{others}"
